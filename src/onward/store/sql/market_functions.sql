-- What changes the book: an order is placed, withdrawn, or taken.

DROP FUNCTION IF EXISTS onward.commission_v1(bigint, integer);
CREATE FUNCTION onward.commission_v1(p_price bigint, p_bp integer) RETURNS bigint
-- Hundredths of a percent of a price, rounded down, for whoever pays it. In two parts, so that no
-- price is too large to be multiplied.
LANGUAGE sql IMMUTABLE
AS $function$
    SELECT p_price / 10000 * p_bp + p_price % 10000 * p_bp / 10000
$function$;

DROP FUNCTION IF EXISTS onward.set_aside_v1(onward.orders);
CREATE FUNCTION onward.set_aside_v1(
    o onward.orders
) RETURNS TABLE (asset text, amount bigint)
-- What an open order has set aside: the money and the commission, or the item.
LANGUAGE sql IMMUTABLE
AS $function$
    SELECT CASE o.side WHEN 'buy' THEN o.currency ELSE 'item:' || o.item_id END,
           CASE o.side WHEN 'buy'
                       THEN o.price + onward.commission_v1(o.price, o.commission_bp)
                       ELSE 1 END
$function$;

DROP FUNCTION IF EXISTS onward.place_order_v1(
    text, text, bigint, text, bigint, integer, uuid, uuid, text, text);
CREATE FUNCTION onward.place_order_v1(
    p_user text, p_side text, p_item bigint, p_currency text, p_price bigint, p_bp integer,
    p_token uuid, p_next uuid, p_key text, p_request text
) RETURNS TABLE (
    outcome text, order_id bigint, token uuid, needed bigint, available bigint, request text,
    payment_id bigint, commission bigint, created_at timestamptz
)
-- Places an order for whoever names the token of their last one, and sets aside what it takes. The
-- token, the money and the order are one transaction, so that no crash can make one order two.
LANGUAGE plpgsql
SET search_path = onward, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    nobody uuid := '00000000-0000-0000-0000-000000000000';
    before record;
    present uuid;
    changed record;
    made orders;
    aside record;
BEGIN
    SELECT * INTO before FROM repeated_v1(p_user, p_key, p_request);
    IF FOUND THEN
        RETURN QUERY
        -- What it was told then, whatever has become of the order since.
        SELECT before.outcome, o.id, o.token, NULL::bigint, NULL::bigint, before.request,
               o.payment_id, commission_v1(o.price, o.commission_bp), o.created_at
          FROM (SELECT) AS one
          LEFT JOIN operations p ON p.id = before.operation_id
          LEFT JOIN orders o ON o.id = p.order_id;
        RETURN;
    END IF;
    IF p_token = nobody THEN
        -- The first order of a user. Whoever else places it at this moment is waited for.
        INSERT INTO order_tokens (user_id, side, token) VALUES (p_user, p_side, nobody)
            ON CONFLICT DO NOTHING;
    END IF;
    SELECT t.token INTO present FROM order_tokens t
     WHERE t.user_id = p_user AND t.side = p_side FOR NO KEY UPDATE;
    IF present IS DISTINCT FROM p_token THEN
        RETURN QUERY SELECT 'STALE', NULL::bigint, coalesce(present, nobody), NULL::bigint,
                            NULL::bigint, NULL::text, NULL::bigint, NULL::bigint,
                            NULL::timestamptz;
        RETURN;
    END IF;
    made.side := p_side; made.item_id := p_item; made.currency := p_currency;
    made.price := p_price; made.commission_bp := p_bp;
    SELECT * INTO aside FROM set_aside_v1(made);
    SELECT * INTO changed
      FROM change_account_v1(p_user, aside.asset, NULL, -aside.amount, aside.amount, NULL);
    IF changed.outcome <> 'OK' THEN
        RETURN QUERY SELECT changed.outcome, NULL::bigint, present, aside.amount,
                            changed.available, NULL::text, NULL::bigint, NULL::bigint,
                            NULL::timestamptz;
        RETURN;
    END IF;
    INSERT INTO operations (at, kind, user_id, asset, amount, order_id, asked_by, key, request,
                            available, held, version)
    VALUES (now(), 'hold', p_user, aside.asset, aside.amount, nextval('orders_id_seq'),
            CASE WHEN p_key IS NOT NULL THEN p_user END, p_key, p_request,
            changed.available, changed.held, changed.version)
    RETURNING id, order_id INTO made.payment_id, made.id;
    INSERT INTO transfers (operation_id, n, asset, amount, from_part, from_user, to_part, to_user)
    VALUES (made.payment_id, 1, aside.asset, aside.amount, 'available', p_user, 'held', p_user);
    INSERT INTO orders (id, side, user_id, item_id, currency, payment_id, price, commission,
                        commission_bp, token, status, created_at, updated_at)
    OVERRIDING SYSTEM VALUE
    VALUES (made.id, p_side, p_user, p_item, p_currency, made.payment_id, p_price,
            commission_v1(p_price, p_bp), p_bp, p_next, {open}, now(), now());
    INSERT INTO arrivals (order_id, due_at) VALUES (made.id, now());
    UPDATE order_tokens t SET token = p_next
     WHERE t.user_id = p_user AND t.side = p_side AND t.token = p_token;
    RETURN QUERY SELECT 'OK', made.id, p_next, aside.amount, changed.available, NULL::text,
                        made.payment_id, commission_v1(p_price, p_bp), now();
END
$function$;

DROP FUNCTION IF EXISTS onward.cancel_order_v1(bigint, text, text, text);
CREATE FUNCTION onward.cancel_order_v1(
    p_order bigint, p_user text, p_side text, p_source text
) RETURNS TABLE (
    ord bigint, verdict text, lifecycle text, seen text, seen_epoch bigint,
    status text, epoch bigint, version integer
)
-- Withdraws somebody's own order, and gives back what was set aside for it. Nothing for an order
-- that this user has not.
LANGUAGE plpgsql
SET search_path = onward, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    o orders;
    said record;
    aside record;
    changed record;
    posted bigint;
BEGIN
    SELECT * INTO o FROM orders
     WHERE id = p_order AND user_id = p_user AND side = p_side FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO said
      FROM record_orders_v1(ARRAY[p_order], ARRAY['cancel'], NULL, ARRAY[p_source], NULL,
                            ARRAY[1], NULL);
    IF said.verdict = 'OK' THEN
        -- Whoever has the order's lock has its place in the book.
        DELETE FROM book WHERE order_id = p_order;
        SELECT * INTO aside FROM set_aside_v1(o);
        SELECT * INTO changed
          FROM change_account_v1(p_user, aside.asset, NULL, aside.amount, -aside.amount, NULL);
        INSERT INTO operations (at, kind, user_id, asset, amount, order_id,
                                available, held, version)
        VALUES (now(), 'release', p_user, aside.asset, aside.amount, p_order,
                changed.available, changed.held, changed.version)
        RETURNING id INTO posted;
        INSERT INTO transfers (operation_id, n, asset, amount,
                               from_part, from_user, to_part, to_user)
        VALUES (posted, 1, aside.asset, aside.amount, 'held', p_user, 'available', p_user);
    END IF;
    RETURN QUERY SELECT said.ord, said.verdict, said.lifecycle, said.seen, said.seen_epoch,
                        said.status, said.epoch, said.version;
END
$function$;

DROP FUNCTION IF EXISTS onward.deal_orders_v1(bigint[], bigint[], bigint[]);
CREATE FUNCTION onward.deal_orders_v1(
    p_buys bigint[], p_sells bigint[], p_prices bigint[]
) RETURNS TABLE (
    ord bigint, verdict text, lifecycle text, seen text, seen_epoch bigint,
    status text, epoch bigint, version integer, order_id bigint, deal_id bigint
)
-- Pairs of orders that this transaction has locked become deals, in this order: money, item,
-- commission and both statuses. No account is locked, because a deal takes only what was set aside
-- for it.
LANGUAGE plpgsql
SET search_path = onward, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $function$
#variable_conflict use_column
DECLARE
    ids bigint[];
    made bigint[];
    moves jsonb[];
BEGIN
    WITH numbered AS MATERIALIZED (
        SELECT m.buy_id, m.sell_id, m.price,
               nextval('operations_id_seq') AS operation_id, nextval('deals_id_seq') AS deal_id
          FROM unnest(p_buys, p_sells, p_prices) AS m (buy_id, sell_id, price)
    ), deal AS MATERIALIZED (
        SELECT n.*, b.user_id AS buyer, s.user_id AS seller, b.item_id, b.currency,
               'item:' || b.item_id AS item,
               -- Never more than what was set aside for the limit.
               commission_v1(n.price, b.commission_bp) AS buyer_pays,
               commission_v1(n.price, s.commission_bp) AS seller_pays,
               b.price + commission_v1(b.price, b.commission_bp) AS aside
          FROM numbered n
          JOIN orders b ON b.id = n.buy_id
          JOIN orders s ON s.id = n.sell_id
    ), operated AS (
        INSERT INTO operations (id, at, kind, user_id, asset, amount)
        OVERRIDING SYSTEM VALUE
        SELECT d.operation_id, now(), 'deal', '', d.currency, d.price FROM deal d
    ), transferred AS (
        INSERT INTO transfers (operation_id, n, asset, amount,
                               from_part, from_user, to_part, to_user)
        SELECT d.operation_id, t.*
          FROM deal d
         CROSS JOIN LATERAL (VALUES
            (1, d.currency, d.price, 'held', d.buyer, 'available', d.seller),
            (2, d.item, 1, 'held', d.seller, 'available', d.buyer),
            (3, d.currency, d.buyer_pays, 'held', d.buyer, 'fees', ''),
            (4, d.currency, d.seller_pays, 'available', d.seller, 'fees', ''),
            -- What was set aside for a dearer one.
            (5, d.currency, d.aside - d.price - d.buyer_pays, 'held', d.buyer,
                'available', d.buyer)
         ) AS t (n, asset, amount, from_part, from_user, to_part, to_user)
         WHERE t.amount > 0
    ), changed AS (
        INSERT INTO account_changes (user_id, asset, available, held, at)
        SELECT c.*, now()
          FROM deal d
         CROSS JOIN LATERAL (VALUES
            (d.buyer, d.currency, d.aside - d.price - d.buyer_pays, -d.aside),
            (d.seller, d.currency, d.price - d.seller_pays, 0),
            (d.buyer, d.item, 1, 0),
            (d.seller, d.item, 0, -1)) AS c (user_id, asset, available, held)
    ), dealt AS (
        INSERT INTO deals (id, created_at, item_id, currency, price, operation_id, buy_order_id,
                           sell_order_id, buyer, seller, buyer_commission, seller_commission)
        OVERRIDING SYSTEM VALUE
        SELECT d.deal_id, now(), d.item_id, d.currency, d.price, d.operation_id, d.buy_id,
               d.sell_id, d.buyer, d.seller, d.buyer_pays, d.seller_pays
          FROM deal d
    )
    SELECT array_agg(m.id ORDER BY m.id), array_agg(d.deal_id ORDER BY m.id),
           array_agg(jsonb_build_object('deal_id', d.deal_id, 'commission', m.pays) ORDER BY m.id)
      INTO ids, made, moves
      FROM deal d
     CROSS JOIN LATERAL (VALUES (d.buy_id, d.buyer_pays), (d.sell_id, d.seller_pays))
        AS m (id, pays);
    RETURN QUERY
    SELECT r.*, ids[r.ord], made[r.ord]
      FROM record_orders_v1(ids, array_fill('fill'::text, ARRAY[cardinality(ids)]), NULL,
                            array_fill('matcher'::text, ARRAY[cardinality(ids)]), moves,
                            ARRAY[cardinality(ids)], NULL) AS r;
END
$function$;

DROP FUNCTION IF EXISTS onward.match_orders_v1(integer, float8);
CREATE FUNCTION onward.match_orders_v1(
    p_limit integer, p_again_s float8
) RETURNS TABLE (
    ord bigint, verdict text, lifecycle text, seen text, seen_epoch bigint,
    status text, epoch bigint, version integer, order_id bigint, deal_id bigint, outcome text
)
-- Takes the oldest arrivals, and gives each the best order of the book: the best price, then the
-- oldest, and never one's own. The price of a deal is that of the order which stood in the book.
-- What another has locked is passed over, and nobody waits.
--
-- Whoever finds nobody goes into the book, and is looked at once more when that is committed. Two
-- that arrive at the same moment do not see each other; but whichever commits last has its second
-- look at a book that the other stands in. So no two are left standing that could have met.
LANGUAGE plpgsql
SET search_path = onward, pg_temp
SET plan_cache_mode = force_generic_plan
-- The book is read from its best end and no further, also by a plan that was made while it was
-- small.
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_sort = off
AS $function$
#variable_conflict use_column
DECLARE
    taker record;
    other text;
    worst bigint;
    best record;
    buys bigint[];
    sells bigint[];
    prices bigint[];
BEGIN
    FOR taker IN
        SELECT a.standing, o.id, o.side, o.user_id, o.item_id, o.currency, o.price, o.status
          FROM arrivals a
          JOIN orders o ON o.id = a.order_id
         WHERE a.due_at <= clock_timestamp()
         ORDER BY a.order_id LIMIT p_limit
           FOR UPDATE SKIP LOCKED
    LOOP
        order_id := taker.id;
        IF taker.status <> {open}
            -- It has been taken in this call, and that is not written yet.
            OR taker.standing AND NOT EXISTS (SELECT FROM book b WHERE b.order_id = taker.id)
        THEN
            DELETE FROM arrivals a WHERE a.order_id = taker.id;
            outcome := 'gone';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF taker.side = 'buy' THEN
            other := 'sell';
            worst := taker.price;
        ELSE
            other := 'buy';
            worst := -taker.price;
        END IF;
        -- It is the order that is locked: its place in the book belongs to whoever has it.
        SELECT o.id, o.price INTO best
          FROM book b
          JOIN orders o ON o.id = b.order_id
         WHERE b.side = other AND b.item_id = taker.item_id AND b.currency = taker.currency
           AND b.rank <= worst AND b.user_id <> taker.user_id AND o.status = {open}
         ORDER BY b.rank, b.order_id LIMIT 1
           FOR UPDATE OF o SKIP LOCKED;
        IF FOUND THEN
            -- At once, so that the next one does not find them.
            DELETE FROM book b WHERE b.order_id = ANY (ARRAY[taker.id, best.id]);
            DELETE FROM arrivals a WHERE a.order_id = taker.id;
            buys := buys || CASE other WHEN 'sell' THEN taker.id ELSE best.id END;
            sells := sells || CASE other WHEN 'sell' THEN best.id ELSE taker.id END;
            -- If both stand in the book, it is the older one that stood there.
            prices := prices || CASE WHEN taker.standing AND taker.id < best.id
                                     THEN taker.price ELSE best.price END;
            CONTINUE;
        END IF;
        IF NOT taker.standing THEN
            INSERT INTO book (order_id, side, user_id, item_id, currency, rank)
            VALUES (taker.id, taker.side, taker.user_id, taker.item_id, taker.currency,
                    CASE taker.side WHEN 'buy' THEN -taker.price ELSE taker.price END);
            UPDATE arrivals a SET standing = true WHERE a.order_id = taker.id;
            outcome := 'again';
        ELSIF EXISTS (
            SELECT FROM book b
              JOIN orders o ON o.id = b.order_id
             WHERE b.side = other AND b.item_id = taker.item_id AND b.currency = taker.currency
               AND b.rank <= worst AND b.user_id <> taker.user_id AND o.status = {open})
        THEN
            -- Somebody has locked those that it could meet, and may let them go again.
            UPDATE arrivals a
               SET due_at = clock_timestamp() + make_interval(secs => p_again_s * random())
             WHERE a.order_id = taker.id;
            outcome := 'again';
        ELSE
            DELETE FROM arrivals a WHERE a.order_id = taker.id;
            outcome := 'rest';
        END IF;
        RETURN NEXT;
    END LOOP;
    IF buys IS NOT NULL THEN
        RETURN QUERY SELECT d.*, 'deal' FROM deal_orders_v1(buys, sells, prices) AS d;
    END IF;
END
$function$;
