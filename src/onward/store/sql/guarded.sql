-- The guarded path, and the only SQL that assigns `status`. It is a form: `store/guarded.py` fills
-- in what <<stands like this>> for each table that has a lifecycle, so that all of them are moved
-- by the same few lines.
--
-- It takes events as parallel arrays and answers each by its position with the verdict, the status
-- and epoch that it was judged against, and what is there now. A column that nobody filled may be
-- NULL as a whole.
--
-- A row may occur several times: the arrays come in rounds, `p_round_ends` holds the last position
-- of each, and a round has at most one event of a row, in the order of the key. So the second event
-- of a row is in the second round, and sees what the first one did.
--
-- 1. Lock first, in the order of the key. The row that is judged is the row that is locked, so a
--    refusal is explained by what refused it, and two batches over the same rows cannot wait for
--    each other in a circle. (A guarded UPDATE first would save the lock on the happy path. But a
--    batch that then locks what it did not move holds other rows already: a deadlock.)
-- 2. Judge by the law: a look-up of (lifecycle, event, status). A foreign epoch is refused before.
-- 3. Move what may move, with the guard repeated against the live row.
-- 4. Write the timeline: every event, moved or not, also for rows that nobody knows.

-- Dropped first, because the names of what goes in and comes out cannot be replaced. Whoever has
-- prepared a call finds the new one when this transaction ends. A change that a program of the
-- former version could not live with gets a new number, and the old one stays for a release.
DROP FUNCTION IF EXISTS onward.<<function>>(
    <<key type>>[], text[], bigint[], text[], jsonb[], integer[], timestamptz);
CREATE FUNCTION onward.<<function>>(
    p_key <<key type>>[], p_event text[], p_epoch bigint[], p_source text[], p_data jsonb[],
    p_round_ends integer[], p_now timestamptz
) RETURNS TABLE (
    ord bigint, verdict text, lifecycle text, seen text, seen_epoch bigint,
    status text, epoch bigint, version integer
) LANGUAGE plpgsql
-- Fixed here, so that neither a caller's search path nor the size of the first batches that a
-- connection happened to see decides what this does and how fast.
SET search_path = onward, pg_temp
SET plan_cache_mode = force_generic_plan
-- A plan that was made while a table was small must not read all of it when it has grown.
SET enable_seqscan = off
AS $function$
#variable_conflict use_column
DECLARE
    now_at timestamptz := coalesce(p_now, now());
    first  integer := 1;
    last   integer;
    tx_now bigint := pg_current_xact_id()::text::bigint; -- once, not for every row
BEGIN
    FOREACH last IN ARRAY p_round_ends LOOP
        RETURN QUERY
        WITH event AS MATERIALIZED (
            SELECT *
              FROM unnest(p_key[first:last], p_event[first:last], p_epoch[first:last],
                          p_source[first:last], p_data[first:last])
                   WITH ORDINALITY AS e (key, event, told, source, data, ord)
        ), locked AS MATERIALIZED (
            -- LATERAL fixes the order of the locks to the order of the array: no plan can change
            -- it. What is not found stays in, as a row that nobody knows.
            SELECT first - 1 + e.ord AS ord, e.key, e.event, e.told, e.data,
                   coalesce(e.source, '') AS source,
                   c.lifecycle, c.status, c.epoch, c.version, c.never_late
              FROM event e
              LEFT JOIN LATERAL (
                    SELECT <<lifecycle>> AS lifecycle, c.status, c.epoch, c.version,
                           c.late_result IS NULL AS never_late
                      FROM <<table>> c
                     WHERE c.<<key>> = e.key
                       FOR NO KEY UPDATE
                   ) c ON true
        ), judged AS MATERIALIZED (
            SELECT k.ord, k.key, k.event, k.told, k.source, k.data,
                   k.lifecycle, k.status, k.epoch, k.version,
                   CASE WHEN k.status IS NULL THEN 'UNKNOWN_COMMAND'
                        WHEN k.told <> k.epoch THEN 'STALE_EPOCH'
                        ELSE coalesce(l.verdict, 'INVALID_STATE') END AS verdict,
                   coalesce(l.target, k.status) AS target,
                   l.timer,
                   l.verdict = 'OK' AND l.draws_epoch AS draws_epoch,
                   -- Whether the row changes: it moves, or it keeps a result that came too late.
                   l.verdict = 'OK' OR (l.keeps_late AND k.never_late) AS touched
              FROM locked k
              LEFT JOIN law l
                ON l.lifecycle = k.lifecycle AND l.event = k.event AND l.status = k.status
               -- A former attempt speaks: what it says is not weighed against the row at all.
               AND (k.told IS NULL OR k.told = k.epoch)
        ), moved AS (
            UPDATE <<table>> c
               -- The guard once more, here and not in WHERE: after a wait, WHERE is asked about the
               -- row as it was when the statement began, but SET about the row that is locked. It
               -- cannot fail while the lock is held; if it ever does, the core does not find the
               -- target that it expects, and the process stops.
               SET status = CASE WHEN c.status = j.status AND c.epoch = j.epoch
                                 THEN j.target ELSE c.status END,
                   version = c.version + 1,
                   -- Our transaction may have begun before the one that we waited for.
                   updated_at = greatest(now_at, c.updated_at),
                   epoch = CASE WHEN j.draws_epoch THEN nextval('epochs') ELSE c.epoch END,
                   finished_at = CASE j.timer WHEN 'none' THEN
                       coalesce(c.finished_at, now_at) END,
                   -- The host's own word, too late to change the status, is kept beside it. The
                   -- first one stays; any later one is in the timeline.
                   late_result = CASE WHEN j.verdict = 'OK' THEN c.late_result
                       ELSE jsonb_build_object('event', j.event, 'at', now_at)
                            || coalesce(j.data, '{}') END,
                   <<settles>>
              FROM judged j
             CROSS JOIN LATERAL (SELECT CASE WHEN j.verdict = 'OK' THEN j.data END AS data) n
             WHERE c.<<key>> = j.key
               AND j.touched
            RETURNING j.ord, j.verdict, j.lifecycle, j.status AS seen, j.epoch AS seen_epoch,
                      c.status, c.epoch, c.version<<returned>>
        ), told AS (
            INSERT INTO <<timeline>>
                   (at, tx, <<timeline key>>, event, verdict, from_status, to_status, epoch,
                    source, detail)
            SELECT now_at, tx_now, j.key, j.event, j.verdict, j.status, j.target,
                   coalesce(j.told, j.epoch), j.source, j.data
              FROM judged j
        )<<afterwards>>
        SELECT m.ord, m.verdict, m.lifecycle, m.seen, m.seen_epoch, m.status, m.epoch, m.version
          FROM moved m
        UNION ALL
        SELECT j.ord, j.verdict, j.lifecycle, j.status, j.epoch, j.status, j.epoch, j.version
          FROM judged j
         WHERE j.touched IS NOT TRUE;
        first := last + 1;
    END LOOP;
END
$function$;
