"""Keys of requests: whoever says the same again gets the first answer, and it is done once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.requests import Request

from onward.api.idempotency import key_of
from onward.api.problems import Problem
from onward.store import orders
from onward.store.locks import Lease, Locks
from tests.api.exchange import (
    BILLING,
    CHANGES,
    FIRST,
    ORDERS,
    TRADING,
    Exchange,
    Trader,
    exchanging,
    refused,
)
from tests.proof_table import Tried

every_kind = pytest.mark.parametrize("kind", CHANGES)
MADE_UP = '"11111111-1111-4111-8111-111111111111"'


@pytest.fixture(scope="module")
async def exchange(shared_url: str, redis_url: str) -> AsyncIterator[Exchange]:
    """One for all tests: whoever trades has a name of their own."""
    async with exchanging(shared_url, redis_url) as found:
        yield found


@pytest.fixture
async def ann(exchange: Exchange) -> Trader:
    return await (await exchange.trader()).rich(money=100_000, pieces=50)


async def ask(
    trader: Trader, kind: str, amount: int = 5, *, seen: str | None = None, key: str | None = None
) -> httpx2.Response:
    """Ask for a change, of what nobody has changed yet unless otherwise said."""
    change = CHANGES[kind]
    return await trader.post(change.path, change.body(amount), seen=seen or change.first, key=key)


def never(kind: str) -> str:
    """A tag that there never was."""
    return '"99"' if CHANGES[kind].path.startswith(BILLING) else MADE_UP


# What a key is


def key_from(*values: bytes) -> str | None:
    headers = [(b"idempotency-key", value) for value in values]
    return key_of(Request({"type": "http", "headers": headers}))


KEYS: dict[bytes, str] = {
    b"a": "a",
    b'"a"': "a",
    b"pay-2026/01:7?x=1": "pay-2026/01:7?x=1",
    b"a" * 255: "a" * 255,
    b'"' + b"a" * 255 + b'"': "a" * 255,
    rb'"a\"b\\c"': r"a\"b\c".replace("\\", "", 1),
    rb"a\b": r"a\b",
    b'a"b': 'a"b',
    b"*": "*",
    b'W/"1"': 'W/"1"',
}
NO_KEYS: tuple[bytes, ...] = (
    b"",
    b'""',
    b'"',
    b'"a',
    b'"a"b"',
    b'"a"; b=c',
    b'"a", "b"',
    b"a b",
    b'"a b"',
    b"a\tb",
    b"a\x00b",
    b"a\x7fb",
    b"\xe4",
    "ключ".encode(),
    b"a" * 256,
    b'"' + b"a" * 256 + b'"',
    rb'"a\b"',
    b"a\n",
)


def test_a_key_is_visible_ascii_with_or_without_quotes():
    assert key_from() is None
    for given, key in KEYS.items():
        assert key_from(given) == key, given
    for given in NO_KEYS:
        with pytest.raises(Problem) as found:
            key_from(given)
        assert (found.value.status, found.value.code) == (400, "idempotency-key-malformed"), given
    with pytest.raises(Problem):
        key_from(b"a", b"a")


@every_kind
async def test_a_key_that_is_none_is_refused_and_nothing_is_done(ann: Trader, kind: str):
    for key in ("", '"a', "a b", "a" * 256):
        refused(await ask(ann, kind, key=key), 400, "idempotency-key-malformed")
    assert await ann.asked_for() == []


# The same again


@every_kind
async def test_whoever_says_the_same_again_gets_the_first_answer(
    exchange: Exchange, ann: Trader, kind: str
):
    first = await ask(ann, kind, key="once")
    assert first.status_code == 202
    assert "idempotency-replayed" not in first.headers
    # The version that was seen, the present one, and one that never was: the key comes first.
    for seen in (CHANGES[kind].first, first.headers["etag"], never(kind)):
        again = await ask(ann, kind, seen=seen, key='"once"')
        assert (again.status_code, again.content) == (202, first.content)
        for name in ("etag", "location", "content-type"):
            assert again.headers[name] == first.headers[name]
        assert again.headers["idempotency-replayed"] == "true"
    assert len(await ann.asked_for()) == 1
    await exchange.audited()


@every_kind
async def test_the_first_answer_stays_the_first_whatever_comes_after(
    exchange: Exchange, ann: Trader, kind: str
):
    first = await ask(ann, kind, key="once")
    seen = first.headers["etag"]
    for _ in range(3):
        seen = (await ask(ann, kind, seen=seen)).headers["etag"]
    if kind in ORDERS:
        # Also when the order has become something else.
        assert (await ann.client.post(f"{first.headers['location']}/cancel")).status_code == 200
    again = await ask(ann, kind, key="once")
    assert (again.status_code, again.content) == (202, first.content)
    assert again.headers["etag"] == first.headers["etag"] != seen
    await exchange.audited()


async def test_a_repeat_does_not_bring_back_an_old_token(ann: Trader):
    """What it is told was the present token then; the next order still names the last one."""
    first = await ask(ann, "buy", key="once")
    second = await ask(ann, "buy", seen=first.headers["etag"])
    assert (await ask(ann, "buy", key="once")).headers["etag"] == first.headers["etag"]
    listed = await ann.client.get(ORDERS["buy"])
    assert listed.headers["etag"] == second.headers["etag"]


async def test_an_order_that_was_filled_is_still_answered_as_it_was_placed(
    exchange: Exchange, ann: Trader
):
    bob = await (await exchange.trader("bob")).rich()
    body = {"item_id": 77, "price": 50}
    root = await exchange.trader("root", role="admin")
    await root.post(f"{TRADING}/items", {"user_id": bob.name, "item_id": 77, "quantity": 1})
    await bob.post(ORDERS["sell"], {**body, "price": 40}, seen=FIRST)
    first = await ann.post(ORDERS["buy"], body, seen=FIRST, key="once")
    async with asyncio.timeout(30):
        while not (await ann.client.get(f"{TRADING}/deals")).json()["items"]:
            await orders.match(exchange.pool, limit=100, again_s=0.001)
    again = await ann.post(ORDERS["buy"], body, seen=FIRST, key="once")
    assert (again.status_code, again.content) == (202, first.content)
    assert (await ann.client.get(first.headers["location"])).json() != first.json()


@every_kind
async def test_a_repeat_still_says_what_it_has_seen(ann: Trader, kind: str):
    await ask(ann, kind, key="once")
    path, body = CHANGES[kind].path, CHANGES[kind].body()
    refused(await ann.post(path, body, key="once"), 428, "if-match-required")
    refused(await ann.post(path, body, key="once", seen="x"), 400, "if-match-malformed")


# Something else


@every_kind
async def test_a_key_stands_for_one_request(exchange: Exchange, ann: Trader, kind: str):
    """Not for another amount, another currency, or another address."""
    first = await ask(ann, kind, key="once")
    seen = first.headers["etag"]
    answers = [await ask(ann, kind, 6, seen=seen, key="once")]
    answers += [await ask(ann, other, key="once") for other in CHANGES if other != kind]
    for answer in answers:
        problem = refused(answer, 422, "idempotency-key-reused")
        assert problem["stands_for"].startswith(f"{kind} ")
        assert problem["stands_for"] in problem["detail"]
    assert len(await ann.asked_for()) == 1
    # The same with the currency that is meant anyway is the same.
    path, body = CHANGES[kind].path, CHANGES[kind].body()
    again = await ann.post(path, {**body, "currency": "EUR"}, seen=seen, key="once")
    assert (again.status_code, again.content) == (202, first.content)
    other = await ann.post(path, {**body, "currency": "USD"}, seen=seen, key="once")
    refused(other, 422, "idempotency-key-reused")
    await exchange.audited()


@every_kind
async def test_a_key_is_its_users_own(exchange: Exchange, ann: Trader, kind: str):
    bob = await (await exchange.trader("bob")).rich()
    for trader in (ann, bob):
        answer = await ask(trader, kind, key="mine")
        assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (202, None)


@pytest.mark.parametrize("kind", ["withdraw", "buy", "sell"])
async def test_a_refusal_is_not_kept(ann: Trader, kind: str):
    """Whoever was refused may mend it, and say it again under the same key."""
    change = CHANGES[kind]
    body = {**change.body(500_000), **({"item_id": 78} if change.more else {})}
    for _ in range(2):
        answer = await ann.post(change.path, body, seen=change.first, key="once")
        assert answer.status_code == 422
        assert answer.json()["code"].startswith("insufficient-")
    refused(await ask(ann, kind, seen=never(kind), key="once"), 412, "stale")
    assert (await ask(ann, kind, key="once")).status_code == 202
    assert len(await ann.asked_for()) == 1


# At the same moment


@every_kind
async def test_of_twenty_with_one_key_one_has_an_effect(
    shared_url: str, redis_url: str, exchange: Exchange, tried: Tried, *, kind: str, proof: bool
):
    """Each is told the first result, or to come again. Two services have locks of their own."""
    async with exchanging(shared_url, redis_url) as other:
        for _ in range(25 if proof else 1):
            ann = await (await exchange.trader()).rich(money=100_000, pieces=50)
            beside = await other.same(ann)
            answers = await asyncio.gather(
                *(ask(each, kind, key="once") for _ in range(10) for each in (ann, beside))
            )
            taken = [answer for answer in answers if answer.status_code == 202]
            assert len({answer.content for answer in taken}) == 1
            assert sum("idempotency-replayed" not in answer.headers for answer in taken) == 1
            codes = Counter(
                answer.json()["code"] for answer in answers if answer.status_code != 202
            )
            assert codes.keys() <= {"locked", "idempotency-key-running"}
            assert len(await ann.asked_for()) == 1
            tried("requests with one key", len(answers), "one effect each time")
    await exchange.audited()


@every_kind
async def test_one_without_locks_in_front_has_one_effect_all_the_same(
    ann: Trader, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """As when Valkey is away and each request comes to another process."""

    async def anybody(_: Locks, name: str) -> Lease:
        return Lease(name, "nobody's", until=0.0, kept=False)

    monkeypatch.setattr(Locks, "take", anybody)
    answers = await asyncio.gather(*(ask(ann, kind, key="once") for _ in range(20)))
    taken = [answer for answer in answers if answer.status_code == 202]
    assert len({answer.content for answer in taken}) == 1
    for answer in answers:
        if answer.status_code != 202:
            refused(answer, 409, "idempotency-key-running")
    assert len(await ann.asked_for()) == 1


@every_kind
async def test_while_the_first_runs_the_second_is_asked_to_come_again(
    exchange: Exchange, ann: Trader, kind: str
):
    """The first is held up in its transaction, which has the key."""
    async with exchange.pool.acquire() as running, running.transaction():
        await running.execute(
            "SELECT * FROM repeated_v1($1, 'once', $2)", ann.name, "what it stands for"
        )
        answer = await ask(ann, kind, key="once")
        refused(answer, 409, "idempotency-key-running")
        assert int(answer.headers["retry-after"]) >= 1
        # Others are not held up.
        assert (await ask(ann, kind, key="another")).status_code == 202
    assert len(await ann.asked_for()) == 1


# Whoever brings items in


async def test_items_are_issued_once_for_a_key(exchange: Exchange, ann: Trader):
    """The keys of whoever issues are not those of whoever gets the items."""
    root = await exchange.trader("root", role="admin")
    body = {"user_id": ann.name, "item_id": 79, "quantity": 3}
    assert (await ask(ann, "deposit", key="once")).status_code == 202
    first = await root.post(f"{TRADING}/items", body, key="once")
    again = await root.post(f"{TRADING}/items", body, key="once")
    assert (first.status_code, again.status_code) == (202, 202)
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    for change in ({"quantity": 4}, {"user_id": "root"}):
        other = await root.post(f"{TRADING}/items", {**body, **change}, key="once")
        told = refused(other, 422, "idempotency-key-reused")["stands_for"]
        assert told == f"issue 3 item:79 for {ann.name}"
    held = (await ann.client.get(f"{TRADING}/items")).json()["items"]
    assert {"item_id": 79, "available": 3, "held": 0} in held
    await exchange.audited()
