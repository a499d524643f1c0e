-- name: outputs
-- What has ended of a job, by what it printed and how it ended; the largest groups first, and of
-- each the first hosts, and the first lines of the first host. Digests are compared, and lines are
-- read of the examples alone.
--
-- Groups are found again by expressions that are never null, so that they can be hashed: to compare
-- each execution with each group would take as long as all else together. No digest is one byte long.
WITH grouped AS MATERIALIZED (
    SELECT e.output, e.status, e.exit_code, e.cause, count(*) AS n, min(e.host_id) AS first_host
      FROM executions e
     WHERE e.job_id = $1
       AND e.status IN ({ended})
     GROUP BY e.output, e.status, e.exit_code, e.cause
), largest AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY g.n DESC, g.first_host) AS place, g.*
      FROM grouped g
     ORDER BY g.n DESC, g.first_host
     LIMIT $2
), named AS (
    SELECT f.place, array_agg(coalesce(h.name, '') ORDER BY f.host_id) AS hosts
      FROM (SELECT l.place, e.host_id,
                   row_number() OVER (PARTITION BY l.place ORDER BY e.host_id) AS n
              FROM largest l
              JOIN executions e
                ON e.job_id = $1
               AND e.status = l.status
               AND coalesce(e.output, '\x00') = coalesce(l.output, '\x00')
               AND coalesce(e.exit_code::text, '') = coalesce(l.exit_code::text, '')
               AND coalesce(e.cause, '') = coalesce(l.cause, '')) AS f
      LEFT JOIN hosts h ON h.id = f.host_id
     WHERE f.n <= $3
     GROUP BY f.place
)
SELECT nullif(encode(l.output, 'hex'), '') AS output, l.output IS NOT NULL AS known, l.status, l.exit_code, l.cause, l.n AS count,
       named.hosts, e.id AS execution_id, p.lines, p.more,
       -- The same in every row: of all groups, also of those that are too many to be told.
       (SELECT sum(n)::bigint FROM grouped) AS all_ended,
       (SELECT coalesce(sum(n), 0)::bigint FROM grouped WHERE output = '') AS all_silent,
       (SELECT coalesce(sum(n), 0)::bigint FROM grouped WHERE output IS NULL) AS all_unknown,
       (SELECT count(*) FROM grouped) AS all_groups
  FROM largest l
  JOIN named USING (place)
  JOIN executions e ON e.job_id = $1 AND e.host_id = l.first_host
 CROSS JOIN LATERAL (
        -- Of the last attempt that printed anything, if that is the one that counts.
        SELECT coalesce(jsonb_agg(jsonb_build_object('stream', o.stream, 'text', left(o.text, $5))
                                  ORDER BY o.line) FILTER (WHERE o.n <= $4), '[]') AS lines,
               coalesce(bool_or(o.n > $4 OR length(o.text) > $5), false) AS more
          FROM (SELECT g.line, g.stream, g.text, row_number() OVER (ORDER BY g.line) AS n
                  FROM execution_logs g
                 WHERE g.execution_id = e.id
                   AND g.epoch = (SELECT max(m.epoch) FROM execution_logs m
                                   WHERE m.execution_id = e.id)
                   AND l.output <> ''
                 ORDER BY g.line
                 LIMIT $4 + 1) AS o
       ) AS p
 ORDER BY l.place;

-- name: causes
-- What went wrong among all that went right, by its cause, with an example each.
SELECT g.status, g.cause, g.n AS count, g.late, e.id AS execution_id, h.name AS host, e.error
  FROM (SELECT e.status, e.cause, count(*) AS n, min(e.host_id) AS first_host,
               -- Its host has said since that it was done.
               count(*) FILTER (WHERE e.late_result ->> 'event' = 'succeed') AS late
          FROM failures f
          JOIN executions e ON e.id = f.execution_id
         WHERE f.job_id = $1
         GROUP BY e.status, e.cause) AS g
  JOIN executions e ON e.job_id = $1 AND e.host_id = g.first_host
  LEFT JOIN hosts h ON h.id = e.host_id
 ORDER BY g.n DESC, g.first_host;
