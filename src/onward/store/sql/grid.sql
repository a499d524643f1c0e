-- name: grid
-- Every execution of a job as one character, in the order of the hosts, and where the numbers of
-- hosts and executions do not follow on each other. They mostly do, so that a few pairs say all of
-- them. {cell} is the character of a status.
WITH cell AS (
    SELECT e.host_id, e.id, {cell} AS cell, e.late_result IS NOT NULL AS late,
           row_number() OVER by_host - 1 AS place,
           e.host_id IS DISTINCT FROM lag(e.host_id) OVER by_host + 1 AS another_host,
           e.id IS DISTINCT FROM lag(e.id) OVER by_host + 1 AS another_id
      FROM executions e
     WHERE e.job_id = $1
    WINDOW by_host AS (ORDER BY e.host_id)
)
SELECT string_agg(cell, '' ORDER BY host_id) AS statuses,
       array_agg(ARRAY[place, host_id] ORDER BY host_id) FILTER (WHERE another_host) AS hosts,
       array_agg(ARRAY[place, id] ORDER BY host_id) FILTER (WHERE another_id) AS executions,
       coalesce(array_agg(place ORDER BY host_id) FILTER (WHERE late), '{}') AS late
  FROM cell;
