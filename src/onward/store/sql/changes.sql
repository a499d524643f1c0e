-- name: horizon
-- Every transaction below this number has ended, so it has told all that it will ever tell.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS tx,
       extract(epoch FROM now())::bigint AS at;

-- name: oldest
-- The first moment of which everything that was told is still there: older months were dropped.
SELECT coalesce(extract(epoch FROM
           min(to_date(right(c.relname, 6), 'YYYYMM'))::timestamp AT TIME ZONE 'UTC'), 0)::bigint
  FROM pg_inherits i
  JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'onward.execution_timeline'::regclass
   AND c.relname ~ '_[0-9]{6}$';

-- name: since
-- What was told by transactions from $1 up to $2, without what of the first of them has been read:
-- $4, $5 and $6 are the numbers after which each kind goes on there. At most $7 of each kind.
--
-- The index on `tx` finds the pages. $3 is a time before which none of this can have been told: it
-- spares a look into the months before. The limit comes before the join, so that an execution is
-- looked up for what is told and for nothing else.
(SELECT t.tx, 1 AS kind, t.seq, t.at, t.job_id, NULL::bigint AS execution_id,
        NULL::bigint AS host_id, NULL::uuid AS cmd_id, t.event, NULL::text AS status
   FROM job_timeline t
  WHERE t.tx >= $1 AND t.tx < $2
    AND (t.tx > $1 OR t.seq > $4)
    AND t.at >= to_timestamp($3)
  ORDER BY t.tx, t.seq
  LIMIT $7)
UNION ALL
(SELECT t.tx, 2, t.seq, t.at, e.job_id, t.execution_id, e.host_id, NULL, t.event, t.to_status
   FROM (SELECT *
           FROM execution_timeline t
          WHERE t.tx >= $1 AND t.tx < $2
            AND (t.tx > $1 OR t.seq > $5)
            AND t.at >= to_timestamp($3)
            AND t.verdict = 'OK'
          ORDER BY t.tx, t.seq
          LIMIT $7) AS t
   LEFT JOIN LATERAL (SELECT e.job_id, e.host_id FROM executions e
                       WHERE e.id = t.execution_id LIMIT 1) AS e ON true)
UNION ALL
(SELECT t.tx, 3, t.seq, t.at, NULL, NULL, NULL, t.cmd_id, t.event, t.to_status
   FROM timeline t
  WHERE t.tx >= $1 AND t.tx < $2
    AND (t.tx > $1 OR t.seq > $6)
    AND t.at >= to_timestamp($3)
    AND t.verdict = 'OK'
  ORDER BY t.tx, t.seq
  LIMIT $7);
