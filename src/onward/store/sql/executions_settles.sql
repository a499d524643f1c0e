-- A run has a deadline and an owner; what waits has the time at which it is due.
                   deadline_at = CASE j.timer WHEN 'deadline' THEN
                       now_at + make_interval(secs => c.timeout_s
                                              + coalesce((n.data ->> 'grace_s')::float8, 0)) END,
                   worker_id = CASE j.timer WHEN 'deadline' THEN
                       (n.data ->> 'worker_id')::bigint END,
                   due_at = CASE j.timer WHEN 'due' THEN
                       now_at + make_interval(secs => coalesce(n.data ->> 'delay_s', '0')::float8)
                       END,
                   -- Counted for people, from 1; the fence is the epoch. What was handed back
                   -- before it began is not counted.
                   attempt = c.attempt + (j.event = 'claim')::integer
                       - coalesce((n.data ->> 'uncounted')::integer, 0),
                   -- What was handed back untouched has cost no retry.
                   retries = c.retries + coalesce((n.data ->> 'costs')::integer, 0),
                   cause = CASE WHEN j.event = 'claim' THEN NULL
                       ELSE coalesce(n.data ->> 'cause', c.cause) END,
                   exit_code = CASE WHEN j.event = 'claim' THEN NULL
                       ELSE coalesce(n.data ->> 'exit_code', c.exit_code::text)::integer END,
                   error = coalesce(n.data ->> 'error', c.error),
                   -- What the last attempt printed: empty for nothing, none where nobody knows, as
                   -- after a host has only repeated how it ended. Its late word comes with all that
                   -- it printed; what ends before an attempt leaves the former one's.
                   output = CASE WHEN j.event = 'claim' THEN NULL
                       WHEN j.verdict = 'OK' AND j.status = {running}
                           THEN decode(n.data ->> 'output', 'hex')
                       ELSE coalesce(decode(j.data ->> 'output', 'hex'), c.output,
                                     CASE WHEN c.attempt = 0 THEN ''::bytea END) END
