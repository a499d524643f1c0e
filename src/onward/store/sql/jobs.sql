-- name: submit
-- A job, its executions and the word that it is there, or nothing at all. Insert first, never look
-- first: of two deliveries of one webhook, one inserts and the other waits for it and finds it.
-- {chosen} is a condition over hosts `h`, written from the selector; its parameters begin at $10.
WITH chosen AS MATERIALIZED (
    SELECT h.id FROM hosts h WHERE h.state = 'ACTIVE' AND ({chosen}) ORDER BY h.id
), missing AS MATERIALIZED (
    SELECT w.name
      FROM unnest($7::text[]) AS w (name)
     WHERE NOT EXISTS (SELECT FROM hosts h WHERE h.name = w.name AND h.state = 'ACTIVE')
), job AS (
    INSERT INTO jobs
           (external_id, command_type, params, selector, max_concurrency, requested_by,
            read_only, timeout_s, max_retries, approval_state, total, retry_of)
    SELECT $1, t.name, $3::jsonb, $4::jsonb, $5, $6, t.read_only, t.timeout_s, t.max_retries,
           CASE WHEN t.needs_approval THEN 'WAIT_APPROVAL' END, n.total, $9
      FROM command_types t, (SELECT count(*)::integer AS total FROM chosen) AS n
     WHERE t.name = $2
       AND n.total > 0
       AND NOT EXISTS (SELECT FROM missing)
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
SELECT j.id, j.total, j.approval_state, j.version,
       (SELECT count(*) FROM chosen) AS chosen,
       ARRAY(SELECT name FROM missing ORDER BY name LIMIT 100) AS missing
  FROM (SELECT 1) AS one
  LEFT JOIN job j ON true;

-- name: digest
-- What a plan comes down to: which hosts, and on which of them a rule forbids it.
SELECT md5($2::text || coalesce(string_agg(c.id::text || CASE WHEN b.host_id IS NULL THEN '' ELSE '!' END,
                                           ',' ORDER BY c.id), ''))
  FROM chosen c
  LEFT JOIN host_command_blocks b
    ON b.host_id = c.id AND b.command_type = $2
   AND (b.expires_at IS NULL OR b.expires_at > now());

-- name: preview
-- Who would run, who may not and by which rule, and who is busy now. The lists are short, the
-- counts are whole. {chosen} begins at $4; $2 is the command type, $3 how many of each are named.
WITH chosen AS MATERIALIZED (
    SELECT h.id, h.name FROM hosts h WHERE h.state = 'ACTIVE' AND ({chosen})
), type AS MATERIALIZED (
    SELECT * FROM command_types WHERE name = $2
), judged AS MATERIALIZED (
    SELECT c.id, c.name, b.host_id IS NOT NULL AS blocked, b.reason, b.owner, b.expires_at, r.id AS busy_with
      FROM chosen c
      LEFT JOIN host_command_blocks b
        ON b.host_id = c.id AND b.command_type = $2
       AND (b.expires_at IS NULL OR b.expires_at > now())
      LEFT JOIN LATERAL (
            SELECT e.id
              FROM executions e
             WHERE e.host_id = c.id
               AND e.status = {running}
               AND NOT (e.read_only AND (SELECT read_only FROM type))
             LIMIT 1
           ) AS r ON b.host_id IS NULL
)
SELECT (SELECT needs_approval FROM type) AS needs_approval,
       count(*) AS total,
       count(*) FILTER (WHERE blocked) AS blocked,
       count(*) FILTER (WHERE busy_with IS NOT NULL) AS busy,
       ({digest}) AS digest,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('host_id', s.id, 'name', s.name) ORDER BY s.id), '[]')
          FROM (SELECT * FROM judged WHERE NOT blocked ORDER BY id LIMIT $3) AS s) AS runs,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('host_id', s.id, 'name', s.name,
                   'reason', s.reason, 'owner', s.owner, 'expires_at', s.expires_at) ORDER BY s.id), '[]')
          FROM (SELECT * FROM judged WHERE blocked ORDER BY id LIMIT $3) AS s) AS blocks,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('host_id', s.id, 'name', s.name,
                   'execution_id', s.busy_with) ORDER BY s.id), '[]')
          FROM (SELECT * FROM judged WHERE busy_with IS NOT NULL ORDER BY id LIMIT $3) AS s) AS busy_hosts,
       ARRAY(SELECT w.name FROM unnest($1::text[]) AS w (name)
              WHERE NOT EXISTS (SELECT FROM hosts h WHERE h.name = w.name AND h.state = 'ACTIVE')
              ORDER BY w.name LIMIT 100) AS missing
  FROM judged;

-- name: find_external
SELECT id, total, approval_state, version,
       coalesce(asked, jsonb_build_object('command_type', command_type, 'params', params,
           'selector', selector, 'max_concurrency', max_concurrency)) AS asked
  FROM jobs
 WHERE external_id = $1;

-- name: decide
-- Approve or reject: one of two wins, because both ask for the state that only one can leave, and
-- for the version of the plan that the approver saw. Whoever asked for it, or changed it, may not.
WITH decided AS (
    UPDATE jobs
       SET approval_state = $3, decided_by = $4, decided_at = now(), decision_reason = $5,
           version = version + 1, updated_at = now()
     WHERE id = $1
       AND version = $2
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
       AND version = $2
       AND approval_state = 'WAIT_APPROVAL'
       AND cancelled_at IS NULL
    RETURNING id, version
), noted AS (
    INSERT INTO job_timeline (job_id, event, by, detail)
    SELECT id, 'edit', $6, jsonb_strip_nulls(jsonb_build_object(
               'params', $3::jsonb, 'max_concurrency', CASE WHEN $4 THEN $5::integer END))
      FROM edited
)
SELECT id, version FROM edited;

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
WITH cancelled AS (
    UPDATE jobs
       SET cancelled_at = now(), cancelled_by = $2, cancel_open = true,
           version = version + 1, updated_at = now()
     WHERE id = $1
       AND cancelled_at IS NULL
       -- A job that is over has nothing to cancel: too late, it finished.
       AND EXISTS (
            SELECT FROM job_counts c
             WHERE c.job_id = $1 AND c.status IN ({new}, {queued}, {running})
             GROUP BY c.status
            HAVING sum(c.n) <> 0)
    RETURNING id
), noted AS (
    INSERT INTO job_timeline (job_id, event, by, detail)
    SELECT id, 'cancel', $2, jsonb_build_object('reason', $3::text) FROM cancelled
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
WITH changed AS (
    UPDATE jobs
       SET paused_at = CASE WHEN $2 THEN coalesce(paused_at, now()) END,
           version = version + 1, updated_at = now()
     WHERE id = $1
       AND (paused_at IS NOT NULL) <> $2
    RETURNING id
), noted AS (
    INSERT INTO job_timeline (job_id, event, by)
    SELECT id, CASE WHEN $2 THEN 'pause' ELSE 'resume' END, $3 FROM changed
), told AS (
    INSERT INTO outbox (topic, job_id) SELECT 'plan_job', id FROM changed WHERE NOT $2
)
SELECT id FROM changed;

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
