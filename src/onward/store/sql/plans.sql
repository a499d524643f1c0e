-- name: digest
-- What a plan comes down to: which hosts, on which of them a rule forbids it, whether somebody has to
-- approve it first, and what its type runs. $2 is the command type; `chosen` are the hosts.
SELECT md5(concat_ws(' ', $2::text,
           (SELECT concat_ws(' ', needs_approval, argv) FROM command_types WHERE name = $2),
           string_agg(c.id::text || CASE WHEN b.host_id IS NULL THEN '' ELSE '!' END, ','
                      ORDER BY c.id)))
  FROM chosen c
  LEFT JOIN host_command_blocks b
    ON b.host_id = c.id AND b.command_type = $2
   AND (b.expires_at IS NULL OR b.expires_at > now());

-- name: shown
-- A plan, from what was `judged`. The counts are whole, the lists name the first of each kind.
SELECT count(*) AS total,
       count(*) FILTER (WHERE blocked) AS blocked,
       count(*) FILTER (WHERE busy_with IS NOT NULL) AS busy,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('host_id', s.id, 'name', s.name)
                                  ORDER BY s.id), '[]')
          FROM (SELECT * FROM judged WHERE NOT blocked ORDER BY id LIMIT {named}) AS s) AS runs,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('host_id', s.id, 'name', s.name,
                   'reason', s.reason, 'owner', s.owner, 'expires_at', s.expires_at)
                                  ORDER BY s.id), '[]')
          FROM (SELECT * FROM judged WHERE blocked ORDER BY id LIMIT {named}) AS s) AS blocks,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('host_id', s.id, 'name', s.name,
                   'execution_id', s.busy_with) ORDER BY s.id), '[]')
          FROM (SELECT * FROM judged WHERE busy_with IS NOT NULL ORDER BY id LIMIT {named}) AS s)
           AS busy_hosts
  FROM judged;

-- name: preview
-- Who would run, who may not and by which rule, and who is busy now. What is chosen is a condition
-- over hosts `h` whose parameters begin at $4; $1 are the hosts that were asked for by name.
WITH chosen AS MATERIALIZED (
    SELECT h.id, h.name FROM hosts h WHERE h.state = 'ACTIVE' AND ({chosen})
), type AS MATERIALIZED (
    SELECT needs_approval, read_only, argv, masked FROM command_types WHERE name = $2
), running AS MATERIALIZED (
    SELECT r.host_id, min(r.execution_id) AS id
      FROM runs r
     WHERE NOT (r.read_only AND (SELECT read_only FROM type))
     GROUP BY r.host_id
), judged AS MATERIALIZED (
    SELECT c.id, c.name, b.host_id IS NOT NULL AS blocked, b.reason, b.owner, b.expires_at,
           CASE WHEN b.host_id IS NULL THEN r.id END AS busy_with
      FROM chosen c
      LEFT JOIN host_command_blocks b
        ON b.host_id = c.id AND b.command_type = $2
       AND (b.expires_at IS NULL OR b.expires_at > now())
      LEFT JOIN running r ON r.host_id = c.id
)
SELECT plan.*, (SELECT needs_approval FROM type) AS needs_approval, ({digest}) AS digest,
       ({missing}) AS missing, (SELECT argv FROM type) AS argv, (SELECT masked FROM type) AS masked
  FROM ({shown}) AS plan;

-- name: of_job
-- The same of a job that is there: what it has not begun yet would run, would be blocked as `claim`
-- blocks it, or has to wait. $1 is the job.
WITH job AS MATERIALIZED (
    SELECT id, command_type, read_only FROM jobs WHERE id = $1
), running AS MATERIALIZED (
    SELECT r.host_id, min(r.execution_id) AS id
      FROM runs r
     WHERE NOT (r.read_only AND (SELECT read_only FROM job))
     GROUP BY r.host_id
), judged AS MATERIALIZED (
    SELECT e.host_id AS id, coalesce(h.name, '') AS name,
           b.host_id IS NOT NULL OR h.state IS DISTINCT FROM 'ACTIVE' AS blocked,
           CASE WHEN b.host_id IS NULL THEN 'the host is disabled' ELSE b.reason END AS reason,
           coalesce(b.owner, '') AS owner, b.expires_at,
           CASE WHEN b.host_id IS NULL AND h.state = 'ACTIVE' THEN r.id END AS busy_with
      FROM job j
      JOIN executions e ON e.job_id = j.id AND e.status IN ({new}, {queued})
      LEFT JOIN hosts h ON h.id = e.host_id
      LEFT JOIN host_command_blocks b
        ON b.host_id = e.host_id AND b.command_type = j.command_type
       AND (b.expires_at IS NULL OR b.expires_at > now())
      LEFT JOIN running r ON r.host_id = e.host_id
)
{shown};

-- name: missing
-- Of the hosts that were asked for by name, those that cannot be had: unknown ones, and disabled
-- ones with a mark. One more than are told, so that it is known whether there are more.
SELECT coalesce(array_agg(m.name || m.mark ORDER BY m.name), '{}')
  FROM (SELECT w.name, CASE WHEN h.id IS NULL THEN '' ELSE ' (disabled)' END AS mark
          FROM unnest({names}::text[]) AS w (name)
          LEFT JOIN hosts h ON h.name = w.name
         WHERE h.state IS DISTINCT FROM 'ACTIVE'
         ORDER BY w.name
         LIMIT 101) AS m;

-- name: types
SELECT name FROM command_types ORDER BY name;
