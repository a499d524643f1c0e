-- What any of many does once in a while, and when it was last done.
CREATE TABLE onward.ticks (
    name text        PRIMARY KEY,
    at   timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Which request made a job, and the trace that it was part of: it goes with the job to every host.
ALTER TABLE onward.jobs
    ADD COLUMN trace jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(trace) = 'object');
