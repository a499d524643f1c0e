-- Where commands run.
CREATE TABLE onward.hosts (
    -- The id is also the key of the host's advisory lock, so it is a number of its own and not a
    -- hash of anything.
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 255),
    labels     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    channel    text        NOT NULL DEFAULT 'simulated' CHECK (length(channel) <= 64),
    address    text        NOT NULL DEFAULT '' CHECK (length(address) <= 1024),
    state      text        NOT NULL DEFAULT 'ACTIVE' CHECK (state IN ('ACTIVE', 'DISABLED')),
    version    integer     NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX hosts_labels ON onward.hosts USING gin (labels jsonb_path_ops);

-- What can be asked of a host, and how carefully.
CREATE TABLE onward.command_types (
    name           text    PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 255),
    needs_approval boolean NOT NULL DEFAULT false,
    read_only      boolean NOT NULL DEFAULT false, -- may share a host with its like
    timeout_s      float8  NOT NULL DEFAULT 60 CHECK (timeout_s > 0),
    max_retries    integer NOT NULL DEFAULT 3 CHECK (max_retries BETWEEN 0 AND 1000)
);
INSERT INTO onward.command_types (name, needs_approval, read_only) VALUES
    ('PING', false, true), ('RESTART_SERVICE', true, false),
    ('DEPLOY', true, false), ('RUN_SCRIPT', true, false);

-- Who has forbidden what on a host.
CREATE TABLE onward.host_command_blocks (
    host_id      bigint      NOT NULL REFERENCES onward.hosts ON DELETE CASCADE,
    command_type text        NOT NULL CHECK (length(command_type) BETWEEN 1 AND 255),
    reason       text        NOT NULL DEFAULT '',
    owner        text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    PRIMARY KEY (host_id, command_type)
);

CREATE TABLE onward.jobs (
    id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    external_id     text        NOT NULL UNIQUE CHECK (length(external_id) BETWEEN 1 AND 255),
    -- The body as it was asked for: what a repeat is compared with, field by field.
    command_type    text        NOT NULL,
    params          jsonb       NOT NULL CHECK (jsonb_typeof(params) = 'object'),
    selector        jsonb       NOT NULL,
    max_concurrency integer     CHECK (max_concurrency > 0),
    -- As the type was when the job was made: a later change of the type is not a change of the job.
    read_only       boolean     NOT NULL,
    timeout_s       float8      NOT NULL CHECK (timeout_s > 0),
    max_retries     integer     NOT NULL CHECK (max_retries >= 0),
    approval_state  text        CHECK (approval_state IN ('WAIT_APPROVAL', 'APPROVED', 'REJECTED')),
    requested_by    text        NOT NULL DEFAULT '',
    decided_by      text,
    decided_at      timestamptz,
    decision_reason text,
    -- Four eyes, stated a second time.
    CHECK (decided_by <> requested_by OR requested_by = ''),
    paused_at       timestamptz,
    cancelled_at    timestamptz,
    cancelled_by    text,
    cancel_open     boolean     NOT NULL DEFAULT false, -- something of it may still run
    total           integer     NOT NULL CHECK (total > 0),
    version         integer     NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX jobs_cancel_open ON onward.jobs (id) WHERE cancel_open;

-- How many executions of a job are in each status, as changes that are summed up now and then.
CREATE TABLE onward.job_counts (
    job_id bigint  NOT NULL,
    status text    NOT NULL,
    n      integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX job_counts_job ON onward.job_counts (job_id);

CREATE TABLE onward.workers (
    -- A new one with every start: who comes back under an old name would inherit its dead runs.
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    beat_at    timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz
) WITH (fillfactor = 50);

CREATE TABLE onward.executions (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id      bigint      NOT NULL,
    host_id     bigint      NOT NULL,
    read_only   boolean     NOT NULL,
    timeout_s   float8      NOT NULL,
    status      text        NOT NULL,
    epoch       bigint      NOT NULL DEFAULT 0, -- none yet; drawn by the first claim
    version     integer     NOT NULL DEFAULT 1,
    attempt     integer     NOT NULL DEFAULT 0,
    retries     integer     NOT NULL DEFAULT 0,
    due_at      timestamptz,
    deadline_at timestamptz,
    worker_id   bigint,
    cause       text,
    exit_code   integer,
    error       text,
    late_result jsonb,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    UNIQUE (job_id, host_id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1
);
-- The queue: by host, oldest first.
CREATE INDEX executions_queued ON onward.executions (host_id, id) WHERE status = 'QUEUED';
-- The second wall: one exclusive run a host, whatever the program believes.
CREATE UNIQUE INDEX executions_exclusive ON onward.executions (host_id)
    WHERE status = 'RUNNING' AND NOT read_only;
CREATE INDEX executions_running ON onward.executions (deadline_at) WHERE status = 'RUNNING';
CREATE INDEX executions_new ON onward.executions (job_id, id) WHERE status = 'NEW';

CREATE TABLE onward.execution_timeline (
    seq          bigint      GENERATED ALWAYS AS IDENTITY,
    at           timestamptz NOT NULL DEFAULT now(),
    execution_id bigint      NOT NULL,
    event        text        NOT NULL,
    verdict      text        NOT NULL,
    from_status  text,
    to_status    text,
    epoch        bigint,
    source       text        NOT NULL DEFAULT '',
    detail       jsonb
) PARTITION BY RANGE (at);
CREATE INDEX execution_timeline_execution ON onward.execution_timeline (execution_id);
CREATE TABLE onward.execution_timeline_default
    PARTITION OF onward.execution_timeline DEFAULT;

CREATE TABLE onward.execution_logs (
    execution_id bigint      NOT NULL,
    epoch        bigint      NOT NULL,
    line         integer     NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    stream       text        NOT NULL CHECK (stream IN ('stdout', 'stderr', 'onward')),
    text         text        NOT NULL
) PARTITION BY RANGE (at);
CREATE INDEX execution_logs_execution ON onward.execution_logs (execution_id, epoch, line);
CREATE TABLE onward.execution_logs_default PARTITION OF onward.execution_logs DEFAULT;

-- What is to be told to whoever drives the work. A row is a hint: told twice, or out of order, it
-- does no harm, and if all of them were lost the reaper would find the same work in the tables.
CREATE TABLE onward.outbox (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic        text        NOT NULL,
    job_id       bigint      NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    locked_until timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
