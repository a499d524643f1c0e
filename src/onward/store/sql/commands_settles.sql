-- The clock of the status that is entered; one that still runs goes on.
                   deadline_at = CASE j.timer WHEN 'deadline' THEN
                       coalesce(c.deadline_at, now_at + make_interval(secs => c.timeout_s)) END,
                   due_at = CASE j.timer WHEN 'due' THEN
                       coalesce(c.due_at, c.deadline_at,
                                now_at + make_interval(secs => c.timeout_s)) END,
                   duration_ms = coalesce(n.data ->> 'duration_ms', c.duration_ms::text)::bigint,
                   result_code = coalesce(n.data ->> 'result_code', c.result_code),
                   error_code = coalesce(n.data ->> 'error_code', c.error_code),
                   error_message = coalesce(n.data ->> 'error_message', c.error_message),
                   result = coalesce(n.data -> 'result', c.result)
