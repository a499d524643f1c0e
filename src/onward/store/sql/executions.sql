-- name: record
SELECT * FROM record_executions_v1($1, $2, $3, $4, $5, $6, $7);

-- name: report
-- Events, and what was printed before them, in one statement: both are there, or neither.
WITH printed AS (
    INSERT INTO execution_logs (execution_id, epoch, line, stream, text)
    SELECT * FROM unnest($8::bigint[], $9::bigint[], $10::integer[], $11::text[], $12::text[])
)
SELECT * FROM record_executions_v1($1, $2, $3, $4, $5, $6, $7);

-- name: candidates
-- The next execution of each host that has one due: a walk from host to host over the queue, one
-- step a host, however long the queue of each. It begins after the host at which the last walk
-- ended, so that no host starves behind busier ones. It takes no lock and decides nothing: `claim`
-- does.
WITH RECURSIVE head AS (
    (SELECT q.* FROM queue q WHERE q.host_id > $1 ORDER BY q.host_id, q.execution_id LIMIT 1)
    UNION ALL
    SELECT next.*
      FROM head h
     CROSS JOIN LATERAL (
            SELECT q.*
              FROM queue q
             WHERE q.host_id > h.host_id
             ORDER BY q.host_id, q.execution_id
             LIMIT 1
           ) AS next
), held AS MATERIALIZED (
    -- Jobs of which nothing is claimed; there are few of them, or none.
    SELECT j.id FROM jobs j WHERE j.paused_at IS NOT NULL OR j.cancel_open
)
SELECT q.execution_id, q.host_id, q.read_only
  FROM head h
 CROSS JOIN LATERAL (
        -- Mostly the head of the queue itself; if it may not run yet, whoever comes after it.
        SELECT h.execution_id, h.host_id, h.read_only
         WHERE h.due_at <= now() AND h.job_id NOT IN (SELECT id FROM held)
        UNION ALL
        (SELECT q.execution_id, q.host_id, q.read_only
           FROM queue q
          WHERE q.host_id = h.host_id
            AND NOT (h.due_at <= now() AND h.job_id NOT IN (SELECT id FROM held))
            AND q.due_at <= now()
            AND q.job_id NOT IN (SELECT id FROM held)
          ORDER BY q.execution_id
          LIMIT 1)
       ) AS q
       -- A question a host, in a form that is not turned into a join: a join would be made by
       -- reading all runs there ever were since the table was last vacuumed.
 WHERE (SELECT r.execution_id
          FROM runs r
         WHERE r.host_id = h.host_id
           AND NOT (r.read_only AND q.read_only)
         LIMIT 1) IS NULL
 LIMIT $2;

-- name: wanted
-- The oldest that may run on each of the hosts of these executions, if the host is free. It takes no
-- lock and decides nothing: `claim` does.
WITH held AS MATERIALIZED (
    SELECT j.id FROM jobs j WHERE j.paused_at IS NOT NULL OR j.cancel_open
)
SELECT q.execution_id, q.host_id, q.read_only
  FROM (SELECT DISTINCT e.host_id FROM executions e WHERE e.id = ANY ($1)) AS h
 CROSS JOIN LATERAL (
        SELECT q.execution_id, q.host_id, q.read_only
          FROM queue q
         WHERE q.host_id = h.host_id
           AND q.due_at <= now()
           AND q.job_id NOT IN (SELECT id FROM held)
         ORDER BY q.execution_id
         LIMIT 1
       ) AS q
 WHERE (SELECT r.execution_id
          FROM runs r
         WHERE r.host_id = h.host_id
           AND NOT (r.read_only AND q.read_only)
         LIMIT 1) IS NULL;

-- name: heads
-- What is next on hosts that this worker holds, if it wants the host for itself as well: the oldest
-- that may run. Whoever would share the host waits until it has been let go.
SELECT q.execution_id
  FROM unnest($1::bigint[]) AS h (id)
 CROSS JOIN LATERAL (
        SELECT q.execution_id, q.read_only
          FROM queue q
         WHERE q.host_id = h.id
           AND q.due_at <= now()
           AND q.job_id NOT IN (
                SELECT j.id FROM jobs j WHERE j.paused_at IS NOT NULL OR j.cancel_open)
         ORDER BY q.execution_id
         LIMIT 1
       ) AS q
 WHERE NOT q.read_only;

-- name: claim
-- QUEUED -> RUNNING for those that are still free, or -> BLOCKED where a rule forbids it. What
-- another worker has locked is that worker's, and nobody waits. Which ones are meant is filled in as an array.
WITH wanted AS MATERIALIZED (
    SELECT e.id, e.host_id, e.job_id, e.attempt, e.retries, e.timeout_s, e.read_only
      FROM executions e
     WHERE e.id = ANY ({ids})
       AND e.status = {queued}
     ORDER BY e.id
       FOR NO KEY UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT w.*, h.name, h.address, h.channel, h.key_generation,
           CASE WHEN b.command_type IS NOT NULL THEN format(
                         'blocked for %s by %s: %s', b.command_type,
                         coalesce(nullif(b.owner, ''), 'somebody'), b.reason)
                WHEN h.state IS DISTINCT FROM 'ACTIVE' THEN 'the host is disabled' END AS blocked_by
      FROM wanted w
      -- Somebody may have held the job back, or cancelled it, since it was looked at.
      JOIN jobs j ON j.id = w.job_id AND j.paused_at IS NULL AND j.cancelled_at IS NULL
      LEFT JOIN hosts h ON h.id = w.host_id
      LEFT JOIN host_command_blocks b
        ON b.host_id = w.host_id AND b.command_type = j.command_type
       AND (b.expires_at IS NULL OR b.expires_at > now())
), batch AS (
    SELECT array_agg(id ORDER BY id) AS ids,
           array_agg(CASE WHEN blocked_by IS NULL THEN 'claim' ELSE 'block' END ORDER BY id)
               AS events,
           array_agg(CASE WHEN blocked_by IS NULL
                          -- The same for all of them, so it is made once.
                          THEN (SELECT jsonb_build_object(
                                           'worker_id', $2::bigint, 'grace_s', $3::float8))
                          ELSE jsonb_build_object('cause', 'BLOCKED', 'error', blocked_by) END
                     ORDER BY id) AS data,
           count(*)::integer AS n
      FROM judged
    HAVING count(*) > 0
), answered AS MATERIALIZED (
    -- Materialized, because a join may otherwise ask the function once for each of its rows.
    SELECT r.*, batch.events[r.ord] AS event, batch.ids[r.ord] AS id
      FROM batch
     CROSS JOIN LATERAL record_executions_v1(
               batch.ids, batch.events, NULL, array_fill('worker'::text, ARRAY[batch.n]),
               batch.data, ARRAY[batch.n], NULL
           ) AS r
)
-- First the answer of the guarded path, then what a run needs to know.
SELECT a.ord, a.verdict, a.lifecycle, a.seen, a.seen_epoch, a.status, a.epoch, a.version, a.event,
       j.id, a.epoch, j.attempt + 1 AS attempt, j.retries, j.timeout_s, j.read_only, j.job_id,
       j.host_id, j.name, j.address, j.channel, j.key_generation
  FROM answered a
  JOIN judged j ON j.id = a.id;

-- name: errands
-- What jobs ask of their hosts. It does not change once anything of them may run.
SELECT j.id, j.command_type, j.params, j.max_retries, j.max_concurrency, j.trace,
       j.argv, j.masked
  FROM jobs j
 WHERE j.id = ANY ($1);

-- name: to_stop
-- Runs of this worker whose job has been cancelled.
SELECT e.id, e.epoch
  FROM runs r
  JOIN executions e ON e.id = r.execution_id
  JOIN jobs j ON j.id = e.job_id
 WHERE r.worker_id = $1
   AND j.cancel_open
   -- Mostly no job is being cancelled, and then no run is looked at.
   AND EXISTS (SELECT FROM jobs WHERE cancel_open);

-- name: held_by
-- What this worker holds by the table and should have begun a while ago.
SELECT e.id, e.epoch
  FROM runs r
  JOIN executions e ON e.id = r.execution_id
 WHERE r.worker_id = $1
   AND e.updated_at < now() - make_interval(secs => $2);

-- name: overdue
-- Runs whose deadline has passed although their worker breathes. It takes no lock: the move that
-- follows carries the epoch, so that whoever was faster has won.
SELECT e.id, e.epoch, e.retries, j.max_retries
  FROM runs r
  JOIN executions e ON e.id = r.execution_id
  JOIN jobs j ON j.id = e.job_id
 WHERE r.deadline_at <= now()
 LIMIT $1;

-- name: unplanned
-- Jobs that may be planned and are not, or not wholly. This is what heals a lost word.
SELECT j.id
  FROM jobs j
 WHERE NOT j.planned
   AND (j.approval_state IS NULL OR j.approval_state = 'APPROVED')
   AND j.paused_at IS NULL
   AND j.cancelled_at IS NULL
 ORDER BY j.id
 LIMIT $1;

-- name: rescue
-- The worker stopped breathing, but it may still be alive behind a partition. Releasing draws a new
-- epoch, so that a late report of the old attempt is refused as stale instead of finishing the new
-- one. Nothing is known to have gone wrong with the command, so it costs no retry.
WITH lost AS (
    SELECT array_agg(id ORDER BY id) AS ids, array_agg(epoch ORDER BY id) AS epochs,
           count(*)::integer AS n
      FROM (
            SELECT e.id, e.epoch
              FROM runs r
              JOIN executions e ON e.id = r.execution_id
              LEFT JOIN workers w ON w.id = r.worker_id
             WHERE e.status = {running}
               AND (w.id IS NULL OR w.stopped_at IS NOT NULL
                    OR w.beat_at < now() - make_interval(secs => $1))
             LIMIT $2
               FOR NO KEY UPDATE OF e SKIP LOCKED
           ) AS e
    HAVING count(*) > 0
)
SELECT r.*, lost.ids[r.ord] AS id
  FROM lost,
       LATERAL record_executions_v1(
           lost.ids, array_fill('retry'::text, ARRAY[lost.n]), lost.epochs,
           array_fill('reaper'::text, ARRAY[lost.n]),
           array_fill('{"cause": "WORKER_LOST"}'::jsonb, ARRAY[lost.n]), ARRAY[lost.n], NULL
       ) AS r;
