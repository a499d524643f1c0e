-- What the last attempt printed, as a digest: equal ones printed the same, and nobody has to read
-- their lines to say so. None: it printed nothing.
ALTER TABLE onward.executions ADD COLUMN output bytea;

-- When a job's counters last changed, and so when the last of it ended, without a look at all of it.
ALTER TABLE onward.job_counts ADD COLUMN at timestamptz NOT NULL DEFAULT now();

-- When nothing of a job was open any more.
ALTER TABLE onward.jobs ADD COLUMN finished_at timestamptz;
UPDATE onward.jobs j
   SET finished_at = e.at
  FROM (SELECT job_id, max(finished_at) AS at
          FROM onward.executions
         GROUP BY job_id
        HAVING bool_and(finished_at IS NOT NULL)) AS e
 WHERE e.job_id = j.id;
CREATE INDEX jobs_open ON onward.jobs (id) WHERE finished_at IS NULL;
-- Somebody's own.
CREATE INDEX jobs_requester ON onward.jobs (requested_by, id);

-- How many executions ended in each minute, and how: as changes that are summed up now and then.
CREATE TABLE onward.activity (
    minute timestamptz NOT NULL,
    status text        NOT NULL,
    n      integer     NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX activity_minute ON onward.activity (minute);
