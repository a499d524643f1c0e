-- name: of_job
SELECT j.id AS job_id, j.external_id, j.command_type, j.params, j.argv, j.masked, j.selector,
       j.max_concurrency,
       j.read_only, j.timeout_s, j.max_retries, j.approval_state, j.requested_by, j.edited_by,
       j.decided_by, j.decided_at, j.decision_reason, j.paused_at, j.cancelled_at, j.cancelled_by,
       j.retry_of, j.trace ->> 'request_id' AS request_id, j.total, j.version, j.created_at,
       j.updated_at, j.finished_at,
       (SELECT coalesce(jsonb_object_agg(c.status, c.n) FILTER (WHERE c.n <> 0), '{}')
          FROM (SELECT status, sum(n) AS n FROM job_counts
                 WHERE job_id = j.id GROUP BY status) AS c) AS counts
  FROM jobs j;

-- name: of_execution
SELECT e.id AS execution_id, e.job_id, e.host_id, h.name AS host, e.status, e.epoch, e.version,
       e.attempt, e.retries, e.due_at, e.deadline_at, e.worker_id, e.cause, e.exit_code, e.error,
       nullif(encode(e.output, 'hex'), '') AS output, e.late_result, e.created_at, e.updated_at, e.finished_at
  FROM executions e
  LEFT JOIN hosts h ON h.id = e.host_id;

-- name: masked_of_command
-- What of a command nobody is to see: what its type masks now, and what its job masked, if it is an
-- attempt of execution $2. No row if there is nothing.
SELECT c.params, m.masked
  FROM commands c
 CROSS JOIN LATERAL (
        SELECT ARRAY(SELECT unnest(t.masked) FROM command_types t WHERE t.name = c.type
                      UNION
                     SELECT unnest(j.masked)
                       FROM executions e
                       JOIN jobs j ON j.id = e.job_id
                      WHERE e.id = $2) AS masked) AS m
 WHERE c.cmd_id = $1
   AND m.masked <> '{}';

-- name: job
{job}
 WHERE j.id = $1;

-- name: jobs
-- The newest first, before the one where the last page ended.
{job}
 WHERE j.id < $1
   AND ($3::text IS NULL OR j.approval_state = $3)
   AND ($4::text IS NULL OR j.command_type = $4)
   AND ($5::text IS NULL OR j.external_id = $5)
   AND ($6::text IS NULL OR j.requested_by = $6)
   AND {finished}
 ORDER BY j.id DESC
 LIMIT $2;

-- name: waiting_jobs
-- The oldest first: they have waited longest.
{job}
 WHERE j.finished_at IS NULL
   AND j.approval_state = 'WAIT_APPROVAL'
   AND j.cancelled_at IS NULL
 ORDER BY j.id
 LIMIT $1;

-- name: job_timeline
SELECT t.seq, t.at, t.event, t.by, t.detail
  FROM job_timeline t
 WHERE t.job_id = $1
   AND t.seq > $2
 ORDER BY t.seq
 LIMIT $3;

-- name: execution
{execution}
 WHERE e.id = $1;

-- name: wanted
-- A condition over executions `e` and their hosts `h`, for what is asked of the executions of a job;
-- what is null is not asked. All of a job may have to be looked at, but nothing else.
{statuses}
   AND ($4::text IS NULL OR coalesce(e.cause, 'none') = $4)
   AND ($5::integer IS NULL OR e.exit_code = $5)
   AND ($6::bytea IS NULL OR (coalesce(e.output, '\x00') = $6 AND e.finished_at IS NOT NULL))
   AND ($7::boolean IS NULL OR (e.late_result IS NOT NULL) = $7)
   AND ($8::text IS NULL OR position(lower($8) IN lower(h.name)) > 0);

-- name: executions_of_job
-- In the order of the hosts, which is the order of the index that finds them.
{execution}
 WHERE e.job_id = $1
   AND e.host_id > $2
   AND {wanted}
 ORDER BY e.host_id
 LIMIT $3;

-- name: failures_of_job
-- What went wrong among a million that went right, without looking at the million.
{execution}
  JOIN failures f ON f.execution_id = e.id
 WHERE f.job_id = $1
   AND f.host_id > $2
   AND {wanted}
 ORDER BY f.host_id
 LIMIT $3;

-- name: executions_of_host
-- The newest first.
{execution}
 WHERE e.host_id = $1
   AND e.id < $2
   AND {statuses}
 ORDER BY e.id DESC
 LIMIT $3;

-- name: count
SELECT count(*) FROM ({query}) AS q;

-- name: execution_timeline
SELECT t.seq, t.at, t.event, t.verdict, t.from_status, t.to_status, t.epoch, t.source, t.detail
  FROM execution_timeline t
 WHERE t.execution_id = $1
   AND t.seq > $2
 ORDER BY t.seq
 LIMIT $3;

-- name: newest_events
SELECT t.seq, t.at, t.event, t.verdict, t.from_status, t.to_status, t.epoch, t.source, t.detail
  FROM execution_timeline t
 WHERE t.execution_id = $1
 ORDER BY t.seq DESC
 LIMIT $2;

-- name: why
-- Everything that could hold one execution up, as it is at this moment. Which of it does is for
-- `fleet/why.py` to say.
SELECT e.id AS execution_id, e.job_id, e.host_id, h.name AS host, e.status, e.attempt, e.retries,
       e.cause, e.error, e.due_at, e.deadline_at, e.updated_at, e.finished_at, e.worker_id,
       e.due_at > now() AS not_due,
       e.deadline_at <= now() AS overdue,
       j.created_at AS submitted_at, j.approval_state, j.decided_by, j.decided_at,
       j.paused_at, j.cancelled_at, j.cancelled_by, j.max_concurrency,
       j.max_concurrency <= coalesce((
           SELECT sum(c.n) FROM job_counts c
            WHERE c.job_id = e.job_id AND c.status IN ({queued}, {running})), 0) AS at_limit,
       EXISTS (SELECT FROM workers w WHERE w.stopped_at IS NULL
                  AND w.beat_at >= now() - make_interval(secs => $2)) AS worker_lives,
       mine.stopped_at IS NULL AND mine.beat_at >= now() - make_interval(secs => $2)
           AS own_worker_lives,
       mine.name AS worker,
       coalesce(h.state, 'GONE') AS host_state,
       b.command_type AS blocked_type, b.owner AS blocked_by, b.reason AS blocked_reason,
       b.expires_at AS blocked_until,
       held.id AS held_by, held.job_id AS held_by_job, held.since AS held_since,
       ahead.id AS behind
  FROM executions e
  JOIN jobs j ON j.id = e.job_id
  LEFT JOIN hosts h ON h.id = e.host_id
  LEFT JOIN workers mine ON mine.id = e.worker_id
  LEFT JOIN host_command_blocks b
    ON b.host_id = e.host_id AND b.command_type = j.command_type
   AND (b.expires_at IS NULL OR b.expires_at > now())
  LEFT JOIN LATERAL (
        SELECT x.id, x.job_id, x.updated_at AS since
          FROM runs r
          JOIN executions x ON x.id = r.execution_id
         WHERE e.status = {queued}
           AND r.host_id = e.host_id
           AND NOT (r.read_only AND e.read_only)
         ORDER BY x.id
         LIMIT 1
       ) AS held ON true
  LEFT JOIN LATERAL (
        SELECT q.execution_id AS id
          FROM queue q
          JOIN jobs k ON k.id = q.job_id
         WHERE e.status = {queued}
           AND q.host_id = e.host_id
           AND q.execution_id < e.id
           AND q.due_at <= now()
           AND k.paused_at IS NULL
           AND k.cancelled_at IS NULL
         ORDER BY q.execution_id
         LIMIT 1
       ) AS ahead ON true
 WHERE e.id = $1;

-- name: workers
SELECT w.id AS worker_id, w.name, w.started_at, w.beat_at, w.progress_at, w.stopped_at, w.refused,
       w.stopped_at IS NULL AND w.beat_at >= now() - make_interval(secs => $1) AS lives,
       (SELECT count(*) FROM runs r WHERE r.worker_id = w.id) AS running
  FROM workers w
 -- Who was killed has not said so, but does not breathe any more.
 WHERE coalesce(w.stopped_at, w.beat_at) > now() - interval '1 day'
   AND w.id < $2
 ORDER BY w.id DESC
 LIMIT $3;

-- name: gauges
SELECT (SELECT coalesce(jsonb_object_agg(c.status, c.n), '{}')
          FROM (SELECT status, sum(n) AS n FROM job_counts GROUP BY status) AS c) AS executions,
       (SELECT count(*) FROM jobs WHERE approval_state = 'WAIT_APPROVAL' AND cancelled_at IS NULL)
           AS jobs_waiting_for_approval,
       (SELECT count(*) FROM outbox) AS outbox,
       (SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM outbox)
           AS outbox_oldest_s,
       (SELECT count(*) FROM workers
         WHERE stopped_at IS NULL AND beat_at >= now() - make_interval(secs => $1)) AS workers,
       (SELECT coalesce(sum(refused), 0)::float8 FROM workers) AS messages_refused,
       (SELECT coalesce(jsonb_object_agg(h.state, h.n), '{}')
          FROM (SELECT state, count(*) AS n FROM hosts GROUP BY state) AS h) AS hosts,
       (SELECT count(*) FROM runs WHERE deadline_at < now()) AS overdue;

-- name: readiness
-- Whether somebody not only breathes but gets on.
SELECT (SELECT version_num FROM schema_revision) AS revision,
       (SELECT count(*) FROM workers
         WHERE stopped_at IS NULL AND beat_at >= now() - make_interval(secs => $1)) AS breathing,
       (SELECT count(*) FROM workers
         WHERE stopped_at IS NULL AND beat_at >= now() - make_interval(secs => $1)
           AND progress_at >= now() - make_interval(secs => $2)) AS getting_on,
       (SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM outbox)
           AS outbox_oldest_s;
