-- What a type runs on its hosts: arguments, in which {name} stands for a parameter. Without it, a
-- job says itself what is run. What is masked is shown to nobody but the program on the host.
ALTER TABLE onward.command_types
    ADD COLUMN argv   jsonb  CHECK (jsonb_typeof(argv) = 'array'),
    ADD COLUMN masked text[] NOT NULL DEFAULT '{}';
ALTER TABLE onward.jobs
    ADD COLUMN argv   jsonb  CHECK (jsonb_typeof(argv) = 'array'),
    ADD COLUMN masked text[] NOT NULL DEFAULT '{}';

-- Which of a host's keys is the present one: none yet, or the number that it is derived with. A
-- key itself is nowhere in the database.
ALTER TABLE onward.hosts
    ADD COLUMN key_generation integer NOT NULL DEFAULT 0;

-- Commands that somebody is to hand over, or to hand over again because nothing came back. A table
-- of its own, because a command is moved thousands of times a second and must not touch an index.
CREATE TABLE onward.sendings (
    cmd_id  uuid        PRIMARY KEY,
    channel text        NOT NULL,
    send_at timestamptz NOT NULL,
    tries   integer     NOT NULL DEFAULT 0,
    doubt   boolean     NOT NULL -- whether somebody may have handed it over and not said so
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX sendings_due ON onward.sendings (channel, send_at);

-- What a platform said of a task before it had told us the task's name.
CREATE TABLE onward.early_callbacks (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id text        NOT NULL,
    node    text        NOT NULL,
    status  jsonb       NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX early_callbacks_task ON onward.early_callbacks (task_id, node);
-- A platform speaks of a device by an id of its own, which is in the address of the host.
CREATE INDEX hosts_platform ON onward.hosts (address) WHERE channel = 'platform';

-- A token that a host may exchange for its key, once.
CREATE TABLE onward.enrolments (
    digest     bytea       PRIMARY KEY,
    host_id    bigint      NOT NULL REFERENCES onward.hosts ON DELETE CASCADE,
    made_by    text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    used_by    bytea -- what the agent that used it made up, so that it may ask again
);
CREATE INDEX enrolments_host ON onward.enrolments (host_id);

-- The processes that agents are connected to, and where other processes reach them.
CREATE TABLE onward.hubs (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    url     text        NOT NULL,
    secret  bytea       NOT NULL, -- of this one run of the process; who knows it may send through it
    beat_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE TABLE onward.agents (
    host_id      bigint      PRIMARY KEY REFERENCES onward.hosts ON DELETE CASCADE,
    hub_id       bigint, -- none: not connected
    session      bigint      NOT NULL DEFAULT 0, -- counts its connections
    version      text        NOT NULL DEFAULT '',
    remote       text        NOT NULL DEFAULT '',
    connected_at timestamptz NOT NULL DEFAULT now(),
    left_at      timestamptz
) WITH (fillfactor = 50);
CREATE INDEX agents_hub ON onward.agents (hub_id) WHERE hub_id IS NOT NULL;

-- How many messages of the broker a worker would not take.
ALTER TABLE onward.workers ADD COLUMN refused bigint NOT NULL DEFAULT 0;
