-- Every attempt at anything gets its epoch from this one sequence, so that an epoch is never
-- reused and a later one is always higher, whichever row it belongs to.
CREATE SEQUENCE onward.epochs;

-- The law, as the core derived it: what every event means in every status of every lifecycle.
-- It is data of the program, not of the user: `onward.store.schema` writes it anew whenever the
-- program's differs, and nothing else does.
CREATE TABLE onward.law (
    lifecycle   text    NOT NULL,
    event       text    NOT NULL,
    status      text    NOT NULL,
    verdict     text    NOT NULL,
    target      text    NOT NULL,
    timer       text    NOT NULL,
    draws_epoch boolean NOT NULL,
    keeps_late  boolean NOT NULL,
    PRIMARY KEY (lifecycle, event, status)
);

-- What is derived from the program (the law, the functions, the constraint on status), by digest.
CREATE TABLE onward.derived (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    digest text    NOT NULL
);

CREATE TABLE onward.commands (
    cmd_id        uuid        PRIMARY KEY,
    lifecycle     text        NOT NULL,
    node          text        NOT NULL DEFAULT '' CHECK (length(node) <= 255),
    type          text        NOT NULL DEFAULT '' CHECK (length(type) <= 255),
    task_id       text        CHECK (length(task_id) BETWEEN 1 AND 255),
    params        jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(params) = 'object'),
    status        text        NOT NULL,
    epoch         bigint      NOT NULL DEFAULT nextval('onward.epochs'),
    version       integer     NOT NULL DEFAULT 1,
    timeout_s     float8      NOT NULL CHECK (timeout_s > 0),
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    -- A live command is watched by one of two clocks: at `deadline_at` it times out by itself;
    -- at `due_at`, in a status that no timeout may leave, somebody should look at it.
    deadline_at   timestamptz,
    due_at        timestamptz,
    finished_at   timestamptz,
    duration_ms   bigint      CHECK (duration_ms >= 0),
    result_code   text,
    error_code    text,
    error_message text,
    result        jsonb,
    -- What the host said it did, when it said so after we had given it up.
    late_result   jsonb
) WITH (
    -- Half of every page is left free so that moving a status stays on its page and touches no
    -- index (a HOT update). That holds because no index below mentions `status`.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 1
);

CREATE INDEX commands_deadline ON onward.commands (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX commands_due ON onward.commands (due_at) WHERE due_at IS NOT NULL;
-- A platform speaks of its own task and device; together they name one command.
CREATE UNIQUE INDEX commands_task ON onward.commands (task_id, node) WHERE task_id IS NOT NULL;

-- Every event that was ever addressed to a command, with its verdict; the ignored ones too.
-- Append-only. No foreign key: an event for an unknown command is evidence as well, and a key
-- share lock on the hottest rows of the house is not wanted.
CREATE TABLE onward.timeline (
    seq         bigint      GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL DEFAULT now(),
    cmd_id      uuid        NOT NULL,
    event       text        NOT NULL,
    verdict     text        NOT NULL,
    from_status text,
    to_status   text,
    epoch       bigint,
    source      text        NOT NULL DEFAULT '',
    detail      jsonb
) PARTITION BY RANGE (at);

CREATE INDEX timeline_command ON onward.timeline (cmd_id);

-- Months are made ahead of time; this one catches what would otherwise be lost if nobody did.
CREATE TABLE onward.timeline_default PARTITION OF onward.timeline DEFAULT;
