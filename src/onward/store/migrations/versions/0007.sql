-- Somebody who has shown their key in a browser. What the browser keeps is a secret of its own, and
-- here is its hash: the key itself is nowhere, and the session ends with it.
CREATE TABLE onward.sessions (
    digest     bytea       PRIMARY KEY CHECK (length(digest) = 32),
    key_id     bigint      NOT NULL REFERENCES onward.api_keys,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_expiry ON onward.sessions (expires_at);

-- Who did what, other than with a job: that is in `job_timeline`. Written in the transaction of the
-- deed, never changed, and dropped by the month.
CREATE TABLE onward.audit (
    seq        bigint      GENERATED ALWAYS AS IDENTITY,
    at         timestamptz NOT NULL DEFAULT now(),
    by         text        NOT NULL CHECK (by <> ''),
    deed       text        NOT NULL,
    kind       text        NOT NULL, -- of what it was done with
    subject    text        NOT NULL, -- which one; none, if it was done with many at once
    detail     jsonb,
    request_id text
) PARTITION BY RANGE (at);
-- All of it is read by time, the newest first: as a whole, by kind, by subject, and by person.
CREATE INDEX audit_at ON onward.audit (at, seq);
CREATE INDEX audit_kind ON onward.audit (kind, at, seq);
CREATE INDEX audit_subject ON onward.audit (kind, subject, at, seq);
CREATE INDEX audit_by ON onward.audit (by, kind, at, seq);
CREATE TABLE onward.audit_default PARTITION OF onward.audit DEFAULT;
-- What people did with jobs is told together with it, by time.
CREATE INDEX job_timeline_at ON onward.job_timeline (at, seq) WHERE by <> '';
CREATE INDEX job_timeline_by ON onward.job_timeline (by, at, seq) WHERE by <> '';
