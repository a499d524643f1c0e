, counted AS (
            -- The job's counters, as changes: adding a row never waits for another, as adding to a
            -- number in the job's own row would.
            INSERT INTO job_counts (job_id, status, n)
            SELECT m.job_id, s.status, sum(s.n)
              FROM moved m
             CROSS JOIN LATERAL (VALUES (m.seen, -1), (m.status, 1)) AS s (status, n)
             WHERE m.verdict = 'OK'
             GROUP BY m.job_id, s.status
            HAVING sum(s.n) <> 0
        )
