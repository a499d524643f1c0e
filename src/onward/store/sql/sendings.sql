-- name: take
-- What is due to be handed over, for whoever comes first; nobody else takes it for a while, and
-- each time that nothing comes back it is longer. What has been answered needs no more handing over.
WITH due AS MATERIALIZED (
    SELECT s.cmd_id, s.tries, s.doubt
      FROM sendings s
     WHERE s.channel = $1
       AND s.send_at <= now()
     ORDER BY s.send_at
     LIMIT $2
       FOR UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT d.cmd_id, d.tries, d.doubt,
           coalesce(c.lifecycle || '.' || c.status = ANY ({unanswered})
                        AND c.created_at + make_interval(secs => c.timeout_s) > now(),
                    false) AS unanswered
      FROM due d
      LEFT JOIN commands c ON c.cmd_id = d.cmd_id
), over AS (
    DELETE FROM sendings s USING judged j WHERE s.cmd_id = j.cmd_id AND NOT j.unanswered
), again AS (
    UPDATE sendings s
       SET tries = s.tries + 1,
           doubt = true,
           send_at = now() + make_interval(secs => least($3 * 2 ^ least(j.tries, 10), $4))
      FROM judged j
     WHERE s.cmd_id = j.cmd_id
       AND j.unanswered
)
SELECT c.cmd_id, c.lifecycle, c.status, c.epoch, c.type, c.params,
       extract(epoch FROM c.created_at - now())::float8 + c.timeout_s AS left_s,
       h.id, h.name, h.address, h.key_generation, j.doubt
  FROM judged j
  JOIN commands c ON c.cmd_id = j.cmd_id
  JOIN hosts h ON h.name = c.node
 WHERE j.unanswered;

-- name: certain
-- Whoever took it knows that it was not handed over, and need not be waited for.
UPDATE sendings
   SET doubt = false, send_at = least(send_at, now() + make_interval(secs => $2::float8))
 WHERE cmd_id = $1;

-- name: abandon
-- Nobody is to hand it over any more. Says how it stands, and whether somebody may have.
WITH given_up AS (
    DELETE FROM sendings WHERE cmd_id = $1 RETURNING doubt
)
SELECT c.lifecycle || '.' || c.status = ANY ({unanswered}) AND NOT coalesce(g.doubt, true), c.status
  FROM commands c
  LEFT JOIN given_up g ON true
 WHERE c.cmd_id = $1;

-- name: ended
-- Which of these have come to their end, and how.
SELECT cmd_id, status, result_code, error_code, error_message, result
  FROM commands
 WHERE cmd_id = ANY ($1::uuid[])
   AND finished_at IS NOT NULL;

-- name: left_from
-- Where a command was when it came to its end.
SELECT from_status
  FROM timeline
 WHERE cmd_id = $1
   AND verdict = 'OK'
   AND to_status = $2
 ORDER BY seq DESC
 LIMIT 1;

-- name: generations
-- Which of their keys hosts of these names have now.
SELECT name, id, key_generation FROM hosts WHERE name = ANY ($1::text[]) AND channel = $2;

-- name: failed_before
-- The last of the former attempts between these ids of which somebody said that it failed.
SELECT max(epoch)
  FROM commands
 WHERE cmd_id > $1
   AND cmd_id < $2
   AND finished_at IS NOT NULL
   AND error_code IS NOT NULL;
