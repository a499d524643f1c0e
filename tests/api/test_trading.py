"""Orders over HTTP: every branch of the diagram on both sides, and one order for each token."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest

from onward.core.lifecycles import ORDER
from onward.store import orders
from onward.store.orders import NO_TOKEN, NewOrder, Side
from onward.trading.money import AMOUNT_MAX
from tests.api.exchange import (
    BILLING,
    FIRST,
    ITEM,
    ORDERS,
    TRADING,
    Exchange,
    Trader,
    exchanging,
    refused,
)
from tests.api.test_billing import NO_AMOUNTS
from tests.mortal_valkey import mortal_valkey
from tests.proof_table import Tried

OPEN = str(ORDER.initial)
FILLED, CANCELLED = (str(ORDER.moves[event].target) for event in ("fill", "cancel"))
both = pytest.mark.parametrize("side", get_args(Side))


@pytest.fixture(scope="module")
async def exchange(shared_url: str, redis_url: str) -> AsyncIterator[Exchange]:
    """One for all tests; but there is one book for an item, and nobody takes another's orders."""
    async with exchanging(shared_url, redis_url) as found:
        yield found


@pytest.fixture
async def ann(exchange: Exchange) -> AsyncIterator[Trader]:
    ann = await (await exchange.trader()).rich()
    yield ann
    await cleared(ann)


@pytest.fixture
async def bob(exchange: Exchange) -> AsyncIterator[Trader]:
    bob = await (await exchange.trader("bob")).rich()
    yield bob
    await cleared(bob)


async def cleared(trader: Trader) -> None:
    """Leave nothing in the book."""
    for side in get_args(Side):
        for order in await trader.orders(side):
            await orders.cancel(trader.pool, trader.name, side, order.id, source="test")


async def token_of(trader: Trader, side: Side) -> str:
    answer = await trader.client.get(ORDERS[side])
    assert answer.status_code == 200
    return str(answer.headers["etag"])


async def matched(exchange: Exchange) -> int:
    """Let a matcher do everything that there is to do; returns how many deals there were."""
    deals = 0
    async with asyncio.timeout(30):
        while True:
            found = await orders.match(exchange.pool, limit=100, again_s=0.001)
            deals += found.deals
            if not await exchange.pool.fetchval("SELECT count(*) FROM arrivals"):
                return deals


def set_aside(side: Side, price: int) -> int:
    return price + price * 25 // 10_000 if side == "buy" else 1


async def holds(trader: Trader, side: Side) -> int:
    return (await (trader.account() if side == "buy" else trader.pieces())).held


# The diagram, branch by branch


@both
async def test_orders_are_seen_with_the_token_that_the_next_one_names(ann: Trader, side: Side):
    assert await token_of(ann, side) == FIRST
    placed = await ann.place(side, 1_000, seen=FIRST)
    token = await token_of(ann, side)
    assert token == placed.headers["etag"] != FIRST
    assert UUID(token.strip('"')) != NO_TOKEN
    other: Side = "sell" if side == "buy" else "buy"
    assert await token_of(ann, other) == FIRST


@both
async def test_while_the_lock_is_taken_it_is_409_and_nothing_is_placed(
    exchange: Exchange, ann: Trader, side: Side
):
    elsewhere = exchange.locks_elsewhere()
    lease = await elsewhere.take(f"orders:{ann.name}:{side}")
    assert lease is not None
    answer = await ann.place(side, 1_000, seen=FIRST)
    refused(answer, 409, "locked")
    assert int(answer.headers["retry-after"]) >= 1
    assert await ann.orders(side) == []
    assert await holds(ann, side) == 0
    await elsewhere.free(lease)
    await elsewhere.close()
    assert (await ann.place(side, 1_000, seen=FIRST)).status_code == 202


@both
async def test_another_token_is_412_with_the_present_one_and_the_lock_is_free(
    exchange: Exchange, ann: Trader, side: Side
):
    present = (await ann.place(side, 1_000, seen=FIRST)).headers["etag"]
    for seen in (FIRST, f'"{uuid4()}"', f"W/{present}"):
        answer = await ann.place(side, 1_000, seen=seen)
        problem = refused(answer, 412, "stale")
        assert answer.headers["etag"] == problem["etag"] == present
        assert problem["token"] == present.strip('"')
        assert not await exchange.is_locked(f"orders:{ann.name}:{side}")
    assert len(await ann.orders(side)) == 1
    assert (await ann.place(side, 1_000, seen=present)).status_code == 202


@both
async def test_the_present_token_is_202_with_the_next_one_and_the_lock_is_free(
    exchange: Exchange, ann: Trader, side: Side
):
    answer = await ann.place(side, 1_000, seen=FIRST)
    assert answer.status_code == 202
    assert not await exchange.is_locked(f"orders:{ann.name}:{side}")
    told = answer.json()
    fields = {"id", "user_id", "side", "item_id", "currency", "payment_id", "deal_id", "price"}
    assert told.keys() == fields | {"commission", "status", "version", "created_at", "updated_at"}
    assert (told["user_id"], told["side"], told["item_id"]) == (ann.name, side, ITEM)
    assert (told["price"], told["commission"], told["currency"]) == (1_000, 2, "EUR")
    assert (told["status"], told["deal_id"], told["version"]) == (OPEN, None, 1)
    # What the answer points at is the answer, and so is what is listed.
    assert (await ann.client.get(answer.headers["location"])).json() == told
    assert (await ann.client.get(ORDERS[side])).json()["items"] == [told]
    # What it takes is set aside, by an operation of its own.
    payment = (await ann.client.get(f"{BILLING}/operations/{told['payment_id']}")).json()
    assert (payment["kind"], payment["order_id"]) == ("hold", told["id"])
    assert payment["amount"] == await holds(ann, side) == set_aside(side, 1_000)
    await exchange.audited()


@both
async def test_without_a_token_it_is_428_and_with_none_of_ours_400(ann: Trader, side: Side):
    body = {"item_id": ITEM, "price": 5}
    refused(await ann.post(ORDERS[side], body), 428, "if-match-required")
    refused(await ann.post(ORDERS[side], body, seen="*"), 428, "if-match-required")
    for seen in (str(NO_TOKEN), '"1"', f'{FIRST}, "{uuid4()}"', '""'):
        refused(await ann.post(ORDERS[side], body, seen=seen), 400, "if-match-malformed")
    assert await ann.orders(side) == []


# One order for each token


@both
async def test_a_crash_before_the_token_is_remembered_cannot_sell_twice(
    exchange: Exchange, ann: Trader, side: Side
):
    """PostgreSQL has the order and its token; Valkey still has the one before."""
    assert await token_of(ann, side) == FIRST
    order, after = NewOrder(side, ITEM, "EUR", 1_000, 25), uuid4()
    placed = await orders.place(
        exchange.pool, ann.name, order, token=NO_TOKEN, new_token=after, key=None
    )
    assert placed.order_id is not None
    # Whoever looks is told the old one, and their order is refused with the present one.
    assert await token_of(ann, side) == FIRST
    answer = await ann.place(side, 1_000, seen=FIRST)
    refused(answer, 412, "stale")
    assert answer.headers["etag"] == f'"{after}"'
    assert [each.id for each in await ann.orders(side)] == [placed.order_id]
    # From then on it is remembered.
    assert await token_of(ann, side) == f'"{after}"'
    await exchange.audited()


@both
async def test_of_fifty_orders_after_one_token_one_is_placed(
    shared_url: str,
    redis_url: str,
    exchange: Exchange,
    tried: Tried,
    *,
    side: Side,
    proof: bool,
):
    """From two services with locks of their own."""
    async with exchanging(shared_url, redis_url) as other:
        for _ in range(50 if proof else 1):
            ann = await (await exchange.trader()).rich(pieces=50)
            beside = await other.same(ann)
            answers = await asyncio.gather(
                *(each.place(side, 9, seen=FIRST) for _ in range(25) for each in (ann, beside))
            )
            statuses = Counter(answer.status_code for answer in answers)
            assert statuses[202] == 1
            assert statuses.keys() <= {202, 409, 412}
            assert len(await ann.orders(side)) == 1
            assert await holds(ann, side) == set_aside(side, 9)
            await cleared(ann)
            tried("orders after one token", len(answers), "one placed each time")
    await exchange.audited()


@both
async def test_a_list_is_never_older_than_its_token(
    ann: Trader, monkeypatch: pytest.MonkeyPatch, side: Side
):
    """An order that is placed while the list is read: whoever has not seen it cannot go on."""
    page = orders.page

    async def in_between(*given: Any, **rest: Any) -> list[orders.Order]:
        found = await page(*given, **rest)
        monkeypatch.setattr(orders, "page", page)
        assert (await ann.place(side, 9, seen=FIRST)).status_code == 202
        return found

    monkeypatch.setattr(orders, "page", in_between)
    listed = await ann.client.get(ORDERS[side])
    assert (listed.json()["items"], listed.headers["etag"]) == ([], FIRST)
    refused(await ann.place(side, 9, seen=listed.headers["etag"]), 412, "stale")


async def played(exchange: Exchange, side: Side, between: Any) -> list[object]:
    """Place some orders; something happens before each request."""
    ann = await (await exchange.trader()).rich(pieces=2)
    told: list[object] = []
    seen = [FIRST]
    for at, price in ((0, 10), (0, 10), (-1, 20), (-1, AMOUNT_MAX)):
        between()
        listed = await token_of(ann, side)
        between()
        answer = await ann.place(side, price, seen=seen[at])
        if answer.status_code == 202:
            seen.append(answer.headers["etag"])
        problem = answer.json().get("code")
        told.append((answer.status_code, problem, answer.headers.get("etag") == seen[-1]))
        assert listed in seen
    asked = await asyncio.gather(*(ann.place(side, 5, seen=FIRST) for _ in range(10)))
    assert {answer.status_code for answer in asked} <= {409, 412}
    await cleared(ann)
    return [*told, [order.price for order in await ann.orders(side)]]


@both
async def test_a_valkey_that_is_emptied_or_away_changes_no_answer(shared_url: str, side: Side):
    with mortal_valkey() as valkey:
        async with exchanging(shared_url, valkey.url) as exchange:
            usual = await played(exchange, side, lambda: None)
            assert usual[:3] == [(202, None, True), (412, "stale", True), (202, None, True)]
            assert await played(exchange, side, valkey.empty) == usual
            valkey.strike_down()
            assert await played(exchange, side, lambda: None) == usual
            await exchange.audited()
            valkey.raise_up()


# What is refused


@both
async def test_what_is_no_price_or_no_item_is_refused_by_its_name(
    ann: Trader, side: Side, tried: Tried
):
    headers = {"If-Match": FIRST, "Content-Type": "application/json"}
    for case, (text, told) in NO_AMOUNTS.items():
        content = b'{"item_id": 7, "price": ' + text + b"}"
        answer = await ann.client.post(ORDERS[side], content=content, headers=headers)
        (error,) = refused(answer, 422, "invalid")["errors"]
        assert error["pointer"] == "/price", case
        assert told in error["detail"], case
        if case == "one too many":
            continue  # There are more items than minor units that one may move.
        content = b'{"price": 7, "item_id": ' + text + b"}"
        answer = await ann.client.post(ORDERS[side], content=content, headers=headers)
        (error,) = refused(answer, 422, "invalid")["errors"]
        assert error["pointer"] == "/item_id", case
    body = {"item": 7, "price": 0, "currency": 5}
    errors = refused(await ann.post(ORDERS[side], body, seen=FIRST), 422, "invalid")["errors"]
    assert {each["pointer"] for each in errors} == {"/item_id", "/item", "/price", "/currency"}
    assert await ann.orders(side) == []
    tried("prices and items that are none", 2 * len(NO_AMOUNTS))


async def test_nobody_buys_for_more_than_they_have(exchange: Exchange, ann: Trader):
    """The commission counts."""
    answer = await ann.place("buy", 1_000_000, seen=FIRST)
    problem = refused(answer, 422, "insufficient-funds")
    assert (problem["needed"], problem["available"]) == (1_002_500, 1_000_000)
    assert await token_of(ann, "buy") == FIRST
    assert not await exchange.is_locked(f"orders:{ann.name}:buy")
    price = 997_506  # and 2,493 of commission
    assert (await ann.place("buy", price, seen=FIRST)).status_code == 202
    assert (await ann.account())[:2] == (1, 999_999)


async def test_nobody_sells_what_they_have_not(ann: Trader):
    body = {"item_id": 8, "price": 5}
    problem = refused(await ann.post(ORDERS["sell"], body, seen=FIRST), 422, "insufficient-items")
    assert (problem["needed"], problem["available"]) == (1, 0)
    seen = FIRST
    for _ in range(10):
        seen = (await ann.place("sell", 5, seen=seen)).headers["etag"]
    refused(await ann.place("sell", 5, seen=seen), 422, "insufficient-items")
    assert (await ann.pieces())[:2] == (0, 10)


# Deals


async def test_two_orders_that_meet_are_a_deal_for_both(
    exchange: Exchange, ann: Trader, bob: Trader
):
    asked = await bob.place("sell", 900, seen=FIRST)
    assert await matched(exchange) == 0
    book = (await ann.client.get(f"{TRADING}/book?item_id={ITEM}")).json()
    assert (book["bids"], book["asks"]) == ([], [{"price": 900, "orders": 1}])
    bid = await ann.place("buy", 1_000, seen=FIRST)
    assert await matched(exchange) == 1
    # The price is that of the order which stood in the book, and both pay 0.25 % of it.
    bought, sold = [
        (await trader.client.get(f"{TRADING}/deals")).json()["items"][0] for trader in (ann, bob)
    ]
    seen_alike = {"item_id": ITEM, "currency": "EUR", "price": 900, "commission": 2}
    assert bought == {**bought, **seen_alike, "side": "buy", "order_id": bid.json()["id"]}
    assert sold == {**sold, **seen_alike, "side": "sell", "order_id": asked.json()["id"]}
    assert bought["id"] == sold["id"]
    # Neither is told who the other is.
    assert bob.name not in str(bought)
    for trader, answer in ((ann, bid), (bob, asked)):
        order = (await trader.client.get(answer.headers["location"])).json()
        assert (order["status"], order["deal_id"], order["version"]) == (FILLED, bought["id"], 2)
    assert (await ann.account())[:2] == (1_000_000 - 902, 0)
    assert (await bob.account())[:2] == (1_000_000 + 898, 0)
    assert ((await ann.pieces())[:2], (await bob.pieces())[:2]) == ((11, 0), (9, 0))
    await exchange.audited()


async def test_a_deal_makes_another_version_of_the_account(
    exchange: Exchange, ann: Trader, bob: Trader
):
    """What was seen before the deal cannot be withdrawn from after it."""
    seen = (await bob.client.get(f"{BILLING}/account")).headers["etag"]
    await bob.place("sell", 900, seen=FIRST)
    await ann.place("buy", 900, seen=FIRST)
    assert await matched(exchange) == 1
    answer = await bob.withdraw(5, seen=seen)
    refused(answer, 412, "stale")
    assert (await bob.withdraw(5, seen=answer.headers["etag"])).status_code == 202
    await exchange.audited()


# Looking, and withdrawing


@both
async def test_an_order_that_is_withdrawn_gives_back_what_it_held(
    exchange: Exchange, ann: Trader, side: Side
):
    placed = await ann.place(side, 1_000, seen=FIRST)
    path = placed.headers["location"]
    answer = await ann.client.post(f"{path}/cancel")
    assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
    assert answer.json()["status"] == CANCELLED
    assert await holds(ann, side) == 0
    # Once more changes nothing; and the token is that of the last order all the same.
    again = await ann.client.post(f"{path}/cancel")
    assert (again.status_code, again.json()) == (200, answer.json())
    assert await token_of(ann, side) == placed.headers["etag"]
    kinds = [each.kind for each in await ann.operations()]
    assert kinds.count("release") == 1
    await exchange.audited()


@both
async def test_an_order_that_was_filled_cannot_be_withdrawn(
    exchange: Exchange, ann: Trader, bob: Trader, side: Side
):
    other: Side = "sell" if side == "buy" else "buy"
    path = (await ann.place(side, 1_000, seen=FIRST)).headers["location"]
    await bob.place(other, 1_000, seen=FIRST)
    assert await matched(exchange) == 1
    problem = refused(await ann.client.post(f"{path}/cancel"), 409, "order-stands-otherwise")
    assert (problem["status"], problem["order_status"]) == (409, FILLED)
    await exchange.audited()


@both
async def test_an_order_is_its_owners_and_of_its_side(
    exchange: Exchange, ann: Trader, bob: Trader, side: Side
):
    path = (await ann.place(side, 1_000, seen=FIRST)).headers["location"]
    other: Side = "sell" if side == "buy" else "buy"
    crossed = path.replace(ORDERS[side], ORDERS[other])
    for caller, address in ((bob, path), (ann, crossed)):
        refused(await caller.client.get(address), 404, "unknown-order")
        refused(await caller.client.post(f"{address}/cancel"), 404, "unknown-order")
    assert (await bob.client.get(ORDERS[side])).json()["items"] == []
    assert (await ann.client.get(path)).json()["status"] == OPEN
    await exchange.audited()


@both
async def test_whoever_has_an_order_as_it_is_is_not_sent_it_again(ann: Trader, side: Side):
    placed = await ann.place(side, 1_000, seen=FIRST)
    for seen, status in (('"1"', 304), ('"2"', 200)):
        answer = await ann.client.get(placed.headers["location"], headers={"If-None-Match": seen})
        assert (answer.status_code, answer.headers["etag"]) == (status, '"1"')
    # A list is never as it was: its orders move without its token.
    headers = {"If-None-Match": placed.headers["etag"]}
    assert (await ann.client.get(ORDERS[side], headers=headers)).status_code == 200


@both
async def test_orders_are_listed_in_pages_and_by_status(ann: Trader, side: Side):
    seen, ids = FIRST, []
    for price in range(1, 6):
        answer = await ann.place(side, price, seen=seen)
        seen = answer.headers["etag"]
        ids.append(answer.json()["id"])
    await ann.client.post(f"{ORDERS[side]}/{ids[2]}/cancel")
    found, cursor = [], None
    while True:
        params = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        answer = await ann.client.get(ORDERS[side], params=params)
        assert answer.headers["etag"] == seen
        found += [order["id"] for order in answer.json()["items"]]
        if (cursor := answer.json()["next_cursor"]) is None:
            break
    assert found == ids[::-1]
    for statuses, expected in (
        ([CANCELLED], [ids[2]]),
        ([OPEN], [ids[4], ids[3], ids[1], ids[0]]),
        ([OPEN, CANCELLED], ids[::-1]),
    ):
        answer = await ann.client.get(ORDERS[side], params={"status": statuses})
        assert [order["id"] for order in answer.json()["items"]] == expected
    answer = await ann.client.get(ORDERS[side], params={"status": "DONE"})
    assert refused(answer, 422, "invalid")["errors"][0]["pointer"] == "/status"


async def test_the_book_has_the_best_prices_first(exchange: Exchange, ann: Trader, bob: Trader):
    seen = {"buy": FIRST, "sell": FIRST}
    placed: list[tuple[Trader, Side, int]] = [
        *((ann, "buy", price) for price in (90, 95, 90, 85)),
        *((bob, "sell", price) for price in (110, 105, 110)),
    ]
    for trader, side, price in placed:
        seen[side] = (await trader.place(side, price, seen=seen[side])).headers["etag"]
    assert await matched(exchange) == 0
    book = (await ann.client.get(f"{TRADING}/book?item_id={ITEM}&depth=2")).json()
    assert book["bids"] == [{"price": 95, "orders": 1}, {"price": 90, "orders": 2}]
    assert book["asks"] == [{"price": 105, "orders": 1}, {"price": 110, "orders": 2}]
    other = (await ann.client.get(f"{TRADING}/book?item_id={ITEM}&currency=USD")).json()
    assert (other["currency"], other["bids"], other["asks"]) == ("USD", [], [])
    for query in ("", "item_id=0", f"item_id={ITEM}&depth=0", f"item_id={ITEM}&currency=XXX"):
        refused(await ann.client.get(f"{TRADING}/book?{query}"), 422, "invalid")


# Items


async def test_an_admin_brings_items_in_and_nobody_else(exchange: Exchange, ann: Trader):
    root = await exchange.trader("root", role="admin")
    body = {"user_id": ann.name, "item_id": 9, "quantity": 3}
    answer = await root.post(f"{TRADING}/items", body)
    assert answer.status_code == 202
    told = answer.json()
    assert (told["kind"], told["item_id"], told["currency"]) == ("issue", 9, None)
    assert told["account"] == {"available": 3, "held": 0, "version": 2}
    refused(await ann.post(f"{TRADING}/items", body), 403, "permission-missing")
    found = (await ann.client.get(f"{TRADING}/items?limit=1")).json()
    assert found["items"] == [{"item_id": ITEM, "available": 10, "held": 0}]
    more = await ann.client.get(f"{TRADING}/items?cursor={found['next_cursor']}")
    assert more.json()["items"] == [{"item_id": 9, "available": 3, "held": 0}]
    wrong = {"user_id": "", "item_id": 0, "quantity": 1.5, "currency": "EUR"}
    errors = refused(await root.post(f"{TRADING}/items", wrong), 422, "invalid")["errors"]
    assert {each["pointer"] for each in errors} == {f"/{name}" for name in wrong}
    await exchange.audited()
