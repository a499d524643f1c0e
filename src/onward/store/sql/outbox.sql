-- name: claim
-- The lease is short and no transaction stays open while the words are handed on: whoever takes long
-- over it holds up nobody, and at worst a word is told twice.
UPDATE outbox o
   SET locked_until = now() + make_interval(secs => $2)
  FROM (
        SELECT id
          FROM outbox
         WHERE locked_until <= now()
         ORDER BY id
         LIMIT $1
           FOR UPDATE SKIP LOCKED
       ) AS free
 WHERE o.id = free.id
RETURNING o.id, o.topic, o.job_id,
          coalesce((SELECT j.trace FROM jobs j WHERE j.id = o.job_id), '{}') AS trace;

-- name: delete
DELETE FROM outbox WHERE id = ANY ($1);
