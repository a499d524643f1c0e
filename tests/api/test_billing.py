"""Accounts over HTTP: every branch of the diagram, and money that moves once or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from onward.api.permissions import Role
from onward.store.ledger import BALANCE_MAX
from onward.trading.money import AMOUNT_MAX
from tests.api.exchange import BILLING, Exchange, Trader, exchanging, refused
from tests.mortal_valkey import mortal_valkey
from tests.proof_table import Tried

DEPOSIT, WITHDRAW = f"{BILLING}/deposit", f"{BILLING}/withdraw"
both = pytest.mark.parametrize("path", [DEPOSIT, WITHDRAW])


@pytest.fixture(scope="module")
async def exchange(shared_url: str, redis_url: str) -> AsyncIterator[Exchange]:
    """One for all tests: whoever trades has a name of their own."""
    async with exchanging(shared_url, redis_url) as found:
        yield found


@pytest.fixture
async def ann(exchange: Exchange) -> Trader:
    return await exchange.trader()


async def seen_by(trader: Trader) -> str:
    return str((await trader.client.get(f"{BILLING}/account")).headers["etag"])


# The diagram, branch by branch


async def test_an_account_is_seen_with_the_version_that_a_change_names(ann: Trader):
    answer = await ann.client.get(f"{BILLING}/account")
    assert (answer.status_code, answer.headers["etag"]) == (200, '"1"')
    empty = {"available": 0, "held": 0, "version": 1, "updated_at": None}
    assert answer.json() == {"user_id": ann.name, "currency": "EUR", **empty}
    await ann.deposit(500, seen='"1"')
    answer = await ann.client.get(f"{BILLING}/account")
    assert answer.headers["etag"] == '"2"'
    told = answer.json()
    assert (told["available"], told["held"], told["version"]) == (500, 0, 2)
    assert told["updated_at"]


async def test_whoever_has_the_present_version_is_not_sent_it_again(ann: Trader):
    for seen, status in (('"1"', 304), ('W/"1"', 304), ('"2"', 200)):
        answer = await ann.client.get(f"{BILLING}/account", headers={"If-None-Match": seen})
        assert (answer.status_code, answer.headers["etag"]) == (status, '"1"')


@both
async def test_while_the_lock_is_taken_it_is_409_and_nothing_is_changed(
    exchange: Exchange, ann: Trader, path: str
):
    await ann.rich()
    before = await ann.account()
    other = exchange.locks_elsewhere()
    lease = await other.take(f"account:{ann.name}:EUR")
    assert lease is not None
    seen = await seen_by(ann)
    answer = await ann.post(path, {"amount": 5}, seen=seen)
    refused(answer, 409, "locked")
    assert int(answer.headers["retry-after"]) >= 1
    assert await ann.account() == before
    # Another currency is another account.
    assert (await ann.post(DEPOSIT, {"amount": 5, "currency": "USD"}, seen='"1"')).is_success
    await other.free(lease)
    await other.close()
    assert (await ann.post(path, {"amount": 5}, seen=seen)).status_code == 202


@both
async def test_another_version_is_412_with_the_present_one_and_the_lock_is_free(
    exchange: Exchange, ann: Trader, path: str
):
    await ann.rich()
    before = await ann.account()
    for seen in ('"1"', '"3"', 'W/"2"'):
        answer = await ann.post(path, {"amount": 5}, seen=seen)
        problem = refused(answer, 412, "stale")
        assert answer.headers["etag"] == problem["etag"] == '"2"'
        assert problem["version"] == 2
        assert not await exchange.is_locked(f"account:{ann.name}:EUR")
    assert await ann.account() == before
    assert (await ann.post(path, {"amount": 5}, seen=answer.headers["etag"])).status_code == 202


@pytest.mark.parametrize(("path", "sign"), [(DEPOSIT, 1), (WITHDRAW, -1)])
async def test_the_present_version_is_202_after_the_money_has_moved_and_the_lock_is_free(
    exchange: Exchange, ann: Trader, path: str, sign: int
):
    await ann.rich(money=1_000)
    answer = await ann.post(path, {"amount": 300, "currency": "EUR"}, seen='"2"')
    assert (answer.status_code, answer.headers["etag"]) == (202, '"3"')
    assert not await exchange.is_locked(f"account:{ann.name}:EUR")
    told = answer.json()
    assert (told["kind"], told["amount"], told["currency"]) == (path.rpartition("/")[2], 300, "EUR")
    assert told["account"] == {"available": 1_000 + sign * 300, "held": 0, "version": 3}
    assert (await ann.account())[:3] == (1_000 + sign * 300, 0, 3)
    # What the answer points at is the answer.
    assert (await ann.client.get(answer.headers["location"])).json() == told
    await exchange.audited()


@both
async def test_without_a_version_it_is_428_and_with_none_of_ours_400(ann: Trader, path: str):
    refused(await ann.post(path, {"amount": 5}), 428, "if-match-required")
    refused(await ann.post(path, {"amount": 5}, seen="*"), 428, "if-match-required")
    for seen in ("1", '"1", "2"', '"x"', '""', '"0"'):
        refused(await ann.post(path, {"amount": 5}, seen=seen), 400, "if-match-malformed")
    assert (await ann.account()).version == 1


# One of many


async def test_of_fifty_withdrawals_of_one_version_one_is_made(
    shared_url: str, redis_url: str, exchange: Exchange, tried: Tried, *, proof: bool
):
    """From two services with locks of their own; the money moves once."""
    async with exchanging(shared_url, redis_url) as other:
        for _ in range(50 if proof else 2):
            ann = await (await exchange.trader()).rich(money=350)
            beside = await other.same(ann)
            answers = await asyncio.gather(
                *(each.withdraw(7, seen='"2"') for _ in range(25) for each in (ann, beside))
            )
            statuses = Counter(answer.status_code for answer in answers)
            assert statuses[202] == 1
            assert statuses.keys() <= {202, 409, 412}
            assert (await ann.account())[:3] == (343, 0, 3)
            assert [each.kind for each in await ann.operations()].count("withdraw") == 1
            tried("withdrawals of one version", len(answers), "one made each time")
    await exchange.audited()


async def test_fifty_who_look_again_get_all_their_money_out_and_not_more(
    exchange: Exchange, ann: Trader
):
    """There is enough for ten of them."""
    await ann.rich(money=70)

    async def insist() -> int:
        while True:
            answer = await ann.withdraw(7, seen=await seen_by(ann))
            if answer.status_code not in {409, 412}:
                return answer.status_code

    async with asyncio.timeout(60):
        statuses = Counter(await asyncio.gather(*(insist() for _ in range(20))))
    assert statuses == {202: 10, 422: 10}
    assert (await ann.account()).available == 0
    await exchange.audited()


# Without the Valkey that the locks are in


async def played(exchange: Exchange, between: Callable[[], object]) -> list[object]:
    """Go through what an account goes through; something happens before each request."""
    ann = await exchange.trader()
    told: list[object] = []
    for path, amount, seen in (
        (DEPOSIT, 500, '"1"'),
        (WITHDRAW, 200, '"1"'),
        (WITHDRAW, 200, '"2"'),
        (WITHDRAW, 200, 'W/"3"'),
        (WITHDRAW, 301, '"3"'),
        (WITHDRAW, 300, '"3"'),
    ):
        between()
        answer = await ann.post(path, {"amount": amount}, seen=seen)
        problem = answer.json().get("code")
        told.append((answer.status_code, problem, answer.headers.get("etag")))
    asked = await asyncio.gather(*(ann.deposit(5, seen='"4"') for _ in range(10)))
    statuses = Counter(answer.status_code for answer in asked)
    assert statuses[202] == 1
    assert statuses.keys() <= {202, 409, 412}
    return [*told, (await ann.account())[:3]]


async def test_a_valkey_that_is_emptied_or_away_changes_no_answer(shared_url: str):
    with mortal_valkey() as valkey:
        async with exchanging(shared_url, valkey.url) as exchange:
            usual = await played(exchange, lambda: None)
            assert usual[:2] == [(202, None, '"2"'), (412, "stale", '"2"')]
            assert await played(exchange, valkey.empty) == usual
            valkey.strike_down()
            assert await played(exchange, lambda: None) == usual
            await exchange.audited()
            valkey.raise_up()


# What is refused

# What stands in the place of an amount, and a word of what is said about it.
NO_AMOUNTS: dict[str, tuple[bytes, str]] = {
    "a fraction": (b"1.5", "fraction"),
    "a float": (b"1.0", "fraction"),
    "an exponent": (b"1e3", "exponent"),
    "a large exponent": (b"1e300", "exponent"),
    "minus zero": (b"-0.0", "fraction"),
    "text": (b'"100"', "text"),
    "empty text": (b'""', "text"),
    "true": (b"true", "truth value"),
    "false": (b"false", "truth value"),
    "null": (b"null", "is null"),
    "a list": (b"[100]", "is a list"),
    "an object": (b'{"amount": 100}', "is an object"),
    "zero": (b"0", "not more than nothing"),
    "minus zero, whole": (b"-0", "not more than nothing"),
    "negative": (b"-1", "not more than nothing"),
    "very negative": (b"-" + b"9" * 4_000, "not more than nothing"),
    "one too many": (b"%d" % (AMOUNT_MAX + 1), "is more than 1000000000000 minor units at once"),
    "2^63": (b"9223372036854775808", "is more than 1000000000000 minor units at once"),
    "4,000 digits": (b"9" * 4_000, "is more than 1000000000000 minor units at once"),
}
NO_JSON = {"NaN": b"NaN", "Infinity": b"Infinity", "1e400": b"1e400", "twice": b'1, "amount": 1'}


@both
async def test_what_is_no_amount_is_refused_by_its_name(ann: Trader, path: str, tried: Tried):
    headers = {"If-Match": '"1"', "Content-Type": "application/json"}
    for case, (text, told) in NO_AMOUNTS.items():
        content = b'{"amount": ' + text + b"}"
        answer = await ann.client.post(path, content=content, headers=headers)
        (error,) = refused(answer, 422, "invalid")["errors"]
        assert (error["in"], error["pointer"]) == ("body", "/amount"), case
        assert told in error["detail"], case
    for text in NO_JSON.values():
        content = b'{"amount": ' + text + b"}"
        answer = await ann.client.post(path, content=content, headers=headers)
        refused(answer, 400, "json-malformed")
    assert (await ann.account()).version == 1
    tried("amounts that are none", len(NO_AMOUNTS) + len(NO_JSON))


@both
async def test_everything_that_is_wrong_is_told_at_once(ann: Trader, path: str):
    body = {"amont": 5, "currency": "eur", "is_admin": True}
    errors = refused(await ann.post(path, body, seen='"1"'), 422, "invalid")["errors"]
    told = {error["pointer"]: error["detail"] for error in errors}
    assert told.keys() == {"/amount", "/amont", "/currency", "/is_admin"}
    assert told["/amount"] == "Field required"
    assert "'eur' is not one of EUR, " in told["/currency"]
    wholes: tuple[object, ...] = ([], "amount", 5, True)
    for whole in wholes:
        (error,) = refused(await ann.post(path, whole, seen='"1"'), 422, "invalid")["errors"]
        assert error["pointer"] == ""


@both
async def test_a_currency_in_the_address_is_not_passed_over(ann: Trader, path: str):
    """Whoever wrote it there means it, and would move other money."""
    answer = await ann.post(f"{path}?currency=USD", {"amount": 5}, seen='"1"')
    (error,) = refused(answer, 422, "invalid")["errors"]
    assert "currency" in error["pointer"]


async def test_more_than_there_is_cannot_be_taken_out(exchange: Exchange, ann: Trader):
    await ann.rich(money=100)
    for amount in (101, AMOUNT_MAX):
        answer = await ann.withdraw(amount, seen='"2"')
        problem = refused(answer, 422, "insufficient-funds")
        assert (problem["needed"], problem["available"]) == (amount, 100)
    assert not await exchange.is_locked(f"account:{ann.name}:EUR")
    assert (await ann.account())[:3] == (100, 0, 2)
    assert (await ann.withdraw(100, seen='"2"')).json()["account"]["available"] == 0


async def test_an_account_does_not_hold_more_than_it_can(ann: Trader):
    await ann.rich(money=BALANCE_MAX - 10)
    problem = refused(await ann.deposit(11, seen='"2"'), 422, "balance-too-large")
    assert (problem["available"], problem["max"]) == (BALANCE_MAX - 10, BALANCE_MAX)
    assert (await ann.deposit(10, seen='"2"')).status_code == 202


# Currencies and people


async def test_each_currency_is_an_account_of_its_own(ann: Trader):
    await ann.deposit(500, seen='"1"')
    answer = await ann.client.get(f"{BILLING}/account?currency=USD")
    assert (answer.headers["etag"], answer.json()["available"]) == ('"1"', 0)
    assert (await ann.post(DEPOSIT, {"amount": 9, "currency": "USD"}, seen='"1"')).is_success
    assert (await ann.account())[:3] == (500, 0, 2)
    for currency in ("usd", "XXX", "", "item:7"):
        answer = await ann.client.get(f"{BILLING}/account", params={"currency": currency})
        assert refused(answer, 422, "invalid")["errors"][0]["pointer"] == "/currency"


async def test_only_those_who_trade_have_an_account(exchange: Exchange):
    for role in Role:
        caller = await exchange.trader(role=role)
        answer = await caller.client.get(f"{BILLING}/account")
        allowed = role in {Role.trader, Role.admin}
        assert answer.status_code == (200 if allowed else 403)
    trader = await exchange.trader()
    assert (await trader.client.get("/hosts")).status_code == 403


async def test_operations_are_listed_to_whoever_made_them_and_nobody_else(
    exchange: Exchange, ann: Trader
):
    for n in range(1, 6):
        await ann.deposit(n, seen=f'"{n}"')
    found, path = [], f"{BILLING}/operations?limit=2"
    while path:
        page = (await ann.client.get(path)).json()
        found += page["items"]
        path = page["next_cursor"] and f"{BILLING}/operations?limit=2&cursor={page['next_cursor']}"
    assert [each["amount"] for each in found] == [5, 4, 3, 2, 1]
    assert [each["account"]["available"] for each in found] == [15, 10, 6, 3, 1]
    one = f"{BILLING}/operations/{found[0]['operation_id']}"
    assert (await ann.client.get(one)).json() == found[0]
    bob = await exchange.trader("bob")
    refused(await bob.client.get(one), 404, "unknown-operation")
    assert (await bob.client.get(f"{BILLING}/operations")).json()["items"] == []


async def test_a_name_may_be_anything_that_can_be_printed(exchange: Exchange):
    """It is part of the name of a lock, and of what is set in Valkey."""
    for name in ("ann:EUR", "ann EUR", "Аня 🚀", "a" * 200, "{ann}", "%s'--"):
        ann = await exchange.trader(name)
        assert (await ann.deposit(5, seen='"1"')).status_code == 202
        assert (await ann.withdraw(5, seen='"1"')).status_code == 412
        assert (await ann.client.get(f"{BILLING}/account")).json()["user_id"] == ann.name
