-- Whoever trades need not see the fleet.
ALTER TABLE onward.api_keys
    DROP CONSTRAINT api_keys_role_check,
    ADD CONSTRAINT api_keys_role_check
        CHECK (role IN ('viewer', 'operator', 'approver', 'trader', 'admin'));

-- What somebody has of one asset: a currency, in minor units, or an item, in pieces. It can be
-- derived from the transfers at any time; it is kept because a withdrawal has to ask it.
--
-- Here and below, few rules are written as constraints: each is read and compiled for every
-- statement, and together they took a quarter of the time of a withdrawal. The floor is one of them;
-- what else must hold is derived and compared by the audit.
CREATE TABLE onward.accounts (
    user_id    text        NOT NULL,
    asset      text        NOT NULL, -- such as EUR, or item:7
    available  bigint      NOT NULL DEFAULT 0,
    held       bigint      NOT NULL DEFAULT 0, -- set aside for open orders
    version    bigint      NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, asset),
    CONSTRAINT accounts_floor CHECK (available >= 0 AND held >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- What deals have changed and nobody has added up yet. A deal only ever gives, or takes what was
-- set aside for it, so it need not ask the account and never waits for it: it adds a row. Whoever
-- locks the account next adds the rows up. An account is its row and these together, and so is its
-- version: each of them counts one.
CREATE TABLE onward.account_changes (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id   text        NOT NULL,
    asset     text        NOT NULL,
    available bigint      NOT NULL CHECK (available >= 0),
    held      bigint      NOT NULL CHECK (held <= 0),
    at        timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX account_changes_account ON onward.account_changes (user_id, asset);

-- What was done, each by somebody's own request or by the market. Never changed, never deleted.
CREATE TABLE onward.operations (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL,
    kind      text        NOT NULL, -- deposit, withdraw, issue, hold, release or deal
    user_id   text        NOT NULL, -- whose account it is; the market's own are nobody's
    asset     text        NOT NULL,
    amount    bigint      NOT NULL,
    order_id  bigint,
    -- The caller's own name of the request, and the request: a repeat gets the first answer.
    asked_by  text,
    key       text,
    request   text,
    -- The account as the operation left it.
    available bigint,
    held      bigint,
    version   bigint
);
CREATE UNIQUE INDEX operations_key ON onward.operations (asked_by, key) WHERE key IS NOT NULL;
CREATE INDEX operations_user ON onward.operations (user_id, id) WHERE user_id <> '';

-- The ledger. A row takes from one place what it gives to another, so no operation can take and not
-- give. Nothing outside of us has a floor: what is there is the sum of what went out.
CREATE TABLE onward.transfers (
    operation_id bigint   NOT NULL,
    n            smallint NOT NULL,
    asset        text     NOT NULL,
    amount       bigint   NOT NULL CHECK (amount > 0),
    from_part    text     NOT NULL, -- available or held, of a user; outside or fees, of nobody
    from_user    text     NOT NULL DEFAULT '',
    to_part      text     NOT NULL,
    to_user      text     NOT NULL DEFAULT '',
    PRIMARY KEY (operation_id, n)
);

-- The same as entries: two for each transfer, which sum to zero.
CREATE VIEW onward.entries AS
SELECT t.operation_id, t.n, t.asset, e.part, e.user_id, e.amount
  FROM onward.transfers t
 CROSS JOIN LATERAL (VALUES (t.from_part, t.from_user, -t.amount),
                            (t.to_part, t.to_user, t.amount)) AS e (part, user_id, amount);

CREATE TABLE onward.orders (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    side          text        NOT NULL CHECK (side IN ('buy', 'sell')),
    user_id       text        NOT NULL,
    item_id       bigint      NOT NULL CHECK (item_id > 0),
    currency      text        NOT NULL,
    payment_id    bigint      NOT NULL, -- the operation that set aside what it takes
    deal_id       bigint,
    price         bigint      NOT NULL CHECK (price > 0), -- the limit: at most, or at least
    commission    bigint      NOT NULL CHECK (commission >= 0), -- at most; once filled, what it was
    commission_bp integer     NOT NULL CHECK (commission_bp BETWEEN 0 AND 10000),
    token         uuid        NOT NULL, -- what the next order of this user has to name
    status        text        NOT NULL,
    epoch         bigint      NOT NULL DEFAULT nextval('onward.epochs'),
    version       integer     NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    finished_at   timestamptz,
    late_result   jsonb
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX orders_user ON onward.orders (user_id, side, id);

CREATE TABLE onward.order_timeline (
    seq         bigint      GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL DEFAULT now(),
    tx          bigint      DEFAULT pg_current_xact_id()::text::bigint,
    order_id    bigint      NOT NULL,
    event       text        NOT NULL,
    verdict     text        NOT NULL,
    from_status text,
    to_status   text,
    epoch       bigint,
    source      text        NOT NULL DEFAULT '',
    detail      jsonb
) PARTITION BY RANGE (at);
CREATE INDEX order_timeline_order ON onward.order_timeline (order_id);
CREATE TABLE onward.order_timeline_default PARTITION OF onward.order_timeline DEFAULT;

-- The book: the open orders that matchers have looked at and found nobody for. Kept apart from the
-- orders, so that moving one of those writes to no index, and so that whoever looks for the best
-- price does not meet orders that have not had their own turn yet.
CREATE TABLE onward.book (
    order_id bigint NOT NULL PRIMARY KEY,
    side     text   NOT NULL CHECK (side IN ('buy', 'sell')),
    user_id  text   NOT NULL,
    item_id  bigint NOT NULL,
    currency text   NOT NULL,
    -- The price as whoever takes it sees it, so that the least is the best on either side: what an
    -- offer costs, or what a bid pays, below zero.
    rank     bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);
CREATE INDEX book_best ON onward.book (side, item_id, currency, rank, order_id);

-- Orders that matchers still have to look at: before they stand in the book, and once after.
CREATE TABLE onward.arrivals (
    order_id bigint      PRIMARY KEY,
    due_at   timestamptz NOT NULL,
    standing boolean     NOT NULL DEFAULT false -- in the book already
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1);

-- The token of a user's last order. Whoever has never placed one has none here.
CREATE TABLE onward.order_tokens (
    user_id text NOT NULL,
    side    text NOT NULL CHECK (side IN ('buy', 'sell')),
    token   uuid NOT NULL,
    PRIMARY KEY (user_id, side)
) WITH (fillfactor = 50);

CREATE TABLE onward.deals (
    id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at        timestamptz NOT NULL,
    item_id           bigint      NOT NULL,
    currency          text        NOT NULL,
    price             bigint      NOT NULL CHECK (price > 0),
    operation_id      bigint      NOT NULL,
    -- An order is in one deal at most, whatever the program believes.
    buy_order_id      bigint      NOT NULL UNIQUE,
    sell_order_id     bigint      NOT NULL UNIQUE,
    buyer             text        NOT NULL,
    seller            text        NOT NULL,
    buyer_commission  bigint      NOT NULL CHECK (buyer_commission >= 0),
    seller_commission bigint      NOT NULL CHECK (seller_commission BETWEEN 0 AND price),
    CHECK (buyer <> seller)
);
CREATE INDEX deals_buyer ON onward.deals (buyer, id);
CREATE INDEX deals_seller ON onward.deals (seller, id);
