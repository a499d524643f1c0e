-- What each table of the fleet costs on disk, with its indexes, by execution:
--     psql "$ONWARD_DATABASE_URL" --file deploy/sizes.sql
-- Tables that keep a row for every execution come first in what they cost; queue and runs shrink again
-- when work has ended.
SELECT c.relname AS "table",
       pg_size_pretty(s.bytes) AS size,
       s.rows,
       round(s.rows / greatest(n.executions, 1)::numeric, 2) AS rows_per_execution,
       round(s.bytes / greatest(n.executions, 1)::numeric) AS bytes_per_execution
  FROM pg_class c
 CROSS JOIN LATERAL (
        SELECT sum(pg_total_relation_size(p.relid))::bigint AS bytes,
               sum(greatest(leaf.reltuples, 0))::bigint AS rows
          FROM (SELECT relid FROM pg_partition_tree(c.oid) UNION SELECT c.oid) AS p
          JOIN pg_class leaf ON leaf.oid = p.relid AND leaf.relkind = 'r') AS s
 CROSS JOIN (SELECT sum(total) AS executions FROM onward.jobs) AS n
 WHERE c.relnamespace = 'onward'::regnamespace
   AND c.relkind IN ('r', 'p')
   AND NOT c.relispartition
   AND s.rows > 0
 ORDER BY s.bytes DESC;
