, counted AS (
            -- The job's counters, as changes: adding a row never waits for another, as adding to a
            -- number in the job's own row would.
            INSERT INTO job_counts (job_id, status, n, at)
            SELECT m.job_id, s.status, sum(s.n), now_at
              FROM moved m
             CROSS JOIN LATERAL (VALUES (m.seen, -1), (m.status, 1)) AS s (status, n)
             WHERE m.verdict = 'OK'
             GROUP BY m.job_id, s.status
            HAVING sum(s.n) <> 0
        ), happened AS (
            -- In the same way, how many ended in this minute.
            INSERT INTO activity (minute, status, n)
            SELECT date_trunc('minute', now_at), m.status, count(*)
              FROM moved m
             WHERE m.verdict = 'OK'
               AND m.status IN ({ended})
             GROUP BY m.status
        ), unqueued AS (
            DELETE FROM queue q
             USING moved m
             WHERE m.verdict = 'OK'
               AND m.seen = {queued}
               AND (q.host_id, q.execution_id) = (m.host_id, m.id)
        ), queued AS (
            INSERT INTO queue (host_id, execution_id, job_id, read_only, due_at)
            SELECT m.host_id, m.id, m.job_id, m.read_only, m.due_at
              FROM moved m
             WHERE m.verdict = 'OK'
               AND m.status = {queued}
        ), ended AS (
            DELETE FROM runs r
             USING moved m
             WHERE m.verdict = 'OK'
               AND m.seen = {running}
               AND (r.host_id, r.place) = (m.host_id, CASE WHEN m.read_only THEN m.id ELSE 0 END)
        ), begun AS (
            INSERT INTO runs (host_id, place, execution_id, read_only, worker_id, deadline_at)
            SELECT m.host_id, CASE WHEN m.read_only THEN m.id ELSE 0 END, m.id, m.read_only,
                   m.worker_id, m.deadline_at
              FROM moved m
             WHERE m.verdict = 'OK'
               AND m.status = {running}
        ), failed AS (
            INSERT INTO failures (job_id, host_id, execution_id, status)
            SELECT m.job_id, m.host_id, m.id, m.status
              FROM moved m
             WHERE m.verdict = 'OK'
               AND m.status IN ({unsuccessful})
        )
