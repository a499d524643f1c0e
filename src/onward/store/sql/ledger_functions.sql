-- What changes an account. Each function is one request's whole transaction, or a part of one:
-- either everything below is there, or nothing.
--
-- Locks are taken in one order everywhere: the token of a user's orders, then an order, then an
-- account. Deals lock orders only, and never wait for anybody.

DROP FUNCTION IF EXISTS onward.account_v1(text, text);
CREATE FUNCTION onward.account_v1(
    p_user text, p_asset text
) RETURNS TABLE (available bigint, held bigint, version bigint, updated_at timestamptz)
-- An account as it is: its row, if it has one, and what deals have changed since.
LANGUAGE sql STABLE
AS $function$
    SELECT coalesce(a.available, 0) + c.available, coalesce(a.held, 0) + c.held,
           coalesce(a.version, 1) + c.n, nullif(greatest(a.updated_at, c.at), '-infinity')
      FROM (SELECT coalesce(sum(c.available), 0)::bigint AS available,
                   coalesce(sum(c.held), 0)::bigint AS held, count(*) AS n, max(c.at) AS at
              FROM onward.account_changes c
             WHERE c.user_id = p_user AND c.asset = p_asset) AS c
      LEFT JOIN onward.accounts a ON a.user_id = p_user AND a.asset = p_asset
$function$;

DROP FUNCTION IF EXISTS onward.fold_account_v1(text, text);
CREATE FUNCTION onward.fold_account_v1(p_user text, p_asset text) RETURNS void
-- Locks an account, which is made if there was none, and adds up what deals have changed.
LANGUAGE plpgsql
SET search_path = onward, pg_temp
AS $function$
BEGIN
    -- Nothing has happened to it but what is added up below.
    INSERT INTO accounts (user_id, asset, updated_at) VALUES (p_user, p_asset, '-infinity')
        ON CONFLICT DO NOTHING;
    -- Locked before the changes are looked at: nobody else adds up the same ones.
    PERFORM FROM accounts a WHERE a.user_id = p_user AND a.asset = p_asset FOR NO KEY UPDATE;
    WITH added AS (
        DELETE FROM account_changes c
         WHERE c.user_id = p_user AND c.asset = p_asset
        RETURNING c.available, c.held, c.at
    ), total AS (
        SELECT sum(available)::bigint AS available, sum(held)::bigint AS held, count(*) AS n,
               max(at) AS at
          FROM added
        HAVING count(*) > 0
    )
    UPDATE accounts a
       SET available = a.available + t.available,
           held = a.held + t.held,
           version = a.version + t.n,
           updated_at = greatest(a.updated_at, t.at)
      FROM total t
     WHERE a.user_id = p_user AND a.asset = p_asset;
END
$function$;

DROP FUNCTION IF EXISTS onward.refused_v1(text, text, bigint, bigint, bigint);
CREATE FUNCTION onward.refused_v1(
    p_user text, p_asset text, p_version bigint, p_available bigint, p_max bigint
) RETURNS TABLE (outcome text, available bigint, held bigint, version bigint)
-- Says why an account cannot be changed so: nothing, if it can.
LANGUAGE sql STABLE
AS $function$
    SELECT CASE WHEN p_version <> a.version THEN 'STALE'
                WHEN a.available + p_available < 0 THEN 'INSUFFICIENT'
                ELSE 'TOO_MUCH' END,
           a.available, a.held, a.version
      FROM onward.account_v1(p_user, p_asset) a
     WHERE p_version <> a.version
        OR a.available + p_available NOT BETWEEN 0 AND p_max
$function$;

DROP FUNCTION IF EXISTS onward.change_account_v1(text, text, bigint, bigint, bigint, bigint);
CREATE FUNCTION onward.change_account_v1(
    p_user text, p_asset text, p_version bigint, p_available bigint, p_held bigint, p_max bigint
) RETURNS TABLE (outcome text, available bigint, held bigint, version bigint)
-- Changes the version of an account that the caller saw, or any version if it names none. What is
-- available stays between nothing and `p_max`, if there is one. A refusal writes nothing.
LANGUAGE plpgsql
SET search_path = onward, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    most bigint := coalesce(p_max, 9223372036854775807);
BEGIN
    -- Twice at most: if it is refused for what deals have changed, or because it has no row yet,
    -- that is put right, and then it is the version and the floor that decide.
    FOR attempt IN 1..2 LOOP
        RETURN QUERY
        UPDATE accounts a
           SET available = a.available + p_available,
               held = a.held + p_held,
               version = a.version + 1,
               -- Our transaction may have begun before the one that we waited for.
               updated_at = greatest(now(), a.updated_at)
         WHERE a.user_id = p_user AND a.asset = p_asset
           AND a.available + p_available BETWEEN 0 AND most
           AND (p_version IS NULL
                OR (a.version = p_version
                    -- Each of these is a version of its own.
                    AND NOT EXISTS (SELECT FROM account_changes c
                                     WHERE c.user_id = p_user AND c.asset = p_asset)))
        RETURNING 'OK', a.available, a.held, a.version;
        IF FOUND THEN
            RETURN;
        END IF;
        RETURN QUERY SELECT * FROM refused_v1(p_user, p_asset, p_version, p_available, most);
        IF FOUND THEN
            RETURN;
        END IF;
        PERFORM fold_account_v1(p_user, p_asset);
    END LOOP;
    RAISE EXCEPTION 'an account that is locked changed twice while it was looked at';
END
$function$;

DROP FUNCTION IF EXISTS onward.repeated_v1(text, text, text);
CREATE FUNCTION onward.repeated_v1(
    p_by text, p_key text, p_request text
) RETURNS TABLE (outcome text, operation_id bigint, request text)
-- Says whether this caller has made a request with this key before: nothing for one that was not
-- made. Whoever is told nothing has the key until the transaction ends.
LANGUAGE plpgsql
SET search_path = onward, pg_temp
AS $function$
#variable_conflict use_column
BEGIN
    IF p_key IS NULL THEN
        RETURN;
    END IF;
    -- Two numbers are a key of another kind than one number, which hosts are locked by. Two keys
    -- with one hash are taken for each other while both run: one of them is asked to come again.
    IF NOT pg_try_advisory_xact_lock(1869770875, hashtext(p_by || ' ' || p_key)) THEN
        RETURN QUERY SELECT 'RUNNING', NULL::bigint, NULL::text;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT CASE WHEN o.request = p_request THEN 'REPEATED' ELSE 'KEY_REUSED' END, o.id, o.request
      FROM operations o
     WHERE o.asked_by = p_by AND o.key = p_key;
END
$function$;

DROP FUNCTION IF EXISTS onward.post_v1(
    text, text, bigint, text, bigint, bigint, text, text, text);
CREATE FUNCTION onward.post_v1(
    p_user text, p_asset text, p_version bigint, p_kind text, p_amount bigint, p_max bigint,
    p_by text, p_key text, p_request text -- the three together, or none of them
) RETURNS TABLE (
    outcome text, operation_id bigint, at timestamptz, available bigint, held bigint,
    version bigint, request text
)
-- Brings something in from outside, or takes it there. What is mostly the case is one statement:
-- nobody has been faster, and no deal has left anything to be added up.
-- It names the schema everywhere, because fixing the search path costs as much as a statement.
LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    goes_out boolean := p_kind = 'withdraw';
    change bigint := CASE WHEN p_kind = 'withdraw' THEN -p_amount ELSE p_amount END;
    before record;
BEGIN
    IF p_key IS NOT NULL THEN
        SELECT * INTO before FROM onward.repeated_v1(p_by, p_key, p_request);
        IF FOUND THEN
            RETURN QUERY
            SELECT before.outcome, o.id, o.at, o.available, o.held, o.version, before.request
              FROM (SELECT) AS one
              LEFT JOIN onward.operations o ON o.id = before.operation_id;
            RETURN;
        END IF;
    END IF;
    -- Twice at most, as in `change_account_v1`.
    FOR attempt IN 1..2 LOOP
        RETURN QUERY
        WITH changed AS (
            UPDATE onward.accounts a
               SET available = a.available + change,
                   version = a.version + 1,
                   updated_at = greatest(now(), a.updated_at)
             WHERE a.user_id = p_user AND a.asset = p_asset
               AND a.available + change BETWEEN 0 AND p_max
               AND a.version = coalesce(p_version, a.version)
               AND (p_version IS NULL
                    OR NOT EXISTS (SELECT FROM onward.account_changes c
                                    WHERE c.user_id = p_user AND c.asset = p_asset))
            RETURNING a.available, a.held, a.version
        ), posted AS (
            INSERT INTO onward.operations (at, kind, user_id, asset, amount, asked_by, key, request,
                                    available, held, version)
            SELECT now(), p_kind, p_user, p_asset, p_amount, p_by, p_key, p_request,
                   c.available, c.held, c.version
              FROM changed c
            RETURNING id, available, held, version
        ), moved AS (
            INSERT INTO onward.transfers (operation_id, n, asset, amount,
                                   from_part, from_user, to_part, to_user)
            SELECT p.id, 1, p_asset, p_amount,
                   CASE WHEN goes_out THEN 'available' ELSE 'outside' END,
                   CASE WHEN goes_out THEN p_user ELSE '' END,
                   CASE WHEN goes_out THEN 'outside' ELSE 'available' END,
                   CASE WHEN goes_out THEN '' ELSE p_user END
              FROM posted p
        )
        SELECT 'OK', p.id, now(), p.available, p.held, p.version, NULL::text FROM posted p;
        IF FOUND THEN
            RETURN;
        END IF;
        RETURN QUERY
        SELECT r.outcome, NULL::bigint, now(), r.available, r.held, r.version, NULL::text
          FROM onward.refused_v1(p_user, p_asset, p_version, change, p_max) AS r;
        IF FOUND THEN
            RETURN;
        END IF;
        PERFORM onward.fold_account_v1(p_user, p_asset);
    END LOOP;
    RAISE EXCEPTION 'an account that is locked changed twice while it was looked at';
END
$function$;

DROP FUNCTION IF EXISTS onward.post_all_v1(
    text[], text[], bigint[], text[], bigint[], text[], text[], text[], bigint);
CREATE FUNCTION onward.post_all_v1(
    p_user text[], p_asset text[], p_version bigint[], p_kind text[], p_amount bigint[],
    p_by text[], p_key text[], p_request text[], p_max bigint
) RETURNS TABLE (
    outcome text, operation_id bigint, at timestamptz, available bigint, held bigint,
    version bigint, request text
)
-- The same for many, in one transaction, each on its own merit and answered in its place. Whoever's
-- account another has locked is told so and left out: nobody else waits for it.
LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
BEGIN
    FOR i IN 1..cardinality(p_user) LOOP
        PERFORM FROM onward.accounts a
          WHERE a.user_id = p_user[i] AND a.asset = p_asset[i]
            FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            RETURN QUERY
            SELECT * FROM onward.post_v1(p_user[i], p_asset[i], p_version[i], p_kind[i],
                                         p_amount[i], p_max, p_by[i], p_key[i], p_request[i]);
        ELSE
            -- It is locked, or there is none yet.
            RETURN QUERY SELECT NULL::text, NULL::bigint, NULL::timestamptz, NULL::bigint,
                                NULL::bigint, NULL::bigint, NULL::text;
        END IF;
    END LOOP;
END
$function$;
