-- name: write
INSERT INTO execution_logs (execution_id, epoch, line, stream, text)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::text[], $5::text[]);

-- name: page
-- In the order in which they were printed: an attempt after the other, by its epoch, line by line.
-- The place to go on from is what a caller hands back: a line that no integer could number comes
-- after all lines, and is no error.
SELECT l.epoch, l.line, l.at, l.stream, l.text
  FROM execution_logs l
 WHERE l.execution_id = $1
   AND (l.epoch, l.line) > ($2, $3::bigint)
 ORDER BY l.epoch, l.line
 LIMIT $4;
