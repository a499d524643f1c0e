-- name: lock_host
-- Whoever gives a host a token or a key, or takes one away, has its row first: all of them take
-- turns, and none waits in a circle.
SELECT h.id, h.name, h.key_generation FROM hosts h WHERE h.id = $1 FOR NO KEY UPDATE;

-- name: forget_tokens
-- A host has one token at a time. A used one goes as well: who has used it may ask with it for the
-- present key, and that may be somebody else's by then.
DELETE FROM enrolments WHERE host_id = $1;

-- name: make_token
INSERT INTO enrolments (digest, host_id, made_by, expires_at)
VALUES ($1, $2, $3, now() + make_interval(secs => $4))
RETURNING expires_at;

-- name: host_of_token
SELECT host_id FROM enrolments WHERE digest = $1;

-- name: use_token
-- Once: who comes first has it. Only whoever shows the same nonce may ask again, because the answer
-- may have been lost on its way.
UPDATE enrolments e
   SET used_at = coalesce(e.used_at, now()), used_by = coalesce(e.used_by, $2)
 WHERE e.digest = $1
   AND e.expires_at > now()
   AND (e.used_by IS NULL OR e.used_by = $2)
RETURNING e.used_at = now() AS first;

-- name: next_key
-- What the former key signs is worth nothing from now on.
UPDATE hosts h SET key_generation = h.key_generation + 1 WHERE h.id = $1 RETURNING h.key_generation;

-- name: generations
SELECT h.id, h.key_generation FROM hosts h WHERE h.id = ANY ($1);

-- name: connected
-- An agent that has shown the present key, here and now: the generation is compared once more,
-- because the key may have been taken since. The session counts its connections, so that a late word
-- about a former one changes nothing. Locked in the order of the id.
INSERT INTO agents AS a (host_id, hub_id, session, version, remote)
SELECT h.id, $5, 1, w.version, w.remote
  FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::text[])
       AS w (host_id, generation, version, remote)
  JOIN hosts h ON h.id = w.host_id AND h.key_generation = w.generation AND w.generation > 0
 ORDER BY h.id
    ON CONFLICT (host_id) DO UPDATE
   SET hub_id = excluded.hub_id, session = a.session + 1, version = excluded.version,
       remote = excluded.remote, connected_at = now(), left_at = NULL
RETURNING a.host_id, a.session;

-- name: left
UPDATE agents a
   SET hub_id = NULL, left_at = now()
  FROM unnest($1::bigint[], $2::bigint[]) AS w (host_id, session)
 WHERE a.host_id = w.host_id
   AND a.session = w.session
   AND a.hub_id IS NOT NULL;

-- name: wake
-- What waits for these hosts to be there is due now. Only the time changes, in both places that
-- have it. What somebody has locked is being claimed or ended at this moment, and needs no waking.
WITH waiting AS MATERIALIZED (
    SELECT e.id
      FROM queue q
      JOIN executions e ON e.id = q.execution_id
     WHERE q.host_id = ANY ($1)
       AND q.due_at > now()
       AND e.cause = 'OFFLINE'
       AND e.status = {queued}
     ORDER BY e.id
       FOR NO KEY UPDATE OF e SKIP LOCKED
), due AS (
    UPDATE executions e SET due_at = now() FROM waiting w WHERE e.id = w.id RETURNING e.id, e.host_id
)
UPDATE queue q
   SET due_at = now()
  FROM due
 WHERE (q.host_id, q.execution_id) = (due.host_id, due.id);

-- name: register_hub
INSERT INTO hubs (url, secret) VALUES ($1, $2) RETURNING id;

-- name: forget_hubs
-- Long gone; nobody can be connected to them.
DELETE FROM hubs WHERE beat_at < now() - interval '1 day';

-- name: beat_hub
-- Says whether the former beat was too long ago: then agents that are connected here have been
-- taken for absent. One that was forgotten meanwhile is there again.
WITH before AS (SELECT h.beat_at FROM hubs h WHERE h.id = $1)
INSERT INTO hubs AS h (id, url, secret) OVERRIDING SYSTEM VALUE VALUES ($1, $2, $3)
    ON CONFLICT (id) DO UPDATE SET url = excluded.url, beat_at = now()
RETURNING coalesce((SELECT beat_at FROM before), '-infinity') < now() - make_interval(secs => $4);

-- name: leave_hub
DELETE FROM hubs WHERE id = $1;

-- name: places
-- Where agents are connected, if the process that they are connected to still breathes.
SELECT a.host_id, h.id, h.url, h.secret
  FROM agents a
  JOIN hubs h ON h.id = a.hub_id
 WHERE a.host_id = ANY ($1)
   AND h.beat_at > now() - make_interval(secs => $2);

-- name: list
SELECT a.host_id, o.name AS host, h.id IS NOT NULL AS connected,
       -- Of an agent whose process died, the last that is known is when it was last said to be there.
       CASE WHEN h.id IS NOT NULL THEN a.connected_at ELSE coalesce(a.left_at, a.connected_at) END
           AS since,
       a.version, a.remote
  FROM agents a
  JOIN hosts o ON o.id = a.host_id
  LEFT JOIN hubs h ON h.id = a.hub_id AND h.beat_at > now() - make_interval(secs => $3)
 WHERE a.host_id > $1
 ORDER BY a.host_id
 LIMIT $2;

-- name: changed
-- Which of these hosts are no longer as they were seen: whatever is forbidden on a host, and whatever
-- key it has, a change gives it another version or generation; one that has connected elsewhere has
-- another session. One that is gone has none of them.
SELECT w.host_id, coalesce(h.version, 0), coalesce(h.key_generation, 0), coalesce(a.session, 0)
  FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::bigint[])
       AS w (host_id, version, generation, session)
  LEFT JOIN hosts h ON h.id = w.host_id
  LEFT JOIN agents a ON a.host_id = w.host_id
 WHERE (h.version, h.key_generation, a.session)
       IS DISTINCT FROM (w.version, w.generation, w.session);

-- name: of_hub
SELECT host_id, session FROM agents WHERE hub_id = $1;

-- name: rules
-- What is forbidden on hosts now, and until when; with the version that this belongs to.
SELECT h.id, h.version,
       coalesce(jsonb_agg(jsonb_build_array(b.command_type, b.reason, b.owner,
                                            extract(epoch FROM b.expires_at))
                          ORDER BY b.command_type)
                FILTER (WHERE b.command_type IS NOT NULL), '[]') AS rules
  FROM hosts h
  LEFT JOIN host_command_blocks b
    ON b.host_id = h.id AND (b.expires_at IS NULL OR b.expires_at > now())
 WHERE h.id = ANY ($1)
 GROUP BY h.id;

-- name: attempts
-- What the report of an attempt needs to know, if the execution is one of this host's. How many lines
-- of it are there already: an agent says everything again that was not receipted.
SELECT w.ord, e.id, e.attempt, e.retries, j.max_retries, j.params, j.masked,
       (SELECT coalesce(max(l.line), 0) FROM execution_logs l
         WHERE l.execution_id = e.id AND l.epoch = w.epoch) AS lines
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY
       AS w (host_id, execution_id, epoch, ord)
  JOIN executions e ON e.id = w.execution_id AND e.host_id = w.host_id
  JOIN jobs j ON j.id = e.job_id;
