"""Accounts and the ledger behind them: what somebody has, what changed it, and whether it adds up.

An account is kept for one user and one asset: a currency, counted in minor units, or an item,
counted in pieces. Every change is an operation, and every operation is made of transfers, which
take from one place what they give to another. What an account says can be derived from them.

A change names the version that its caller saw. The comparison is part of the UPDATE itself, so no
lock in front of it decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from onward.store import queries
from onward.store.audit import Doer, note
from onward.store.database import Connection, Pool, answering
from onward.store.group_commit import GroupCommit

SQL = queries.load("ledger.sql")

BALANCE_MAX: Final = 10**15  # what a deposit may bring an account to
_LAST: Final = 2**63 - 1
_GROUP_MAX: Final = 200
_ITEM: Final = "item:"

PostKind = Literal["deposit", "withdraw", "issue"]


class Outcome(StrEnum):
    """What became of a change that somebody asked for."""

    OK = "OK"
    STALE = "STALE"  # it is no longer the version that was seen
    INSUFFICIENT = "INSUFFICIENT"  # it would pass the floor
    TOO_MUCH = "TOO_MUCH"  # it would pass what an account can hold
    REPEATED = "REPEATED"  # it was done before: this is the first answer
    KEY_REUSED = "KEY_REUSED"  # its key stands for another request
    RUNNING = "RUNNING"  # another with the same key is under way


class Account(NamedTuple):
    """What somebody has of an asset now."""

    available: int
    held: int  # set aside for open orders
    version: int
    updated_at: datetime | None  # none, if nothing has ever happened


class Posted(NamedTuple):
    """What became of a deposit or a withdrawal, and the account then."""

    outcome: Outcome
    operation_id: int | None
    at: datetime | None
    available: int | None
    held: int | None
    version: int | None
    request: str | None  # what the key stands for, if it stands for something else


class Operation(NamedTuple):
    """Something that was done with an account, and how it left it."""

    id: int
    at: datetime
    kind: str
    asset: str
    amount: int
    order_id: int | None
    available: int
    held: int
    version: int


class Holding(NamedTuple):
    """How many pieces of an item somebody has."""

    item_id: int
    available: int
    held: int


def item_asset(item_id: int) -> str:
    """Name an item as an asset."""
    return f"{_ITEM}{item_id}"


async def account(pool: Pool, user: str, asset: str) -> Account:
    """Return an account as it is; one that nothing has happened to is empty."""
    with answering():
        row = await pool.fetchrow(SQL["account"], user, asset)
    assert row is not None  # noqa: S101 - an aggregate has a row
    return Account(*row)


class Post(NamedTuple):
    """Something to be brought in from outside, or taken there."""

    user: str
    asset: str
    version: int | None  # only if it is the present one; none takes any
    kind: PostKind
    amount: int
    # Whose key it is, the key, and what it stands for; a repeat gets the first answer, whatever the
    # version is by now.
    by: str | None = None
    key: str | None = None
    request: str | None = None


def new_post(
    user: str,
    asset: str,
    *,
    kind: PostKind,
    amount: int,
    version: int | None,
    key: str | None,
    by: str | None = None,
) -> Post:
    """Make a post. Its key, if it has one, is that of whoever asks: the user, or else `by`."""
    if key is None:
        return Post(user, asset, version, kind, amount)
    by, whose = (user, "") if by is None else (by, f" for {user}")
    return Post(user, asset, version, kind, amount, by, key, f"{kind} {amount} {asset}{whose}")


async def post(pool: Pool | Connection, wanted: Post) -> Posted:
    """Bring something in from outside, or take it there; one transaction, one round trip.

    If another has locked the account, it is waited for.
    """
    *what, by, key, request = wanted
    with answering():
        row = await pool.fetchrow(SQL["post"], *what, BALANCE_MAX, by, key, request)
    assert row is not None  # noqa: S101 - the function answers every call
    return Posted(Outcome(row[0]), *row[1:])


async def issue(pool: Pool, wanted: Post, *, by: Doer) -> Posted:
    """Bring pieces of an item into somebody's account from outside."""
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            posted = await post(connection, wanted)
            if posted.outcome is Outcome.OK:
                item = wanted.asset.removeprefix(_ITEM)
                told = {"user_id": wanted.user, "quantity": wanted.amount}
                detail = {**told, "operation_id": posted.operation_id}
                await note(connection, by, kind="item", deed="issue", subject=item, detail=detail)
    return posted


class Posts:
    """Posts that come at about the same moment share a statement and a COMMIT."""

    def __init__(self, pool: Pool, *, wait_s: float) -> None:
        self._pool = pool
        self._group: GroupCommit[Post, Posted | None] = GroupCommit(
            self._commit, wait_s=wait_s, group_max=_GROUP_MAX
        )

    async def post(self, wanted: Post) -> Posted:
        """Return what became of a post, after the COMMIT that carries it.

        Whoever is cancelled takes nothing back: it may be on its way.
        """
        # Who was left out waits for their account alone.
        return await self._group.submit(wanted) or await post(self._pool, wanted)

    async def close(self) -> None:
        """Wait until everything that was handed in has been answered."""
        await self._group.drain()

    async def _commit(self, group: Sequence[Post]) -> Sequence[Posted | None]:
        if len(group) == 1:
            return [await post(self._pool, group[0])]
        # All groups lock accounts in one order, so that none of them wait for each other in a ring.
        order = sorted(range(len(group)), key=lambda at: group[at][:2])
        columns = zip(*(group[at] for at in order), strict=True)
        with answering():
            rows = await self._pool.fetch(SQL["post_all"], *columns, BALANCE_MAX)
        answers = list[Posted | None]([None] * len(group))
        for at, row in zip(order, rows, strict=True):
            if row[0] is not None:
                answers[at] = Posted(Outcome(row[0]), *row[1:])
        return answers


async def holdings(pool: Pool, user: str, *, after: int, limit: int) -> list[Holding]:
    """Return what somebody has of each item, in the order of the items."""
    with answering():
        rows = await pool.fetch(SQL["holdings"], user, after, limit)
    return [
        Holding(int(asset.removeprefix(_ITEM)), available, held) for asset, available, held in rows
    ]


async def operation(pool: Pool, user: str, operation_id: int) -> Operation | None:
    """Return one operation of a user's own."""
    with answering():
        row = await pool.fetchrow(SQL["operation"], user, operation_id)
    return None if row is None else Operation(*row)


async def operations(pool: Pool, user: str, *, limit: int, before: int = _LAST) -> list[Operation]:
    """Return a user's own operations, the newest first."""
    with answering():
        return [Operation(*row) for row in await pool.fetch(SQL["operations"], user, before, limit)]


async def fold(pool: Pool, *, limit: int) -> int:
    """Add up what deals have changed, the oldest first; returns how many accounts it was for.

    Whoever asks for an account adds it up anyway: this keeps what has to be added up short.
    """
    with answering():
        changed: Sequence[tuple[str, str]] = [
            (row["user_id"], row["asset"]) for row in await pool.fetch(SQL["changed"], limit)
        ]
        for user, asset in changed:
            await pool.execute(SQL["fold"], user, asset)
    return len(changed)
