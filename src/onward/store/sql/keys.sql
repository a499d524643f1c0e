-- name: find
SELECT id, name, person, role FROM api_keys WHERE hash = $1 AND revoked_at IS NULL;

-- name: make
INSERT INTO api_keys (name, person, role, hash, created_by)
VALUES ($1, $2, $3, $4, $5)
RETURNING id, name, person, role, created_at, created_by, revoked_at, revoked_by;

-- name: list
SELECT id, name, person, role, created_at, created_by, revoked_at, revoked_by
  FROM api_keys
 WHERE id > $1
 ORDER BY id
 LIMIT $2;

-- name: revoke
-- Never the last key that can make others: nobody could get in again. Two admins who revoke each
-- other's key at once would both see the other one live, so this runs under the lock of all
-- changes to admin keys.
UPDATE api_keys k
   SET revoked_at = now(), revoked_by = $2
 WHERE k.id = $1
   AND k.revoked_at IS NULL
   AND (k.role <> 'admin'
        OR EXISTS (SELECT FROM api_keys o
                    WHERE o.role = 'admin' AND o.revoked_at IS NULL AND o.id <> k.id))
RETURNING k.id, k.name, k.person, k.role, k.created_at, k.created_by, k.revoked_at, k.revoked_by;

-- name: end_sessions
-- A key that is revoked may be installed again; what was begun with it before is over for good.
DELETE FROM sessions WHERE key_id = $1;

-- name: revoked
SELECT revoked_at IS NOT NULL AS revoked FROM api_keys WHERE id = $1;

-- name: has_admin
SELECT EXISTS (SELECT FROM api_keys WHERE role = 'admin' AND revoked_at IS NULL);

-- name: install
-- The environment decides: its key is an admin's, whatever it was before.
INSERT INTO api_keys (name, person, role, hash, created_by)
VALUES ($1, 'admin', 'admin', $2, 'environment')
    ON CONFLICT (hash) DO UPDATE
   SET name = excluded.name, person = excluded.person, role = excluded.role,
       revoked_at = NULL, revoked_by = NULL
 WHERE (api_keys.name, api_keys.person, api_keys.role)
       <> (excluded.name, excluded.person, excluded.role)
    OR api_keys.revoked_at IS NOT NULL
RETURNING id, name, person, role, created_at, created_by, revoked_at, revoked_by;

-- name: replace
-- What the environment said before is no longer said.
UPDATE api_keys
   SET revoked_at = now(), revoked_by = 'environment'
 WHERE name = $1 AND hash <> $2 AND revoked_at IS NULL
RETURNING id, name, person, role, created_at, created_by, revoked_at, revoked_by;

-- name: take_message
-- Insert first, never look first: of two copies of one message, one is taken.
INSERT INTO webhook_messages (message_id, sent_at) VALUES ($1, $2)
    ON CONFLICT DO NOTHING
RETURNING true;

-- name: forget_messages
DELETE FROM webhook_messages WHERE sent_at < $1;
