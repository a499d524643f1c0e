-- name: import_all
-- Hosts by name: who is not there is made, who differs is changed, who is the same stays as it is.
-- The order of the names is the order of the locks, so that two imports of the same hosts wait for
-- each other in a line and not in a circle. A row that does not differ is locked all the same: two
-- imports at once leave what one of them wanted, and never a mixture.
WITH written AS (
    INSERT INTO hosts AS h (name, labels, channel, address)
    SELECT w.name, w.labels::jsonb, w.channel, w.address
      FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
           AS w (name, labels, channel, address)
     ORDER BY w.name COLLATE "C"
        ON CONFLICT (name) DO UPDATE
       SET labels = excluded.labels, channel = excluded.channel, address = excluded.address,
           version = h.version + 1, updated_at = greatest(now(), h.updated_at)
     WHERE (h.labels, h.channel, h.address)
           IS DISTINCT FROM (excluded.labels, excluded.channel, excluded.address)
    RETURNING h.version
)
-- A changed host has at least its second version.
SELECT count(*) FILTER (WHERE version = 1) AS created,
       count(*) FILTER (WHERE version > 1) AS changed
  FROM written;

-- name: compare_all
-- What `import_all` would do with the same hosts now. Nobody is locked, and nothing is written.
SELECT count(*) FILTER (WHERE c.fate = 'created') AS created,
       count(*) FILTER (WHERE c.fate = 'changed') AS changed,
       coalesce((array_agg(c.name ORDER BY c.name) FILTER (WHERE c.fate = 'created'))[:$5], '{}')
           AS created_names,
       coalesce((array_agg(c.name ORDER BY c.name) FILTER (WHERE c.fate = 'changed'))[:$5], '{}')
           AS changed_names
  FROM (SELECT w.name,
               CASE WHEN h.id IS NULL THEN 'created'
                    WHEN (h.labels, h.channel, h.address)
                         IS DISTINCT FROM (w.labels::jsonb, w.channel, w.address) THEN 'changed'
               END AS fate
          FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
               AS w (name, labels, channel, address)
          LEFT JOIN hosts h ON h.name = w.name
       ) AS c;

-- name: create
INSERT INTO hosts (name, labels, channel, address)
VALUES ($1, $2::text::jsonb, $3, $4)
    ON CONFLICT (name) DO NOTHING
RETURNING id, name, labels, channel, address, state, version, created_at, updated_at;

-- name: get
SELECT id, name, labels, channel, address, state, version, created_at, updated_at
  FROM hosts
 WHERE id = $1;

-- name: named
SELECT id, name, labels, channel, address, state, version, created_at, updated_at
  FROM hosts
 WHERE name = $1;

-- name: page
-- {chosen} is a condition over hosts `h`, written from a selector; its parameters begin at $4. To
-- look for a part of a name, all hosts are looked at.
SELECT h.id, h.name, h.labels, h.channel, h.address, h.state, h.version, h.created_at, h.updated_at
  FROM hosts h
 WHERE h.id > $1
   AND ($3::text IS NULL OR position(lower($3) IN lower(h.name)) > 0)
   AND ({chosen})
 ORDER BY h.id
 LIMIT $2;

-- name: count
SELECT count(*) FROM ({query}) AS q;

-- name: replanned
-- What waits for approval on these hosts would do something else now, so it has a new version:
-- whoever approves has to have seen it. In the order of the ids, like every lock on many rows.
replanned AS (
    UPDATE jobs j
       SET version = j.version + 1, updated_at = greatest(now(), j.updated_at)
      FROM (
            SELECT j.id
              FROM jobs j
             WHERE j.approval_state = 'WAIT_APPROVAL'
               AND j.cancelled_at IS NULL
               AND ({of_type})
               AND EXISTS (SELECT FROM executions e
                            WHERE e.job_id = j.id AND e.host_id IN ({on_hosts}))
             ORDER BY j.id
               FOR NO KEY UPDATE
           ) AS w
     WHERE j.id = w.id
    RETURNING j.id
), noted AS (
    INSERT INTO job_timeline (job_id, event, by, detail)
    SELECT id, 'replan', '', jsonb_build_object('reason', {why}::text) FROM replanned
);

-- name: change
-- What is not given stays. Of two who have seen the same version one wins: the other waits for the
-- row, and then finds a version that it has not seen.
WITH changed AS (
    UPDATE hosts
       SET labels = coalesce($3::text::jsonb, labels), address = coalesce($4, address),
           channel = coalesce($5, channel), state = coalesce($6, state),
           -- Our transaction may have begun before the one that we waited for.
           version = version + 1, updated_at = greatest(now(), updated_at)
     WHERE id = $1
       AND version = $2::bigint
    RETURNING id, name, labels, channel, address, state, version, created_at, updated_at
), {replanned}
SELECT id, name, labels, channel, address, state, version, created_at, updated_at FROM changed;

-- name: lock_to_delete
-- An execution names its host without a foreign key, so that making a million of them checks
-- nothing a million times. Instead, whoever deletes a host keeps out whoever makes a job: a
-- submission that is under way is waited for and its executions are seen, and one that comes later
-- no longer finds the host. Nothing that claims or reports writes a job, so none of it waits.
LOCK TABLE jobs IN SHARE MODE;

-- name: delete
-- A statement of its own: its snapshot begins after the wait for the lock.
DELETE FROM hosts h
 WHERE h.id = $1
   AND h.version = $2::bigint
   AND NOT EXISTS (SELECT FROM executions e WHERE e.host_id = h.id)
RETURNING h.name;

-- name: block
-- What is forbidden on a host is part of it, so the host has a new version. Of two who have seen the
-- same one wins. Whoever writes a block has the row of its host first, so that this, its deletion
-- and whatever else is done to the blocks of the host take turns.
WITH host AS (
    UPDATE hosts h
       SET version = h.version + 1, updated_at = greatest(now(), h.updated_at)
     WHERE h.id = $1
       AND h.version = $6::bigint
    RETURNING h.id, h.name, h.version
), made AS (
    INSERT INTO host_command_blocks AS b (host_id, command_type, reason, owner, expires_at)
    SELECT host.id, $2, $3, $4, $5::timestamptz FROM host
        ON CONFLICT (host_id, command_type) DO UPDATE
       SET reason = excluded.reason, owner = excluded.owner, expires_at = excluded.expires_at,
           created_at = now()
    RETURNING b.*
), {replanned}
SELECT made.host_id, host.name AS host_name, made.command_type, made.reason, made.owner,
       made.created_at, made.expires_at,
       made.expires_at IS NULL OR made.expires_at > now() AS in_force,
       host.version
  FROM made
  JOIN host ON host.id = made.host_id;

-- name: block_chosen
-- A type is forbidden on every host that a selector chooses, disabled ones too, or on none if it
-- names one that is not there. {chosen} is a condition over hosts `h`; its parameters begin at $6.
-- Hosts are locked in the order of their names, as an import locks them, and the blocks behind them:
-- two of these wait for each other in a line. Whoever is deleted meanwhile is no longer chosen.
WITH missing AS MATERIALIZED (
    SELECT w.name
      FROM unnest($5::text[]) AS w (name)
     WHERE NOT EXISTS (SELECT FROM hosts h WHERE h.name = w.name)
), chosen AS MATERIALIZED (
    SELECT h.id
      FROM hosts h
     WHERE NOT EXISTS (SELECT FROM missing)
       AND ({chosen})
     ORDER BY h.name COLLATE "C"
       FOR NO KEY UPDATE OF h
), raised AS (
    UPDATE hosts h
       SET version = h.version + 1, updated_at = greatest(now(), h.updated_at)
      FROM chosen c
     WHERE h.id = c.id
), made AS (
    INSERT INTO host_command_blocks AS b (host_id, command_type, reason, owner, expires_at)
    SELECT c.id, $1, $2, $3, $4::timestamptz FROM chosen c
        ON CONFLICT (host_id, command_type) DO UPDATE
       SET reason = excluded.reason, owner = excluded.owner, expires_at = excluded.expires_at,
           created_at = now()
    RETURNING b.host_id
), {replanned}
SELECT (SELECT count(*) FROM chosen) AS chosen,
       ARRAY(SELECT name FROM missing ORDER BY name LIMIT 101) AS missing;

-- name: lift_chosen
-- Hosts that have the block are locked as `block_chosen` locks them. {chosen} begins at $3.
WITH missing AS MATERIALIZED (
    SELECT w.name
      FROM unnest($2::text[]) AS w (name)
     WHERE NOT EXISTS (SELECT FROM hosts h WHERE h.name = w.name)
), chosen AS MATERIALIZED (
    SELECT h.id FROM hosts h WHERE NOT EXISTS (SELECT FROM missing) AND ({chosen})
), blocked AS MATERIALIZED (
    SELECT h.id
      FROM hosts h
      JOIN chosen c ON c.id = h.id
     WHERE EXISTS (SELECT FROM host_command_blocks b WHERE b.host_id = h.id AND b.command_type = $1)
     ORDER BY h.name COLLATE "C"
       FOR NO KEY UPDATE OF h
), lifted AS (
    DELETE FROM host_command_blocks b
     USING blocked
     WHERE b.host_id = blocked.id
       AND b.command_type = $1
    RETURNING b.host_id
), raised AS (
    UPDATE hosts h
       SET version = h.version + 1, updated_at = greatest(now(), h.updated_at)
      FROM lifted l
     WHERE h.id = l.host_id
), {replanned}
SELECT (SELECT count(*) FROM chosen) AS chosen,
       ARRAY(SELECT name FROM missing ORDER BY name LIMIT 101) AS missing,
       (SELECT count(*) FROM lifted) AS lifted;

-- name: unblock
-- Whoever takes a block away first gives its host a new version, so that after a wait for the row
-- the version is another one, and nothing is said about a block that was already gone.
WITH host AS (
    UPDATE hosts h
       SET version = h.version + 1, updated_at = greatest(now(), h.updated_at)
     WHERE h.id = $1
       AND h.version = $3::bigint
       AND EXISTS (SELECT FROM host_command_blocks b WHERE b.host_id = $1 AND b.command_type = $2)
    RETURNING h.id, h.name, h.version
), lifted AS (
    DELETE FROM host_command_blocks b
     USING host
     WHERE b.host_id = host.id
       AND b.command_type = $2
    RETURNING b.host_id
), {replanned}
SELECT name, version FROM host;

-- name: blocks_of
SELECT b.host_id, h.name AS host_name, b.command_type, b.reason, b.owner, b.created_at,
       b.expires_at, b.expires_at IS NULL OR b.expires_at > now() AS in_force
  FROM host_command_blocks b
  JOIN hosts h ON h.id = b.host_id
 WHERE b.host_id = $1
   AND b.command_type > $2
 ORDER BY b.command_type
 LIMIT $3;

-- name: blocks_page
SELECT b.host_id, h.name AS host_name, b.command_type, b.reason, b.owner, b.created_at,
       b.expires_at, b.expires_at IS NULL OR b.expires_at > now() AS in_force
  FROM host_command_blocks b
  JOIN hosts h ON h.id = b.host_id
 WHERE (b.host_id, b.command_type) > ($1, $2)
 ORDER BY b.host_id, b.command_type
 LIMIT $3;

-- name: types
SELECT name, needs_approval, read_only, timeout_s, max_retries, argv, masked
  FROM command_types
 WHERE name > $1
 ORDER BY name
 LIMIT $2;

-- name: get_type
SELECT name, needs_approval, read_only, timeout_s, max_retries, argv, masked
  FROM command_types
 WHERE name = $1;

-- name: lock_type
-- Whoever names what they have seen is compared with what is there, and nobody comes in between.
SELECT name, needs_approval, read_only, timeout_s, max_retries, argv, masked
  FROM command_types
 WHERE name = $1
   FOR UPDATE;

-- name: put_type
INSERT INTO command_types (name, needs_approval, read_only, timeout_s, max_retries, argv, masked)
VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7)
    ON CONFLICT (name) DO UPDATE
   SET needs_approval = excluded.needs_approval, read_only = excluded.read_only,
       timeout_s = excluded.timeout_s, max_retries = excluded.max_retries,
       argv = excluded.argv, masked = excluded.masked
RETURNING name, needs_approval, read_only, timeout_s, max_retries, argv, masked;

-- name: delete_type
DELETE FROM command_types WHERE name = $1 RETURNING name;
