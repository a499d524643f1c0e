-- What must hold, asked of the tables. Each question is one statement, so all that it compares is
-- of one snapshot: what is under way in a busy system is seen whole or not at all. It answers with
-- one `breach` a row, a sentence for a person, and nothing where everything is right.
--
-- What is told late by design gets a minute before it is told here.

-- name: queue_unknown
-- The guarded path writes the queue with every move, so it can only differ if somebody else wrote.
SELECT format('execution %s is in the queue of host %s, and %s', q.execution_id, q.host_id,
              CASE WHEN e.id IS NULL THEN 'there is no such execution'
                   WHEN e.status <> {queued} THEN 'is ' || e.status
                   ELSE 'differs from it there' END) AS breach,
       q.execution_id AS id
  FROM queue q
  LEFT JOIN executions e ON e.id = q.execution_id
 WHERE e.status IS DISTINCT FROM {queued}
    OR (e.host_id, e.job_id, e.read_only, e.due_at)
       IS DISTINCT FROM (q.host_id, q.job_id, q.read_only, q.due_at);

-- name: queue_missing
-- What waits and is not in the queue is found by no walk: it would wait for ever.
SELECT format('execution %s is %s and not in the queue of host %s', e.id, e.status, e.host_id)
           AS breach,
       e.id
  FROM executions e
 WHERE e.status = {queued}
   AND NOT EXISTS (SELECT FROM queue q WHERE (q.host_id, q.execution_id) = (e.host_id, e.id));

-- name: runs_unknown
SELECT format('execution %s has a run on host %s, and %s', r.execution_id, r.host_id,
              CASE WHEN e.id IS NULL THEN 'there is no such execution'
                   WHEN e.status <> {running} THEN 'is ' || e.status
                   ELSE 'differs from it there' END) AS breach,
       r.execution_id AS id
  FROM runs r
  LEFT JOIN executions e ON e.id = r.execution_id
 WHERE e.status IS DISTINCT FROM {running}
    OR (e.host_id, e.read_only, e.worker_id, e.deadline_at)
       IS DISTINCT FROM (r.host_id, r.read_only, r.worker_id, r.deadline_at)
    OR r.place <> CASE WHEN e.read_only THEN e.id ELSE 0 END;

-- name: runs_missing
-- What runs and is not in the table is neither rescued nor timed out.
SELECT format('execution %s is %s and has no run on host %s', e.id, e.status, e.host_id) AS breach,
       e.id
  FROM executions e
 WHERE e.status = {running}
   AND NOT EXISTS (SELECT FROM runs r WHERE r.execution_id = e.id);

-- name: failures_unknown
SELECT format('execution %s is known as %s, and %s', f.execution_id, f.status,
              coalesce('is ' || e.status || ' of job ' || e.job_id,
                       'there is no such execution')) AS breach,
       f.execution_id AS id
  FROM failures f
  LEFT JOIN executions e ON e.id = f.execution_id
 WHERE (e.job_id, e.host_id, e.status) IS DISTINCT FROM (f.job_id, f.host_id, f.status)
    OR f.status NOT IN ({unsuccessful});

-- name: failures_missing
-- A retry of what failed would pass over it.
SELECT format('execution %s is %s and not among the failures of job %s', e.id, e.status, e.job_id)
           AS breach,
       e.id
  FROM executions e
 WHERE e.status IN ({unsuccessful})
   AND NOT EXISTS (SELECT FROM failures f WHERE f.execution_id = e.id);

-- name: exclusive_runs
-- From the executions, because the key of `runs` would not let a second one in.
SELECT format('host %s has %s exclusive runs: executions %s', e.host_id, count(*),
              string_agg(e.id::text, ', ' ORDER BY e.id)) AS breach
  FROM executions e
 WHERE e.status = {running}
   AND NOT e.read_only
 GROUP BY e.host_id
HAVING count(*) > 1;

-- name: execution_clocks
-- The law says which clock watches over a status; `guarded.sql` sets it with every move.
SELECT format('execution %s is %s, with due_at %s, deadline_at %s, finished_at %s', e.id, e.status,
              coalesce(e.due_at::text, 'unset'), coalesce(e.deadline_at::text, 'unset'),
              coalesce(e.finished_at::text, 'unset')) AS breach
  FROM executions e
 WHERE (e.due_at IS NULL, e.deadline_at IS NULL, e.finished_at IS NULL)
       <> ('execution.' || e.status = ANY ({timed} || {terminal}),
           'execution.' || e.status <> ALL ({timed}),
           'execution.' || e.status <> ALL ({terminal}));

-- name: repair_execution_clocks
-- What is missing begins now; what does not belong is cleared. Asked again about the locked row.
WITH wrong AS MATERIALIZED (
    -- Locked in the order in which everybody locks.
    SELECT e.id
      FROM executions e
     WHERE (e.due_at IS NULL, e.deadline_at IS NULL, e.finished_at IS NULL)
           <> ('execution.' || e.status = ANY ({timed} || {terminal}),
               'execution.' || e.status <> ALL ({timed}),
               'execution.' || e.status <> ALL ({terminal}))
     ORDER BY e.id
       FOR NO KEY UPDATE
)
UPDATE executions e
   SET due_at = CASE WHEN 'execution.' || e.status <> ALL ({timed} || {terminal})
                     THEN coalesce(e.due_at, now()) END,
       deadline_at = CASE WHEN 'execution.' || e.status = ANY ({timed})
                          THEN coalesce(e.deadline_at,
                                        now() + make_interval(secs => e.timeout_s)) END,
       finished_at = CASE WHEN 'execution.' || e.status = ANY ({terminal})
                          THEN coalesce(e.finished_at, e.updated_at) END
  FROM wrong
 WHERE e.id = wrong.id;

-- name: command_clocks
SELECT format('command %s is %s, with due_at %s, deadline_at %s, finished_at %s', c.cmd_id,
              c.status, coalesce(c.due_at::text, 'unset'), coalesce(c.deadline_at::text, 'unset'),
              coalesce(c.finished_at::text, 'unset')) AS breach
  FROM commands c
 WHERE (c.due_at IS NULL, c.deadline_at IS NULL, c.finished_at IS NULL)
       <> (c.lifecycle || '.' || c.status = ANY ({timed} || {terminal}),
           c.lifecycle || '.' || c.status <> ALL ({timed}),
           c.lifecycle || '.' || c.status <> ALL ({terminal}));

-- name: repair_command_clocks
-- As the guarded path would set them: the time that is left begins now.
WITH wrong AS MATERIALIZED (
    SELECT c.cmd_id
      FROM commands c
     WHERE (c.due_at IS NULL, c.deadline_at IS NULL, c.finished_at IS NULL)
           <> (c.lifecycle || '.' || c.status = ANY ({timed} || {terminal}),
               c.lifecycle || '.' || c.status <> ALL ({timed}),
               c.lifecycle || '.' || c.status <> ALL ({terminal}))
     ORDER BY c.cmd_id
       FOR NO KEY UPDATE
)
UPDATE commands c
   SET due_at = CASE WHEN c.lifecycle || '.' || c.status <> ALL ({timed} || {terminal})
                     THEN coalesce(c.due_at, c.deadline_at,
                                   now() + make_interval(secs => c.timeout_s)) END,
       deadline_at = CASE WHEN c.lifecycle || '.' || c.status = ANY ({timed})
                          THEN coalesce(c.deadline_at,
                                        now() + make_interval(secs => c.timeout_s)) END,
       finished_at = CASE WHEN c.lifecycle || '.' || c.status = ANY ({terminal})
                          THEN coalesce(c.finished_at, c.updated_at) END
  FROM wrong
 WHERE c.cmd_id = wrong.cmd_id;

-- name: order_ends
SELECT format('order %s is %s, with finished_at %s', o.id, o.status,
              coalesce(o.finished_at::text, 'unset')) AS breach
  FROM orders o
 WHERE (o.finished_at IS NULL) = ('order.' || o.status = ANY ({terminal}));

-- name: statuses
-- The constraints say so too; but a constraint can be dropped.
SELECT format('%s is %s, which lifecycle %s does not have', s.name, s.status, s.lifecycle) AS breach
  FROM (SELECT 'execution ' || id AS name, 'execution' AS lifecycle, status FROM executions
        UNION ALL
        SELECT 'command ' || cmd_id, lifecycle, status FROM commands
        UNION ALL
        SELECT 'order ' || id, 'order', status FROM orders) AS s
 WHERE s.lifecycle || '.' || s.status <> ALL ({states});

-- name: counters
-- The sum of all changes against what there is.
SELECT format('job %s counts %s in status %s, and has %s', job_id, coalesce(c.n, 0), status,
              coalesce(e.n, 0)) AS breach
  FROM (SELECT job_id, status, sum(n) AS n FROM job_counts GROUP BY job_id, status) AS c
  FULL JOIN (SELECT job_id, status, count(*) AS n FROM executions GROUP BY job_id, status) AS e
       USING (job_id, status)
 WHERE coalesce(c.n, 0) <> coalesce(e.n, 0);

-- name: repair_counters
-- What is missing is added as one more change. Moves that are made meanwhile add theirs: sums do not
-- mind the order, so nobody has to wait. Whoever else repairs takes turns, by an advisory lock.
INSERT INTO job_counts (job_id, status, n)
SELECT job_id, status, coalesce(e.n, 0) - coalesce(c.n, 0)
  FROM (SELECT job_id, status, sum(n) AS n FROM job_counts GROUP BY job_id, status) AS c
  FULL JOIN (SELECT job_id, status, count(*) AS n FROM executions GROUP BY job_id, status) AS e
       USING (job_id, status)
 WHERE coalesce(c.n, 0) <> coalesce(e.n, 0);

-- name: totals
-- A job has been given all its executions in the statement that made it, and none since.
SELECT CASE WHEN j.id IS NULL THEN format('%s executions are of job %s, which is not there', e.n,
                                          e.job_id)
            ELSE format('job %s is for %s hosts, and has %s executions', j.id, j.total,
                        coalesce(e.n, 0)) END AS breach
  FROM jobs j
  FULL JOIN (SELECT job_id, count(*) AS n FROM executions GROUP BY job_id) AS e ON e.job_id = j.id
 WHERE j.total IS DISTINCT FROM e.n;

-- name: homeless
-- Without a foreign key: whoever deletes a host looks whether anything ever ran there.
SELECT format('%s executions are on host %s, which is not there', count(*), e.host_id) AS breach
  FROM executions e
  LEFT JOIN hosts h ON h.id = e.host_id
 WHERE h.id IS NULL
 GROUP BY e.host_id;

-- name: unapproved
-- Nothing is planned before somebody has approved it; what was cancelled meanwhile has ended so.
SELECT format('job %s waits for approval, and %s of its executions are %s', j.id, count(*),
              e.status) AS breach
  FROM jobs j
  JOIN executions e ON e.job_id = j.id
 WHERE j.approval_state = 'WAIT_APPROVAL'
   AND e.status <> {new}
   AND NOT (e.status = {cancelled} AND j.cancelled_at IS NOT NULL)
 GROUP BY j.id, e.status;

-- name: rejected
SELECT format('job %s was rejected, and %s of its executions are %s', j.id, count(*), e.status)
           AS breach
  FROM jobs j
  JOIN executions e ON e.job_id = j.id
 WHERE j.approval_state = 'REJECTED'
   AND e.status <> {cancelled}
 GROUP BY j.id, e.status;

-- name: four_eyes
-- Two people: whoever asked for a job, or changed it, has not decided about it.
SELECT CASE WHEN j.decided_by IS NULL OR j.decided_at IS NULL
            THEN format('job %s is %s by nobody', j.id, j.approval_state)
            ELSE format('job %s is %s by %s, who had a hand in it', j.id, j.approval_state,
                        j.decided_by) END AS breach
  FROM jobs j
 WHERE j.approval_state <> 'WAIT_APPROVAL'
   AND (j.decided_by IS NULL
        OR j.decided_at IS NULL
        OR (j.decided_by = j.requested_by AND j.requested_by <> '')
        OR j.decided_by = ANY (j.edited_by));

-- name: cancelling
-- What is cancelled and has something open is looked after until it has not.
SELECT CASE WHEN j.cancelled_at IS NULL
            THEN format('job %s is being cancelled, and nobody has asked for it', j.id)
            ELSE format('job %s was cancelled, has something open, and nobody looks after it', j.id)
       END AS breach
  FROM jobs j
 WHERE (j.cancel_open AND j.cancelled_at IS NULL)
    OR (NOT j.cancel_open AND j.cancelled_at IS NOT NULL
        AND EXISTS (SELECT FROM executions e WHERE e.job_id = j.id AND e.status IN ({live})));

-- name: repair_cancelling
-- The reaper does the rest, by the guarded path. A job that nobody has cancelled is left alone:
-- whether somebody meant to is not in the tables.
UPDATE jobs j
   SET cancel_open = true
 WHERE NOT j.cancel_open
   AND j.cancelled_at IS NOT NULL
   AND EXISTS (SELECT FROM executions e WHERE e.job_id = j.id AND e.status IN ({live}));

-- name: finished
SELECT format('job %s finished at %s, and %s of its executions are %s', j.id, j.finished_at,
              count(*), e.status) AS breach
  FROM jobs j
  JOIN executions e ON e.job_id = j.id
 WHERE j.finished_at IS NOT NULL
   AND e.status IN ({live})
 GROUP BY j.id, e.status;

-- name: repair_finished
-- It is told again when it has finished.
UPDATE jobs j
   SET finished_at = NULL
 WHERE j.finished_at IS NOT NULL
   AND EXISTS (SELECT FROM executions e WHERE e.job_id = j.id AND e.status IN ({live}));

-- name: behind_the_planner
-- A job is planned in the order of its hosts, and nothing behind the last one is looked at again.
SELECT format('job %s has %s executions that are %s behind host %s, up to which it is planned',
              j.id, count(*), e.status, CASE WHEN j.planned THEN 'all' ELSE j.planned_host::text END)
           AS breach
  FROM jobs j
  JOIN executions e ON e.job_id = j.id
 WHERE e.status = {new}
   AND j.cancelled_at IS NULL
   AND j.approval_state IS DISTINCT FROM 'REJECTED'
   AND (j.planned OR e.host_id <= j.planned_host)
 GROUP BY j.id, e.status;

-- name: repair_behind_the_planner
-- The planner begins before the first that is left. It has the row of the job first, as this has.
WITH locked AS MATERIALIZED (
    SELECT j.id
      FROM jobs j
     WHERE j.cancelled_at IS NULL
       AND j.approval_state IS DISTINCT FROM 'REJECTED'
       AND EXISTS (SELECT FROM executions e
                    WHERE e.job_id = j.id AND e.status = {new}
                      AND (j.planned OR e.host_id <= j.planned_host))
     ORDER BY j.id
       FOR NO KEY UPDATE
), again AS (
    UPDATE jobs j
       SET planned = false,
           planned_host = least(j.planned_host,
                                (SELECT min(e.host_id) - 1 FROM executions e
                                  WHERE e.job_id = j.id AND e.status = {new}))
      FROM locked
     WHERE j.id = locked.id
    RETURNING j.id
)
INSERT INTO outbox (topic, job_id) SELECT 'plan_job', id FROM again;

-- name: unplanned
-- A reaper finds them as well. One that nobody has found for so long has no reaper; one that has its
-- limit under way, or just had, is not forgotten.
SELECT format('job %s may be planned, and nobody does', j.id) AS breach, j.id
  FROM jobs j
 WHERE NOT j.planned
   AND (j.approval_state IS NULL OR j.approval_state = 'APPROVED')
   AND j.paused_at IS NULL
   AND j.cancelled_at IS NULL
   AND j.updated_at < now() - interval '1 minute'
   AND EXISTS (SELECT FROM executions e WHERE e.job_id = j.id AND e.status = {new})
   AND NOT EXISTS (SELECT FROM executions e
                    WHERE e.job_id = j.id
                      AND (e.status IN ({queued}, {running})
                           OR e.updated_at >= now() - interval '1 minute'))
   AND NOT EXISTS (SELECT FROM outbox o WHERE o.job_id = j.id);

-- name: repair_unplanned
-- It is told again; told twice, it does no harm.
INSERT INTO outbox (topic, job_id) SELECT 'plan_job', id FROM ({unplanned}) AS u;

-- name: outbox
SELECT format('job %s was to be planned since %s', o.job_id, min(o.created_at)) AS breach
  FROM outbox o
 WHERE o.created_at < now() - interval '1 minute'
 GROUP BY o.job_id;

-- name: lost_runs
-- Any reaper would have queued them again by now.
SELECT format('execution %s runs on host %s, and its worker %s', r.execution_id, r.host_id,
              CASE WHEN w.id IS NULL THEN 'is not known'
                   ELSE w.name || ' was last heard of at ' || w.beat_at END) AS breach
  FROM runs r
  LEFT JOIN workers w ON w.id = r.worker_id
 WHERE w.id IS NULL
    OR w.stopped_at < now() - interval '1 minute'
    OR w.beat_at < now() - interval '1 minute' - make_interval(secs => $1::float8);

-- name: overdue_runs
SELECT format('execution %s on host %s should have ended by %s', r.execution_id, r.host_id,
              r.deadline_at) AS breach
  FROM runs r
 WHERE r.deadline_at < now() - interval '1 minute';

-- name: overdue_commands
-- Nobody sweeps: a command that travels by itself times out when somebody looks.
SELECT format('command %s is %s and should have timed out at %s', c.cmd_id, c.status,
              c.deadline_at) AS breach
  FROM commands c
 WHERE c.deadline_at < now() - interval '1 minute';

-- name: due_commands
-- A status that no timeout may leave: the table of its lifecycle leaves it to people.
SELECT format('command %s to %s is %s since %s', c.cmd_id, c.node, c.status, c.updated_at)
           AS breach
  FROM commands c
 WHERE c.due_at < now();

-- name: sendings
-- Whoever has the wire takes what is due, and forgets what has been answered.
SELECT format('command %s is to be handed over by %s since %s, and %s', s.cmd_id, s.channel,
              s.send_at, coalesce('is ' || c.status, 'there is no such command')) AS breach
  FROM sendings s
  LEFT JOIN commands c ON c.cmd_id = s.cmd_id
 WHERE s.send_at < now() - interval '1 minute'
   AND (c.cmd_id IS NULL OR c.finished_at IS NOT NULL);

-- name: repair_sendings
-- As `take` would: nobody has to hand over what has ended.
DELETE FROM sendings s
 USING (SELECT s.cmd_id
          FROM sendings s
          LEFT JOIN commands c ON c.cmd_id = s.cmd_id
         WHERE s.send_at < now() - interval '1 minute'
           AND (c.cmd_id IS NULL OR c.finished_at IS NOT NULL)
           FOR UPDATE OF s SKIP LOCKED) AS over
 WHERE s.cmd_id = over.cmd_id;

-- name: unsent
SELECT format('%s commands are to be handed over by %s, the first since %s', count(*), s.channel,
              min(s.send_at)) AS breach
  FROM sendings s
  JOIN commands c ON c.cmd_id = s.cmd_id
 WHERE s.send_at < now() - interval '1 minute'
   AND c.finished_at IS NULL
 GROUP BY s.channel;

-- name: early_callbacks
-- What nobody has asked for in two days is about a task that is none of ours.
SELECT format('task %s of %s was spoken of at %s', e.task_id, e.node, e.at) AS breach
  FROM early_callbacks e
 WHERE e.at < now() - interval '2 days';

-- name: repair_early_callbacks
DELETE FROM early_callbacks WHERE at < now() - interval '2 days';

-- name: absent_hubs
SELECT format('%s agents are connected to process %s, which %s', count(*), a.hub_id,
              coalesce('was last heard of at ' || max(h.beat_at), 'is gone')) AS breach
  FROM agents a
  LEFT JOIN hubs h ON h.id = a.hub_id
 WHERE a.hub_id IS NOT NULL
   AND (h.id IS NULL
        OR h.beat_at < now() - interval '1 minute' - make_interval(secs => $1::float8))
 GROUP BY a.hub_id;

-- name: enrolments
SELECT format('the token of host %s ended at %s', e.host_id, e.expires_at) AS breach
  FROM enrolments e
 WHERE e.expires_at < now() - interval '1 day';

-- name: repair_enrolments
-- Nobody can use them any more.
DELETE FROM enrolments WHERE expires_at < now() - interval '1 day';

-- name: sessions
SELECT format('%s sessions of key %s have ended', count(*), s.key_id) AS breach
  FROM sessions s
 WHERE s.expires_at < now() - interval '1 day'
 GROUP BY s.key_id;

-- name: repair_sessions
DELETE FROM sessions WHERE expires_at < now() - interval '1 day';

-- name: execution_timelines
-- The last move that was made led to where the execution is. The newest $1, and of those only what
-- cannot have lost a month of its timeline: the months that are kept are more than four weeks.
SELECT format('execution %s is %s, and the last move of its timeline leads to %s', n.id, n.status,
              coalesce(t.to_status, {new} || ' (there is none)')) AS breach
  FROM (SELECT e.id, e.status, e.created_at FROM executions e ORDER BY e.id DESC LIMIT $1) AS n
  LEFT JOIN LATERAL (
        SELECT t.to_status
          FROM execution_timeline t
         WHERE t.execution_id = n.id AND t.verdict = 'OK'
         ORDER BY t.seq DESC
         LIMIT 1
       ) AS t ON true
 WHERE n.created_at > now() - interval '4 weeks'
   AND n.status <> coalesce(t.to_status, {new});

-- name: command_timelines
SELECT format('command %s is %s, and the last move of its timeline leads to %s', n.cmd_id, n.status,
              coalesce(t.to_status, 'nothing')) AS breach
  FROM (SELECT c.cmd_id, c.status, c.created_at
          FROM commands c ORDER BY c.cmd_id DESC LIMIT $1) AS n
  LEFT JOIN LATERAL (
        SELECT t.to_status
          FROM timeline t
         WHERE t.cmd_id = n.cmd_id AND t.verdict = 'OK'
         ORDER BY t.seq DESC
         LIMIT 1
       ) AS t ON true
 WHERE n.created_at > now() - interval '4 weeks'
   AND n.status IS DISTINCT FROM t.to_status;

-- name: order_timelines
SELECT format('order %s is %s, and the last move of its timeline leads to %s', n.id, n.status,
              coalesce(t.to_status, {open} || ' (there is none)')) AS breach
  FROM (SELECT o.id, o.status, o.created_at FROM orders o ORDER BY o.id DESC LIMIT $1) AS n
  LEFT JOIN LATERAL (
        SELECT t.to_status
          FROM order_timeline t
         WHERE t.order_id = n.id AND t.verdict = 'OK'
         ORDER BY t.seq DESC
         LIMIT 1
       ) AS t ON true
 WHERE n.created_at > now() - interval '4 weeks'
   AND n.status <> coalesce(t.to_status, {open});

-- name: epochs
-- The sequence is no part of the snapshot: it can only be further on than all that is in there.
SELECT format('%s has epoch %s, and the last that was drawn is %s', m.name, m.epoch, s.last_value)
           AS breach
  FROM (SELECT 'an execution' AS name, max(epoch) AS epoch FROM executions
        UNION ALL
        SELECT 'a command', max(epoch) FROM commands
        UNION ALL
        SELECT 'an order', max(epoch) FROM orders) AS m,
       epochs AS s
 WHERE m.epoch > s.last_value;

-- name: repair_epochs
-- As a restored dump may need it: the next attempt gets a number that nobody had, nor draws at this
-- moment.
SELECT setval('epochs', greatest(s.last_value, m.epoch) + 1000)
  FROM (SELECT greatest((SELECT max(epoch) FROM executions), (SELECT max(epoch) FROM commands),
                        (SELECT max(epoch) FROM orders)) AS epoch) AS m,
       epochs AS s
 WHERE m.epoch > s.last_value;

-- name: late_results
-- $1 are the statuses in which a row may have a result that came too late, or to which it may have
-- gone on from there; $2 are the events that are results.
SELECT format('%s is %s, and has a late result of %s', l.name, l.status,
              coalesce(l.event, 'no event')) AS breach
  FROM (SELECT 'execution ' || id AS name, 'execution' AS lifecycle, status,
               late_result ->> 'event' AS event
          FROM executions WHERE late_result IS NOT NULL
        UNION ALL
        SELECT 'command ' || cmd_id, lifecycle, status, late_result ->> 'event'
          FROM commands WHERE late_result IS NOT NULL
        UNION ALL
        SELECT 'order ' || id, 'order', status, late_result ->> 'event'
          FROM orders WHERE late_result IS NOT NULL) AS l
 WHERE (l.lifecycle || '.' || l.status = ANY ($1::text[])
        AND l.lifecycle || '.' || l.event = ANY ($2::text[])) IS NOT TRUE;

-- name: settings
-- From here on, the server and what the program has made there.
SELECT name, setting FROM pg_settings WHERE name = ANY ($1::text[]);

-- name: law
SELECT lifecycle, event, status, verdict, target, timer, draws_epoch, keeps_late FROM law;

-- name: functions
SELECT p.proname, p.prosrc FROM pg_proc p WHERE p.pronamespace = 'onward'::regnamespace;

-- name: constraints
-- The rule that a row is in a status which its lifecycle has; $1 are the tables.
SELECT format('%s has no valid constraint %s', t.name, t.name || '_status_known') AS breach
  FROM unnest($1::text[]) AS t (name)
 WHERE NOT EXISTS (SELECT FROM pg_constraint c
                    WHERE c.conrelid = to_regclass('onward.' || t.name)
                      AND c.conname = t.name || '_status_known'
                      AND c.convalidated);

-- name: missing_parts
-- $1 are the tables and $2 the indexes that the revisions have made. An index that was not made to
-- its end is kept by the server and used by nobody.
SELECT format('there is no table %s', t.name) AS breach
  FROM unnest($1::text[]) AS t (name)
 WHERE to_regclass('onward.' || t.name) IS NULL
UNION ALL
SELECT format('there is no index %s, or it is not whole', i.name)
  FROM unnest($2::text[]) AS i (name)
 WHERE NOT EXISTS (SELECT FROM pg_index x
                    WHERE x.indexrelid = to_regclass('onward.' || i.name) AND x.indisvalid);

-- name: missing_months
-- This month and the next one, of all that is partitioned ($1).
SELECT format('%s has no partition for %s', t.name, to_char(m.month, 'YYYY-MM')) AS breach
  FROM unnest($1::text[]) AS t (name)
 CROSS JOIN (SELECT date_trunc('month', now()) + make_interval(months => n) AS month
               FROM generate_series(0, 1) AS n) AS m
 WHERE to_regclass(format('onward.%s_%s', t.name, to_char(m.month, 'YYYYMM'))) IS NULL;

-- name: caught
-- What no month was there for.
SELECT format('%s_default holds %s rows, the first of %s', d.name, d.n, d.first) AS breach
  FROM (SELECT 'timeline' AS name, count(*) AS n, min(at) AS first FROM timeline_default
        UNION ALL
        SELECT 'job_timeline', count(*), min(at) FROM job_timeline_default
        UNION ALL
        SELECT 'execution_timeline', count(*), min(at) FROM execution_timeline_default
        UNION ALL
        SELECT 'execution_logs', count(*), min(at) FROM execution_logs_default
        UNION ALL
        SELECT 'order_timeline', count(*), min(at) FROM order_timeline_default
        UNION ALL
        SELECT 'audit', count(*), min(at) FROM audit_default) AS d
 WHERE d.n > 0;

-- name: long_transactions
-- Whoever follows the changes waits for the oldest transaction that may still write, of any database
-- of the server; and no vacuum removes what it could still see. $1 is how long it may be open.
SELECT format('process %s (%s) of database %s has a transaction open since %s, and is %s', a.pid,
              coalesce(nullif(a.application_name, ''), 'no name'), a.datname, a.xact_start,
              coalesce(a.state, 'unknown')) AS breach
  FROM pg_stat_activity a
 WHERE a.xact_start < now() - make_interval(secs => $1::float8)
   AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
   AND a.backend_type = 'client backend'
   AND a.pid <> pg_backend_pid()
UNION ALL
SELECT format('a transaction %s of database %s is prepared since %s', p.gid, p.database, p.prepared)
  FROM pg_prepared_xacts p
 WHERE p.prepared < now() - make_interval(secs => $1::float8);

-- name: vacuum
-- Queues turn over quickly, and dead rows slow every claim.
SELECT format('%s is off for the whole server', s.name) AS breach
  FROM pg_settings s
 WHERE s.name IN ('autovacuum', 'track_counts')
   AND s.setting = 'off'
UNION ALL
SELECT format('autovacuum is off for %s', c.relname)
  FROM pg_class c
 WHERE c.relnamespace = 'onward'::regnamespace
   AND 'autovacuum_enabled=false' = ANY (c.reloptions)
UNION ALL
SELECT format('%s has %s dead rows and %s live ones, and was last vacuumed at %s', t.relname,
              t.n_dead_tup, t.n_live_tup,
              coalesce(greatest(t.last_vacuum, t.last_autovacuum)::text, 'no time'))
  FROM pg_stat_user_tables t
 WHERE t.schemaname = 'onward'
   AND t.n_dead_tup > $1::bigint
   AND t.n_dead_tup > t.n_live_tup;

-- name: connections
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
       (SELECT sum(setting::integer) FILTER (WHERE name = 'max_connections')
               - sum(setting::integer) FILTER (WHERE name <> 'max_connections')
          FROM pg_settings
         WHERE name IN ('max_connections', 'superuser_reserved_connections',
                        'reserved_connections')) AS usable;

-- name: lock_room
-- How many locks there is room for at once, and how many hosts the workers that breathe may hold.
SELECT (SELECT setting::bigint FROM pg_settings WHERE name = 'max_locks_per_transaction')
           * (SELECT sum(setting::bigint) FROM pg_settings
               WHERE name IN ('max_connections', 'max_prepared_transactions')) AS room,
       (SELECT count(*) FROM workers
         WHERE stopped_at IS NULL AND beat_at > now() - make_interval(secs => $1::float8))
           AS workers;

-- name: workers
-- Who breathes, who gets on, and whether there is anything to do.
SELECT count(*) AS breathing,
       count(*) FILTER (WHERE progress_at > now() - make_interval(secs => $2::float8)) AS getting_on,
       (SELECT count(*) FROM (SELECT FROM queue LIMIT 1000) AS q) AS waiting
  FROM workers
 WHERE stopped_at IS NULL
   AND beat_at > now() - make_interval(secs => $1::float8);

-- name: one_repair
-- From here on, repairs. Whoever repairs takes turns with whoever else does.
SELECT pg_advisory_xact_lock($1);

-- name: lock_executions
-- In the order of the id, like the guarded path: nobody moves them until the COMMIT, so nobody
-- writes what is kept of them elsewhere.
SELECT count(*) FROM (SELECT FROM executions WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE) AS e;

-- name: clear_queue
-- What follows a wait is a statement of its own: this looks again, at rows that stand still.
DELETE FROM queue q
 WHERE q.execution_id = ANY ($1)
   AND NOT EXISTS (SELECT FROM executions e
                    WHERE e.id = q.execution_id
                      AND e.status = {queued}
                      AND (e.host_id, e.job_id, e.read_only, e.due_at)
                          = (q.host_id, q.job_id, q.read_only, q.due_at));

-- name: fill_queue
INSERT INTO queue (host_id, execution_id, job_id, read_only, due_at)
SELECT e.host_id, e.id, e.job_id, e.read_only, coalesce(e.due_at, now())
  FROM executions e
 WHERE e.id = ANY ($1)
   AND e.status = {queued}
    ON CONFLICT DO NOTHING;

-- name: clear_runs
DELETE FROM runs r
 WHERE r.execution_id = ANY ($1)
   AND NOT EXISTS (SELECT FROM executions e
                    WHERE e.id = r.execution_id
                      AND e.status = {running}
                      AND (e.host_id, e.read_only, e.deadline_at)
                          = (r.host_id, r.read_only, r.deadline_at)
                      AND e.worker_id IS NOT DISTINCT FROM r.worker_id
                      AND r.place = CASE WHEN e.read_only THEN e.id ELSE 0 END);

-- name: fill_runs
-- The place of an exclusive run may be taken by another: then both are left to people.
INSERT INTO runs (host_id, place, execution_id, read_only, worker_id, deadline_at)
SELECT e.host_id, CASE WHEN e.read_only THEN e.id ELSE 0 END, e.id, e.read_only, e.worker_id,
       coalesce(e.deadline_at, now())
  FROM executions e
 WHERE e.id = ANY ($1)
   AND e.status = {running}
    ON CONFLICT DO NOTHING;

-- name: clear_failures
DELETE FROM failures f
 WHERE f.execution_id = ANY ($1)
   AND NOT EXISTS (SELECT FROM executions e
                    WHERE (e.id, e.job_id, e.host_id, e.status)
                          = (f.execution_id, f.job_id, f.host_id, f.status)
                      AND e.status IN ({unsuccessful}));

-- name: fill_failures
INSERT INTO failures (job_id, host_id, execution_id, status)
SELECT e.job_id, e.host_id, e.id, e.status
  FROM executions e
 WHERE e.id = ANY ($1)
   AND e.status IN ({unsuccessful})
    ON CONFLICT DO NOTHING;
