-- name: submit
-- A job, its executions and the word that it is there, or nothing at all. Insert first, never look
-- first: of two deliveries of one webhook, one inserts and the other waits for it and finds it.
-- What is chosen is a condition over hosts `h`, written from the selector; its parameters begin
-- at $13.
WITH chosen AS MATERIALIZED (
    SELECT h.id FROM hosts h WHERE h.state = 'ACTIVE' AND ({chosen}) ORDER BY h.id
), missing AS MATERIALIZED (
    SELECT ({missing}) AS names
), job AS (
    INSERT INTO jobs
           (external_id, command_type, params, selector, max_concurrency, requested_by,
            read_only, timeout_s, max_retries, approval_state, total, retry_of, trace,
            argv, masked)
    SELECT $1, t.name, $3::jsonb, $4::jsonb, $5, $6, t.read_only, t.timeout_s, t.max_retries,
           CASE WHEN t.needs_approval THEN 'WAIT_APPROVAL' END, n.total, $9, $10::jsonb,
           -- A retry runs what was run; nothing that was masked is shown because its type is not
           -- so careful any more.
           CASE WHEN $9::bigint IS NULL THEN t.argv
                ELSE (SELECT r.argv FROM jobs r WHERE r.id = $9) END,
           CASE WHEN $9::bigint IS NULL THEN t.masked
                ELSE ARRAY(SELECT unnest(t.masked)
                            UNION
                           SELECT unnest(r.masked) FROM jobs r WHERE r.id = $9) END
      FROM command_types t, (SELECT count(*)::integer AS total FROM chosen) AS n
     WHERE t.name = $2
       AND n.total > 0
       AND (SELECT names FROM missing) = '{}'
       -- The parameters were checked against what the type said a moment ago; a retry's, when they
       -- were first sent.
       AND ($9::bigint IS NOT NULL
            OR t.argv IS NOT DISTINCT FROM $11::text::jsonb AND t.masked = $12::text[])
       -- Whoever has seen a plan wants this plan, and none that has changed since.
       AND CASE WHEN $8::text IS NULL THEN true ELSE $8 = ({digest}) END
        ON CONFLICT (external_id) DO NOTHING
    RETURNING *
), made AS (
    INSERT INTO executions (job_id, host_id, read_only, timeout_s, status, due_at)
    SELECT j.id, c.id, j.read_only, j.timeout_s, {new}, j.created_at FROM job j, chosen c
), counted AS (
    INSERT INTO job_counts (job_id, status, n) SELECT id, {new}, total FROM job
), noted AS (
    INSERT INTO job_timeline (job_id, event, by) SELECT id, 'submit', requested_by FROM job
), told AS (
    -- A job that waits for approval is not to be planned; its approval will tell.
    INSERT INTO outbox (topic, job_id) SELECT 'plan_job', id FROM job WHERE approval_state IS NULL
)
-- The job, or what there is to say about why there is none.
SELECT j.id, j.total, j.approval_state, j.version,
       t.name IS NOT NULL AS type_known, t.argv, t.masked,
       (SELECT count(*) FROM chosen) AS chosen,
       (SELECT names FROM missing) AS missing,
       CASE WHEN j.id IS NULL AND $8::text IS NOT NULL THEN ({digest}) END AS digest
  FROM (SELECT 1) AS one
  LEFT JOIN job j ON true
  LEFT JOIN command_types t ON t.name = $2;

-- name: undone
-- A condition over hosts `h`: those on which job $13 ended in one of these ways.
h.id IN (
    SELECT f.host_id
      FROM failures f
      JOIN executions e ON e.id = f.execution_id
     WHERE f.job_id = $13
       AND f.status = ANY ($14::text[])
       -- Its host has said since that it was done.
       AND e.late_result ->> 'event' IS DISTINCT FROM 'succeed');

-- name: find_external
-- The job of an external id, and in which fields it was asked for otherwise. PostgreSQL compares
-- them: to it 1 is 1.0 and is not true, and no number has lost digits on the way.
SELECT j.id, j.total, j.approval_state, j.version,
       ARRAY(SELECT w.key
               FROM jsonb_each(jsonb_build_object('command_type', $2::text, 'params', $3::jsonb,
                        'selector', $4::jsonb, 'max_concurrency', $5::integer)) AS w (key, value)
              WHERE w.value IS DISTINCT FROM a.asked -> w.key
              ORDER BY w.key) AS other
  FROM jobs j
 CROSS JOIN LATERAL (
        SELECT coalesce(j.asked, jsonb_build_object('command_type', j.command_type,
                   'params', j.params, 'selector', j.selector,
                   'max_concurrency', j.max_concurrency)) AS asked) AS a
 WHERE j.external_id = $1;

-- name: decide
-- Approve or reject: one of two wins, because both ask for the state that only one can leave, and
-- for the version of the plan that the approver saw. Whoever asked for it, or changed it, may not.
WITH decided AS (
    UPDATE jobs
       SET approval_state = $3, decided_by = $4, decided_at = now(), decision_reason = $5,
           version = version + 1, updated_at = now()
     WHERE id = $1
       AND version = $2::bigint
       AND approval_state = 'WAIT_APPROVAL'
       AND cancelled_at IS NULL
       AND requested_by <> $4
       AND $4 <> ALL (edited_by)
    RETURNING id, approval_state, version
), noted AS (
    INSERT INTO job_timeline (job_id, event, by, detail)
    SELECT id, $6, $4, jsonb_build_object('reason', $5::text) FROM decided
), told AS (
    INSERT INTO outbox (topic, job_id)
    SELECT 'plan_job', id FROM decided WHERE approval_state = 'APPROVED'
)
SELECT id, approval_state, version FROM decided;

-- name: standing
-- How a job stands, for whoever wanted to decide about it or change it and could not.
SELECT approval_state, version, false AS decided, decided_by, cancelled_at IS NOT NULL AS cancelled,
       requested_by = $2 OR $2 = ANY (edited_by) AS had_a_hand
  FROM jobs
 WHERE id = $1;

-- name: edit
-- A plan is changed while it waits for approval, by whoever has seen its newest version. What was
-- first asked for stays known, because a repeat of the webhook is still a repeat.
WITH edited AS (
    UPDATE jobs
       SET asked = coalesce(asked, jsonb_build_object('command_type', command_type,
               'params', params, 'selector', selector, 'max_concurrency', max_concurrency)),
           params = coalesce($3::jsonb, params),
           max_concurrency = CASE WHEN $4 THEN $5 ELSE max_concurrency END,
           edited_by = CASE WHEN $6 = ANY (edited_by) THEN edited_by ELSE edited_by || $6 END,
           version = version + 1, updated_at = now()
     WHERE id = $1
       AND version = $2::bigint
       AND approval_state = 'WAIT_APPROVAL'
       AND cancelled_at IS NULL
    RETURNING id, version, masked
), noted AS (
    INSERT INTO job_timeline (job_id, event, by, detail)
    SELECT id, 'edit', $6,
           CASE WHEN $3::jsonb IS NULL THEN '{}'
                ELSE jsonb_build_object('params', (
                         -- What is masked is in the job, and nowhere else.
                         SELECT coalesce(jsonb_object_agg(p.key,
                                    CASE WHEN p.key = ANY (masked) THEN '"***"' ELSE p.value END),
                                    '{}')
                           FROM jsonb_each($3::jsonb) AS p)) END
           || CASE WHEN $4 THEN jsonb_build_object('max_concurrency', $5::integer) ELSE '{}' END
      FROM edited
)
SELECT id, version FROM edited;

-- name: cancel_waiting
-- What has not begun is cancelled at once, from the host after $3 on and up to $4 of it. It is
-- chosen first, then locked in the order of the id like every batch, and looked at again: whoever
-- claims one of them at this moment has either won, and it runs, or finds it ended.
WITH next AS MATERIALIZED (
    SELECT e.id, e.host_id
      FROM executions e
     WHERE e.job_id = $1
       AND e.host_id > $3
       AND e.status IN ({new}, {queued})
     ORDER BY e.host_id
     LIMIT $4
), waiting AS MATERIALIZED (
    SELECT e.id
      FROM executions e
     WHERE e.id = ANY (ARRAY(SELECT id FROM next))
       AND e.status IN ({new}, {queued})
     ORDER BY e.id
       FOR NO KEY UPDATE
), batch AS (
    SELECT array_agg(id ORDER BY id) AS ids, count(*)::integer AS n
      FROM waiting
    HAVING count(*) > 0
), answered AS MATERIALIZED (
    SELECT r.verdict
      FROM batch
     CROSS JOIN LATERAL record_executions_v1(
               batch.ids, array_fill('cancel'::text, ARRAY[batch.n]), NULL,
               array_fill($2::text, ARRAY[batch.n]), NULL, ARRAY[batch.n], NULL
           ) AS r
)
SELECT (SELECT max(host_id) FROM next) AS last_host,
       (SELECT count(*) FROM answered WHERE verdict = 'OK') AS cancelled;

-- name: lock
-- Whoever plans a job, decides about it or cancels it takes turns. A statement of its own: what
-- follows looks in a snapshot that begins after the wait.
SELECT cancelled_at IS NOT NULL AS cancelled FROM jobs WHERE id = $1 FOR NO KEY UPDATE;

-- name: cancel
-- A request: what runs is asked to stop, and may have finished first.
WITH cancelled AS (
    UPDATE jobs
       SET cancelled_at = now(), cancelled_by = $2, cancel_open = true,
           version = version + 1, updated_at = now()
     WHERE id = $1
       AND cancelled_at IS NULL
       -- Of a job that is over, nothing was cancelled and nothing lives: too late, it finished.
       AND ($4 > 0 OR EXISTS (
            SELECT FROM job_counts c
             WHERE c.job_id = $1 AND c.status IN ({new}, {queued}, {running})
             GROUP BY c.status
            HAVING sum(c.n) <> 0))
    RETURNING id
), noted AS (
    INSERT INTO job_timeline (job_id, event, by, detail)
    SELECT id, 'cancel', $2, jsonb_build_object('reason', $3::text, 'cancelled', $4::integer)
      FROM cancelled
)
SELECT id FROM cancelled;

-- name: cancel_open
SELECT id FROM jobs WHERE cancel_open ORDER BY id LIMIT $1;

-- name: close_cancel
-- Nothing of it is live any more, by its own counters.
UPDATE jobs
   SET cancel_open = false
 WHERE id = $1
   AND NOT EXISTS (
        SELECT FROM job_counts c
         WHERE c.job_id = $1 AND c.status IN ({new}, {queued}, {running})
         GROUP BY c.status
        HAVING sum(c.n) <> 0);

-- name: pause
-- Of two who have seen the same version one wins; a job that is as it should be is left alone.
WITH changed AS (
    UPDATE jobs
       SET paused_at = CASE WHEN $2 THEN now() END,
           version = version + 1, updated_at = now()
     WHERE id = $1
       AND version = $4::bigint
       AND (paused_at IS NOT NULL) <> $2
       -- There is nothing to hold back of a job that is over.
       AND (NOT $2 OR cancelled_at IS NULL AND EXISTS (
            SELECT FROM job_counts c
             WHERE c.job_id = $1 AND c.status IN ({new}, {queued}, {running})
             GROUP BY c.status
            HAVING sum(c.n) <> 0))
    RETURNING id, version
), noted AS (
    INSERT INTO job_timeline (job_id, event, by)
    SELECT id, CASE WHEN $2 THEN 'pause' ELSE 'resume' END, $3 FROM changed
), told AS (
    INSERT INTO outbox (topic, job_id) SELECT 'plan_job', id FROM changed WHERE NOT $2
)
SELECT version FROM changed;

-- name: held_back
-- How a job stands, for whoever wanted to hold it back or let it go on and changed nothing.
SELECT version, paused_at IS NOT NULL AS paused FROM jobs WHERE id = $1;

-- name: lock_to_plan
-- The lock on the job's row makes two planners of one job take turns, so that both together stay
-- within its limit. A statement of its own: `plan` counts in a snapshot that begins after the wait.
SELECT id
  FROM jobs
 WHERE id = $1
   -- A job that waits for approval, or was refused it, is not planned whoever asks.
   AND (approval_state IS NULL OR approval_state = 'APPROVED')
   AND paused_at IS NULL
   AND cancelled_at IS NULL
   FOR NO KEY UPDATE;

-- name: plan
-- NEW -> QUEUED, as many as the job's own limit leaves room for, in the order of the hosts, which is
-- the order of the ids. Nothing becomes NEW again, so the next batch begins where this one ends.
WITH room AS MATERIALIZED (
    SELECT j.planned_host AS after,
           least($2, j.max_concurrency - coalesce((
               SELECT sum(n) FROM job_counts c
                WHERE c.job_id = j.id AND c.status IN ({queued}, {running})), 0)) AS n
      FROM jobs j
     WHERE j.id = $1
), next AS MATERIALIZED (
    SELECT e.id, e.host_id, e.status
      FROM executions e
     WHERE e.job_id = $1
       AND e.host_id > (SELECT after FROM room)
     ORDER BY e.host_id
     LIMIT (SELECT greatest(n, 0) FROM room)
       FOR NO KEY UPDATE
), advanced AS (
    UPDATE jobs j
       SET planned_host = greatest(j.planned_host, (SELECT max(host_id) FROM next)),
           planned = room.n > 0 AND (SELECT count(*) FROM next) < room.n
      FROM room
     WHERE j.id = $1
), batch AS (
    SELECT array_agg(id ORDER BY id) AS ids, count(*)::integer AS n
      FROM next
     WHERE status = {new}
    HAVING count(*) > 0
)
SELECT r.*, batch.ids[r.ord] AS id
  FROM batch,
       LATERAL record_executions_v1(
           batch.ids, array_fill('plan'::text, ARRAY[batch.n]), NULL,
           array_fill('planner'::text, ARRAY[batch.n]), NULL, ARRAY[batch.n], NULL
       ) AS r;

-- name: counts
SELECT status, sum(n)::integer AS n FROM job_counts WHERE job_id = $1 GROUP BY status;

-- name: sum_counts
-- Many small changes become one row a status. Whoever adds a change meanwhile adds a row of its
-- own, and whoever sums up the same job at the same moment finds its rows locked and leaves them.
-- Only jobs that are open and may have moved are looked at; `finish` does it for those that are over.
WITH old AS (
    DELETE FROM job_counts
     WHERE ctid = ANY (ARRAY(
           SELECT c.ctid
             FROM job_counts c
            WHERE c.job_id = ANY (ARRAY(
                  SELECT j.id
                    FROM jobs j
                   WHERE {may_move}
                     AND (SELECT count(*) FROM job_counts c WHERE c.job_id = j.id) > $1
                   LIMIT 100))
              FOR UPDATE SKIP LOCKED))
    RETURNING job_id, status, n, at
)
INSERT INTO job_counts (job_id, status, n, at)
SELECT job_id, status, sum(n), max(at) FROM old GROUP BY job_id, status HAVING sum(n) <> 0;

-- name: finish
-- Nothing of these jobs is open any more, by their own counters, and nothing will be again: when the
-- last of it ended is noted, and the counters are summed up for good. A job that somebody has
-- locked comes next time.
WITH over AS MATERIALIZED (
    SELECT j.id
      FROM jobs j
     WHERE {may_move}
       AND NOT EXISTS (
            SELECT FROM job_counts c
             WHERE c.job_id = j.id AND c.status IN ({live})
             GROUP BY c.status
            HAVING sum(c.n) <> 0)
     ORDER BY j.id
     LIMIT $1
       FOR NO KEY UPDATE SKIP LOCKED
), noted AS (
    UPDATE jobs j
       SET finished_at = coalesce((SELECT max(c.at) FROM job_counts c WHERE c.job_id = j.id), now())
      FROM over
     WHERE j.id = over.id
), old AS (
    DELETE FROM job_counts
     WHERE ctid = ANY (ARRAY(
           SELECT c.ctid
             FROM over
             JOIN job_counts c ON c.job_id = over.id
              FOR UPDATE OF c SKIP LOCKED))
    RETURNING job_id, status, n, at
)
INSERT INTO job_counts (job_id, status, n, at)
SELECT job_id, status, sum(n), max(at) FROM old GROUP BY job_id, status HAVING sum(n) <> 0;

-- name: may_move
-- A condition over jobs `j`: open, and not waiting for approval, which is where nothing moves.
j.finished_at IS NULL
AND (j.approval_state IS DISTINCT FROM 'WAIT_APPROVAL' OR j.cancelled_at IS NOT NULL);
