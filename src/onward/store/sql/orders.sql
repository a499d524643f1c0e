-- name: record
SELECT * FROM record_orders_v1($1, $2, $3, $4, $5, $6, $7);

-- name: place
SELECT * FROM place_order_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: cancel
SELECT * FROM cancel_order_v1($1, $2, $3, $4);

-- name: match
SELECT * FROM match_orders_v1($1, $2);

-- name: token
SELECT token FROM order_tokens WHERE user_id = $1 AND side = $2;

-- name: order
SELECT id, user_id, side, item_id, currency, payment_id, deal_id, price, commission, commission_bp,
       token, status, version, created_at, updated_at
  FROM orders
 WHERE id = $1 AND user_id = $2 AND side = $3;

-- name: orders
-- The newest first.
SELECT id, user_id, side, item_id, currency, payment_id, deal_id, price, commission, commission_bp,
       token, status, version, created_at, updated_at
  FROM orders
 WHERE user_id = $1 AND side = $2 AND id < $3
   AND ($4::text[] IS NULL OR status = ANY ($4))
 ORDER BY id DESC
 LIMIT $5;

-- name: deals
-- Somebody's own, the newest first: the last ones of each side, and the last ones of these.
SELECT *
  FROM ((SELECT d.* FROM deals d WHERE d.buyer = $1 AND d.id < $2 ORDER BY d.id DESC LIMIT $3)
        UNION ALL
        (SELECT d.* FROM deals d WHERE d.seller = $1 AND d.id < $2 ORDER BY d.id DESC LIMIT $3)
       ) AS d
 ORDER BY d.id DESC
 LIMIT $3;

-- name: bids
-- The best prices of those who buy, and how many want each.
SELECT -b.rank AS price, count(*) AS orders
  FROM book b
 WHERE b.side = 'buy' AND b.item_id = $1 AND b.currency = $2
 GROUP BY b.rank
 ORDER BY b.rank
 LIMIT $3;

-- name: asks
-- The best prices of those who sell, and how many offer each.
SELECT b.rank AS price, count(*) AS orders
  FROM book b
 WHERE b.side = 'sell' AND b.item_id = $1 AND b.currency = $2
 GROUP BY b.rank
 ORDER BY b.rank
 LIMIT $3;

-- name: crossed
-- Orders that stand in the book, could meet, and are not looked at again.
SELECT buy.order_id AS buy_order_id, sell.order_id AS sell_order_id
  FROM book buy
 CROSS JOIN LATERAL (
        SELECT s.order_id
          FROM book s
         WHERE s.side = 'sell' AND s.item_id = buy.item_id AND s.currency = buy.currency
           AND s.rank <= -buy.rank AND s.user_id <> buy.user_id
         ORDER BY s.rank, s.order_id LIMIT 1) AS sell
 WHERE buy.side = 'buy'
   AND NOT EXISTS (SELECT FROM arrivals a WHERE a.order_id IN (buy.order_id, sell.order_id))
 LIMIT $1;

-- name: misplaced
-- Open orders that nobody will find, and places in the book that no open order has.
SELECT coalesce(o.id, b.order_id) AS order_id
  FROM (SELECT * FROM orders WHERE status = {open}) AS o
  FULL JOIN book b ON b.order_id = o.id
  LEFT JOIN arrivals a ON a.order_id = o.id
 WHERE (b.order_id IS NULL AND a.standing IS DISTINCT FROM false)
    OR (o.side, o.user_id, o.item_id, o.currency,
        CASE o.side WHEN 'buy' THEN -o.price ELSE o.price END)
       IS DISTINCT FROM (b.side, b.user_id, b.item_id, b.currency, b.rank)
       AND b.order_id IS NOT NULL
    OR (b.order_id IS NOT NULL AND NOT coalesce(a.standing, true))
 LIMIT $1;
