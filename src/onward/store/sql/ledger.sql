-- name: account
SELECT available, held, version, updated_at FROM account_v1($1, $2);

-- name: post
SELECT * FROM post_v1($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: post_all
SELECT * FROM post_all_v1($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: holdings
-- What somebody has of each item, in the order of the items.
SELECT a.asset, n.available, n.held
  FROM (SELECT asset FROM accounts WHERE user_id = $1
        UNION
        SELECT asset FROM account_changes WHERE user_id = $1) AS a
 CROSS JOIN LATERAL account_v1($1, a.asset) AS n
 WHERE a.asset LIKE 'item:%'
   AND substr(a.asset, 6)::bigint > $2
   AND n.available + n.held > 0
 ORDER BY substr(a.asset, 6)::bigint
 LIMIT $3;

-- name: operation
SELECT id, at, kind, asset, amount, order_id, available, held, version
  FROM operations
 WHERE id = $2 AND user_id = $1;

-- name: operations
-- The newest first.
SELECT id, at, kind, asset, amount, order_id, available, held, version
  FROM operations
 WHERE user_id = $1 AND id < $2
 ORDER BY id DESC
 LIMIT $3;

-- name: changed
-- Accounts for which deals have left something to be added up.
SELECT DISTINCT user_id, asset
  FROM (SELECT user_id, asset FROM account_changes ORDER BY id LIMIT $1) AS oldest;

-- name: fold
-- Unless another is at it: those who add up do not wait for each other.
SELECT fold_account_v1($1, $2)
 WHERE pg_try_advisory_xact_lock(1869770876, hashtext($1 || ' ' || $2));

-- name: drift
-- Accounts that are not what their transfers say, all of them in one snapshot.
WITH derived AS (
    SELECT user_id, asset,
           sum(amount) FILTER (WHERE part = 'available') AS available,
           sum(amount) FILTER (WHERE part = 'held') AS held
      FROM entries
     WHERE user_id <> ''
     GROUP BY user_id, asset
), kept AS (
    SELECT user_id, asset, sum(available) AS available, sum(held) AS held
      FROM (SELECT user_id, asset, available, held FROM accounts
            UNION ALL
            SELECT user_id, asset, available, held FROM account_changes) AS a
     GROUP BY user_id, asset
)
SELECT coalesce(d.user_id, k.user_id) AS user_id, coalesce(d.asset, k.asset) AS asset,
       coalesce(k.available, 0)::bigint AS available, coalesce(d.available, 0)::bigint
           AS derived_available,
       coalesce(k.held, 0)::bigint AS held, coalesce(d.held, 0)::bigint AS derived_held
  FROM derived d
  FULL JOIN kept k USING (user_id, asset)
 WHERE coalesce(k.available, 0) <> coalesce(d.available, 0)
    OR coalesce(k.held, 0) <> coalesce(d.held, 0)
    OR coalesce(k.available, 0) < 0
    OR coalesce(k.held, 0) < 0
 LIMIT $1;

-- name: unbalanced
-- Operations that take what they do not give, or have no entries at all.
SELECT o.id
  FROM operations o
  LEFT JOIN (SELECT operation_id, asset, sum(amount) AS sum
               FROM entries GROUP BY operation_id, asset) AS e ON e.operation_id = o.id
 WHERE e.sum IS DISTINCT FROM 0
 LIMIT $1;

-- name: unheld
-- What is set aside and what open orders have set aside, where the two differ.
WITH wanted AS (
    SELECT o.user_id, s.asset, sum(s.amount) AS amount
      FROM orders o
     CROSS JOIN LATERAL set_aside_v1(o) AS s
     WHERE o.status = {open}
     GROUP BY o.user_id, s.asset
), kept AS (
    SELECT user_id, asset, sum(held) AS amount
      FROM (SELECT user_id, asset, held FROM accounts
            UNION ALL
            SELECT user_id, asset, held FROM account_changes) AS a
     GROUP BY user_id, asset
)
SELECT coalesce(w.user_id, k.user_id) AS user_id, coalesce(w.asset, k.asset) AS asset,
       coalesce(k.amount, 0)::bigint AS held, coalesce(w.amount, 0)::bigint AS wanted
  FROM wanted w
  FULL JOIN kept k USING (user_id, asset)
 WHERE coalesce(w.amount, 0) <> coalesce(k.amount, 0)
 LIMIT $1;

-- name: wrong_deals
-- Deals that break a promise: outside of a limit, with oneself, or with an order that is elsewhere.
SELECT d.id
  FROM deals d
  LEFT JOIN orders b ON b.id = d.buy_order_id
  LEFT JOIN orders s ON s.id = d.sell_order_id
 WHERE (b.side = 'buy' AND s.side = 'sell' AND b.deal_id = d.id AND s.deal_id = d.id
        AND b.user_id = d.buyer AND s.user_id = d.seller AND d.buyer <> d.seller
        AND b.item_id = d.item_id AND s.item_id = d.item_id
        AND b.currency = d.currency AND s.currency = d.currency
        AND b.status = {filled} AND s.status = {filled}
        AND b.commission = d.buyer_commission AND s.commission = d.seller_commission
        AND d.price BETWEEN s.price AND b.price) IS NOT TRUE
 LIMIT $1;

-- name: wrong_orders
-- Orders that were filled by no deal, have one and were not, or were never paid for.
SELECT o.id
  FROM orders o
 CROSS JOIN LATERAL set_aside_v1(o) AS s
  LEFT JOIN deals d
    ON d.id = o.deal_id
   AND o.id = CASE o.side WHEN 'buy' THEN d.buy_order_id ELSE d.sell_order_id END
  LEFT JOIN operations p
    ON p.id = o.payment_id AND p.kind = 'hold' AND p.order_id = o.id
   AND p.user_id = o.user_id AND p.asset = s.asset AND p.amount = s.amount
 WHERE (o.status = {filled}) <> (o.deal_id IS NOT NULL)
    OR (o.deal_id IS NULL) <> (d.id IS NULL)
    OR p.id IS NULL
 LIMIT $1;

-- name: wrong_payments
-- Operations of the market that did not move what their deal says, and no more.
WITH wanted AS (
    SELECT d.operation_id, w.asset, w.part, w.user_id, w.amount
      FROM deals d
      JOIN orders b ON b.id = d.buy_order_id
     CROSS JOIN LATERAL set_aside_v1(b) AS s
     CROSS JOIN LATERAL (VALUES
        (d.currency, 'held', d.buyer, -s.amount),
        (d.currency, 'available', d.buyer, s.amount - d.price - d.buyer_commission),
        (d.currency, 'available', d.seller, d.price - d.seller_commission),
        (d.currency, 'fees', '', d.buyer_commission + d.seller_commission),
        ('item:' || d.item_id, 'held', d.seller, -1),
        ('item:' || d.item_id, 'available', d.buyer, 1)
     ) AS w (asset, part, user_id, amount)
     WHERE w.amount <> 0
), moved AS (
    SELECT e.operation_id, e.asset, e.part, e.user_id, sum(e.amount) AS amount
      FROM entries e
      JOIN operations o ON o.id = e.operation_id AND o.kind = 'deal'
     GROUP BY e.operation_id, e.asset, e.part, e.user_id
    HAVING sum(e.amount) <> 0
)
SELECT DISTINCT operation_id
  FROM wanted
  FULL JOIN moved USING (operation_id, asset, part, user_id)
 WHERE wanted.amount IS DISTINCT FROM moved.amount
 LIMIT $1;

-- name: nowhere
-- Transfers from or to what is no place: a user has two, nobody has two, and there are no others.
SELECT t.operation_id
  FROM transfers t
 WHERE (t.from_part, t.from_user) = (t.to_part, t.to_user)
    OR NOT CASE WHEN t.from_user = '' THEN t.from_part IN ('outside', 'fees')
                ELSE t.from_part IN ('available', 'held') END
    OR NOT CASE WHEN t.to_user = '' THEN t.to_part IN ('outside', 'fees')
                ELSE t.to_part IN ('available', 'held') END
 LIMIT $1;

-- name: totals
-- How much of each asset is where; what is outside of us is negative.
SELECT asset, part, sum(amount)::bigint AS amount
  FROM entries
 GROUP BY asset, part
 ORDER BY asset, part;

-- name: counted
SELECT (SELECT count(*) FROM operations) AS operations,
       (SELECT count(*) FROM (SELECT user_id, asset FROM accounts
                              UNION SELECT user_id, asset FROM account_changes) AS a) AS accounts,
       (SELECT count(*) FROM deals) AS deals,
       (SELECT count(*) FROM orders WHERE status = {open}) AS open_orders;
