-- name: submit
-- A job, its executions and the word that it is there, or nothing at all. Insert first, never look
-- first: of two deliveries of one webhook, one inserts and the other waits for it and finds it.
-- {chosen} is a condition over hosts `h`, written from the selector; its parameters begin at $8.
WITH chosen AS MATERIALIZED (
    SELECT h.id FROM hosts h WHERE h.state = 'ACTIVE' AND ({chosen}) ORDER BY h.id
), missing AS MATERIALIZED (
    SELECT w.name
      FROM unnest($7::text[]) AS w (name)
     WHERE NOT EXISTS (SELECT FROM hosts h WHERE h.name = w.name AND h.state = 'ACTIVE')
), job AS (
    INSERT INTO jobs
           (external_id, command_type, params, selector, max_concurrency, requested_by,
            read_only, timeout_s, max_retries, approval_state, total)
    SELECT $1, t.name, $3::jsonb, $4::jsonb, $5, $6, t.read_only, t.timeout_s, t.max_retries,
           CASE WHEN t.needs_approval THEN 'WAIT_APPROVAL' END, n.total
      FROM command_types t, (SELECT count(*)::integer AS total FROM chosen) AS n
     WHERE t.name = $2
       AND n.total > 0
       AND NOT EXISTS (SELECT FROM missing)
        ON CONFLICT (external_id) DO NOTHING
    RETURNING *
), made AS (
    INSERT INTO executions (job_id, host_id, read_only, timeout_s, status, due_at)
    SELECT j.id, c.id, j.read_only, j.timeout_s, {new}, j.created_at FROM job j, chosen c
), counted AS (
    INSERT INTO job_counts (job_id, status, n) SELECT id, {new}, total FROM job
), told AS (
    -- A job that waits for approval is not to be planned; its approval will tell.
    INSERT INTO outbox (topic, job_id) SELECT 'plan_job', id FROM job WHERE approval_state IS NULL
)
SELECT j.id, j.total, j.approval_state, j.version,
       (SELECT count(*) FROM chosen) AS chosen,
       ARRAY(SELECT name FROM missing ORDER BY name LIMIT 100) AS missing
  FROM (SELECT 1) AS one
  LEFT JOIN job j ON true;

-- name: find_external
SELECT id, command_type, params, selector, max_concurrency, total, approval_state, version
  FROM jobs
 WHERE external_id = $1;

-- name: decide
-- Approve or reject: one of two wins, because both ask for the state that only one can leave, and
-- for the version of the plan that the approver saw.
UPDATE jobs
   SET approval_state = $3, decided_by = $4, decided_at = now(), decision_reason = $5,
       version = version + 1, updated_at = now()
 WHERE id = $1
   AND version = $2
   AND approval_state = 'WAIT_APPROVAL'
   AND requested_by <> $4
RETURNING id, approval_state, version;

-- name: cancel_waiting
-- What has not begun is cancelled at once. Locked in the order of the id, like every batch: whoever
-- claims one of them at this moment has either won or waits, and then finds it ended.
WITH waiting AS (
    SELECT array_agg(id ORDER BY id) AS ids, count(*)::integer AS n
      FROM (
            SELECT e.id
              FROM executions e
             WHERE e.job_id = $1
               AND e.status IN ({new}, {queued})
             ORDER BY e.id
               FOR NO KEY UPDATE
           ) AS e
    HAVING count(*) > 0
)
SELECT r.*, waiting.ids[r.ord] AS id
  FROM waiting,
       LATERAL record_executions_v1(
           waiting.ids, array_fill('cancel'::text, ARRAY[waiting.n]), NULL,
           array_fill($2::text, ARRAY[waiting.n]), NULL, ARRAY[waiting.n], NULL
       ) AS r;

-- name: cancel
-- A request: what runs is asked to stop, and may have finished first.
UPDATE jobs
   SET cancelled_at = now(), cancelled_by = $2, cancel_open = true,
       version = version + 1, updated_at = now()
 WHERE id = $1
   AND cancelled_at IS NULL
RETURNING id;

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
UPDATE jobs
   SET paused_at = CASE WHEN $2 THEN coalesce(paused_at, now()) END,
       version = version + 1, updated_at = now()
 WHERE id = $1
   AND (paused_at IS NOT NULL) <> $2
RETURNING id;

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
-- NEW -> QUEUED, as many as the job's own limit leaves room for.
WITH room AS MATERIALIZED (
    SELECT j.id,
           least($2, j.max_concurrency - coalesce((
               SELECT sum(n) FROM job_counts c
                WHERE c.job_id = j.id AND c.status IN ({queued}, {running})), 0)) AS n
      FROM jobs j
     WHERE j.id = $1
), next AS (
    SELECT array_agg(id ORDER BY id) AS ids, count(*)::integer AS n
      FROM (
            SELECT e.id
              FROM executions e
             WHERE e.job_id = $1
               AND e.status = {new}
             ORDER BY e.id
             LIMIT (SELECT greatest(n, 0) FROM room)
               FOR NO KEY UPDATE SKIP LOCKED
           ) AS e
    HAVING count(*) > 0
)
SELECT r.*, next.ids[r.ord] AS id
  FROM next,
       LATERAL record_executions_v1(
           next.ids, array_fill('plan'::text, ARRAY[next.n]), NULL,
           array_fill('planner'::text, ARRAY[next.n]), NULL, ARRAY[next.n], NULL
       ) AS r;

-- name: counts
SELECT status, sum(n)::integer AS n FROM job_counts WHERE job_id = $1 GROUP BY status;

-- name: sum_counts
-- Many small changes become one row a status. Whoever adds a change meanwhile adds a row of its
-- own, and whoever sums up the same job at the same moment finds its rows locked and leaves them.
WITH old AS (
    DELETE FROM job_counts c
     USING (
            SELECT ctid FROM job_counts
             WHERE job_id = ANY (
                   SELECT job_id FROM job_counts GROUP BY job_id HAVING count(*) > $1 LIMIT 100)
               FOR UPDATE SKIP LOCKED
           ) AS o
     WHERE c.ctid = o.ctid
    RETURNING c.job_id, c.status, c.n
)
INSERT INTO job_counts (job_id, status, n)
SELECT job_id, status, sum(n) FROM old GROUP BY job_id, status HAVING sum(n) <> 0;
