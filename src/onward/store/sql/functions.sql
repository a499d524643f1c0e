-- The functions of the store. `onward.store.schema` installs them, and installs them again whenever
-- their text here has changed. A change that a program of the former version could not live with
-- gets a new number at the end of the name, and the old one stays for a release.

-- record_events_v1: the guarded path, and the only SQL that assigns `status`.
--
-- It takes events as parallel arrays and answers each by its position with the verdict, the status
-- and epoch that it was judged against, and what is there now. A column that nobody filled may be
-- NULL as a whole.
--
-- A command may occur several times: the arrays come in rounds, `p_round_ends` holds the last
-- position of each, and a round has at most one event of a command, in the order of the id. So the
-- second event of a command is in the second round, and sees what the first one did.
--
-- 1. Lock first, in the order of the id. The row that is judged is the row that is locked, so a
--    refusal is explained by what refused it, and two batches over the same commands cannot wait
--    for each other in a circle. (A guarded UPDATE first would save the lock on the happy path.
--    But a batch that then locks what it did not move holds other rows already: a deadlock.)
-- 2. Judge by the law: a look-up of (lifecycle, event, status). A foreign epoch is refused before.
-- 3. Move what may move, with the guard repeated against the live row.
-- 4. Write the timeline: every event, moved or not, also for commands that nobody knows.
CREATE OR REPLACE FUNCTION onward.record_events_v1(
    p_cmd_id uuid[], p_event text[], p_epoch bigint[], p_source text[], p_data jsonb[],
    p_round_ends integer[], p_now timestamptz
) RETURNS TABLE (
    ord bigint, verdict text, lifecycle text, seen text, seen_epoch bigint,
    status text, epoch bigint, version integer
) LANGUAGE plpgsql
-- Fixed here, so that neither a caller's search path nor the size of the first batches that a
-- connection happened to see decides what this does and how fast.
SET search_path = onward, pg_temp
SET plan_cache_mode = force_generic_plan
AS $function$
#variable_conflict use_column
DECLARE
    now_at timestamptz := coalesce(p_now, now());
    first  integer := 1;
    last   integer;
BEGIN
    FOREACH last IN ARRAY p_round_ends LOOP
        RETURN QUERY
        WITH event AS MATERIALIZED (
            SELECT *
              FROM unnest(p_cmd_id[first:last], p_event[first:last], p_epoch[first:last],
                          p_source[first:last], p_data[first:last])
                   WITH ORDINALITY AS e (cmd_id, event, told, source, data, ord)
        ), locked AS MATERIALIZED (
            -- LATERAL fixes the order of the locks to the order of the array: no plan can change
            -- it. What is not found stays in, as a command that nobody knows.
            SELECT first - 1 + e.ord AS ord, e.cmd_id, e.event, e.told, e.data,
                   coalesce(e.source, '') AS source,
                   c.lifecycle, c.status, c.epoch, c.version, c.never_late
              FROM event e
              LEFT JOIN LATERAL (
                    SELECT c.lifecycle, c.status, c.epoch, c.version,
                           c.late_result IS NULL AS never_late
                      FROM commands c
                     WHERE c.cmd_id = e.cmd_id
                       FOR NO KEY UPDATE
                   ) c ON true
        ), judged AS MATERIALIZED (
            SELECT k.ord, k.cmd_id, k.event, k.told, k.source, k.data,
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
            UPDATE commands c
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
                   -- The clock of the status that is entered; one that still runs goes on.
                   deadline_at = CASE j.timer WHEN 'deadline' THEN
                       coalesce(c.deadline_at, now_at + make_interval(secs => c.timeout_s)) END,
                   due_at = CASE j.timer WHEN 'due' THEN
                       coalesce(c.due_at, c.deadline_at,
                                now_at + make_interval(secs => c.timeout_s)) END,
                   finished_at = CASE j.timer WHEN 'none' THEN
                       coalesce(c.finished_at, now_at) END,
                   duration_ms = coalesce(n.data ->> 'duration_ms', c.duration_ms::text)::bigint,
                   result_code = coalesce(n.data ->> 'result_code', c.result_code),
                   error_code = coalesce(n.data ->> 'error_code', c.error_code),
                   error_message = coalesce(n.data ->> 'error_message', c.error_message),
                   result = coalesce(n.data -> 'result', c.result),
                   -- The host's own word, too late to change the status, is kept beside it. The
                   -- first one stays; any later one is in the timeline.
                   late_result = CASE WHEN j.verdict = 'OK' THEN c.late_result
                       ELSE jsonb_build_object('event', j.event, 'at', now_at)
                            || coalesce(j.data, '{}') END
              FROM judged j
             CROSS JOIN LATERAL (SELECT CASE WHEN j.verdict = 'OK' THEN j.data END AS data) n
             WHERE c.cmd_id = j.cmd_id
               AND j.touched
            RETURNING j.ord, j.verdict, c.lifecycle, j.status AS seen, j.epoch AS seen_epoch,
                      c.status, c.epoch, c.version
        ), told AS (
            INSERT INTO timeline
                   (at, cmd_id, event, verdict, from_status, to_status, epoch, source, detail)
            SELECT now_at, j.cmd_id, j.event, j.verdict, j.status, j.target,
                   coalesce(j.told, j.epoch), j.source, j.data
              FROM judged j
        )
        SELECT * FROM moved
        UNION ALL
        SELECT j.ord, j.verdict, j.lifecycle, j.status, j.epoch, j.status, j.epoch, j.version
          FROM judged j
         WHERE j.touched IS NOT TRUE;
        first := last + 1;
    END LOOP;
END
$function$;
