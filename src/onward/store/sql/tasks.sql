-- name: find_tasks
-- What a platform calls a task of a device, we know as a command.
SELECT c.task_id, c.node, c.cmd_id, c.lifecycle
  FROM unnest($1::text[], $2::text[]) AS w (task_id, node)
  JOIN commands c ON c.task_id = w.task_id AND c.node = w.node;

-- name: find_tasks_at
-- The same, where the platform has a name and speaks of devices by ids of its own: the id is in the
-- address of a host, or it is itself what a command was made for, if no host is called so.
SELECT DISTINCT ON (w.ord) w.ord, c.cmd_id, c.lifecycle
  FROM unnest($1::text[], $2::text[], $3::text[])
       WITH ORDINALITY AS w (task_id, device_id, platform, ord)
 CROSS JOIN LATERAL (
        SELECT h.name AS node, 1 AS rank
          FROM hosts h
         WHERE h.channel = 'platform'
           AND h.address = w.platform || '/' || w.device_id
        UNION ALL
        SELECT w.device_id, 2
         WHERE NOT EXISTS (SELECT FROM hosts h
                            WHERE h.name = w.device_id AND h.channel = 'platform')
       ) AS n
  JOIN commands c ON c.task_id = w.task_id AND c.node = n.node
 ORDER BY w.ord, n.rank;

-- name: hosts_called
-- Which hosts of platforms are meant by what they are called in callbacks.
SELECT w.ord, n.name
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w (device_id, platform, ord)
 CROSS JOIN LATERAL (
        SELECT h.name
          FROM hosts h
         WHERE w.platform IS NULL
           AND h.channel = 'platform'
           AND h.name = w.device_id
        UNION ALL
        SELECT h.name
          FROM hosts h
         WHERE h.channel = 'platform'
           AND h.address = w.platform || '/' || w.device_id
       ) AS n;

-- name: lock_tasks
-- Whoever names a task and whoever keeps what was said of a nameless one take turns; otherwise each
-- could miss what the other is about to commit. A lock stands for many tasks, so that a batch takes
-- few of them, and all take them in one order.
SELECT pg_advisory_xact_lock($1, k.key)
  FROM (SELECT DISTINCT hashtext(task_id) & 127 AS key
          FROM unnest($2::text[]) AS w (task_id)
         ORDER BY key) AS k;

-- name: keep_early
-- What is said a second time adds nothing to what is kept. The number is drawn in the order of the
-- callbacks, which is the order in which they will be judged.
INSERT INTO early_callbacks (task_id, node, status)
SELECT w.task_id, w.node, w.said
  FROM unnest($1::text[], $2::text[], $3::jsonb[]) WITH ORDINALITY AS w (task_id, node, said, ord)
 WHERE NOT EXISTS (SELECT FROM early_callbacks e
                    WHERE (e.task_id, e.node, e.status) = (w.task_id, w.node, w.said))
 ORDER BY w.ord;

-- name: forget_early
-- What nobody has asked for in so long is about a task that is none of ours. Some of the oldest at a
-- time, so that nobody waits for many.
DELETE FROM early_callbacks
 WHERE id IN (SELECT old.id
                FROM (SELECT id, at FROM early_callbacks ORDER BY id LIMIT $2) AS old
               WHERE old.at < now() - make_interval(secs => $1))
;

-- name: to_be_named
SELECT node, lifecycle, epoch, task_id FROM commands WHERE cmd_id = $1;

-- name: holder
SELECT cmd_id, epoch FROM commands WHERE task_id = $1 AND node = $2;

-- name: set_name
-- A name is given once; only from a former attempt to a later one does it pass on.
UPDATE commands
   SET task_id = $2, version = version + 1, updated_at = greatest(now(), updated_at)
 WHERE cmd_id = $1
   AND (task_id IS NULL OR $2::text IS NULL);

-- name: said_before
-- What the platform has said to a former attempt.
SELECT event, detail FROM timeline WHERE cmd_id = $1 AND source = $2 ORDER BY seq;

-- name: take_early
DELETE FROM early_callbacks WHERE task_id = $1 AND node = $2 RETURNING id, status;
