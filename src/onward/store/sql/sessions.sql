-- name: find
-- A session ends with its key, whatever its own row says.
SELECT k.id, k.name, k.person, k.role, s.expires_at
  FROM sessions s
  JOIN api_keys k ON k.id = s.key_id
 WHERE s.digest = $1
   AND s.expires_at > now()
   AND k.revoked_at IS NULL;

-- name: begin
-- Whoever logs in clears away what has ended, so that the table holds about as many as are in use.
-- What another is clearing away at this moment is left to them.
WITH over AS (
    DELETE FROM sessions s
     USING (SELECT digest FROM sessions
             WHERE expires_at <= now()
             ORDER BY expires_at
             LIMIT 1000
               FOR UPDATE SKIP LOCKED) AS o
     WHERE s.digest = o.digest
), begun AS (
    INSERT INTO sessions (digest, key_id, expires_at)
    SELECT $1, k.id, now() + make_interval(secs => $3)
      FROM api_keys k
     WHERE k.hash = $2
       AND k.revoked_at IS NULL
    RETURNING key_id, expires_at
)
SELECT k.id, k.name, k.person, k.role, b.expires_at
  FROM begun b
  JOIN api_keys k ON k.id = b.key_id;

-- name: end
DELETE FROM sessions s
 USING api_keys k
 WHERE s.digest = ANY ($1)
   AND k.id = s.key_id
RETURNING k.id, k.name, k.person, k.role;
