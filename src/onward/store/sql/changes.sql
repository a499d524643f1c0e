-- name: horizon
-- Every transaction below this number has ended, so it has told all that it will ever tell.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: jobs
SELECT t.tx, t.seq, 'job' AS kind, t.at, t.job_id, NULL::bigint AS execution_id,
       NULL::bigint AS host_id, NULL::uuid AS command_id, t.event, NULL::text AS status
  FROM job_timeline t
 WHERE t.tx >= $1 AND t.tx < $2
 ORDER BY t.tx, t.seq
 LIMIT $3;

-- name: executions
SELECT t.tx, t.seq, 'execution' AS kind, t.at, e.job_id, t.execution_id,
       e.host_id, NULL::uuid AS command_id, t.event, t.to_status AS status
  FROM execution_timeline t
  JOIN executions e ON e.id = t.execution_id
 WHERE t.tx >= $1 AND t.tx < $2
   AND t.verdict = 'OK'
 ORDER BY t.tx, t.seq
 LIMIT $3;

-- name: commands
SELECT t.tx, t.seq, 'command' AS kind, t.at, NULL::bigint AS job_id, NULL::bigint AS execution_id,
       NULL::bigint AS host_id, t.cmd_id AS command_id, t.event, t.to_status AS status
  FROM timeline t
 WHERE t.tx >= $1 AND t.tx < $2
   AND t.verdict = 'OK'
 ORDER BY t.tx, t.seq
 LIMIT $3;
