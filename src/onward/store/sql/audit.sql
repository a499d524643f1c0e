-- name: note
INSERT INTO audit (by, deed, kind, subject, detail, request_id)
VALUES ($1, $2, $3, $4, $5::text::jsonb, $6);

-- name: merged
-- The newest of each part, and of all of them together: nobody has to read further down any part
-- than the page is long.
SELECT d.at, d.source, d.seq, d.by, d.deed, d.kind, d.subject, d.detail, d.request_id
  FROM (
{parts}
       ) AS d
 ORDER BY d.at DESC, d.source DESC, d.seq DESC
 LIMIT {limit};

-- name: of_jobs
-- What the engine does with jobs by itself is nobody's deed.
(SELECT t.at, 1 AS source, t.seq, t.by, t.event AS deed, 'job' AS kind, t.job_id::text AS subject,
        t.detail, NULL::text AS request_id
   FROM job_timeline t
  WHERE t.by <> ''
    AND (t.at, t.seq) < ({at}::timestamptz, {job_seq}::bigint)
    AND {filter}
  ORDER BY t.at DESC, t.seq DESC
  LIMIT {limit});

-- name: of_others
(SELECT a.at, 2 AS source, a.seq, a.by, a.deed, a.kind, a.subject, a.detail, a.request_id
   FROM audit a
  WHERE (a.at, a.seq) < ({at}::timestamptz, {seq}::bigint)
    AND {filter}
  ORDER BY a.at DESC, a.seq DESC
  LIMIT {limit});
