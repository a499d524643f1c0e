-- When jobs ended, before anything is locked: to read all executions may take a while, and what ends
-- meanwhile is noted as it is at any other time.
CREATE TEMP TABLE ended ON COMMIT DROP AS
SELECT job_id, max(finished_at) AS at
  FROM onward.executions
 GROUP BY job_id
HAVING bool_and(finished_at IS NOT NULL);

-- What the last attempt printed, as a digest: equal ones printed the same, and nobody has to read
-- their lines to say so. Empty: it printed nothing. None: nobody knows.
ALTER TABLE onward.executions ADD COLUMN output bytea;

-- When a job's counters last changed, and so when the last of it ended, without a look at all of it.
ALTER TABLE onward.job_counts ADD COLUMN at timestamptz NOT NULL DEFAULT now();

-- When nothing of a job was open any more.
ALTER TABLE onward.jobs ADD COLUMN finished_at timestamptz;
UPDATE onward.jobs j SET finished_at = e.at FROM ended e WHERE e.job_id = j.id;
-- Nobody will sum up their counters any more.
WITH old AS (
    DELETE FROM onward.job_counts c USING ended e WHERE c.job_id = e.job_id
    RETURNING c.job_id, c.status, c.n
)
INSERT INTO onward.job_counts (job_id, status, n)
SELECT job_id, status, sum(n) FROM old GROUP BY job_id, status HAVING sum(n) <> 0;
CREATE INDEX jobs_open ON onward.jobs (id) WHERE finished_at IS NULL;
-- Somebody's own, and those of a type that is seldom asked for.
CREATE INDEX jobs_requester ON onward.jobs (requested_by, id);
CREATE INDEX jobs_type ON onward.jobs (command_type, id);

-- How many executions ended in each minute, and how: as changes that are summed up now and then.
CREATE TABLE onward.activity (
    minute timestamptz NOT NULL,
    status text        NOT NULL,
    n      integer     NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX activity_minute ON onward.activity (minute);
