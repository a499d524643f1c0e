-- name: create
-- Insert first, never look first: of two callers with one id, one inserts and the other waits for
-- it and then finds it there. What is not among the answers was there before; `compare` says how.
WITH wanted AS (
    SELECT *, coalesce($11::timestamptz, now()) AS now_at
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                  $7::text[], $8::jsonb[], $9::float8[], $10::bigint[])
           AS w (cmd_id, lifecycle, status, timer, node, type, task_id, params, timeout_s, epoch)
     -- The order of the ids is the order in which concurrent creators wait for each other.
     ORDER BY cmd_id
), made AS (
    INSERT INTO commands
           (cmd_id, lifecycle, status, node, type, task_id, params, timeout_s, epoch,
            created_at, updated_at, deadline_at, due_at)
    SELECT cmd_id, lifecycle, status, node, type, task_id, params, timeout_s,
           coalesce(epoch, nextval('epochs')), now_at, now_at,
           CASE timer WHEN 'deadline' THEN now_at + make_interval(secs => timeout_s) END,
           CASE timer WHEN 'due' THEN now_at + make_interval(secs => timeout_s) END
      FROM wanted
        ON CONFLICT DO NOTHING
    RETURNING cmd_id, lifecycle, node, task_id, status, epoch, version, created_at
), told AS (
    INSERT INTO timeline (at, cmd_id, event, verdict, to_status, epoch, source)
    SELECT created_at, cmd_id, 'create', 'OK', status, epoch, $12
      FROM made
), to_send AS (
    -- What is for a host that answers later is handed over by whoever has its wire; whoever makes
    -- it may want to be the first to try.
    INSERT INTO sendings (cmd_id, channel, send_at, doubt)
    SELECT m.cmd_id, h.channel, now() + make_interval(secs => $13::float8), $13 > 0
      FROM made m
      JOIN hosts h ON h.name = m.node
     WHERE m.task_id IS NULL
       AND h.channel || '.' || m.lifecycle = ANY ({wires})
)
SELECT cmd_id, status, epoch, version FROM made;

-- name: compare
-- What is there already, against what was wanted. A statement of its own, because a row that was
-- committed while `create` waited for it is not in the snapshot of `create`. A command that is not
-- found although its id could not be inserted lost to another one's claim on the platform's task.
WITH judged AS MATERIALIZED (
    SELECT w.ord, w.cmd_id, w.source, c.lifecycle, c.status, c.epoch, c.version,
           CASE WHEN (c.lifecycle, c.node, c.type, c.params, c.timeout_s)
                   = (w.lifecycle, w.node, w.type, w.params, w.timeout_s)
                 AND (c.task_id IS NOT DISTINCT FROM w.task_id
                      -- Its platform has given it a name in the meantime.
                      OR (w.task_id IS NULL
                          AND EXISTS (SELECT FROM hosts h
                                       WHERE h.name = c.node AND h.channel = 'platform')))
                THEN 'DUPLICATE' ELSE 'CONFLICT' END AS verdict
      FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::jsonb[],
                  $7::float8[], $8::text[])
           WITH ORDINALITY
           AS w (cmd_id, lifecycle, node, type, task_id, params, timeout_s, source, ord)
      LEFT JOIN commands c ON c.cmd_id = w.cmd_id
), told AS (
    INSERT INTO timeline (at, cmd_id, event, verdict, from_status, to_status, epoch, source)
    SELECT coalesce($9::timestamptz, now()), cmd_id, 'create', verdict, status, status, epoch,
           source
      FROM judged
)
SELECT cmd_id, verdict, lifecycle, status, epoch, version FROM judged ORDER BY ord;

-- name: get
SELECT * FROM commands WHERE cmd_id = $1;

-- name: list
-- The newest first: ids made later sort later. What could be as large as a body is left out.
SELECT cmd_id, lifecycle, node, type, task_id, status, epoch, version, timeout_s, created_at,
       updated_at, deadline_at, due_at, finished_at, duration_ms, result_code, error_code
  FROM commands
 WHERE cmd_id < $1
   AND cmd_id >= $2
   AND ($4::text IS NULL OR lifecycle = $4)
   AND ($5::text IS NULL OR node = $5)
   AND ($6::text IS NULL OR status = $6)
 ORDER BY cmd_id DESC
 LIMIT $3;

-- name: far_enough
-- How far a page with a filter looks, so that a filter which fits nothing is answered in time too.
SELECT cmd_id FROM commands WHERE cmd_id < $1 ORDER BY cmd_id DESC OFFSET $2 LIMIT 1;

-- name: record_events
SELECT * FROM record_events_v1($1, $2, $3, $4, $5, $6, $7);

-- name: expire_due
-- Whoever comes first locks what is due, and nobody waits: a row that another sweep holds is that
-- sweep's to time out, and a row that an event holds has just got a word of its own.
-- The move itself is the guarded path's, like any other.
SELECT r.*, due.ids[r.ord] AS cmd_id
  FROM (
        SELECT array_agg(cmd_id ORDER BY cmd_id) AS ids, count(*)::integer AS n
          FROM (
                SELECT cmd_id
                  FROM commands
                 WHERE deadline_at <= coalesce($1::timestamptz, now())
                   AND lifecycle || '.' || status = ANY ({timed})
                 ORDER BY deadline_at
                 LIMIT $2
                   FOR NO KEY UPDATE SKIP LOCKED
               ) AS d
        HAVING count(*) > 0
       ) AS due,
       LATERAL record_events_v1(
           due.ids,
           array_fill('timeout'::text, ARRAY[due.n]),
           array_fill(NULL::bigint, ARRAY[due.n]),
           array_fill('deadline'::text, ARRAY[due.n]),
           array_fill(NULL::jsonb, ARRAY[due.n]),
           ARRAY[due.n],
           $1
       ) AS r;

-- name: timeline
SELECT seq, at, event, verdict, from_status, to_status, epoch, source, detail
  FROM timeline
 WHERE cmd_id = $1
   AND seq > $2
 ORDER BY seq
 LIMIT $3;
