-- Who may call the API. A key is shown once, when it is made; what is kept is its hash.
CREATE TABLE onward.api_keys (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    -- Whose key it is. Four eyes are two people, not two keys.
    person     text        NOT NULL CHECK (length(person) BETWEEN 1 AND 255),
    role       text        NOT NULL CHECK (role IN ('viewer', 'operator', 'approver', 'admin')),
    hash       bytea       NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text        NOT NULL DEFAULT '',
    revoked_at timestamptz,
    revoked_by text
);

-- Signed messages that were taken, so that nobody can send one of them again.
CREATE TABLE onward.webhook_messages (
    message_id text        NOT NULL CHECK (length(message_id) BETWEEN 1 AND 255),
    sent_at    timestamptz NOT NULL,
    PRIMARY KEY (message_id, sent_at)
);

ALTER TABLE onward.jobs
    -- Whoever changed the plan has a hand in it, and may not approve it either.
    ADD COLUMN edited_by text[] NOT NULL DEFAULT '{}',
    ADD CHECK (decided_by <> ALL (edited_by)),
    -- The body as it was first asked for, once the job differs from it: what a repeat is
    -- compared with.
    ADD COLUMN asked     jsonb,
    ADD COLUMN retry_of  bigint;

-- Jobs that nothing may be claimed of.
CREATE INDEX jobs_held ON onward.jobs (id) WHERE paused_at IS NOT NULL OR cancel_open;

-- What waits for somebody's approval.
CREATE INDEX jobs_waiting ON onward.jobs (id) WHERE approval_state = 'WAIT_APPROVAL';

-- Whether a worker also gets on, and does not only breathe.
ALTER TABLE onward.workers ADD COLUMN progress_at timestamptz NOT NULL DEFAULT now();

-- What waits for its host, what runs on one, and what ended otherwise than it was meant to: apart
-- from the executions, and written by the guarded path with every move. So no index of executions
-- mentions their status, and moving one touches no index at all (a HOT update).
CREATE TABLE onward.queue (
    host_id      bigint      NOT NULL,
    execution_id bigint      NOT NULL,
    job_id       bigint      NOT NULL,
    read_only    boolean     NOT NULL,
    due_at       timestamptz NOT NULL,
    PRIMARY KEY (host_id, execution_id) -- by host, oldest first
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 1);
CREATE TABLE onward.runs (
    host_id      bigint      NOT NULL,
    -- The second wall: a host has one place for an exclusive run, whatever the program believes, and
    -- a place for each of those that share it.
    place        bigint      NOT NULL,
    execution_id bigint      NOT NULL,
    read_only    boolean     NOT NULL,
    worker_id    bigint,
    deadline_at  timestamptz NOT NULL,
    PRIMARY KEY (host_id, place)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 1);
CREATE TABLE onward.failures (
    job_id       bigint NOT NULL,
    host_id      bigint NOT NULL,
    execution_id bigint NOT NULL,
    status       text   NOT NULL,
    PRIMARY KEY (job_id, host_id)
);
INSERT INTO onward.queue
SELECT host_id, id, job_id, read_only, coalesce(due_at, now())
  FROM onward.executions WHERE status = 'QUEUED';
INSERT INTO onward.runs
SELECT host_id, CASE WHEN read_only THEN id ELSE 0 END, id, read_only, worker_id,
       coalesce(deadline_at, now())
  FROM onward.executions WHERE status = 'RUNNING';
INSERT INTO onward.failures
SELECT job_id, host_id, id, status
  FROM onward.executions WHERE status IN ('FAILED', 'TIMEOUT', 'BLOCKED', 'CANCELLED');
DROP INDEX onward.executions_queued;
DROP INDEX onward.executions_exclusive;
DROP INDEX onward.executions_running;
DROP INDEX onward.executions_new;
ALTER TABLE onward.executions SET (fillfactor = 50);

-- A job is planned in the order of its hosts; this is the last one that was. Nothing becomes NEW
-- again, so what is behind it needs no second look.
ALTER TABLE onward.jobs
    ADD COLUMN planned_host bigint  NOT NULL DEFAULT 0,
    ADD COLUMN planned      boolean NOT NULL DEFAULT false; -- all of it
CREATE INDEX jobs_unplanned ON onward.jobs (id) WHERE NOT planned AND cancelled_at IS NULL;

-- A host's own history.
CREATE INDEX executions_host ON onward.executions (host_id, id);

-- What people and the engine did with a job as a whole.
CREATE TABLE onward.job_timeline (
    seq    bigint      GENERATED ALWAYS AS IDENTITY,
    at     timestamptz NOT NULL DEFAULT now(),
    tx     bigint      DEFAULT pg_current_xact_id()::text::bigint,
    job_id bigint      NOT NULL,
    event  text        NOT NULL,
    by     text        NOT NULL DEFAULT '',
    detail jsonb
) PARTITION BY RANGE (at);
CREATE INDEX job_timeline_job ON onward.job_timeline (job_id);
CREATE TABLE onward.job_timeline_default PARTITION OF onward.job_timeline DEFAULT;

-- Which transaction told it. Numbers of a sequence are drawn before the commit, so following them
-- would miss whoever committed late; but every transaction older than all that are still open has
-- told all it will ever tell. What was told before this column has none, and is not followed.
ALTER TABLE onward.execution_timeline ADD COLUMN tx bigint;
ALTER TABLE onward.execution_timeline
    ALTER COLUMN tx SET DEFAULT pg_current_xact_id()::text::bigint;
ALTER TABLE onward.timeline ADD COLUMN tx bigint;
ALTER TABLE onward.timeline ALTER COLUMN tx SET DEFAULT pg_current_xact_id()::text::bigint;
-- Rows are written in nearly this order, so a note a few pages is all the index that it takes.
CREATE INDEX job_timeline_tx ON onward.job_timeline USING brin (tx) WITH (autosummarize = on);
CREATE INDEX execution_timeline_tx ON onward.execution_timeline
    USING brin (tx) WITH (autosummarize = on);
CREATE INDEX timeline_tx ON onward.timeline USING brin (tx) WITH (autosummarize = on);
