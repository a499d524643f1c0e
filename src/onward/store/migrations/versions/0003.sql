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

-- Whether a worker also gets on, and does not only breathe.
ALTER TABLE onward.workers ADD COLUMN progress_at timestamptz NOT NULL DEFAULT now();

-- The second wall and the question whether a host is busy, in one index: of the exclusive runs each
-- host has room for one, of those that share it for any number.
DROP INDEX onward.executions_exclusive;
DROP INDEX onward.executions_running;
CREATE UNIQUE INDEX executions_exclusive
    ON onward.executions (host_id, (CASE WHEN read_only THEN id ELSE 0 END))
    WHERE status = 'RUNNING';

-- A host's own history, and what of a job went wrong among a million that went right.
CREATE INDEX executions_host ON onward.executions (host_id, id);
CREATE INDEX executions_failed ON onward.executions (job_id, host_id)
    WHERE status IN ('FAILED', 'TIMEOUT', 'BLOCKED', 'CANCELLED');

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
