-- name: standing
-- How things stand with what is open, and with nothing else: what is over is not looked at, however
-- much of it there is.
WITH open AS MATERIALIZED (
    SELECT j.id, j.total, j.paused_at, j.cancelled_at IS NOT NULL AS cancelled,
           j.approval_state = 'WAIT_APPROVAL' AND j.cancelled_at IS NULL AS waits
      FROM jobs j
     WHERE j.finished_at IS NULL
), counted AS MATERIALIZED (
    -- A question a job, in a form that is not turned into a join over the counters of all of them.
    SELECT o.id, c.status, c.n
      FROM open o
     CROSS JOIN LATERAL (
            SELECT c.status, sum(c.n) AS n
              FROM job_counts c
             WHERE c.job_id = o.id
             GROUP BY c.status
           ) AS c
     WHERE o.waits IS NOT TRUE
    UNION ALL
    -- Nothing of what waits for approval has begun.
    SELECT o.id, {new}, o.total FROM open o WHERE o.waits
), failing AS (
    SELECT f.id AS job_id, f.wrong, f.ended
      FROM (SELECT c.id, sum(c.n) FILTER (WHERE c.status IN ({failed})) AS wrong,
                   sum(c.n) FILTER (WHERE c.status IN ({ended})) AS ended
              FROM counted c
             GROUP BY c.id) AS f
     WHERE f.wrong >= $1
       AND f.wrong >= $2::float8 * f.ended
     ORDER BY f.wrong DESC, f.id
     LIMIT $5
), paused AS (
    SELECT o.id AS job_id, extract(epoch FROM now() - o.paused_at)::float8 AS for_s,
           (SELECT coalesce(sum(c.n), 0) FROM counted c
             WHERE c.id = o.id AND c.status IN ({live})) AS open
      FROM open o
     WHERE o.paused_at < now() - make_interval(secs => $3)
       AND o.waits IS NOT TRUE
       AND NOT o.cancelled
     ORDER BY o.paused_at
     LIMIT $5
), overdue AS (
    SELECT e.job_id, count(*) AS n
      FROM runs r
      JOIN executions e ON e.id = r.execution_id
     WHERE r.deadline_at < now() - make_interval(secs => $4)
     GROUP BY e.job_id
     ORDER BY n DESC, e.job_id
     LIMIT $5
)
SELECT now() AS at,
       (SELECT coalesce(jsonb_object_agg(c.status, c.n), '{}')
          FROM (SELECT status, sum(n) AS n FROM counted WHERE status IN ({live})
                 GROUP BY status) AS c) AS executions,
       (SELECT jsonb_build_object(
                   'open', count(*),
                   'waiting', count(*) FILTER (WHERE waits),
                   'paused', count(*) FILTER (WHERE paused_at IS NOT NULL AND waits IS NOT TRUE
                                                AND NOT cancelled))
          FROM open) AS jobs,
       (SELECT coalesce(jsonb_agg(to_jsonb(failing)), '[]') FROM failing) AS failing,
       (SELECT coalesce(jsonb_agg(to_jsonb(paused)), '[]') FROM paused) AS paused,
       (SELECT coalesce(jsonb_agg(to_jsonb(overdue)), '[]') FROM overdue) AS overdue,
       (SELECT jsonb_build_object(
                   'n', count(*),
                   'oldest_s', coalesce(extract(epoch FROM now() - min(created_at)), 0))
          FROM outbox) AS outbox,
       -- No more are counted than anybody would look at.
       (SELECT count(*) FROM (SELECT FROM commands WHERE due_at <= now() LIMIT $6) AS c)
           AS commands_due;

-- name: workers
-- Who works, and who has stopped breathing without a word in the last hour.
SELECT w.id AS worker_id, w.name, w.started_at, w.beat_at, w.progress_at, w.stopped_at, w.refused,
       w.beat_at >= now() - make_interval(secs => $1) AS lives,
       coalesce(r.running, 0) AS running
  FROM workers w
  LEFT JOIN (SELECT worker_id, count(*) AS running FROM runs GROUP BY worker_id) AS r
    ON r.worker_id = w.id
 WHERE w.stopped_at IS NULL
   AND w.beat_at > now() - greatest(interval '1 hour', make_interval(secs => $1))
 ORDER BY lives DESC, w.id DESC
 LIMIT $2;

-- name: fleet
-- What hardly ever changes, and takes a look at every host.
SELECT (SELECT coalesce(jsonb_object_agg(h.state, h.n), '{}')
          FROM (SELECT state, count(*) AS n FROM hosts GROUP BY state) AS h) AS hosts,
       (SELECT count(*) FROM host_command_blocks
         WHERE expires_at IS NULL OR expires_at > now()) AS blocks;

-- name: activity
-- How many executions ended in each of the last $1 minutes; the last one is not over yet.
SELECT a.status, (extract(epoch FROM a.minute - f.minute) / 60)::integer AS place,
       sum(a.n)::bigint AS n
  FROM (SELECT date_trunc('minute', now()) - make_interval(mins => $1 - 1) AS minute) AS f
  JOIN activity a ON a.minute BETWEEN f.minute AND f.minute + make_interval(mins => $1 - 1)
 GROUP BY a.status, a.minute, f.minute;

-- name: sum_activity
-- As with the counters of jobs: many small changes become one row a status. A minute that is over
-- is summed up wholly. Nobody asks what was two days ago.
WITH gone AS (
    DELETE FROM activity WHERE minute < now() - interval '2 days'
), old AS (
    DELETE FROM activity
     WHERE ctid = ANY (ARRAY(
           SELECT a.ctid
             FROM activity a
            WHERE a.minute = ANY (ARRAY(
                  SELECT minute
                    FROM activity
                   WHERE minute > now() - interval '2 hours'
                   GROUP BY minute
                  HAVING count(*) > $1
                      OR count(*) > count(DISTINCT status) AND minute < date_trunc('minute', now())))
              FOR UPDATE SKIP LOCKED))
    RETURNING minute, status, n
)
INSERT INTO activity (minute, status, n)
SELECT minute, status, sum(n) FROM old GROUP BY minute, status;
