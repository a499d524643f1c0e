"""Hosts in PostgreSQL: who they are, what is forbidden on them, and what can be asked of them.

A host keeps its id for ever. Whoever changes it says which version they have seen. A host that has
a history is disabled, not deleted: its executions name it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final, Literal, NamedTuple

import asyncpg

from onward.core.selectors import All, Selector, describe, to_sql
from onward.store import queries
from onward.store.audit import Doer, note
from onward.store.database import Connection, Pool, answering
from onward.store.plans import names_of

_SQL = queries.load("hosts.sql")


def _replanning(name: str, *, of_type: str, on_hosts: str, why: str) -> str:
    """Write a statement that also gives a new version to the jobs whose plan it changes."""
    replanned = _SQL["replanned"]
    for form, filled in (("of_type", of_type), ("on_hosts", on_hosts), ("why", why)):
        replanned = replanned.replace(f"{{{form}}}", filled)
    return _SQL[name].replace("{replanned}", replanned)


# What is blocked, and whether a host is active, is part of the plan that an approver sees.
_MADE, _LIFTED = "SELECT host_id FROM made", "SELECT host_id FROM lifted"
SQL = {
    **_SQL,
    "block": _replanning(
        "block", of_type="j.command_type = $2", on_hosts=_MADE, why="'a block was made'"
    ),
    "block_chosen": _replanning(
        "block_chosen", of_type="j.command_type = $1", on_hosts=_MADE, why="'blocks were made'"
    ),
    "unblock": _replanning(
        "unblock", of_type="j.command_type = $2", on_hosts=_LIFTED, why="'a block was lifted'"
    ),
    "lift_chosen": _replanning(
        "lift_chosen", of_type="j.command_type = $1", on_hosts=_LIFTED, why="'blocks were lifted'"
    ),
    "change": _replanning(
        "change",
        of_type="$6::text IS NOT NULL",
        on_hosts="SELECT id FROM changed",
        why="'a host is now ' || $6",
    ),
}

_EVERYBODY: Final = All()
_PAGE_FROM: Final = 4  # the first parameter of `page` that belongs to the selector
_BLOCK_FROM: Final = 6  # and of `block_chosen`
_LIFT_FROM: Final = 3  # and of `lift_chosen`
_DIGEST_DIGITS: Final = 32  # of a command type

# Made once: `json.dumps` would make one for each of a hundred thousand hosts.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)

HostState = Literal["ACTIVE", "DISABLED"]


class NewHost(NamedTuple):
    """A host to be made or brought up to date; every field has been checked."""

    name: str
    labels: Mapping[str, str]
    channel: str
    address: str


@dataclass(frozen=True, slots=True)
class Host:
    """A host, as it is now."""

    host_id: int
    name: str
    labels: Mapping[str, str]
    channel: str
    address: str
    state: HostState
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Block:
    """A command type that somebody has forbidden on a host."""

    host_id: int
    host_name: str
    command_type: str
    reason: str
    owner: str
    created_at: datetime
    expires_at: datetime | None
    in_force: bool  # by the clock of the database; false once it has expired


@dataclass(frozen=True, slots=True)
class CommandType:
    """What can be asked of a host, and how carefully."""

    name: str
    needs_approval: bool
    read_only: bool
    timeout_s: float
    max_retries: int
    argv: tuple[str, ...] | None = None  # what is run; without it, each job says so itself
    masked: tuple[str, ...] = ()  # the parameters that nobody is to see

    @property
    def digest(self) -> str:
        """What stands for all of it: two types that differ in anything have two of them."""
        written = json.dumps(asdict(self), sort_keys=True)
        return sha256(written.encode()).hexdigest()[:_DIGEST_DIGITS]


class PutType(NamedTuple):
    """Whether a command type was put, and how it is now; none if it is gone."""

    done: bool
    type: CommandType | None


class Imported(NamedTuple):
    """What became of the hosts of an inventory."""

    created: int
    changed: int
    unchanged: int


class Comparison(NamedTuple):
    """What an import would do; the first names of those whom it would make or change."""

    would: Imported
    created_names: list[str]
    changed_names: list[str]


class Chosen(NamedTuple):
    """What became of a change to all hosts that a selector chooses."""

    hosts: int  # that were chosen; if there are none, nothing has been changed
    missing: list[str]  # the first of the names that are nobody's; then nobody was chosen
    lifted: int = 0


class HostOutcome(StrEnum):
    """What became of a change or a deletion."""

    CHANGED = "CHANGED"
    DELETED = "DELETED"
    STALE = "STALE"  # somebody has changed the host since
    IN_USE = "IN_USE"  # executions name the host; it can only be disabled
    NOT_BLOCKED = "NOT_BLOCKED"  # there is no such block to be lifted
    UNKNOWN_HOST = "UNKNOWN_HOST"


class Changed(NamedTuple):
    """What became of a change or a deletion, and the host as it is now, if there is one."""

    outcome: HostOutcome
    host: Host | None


class Ruled(NamedTuple):
    """What became of a block on a host, and the version that the host has now, if there is one."""

    outcome: HostOutcome
    version: int | None
    block: Block | None = None


async def import_all(pool: Pool, hosts: Sequence[NewHost], *, by: Doer) -> Imported:
    """Make the hosts that are not there and change those that differ: all of them, or none.

    No name may occur twice. The state of a host that is there stays: importing a disabled host
    does not enable it. Hosts that are not among them are left alone.
    """
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(SQL["import_all"], *_columns(hosts))
            assert row is not None  # noqa: S101 - counting always answers with one row
            created, changed = row
            imported = Imported(created, changed, len(hosts) - created - changed)
            if created or changed:
                detail = imported._asdict()
                await note(connection, by, kind="host", deed="import", detail=detail)
    return imported


async def compare_all(pool: Pool, hosts: Sequence[NewHost], *, named: int) -> Comparison:
    """Say what `import_all` would do now, and name up to `named` hosts of each kind."""
    with answering():
        row = await pool.fetchrow(SQL["compare_all"], *_columns(hosts), named)
    assert row is not None  # noqa: S101 - as above
    created, changed, *names = row
    return Comparison(Imported(created, changed, len(hosts) - created - changed), *names)


async def create(pool: Pool, host: NewHost, *, by: Doer) -> Host | None:
    """Make a host; `None` when the name is taken."""
    name, labels, channel, address = host
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(SQL["create"], name, _json(labels), channel, address)
            if row is None:
                return None
            made = _host(row)
            await note(
                connection,
                by,
                kind="host",
                deed="make",
                subject=made.host_id,
                detail={**host._asdict(), "labels": dict(labels)},
            )
    return made


async def get(pool: Pool, host_id: int) -> Host | None:
    """Return a host as it is now."""
    with answering():
        row = await pool.fetchrow(SQL["get"], host_id)
    return None if row is None else _host(row)


async def named(pool: Pool, name: str) -> Host | None:
    """Return the host of a name as it is now."""
    with answering():
        row = await pool.fetchrow(SQL["named"], name)
    return None if row is None else _host(row)


async def page(
    pool: Pool, selector: Selector = _EVERYBODY, part: str | None = None, *, after: int, limit: int
) -> list[Host]:
    """Return the next hosts after an id, in the order of the id.

    Of those that are chosen, only the ones with `part` in their name, in capitals or not.
    """
    query, parameters = _chosen(selector)
    with answering():
        return [_host(row) for row in await pool.fetch(query, after, limit, part, *parameters)]


async def count(pool: Pool, selector: Selector, part: str | None = None) -> int:
    """Say how many hosts there are on all pages."""
    query, parameters = _chosen(selector)
    query = SQL["count"].replace("{query}", query)
    with answering():
        return int(await pool.fetchval(query, 0, None, part, *parameters))


def _chosen(selector: Selector) -> tuple[str, Sequence[object]]:
    condition, parameters = to_sql(selector, first=_PAGE_FROM)
    return SQL["page"].replace("{chosen}", condition), parameters


async def change(
    pool: Pool,
    host_id: int,
    *,
    version: int,
    labels: Mapping[str, str] | None = None,
    address: str | None = None,
    channel: str | None = None,
    state: HostState | None = None,
    by: Doer,
) -> Changed:
    """Change a host of this version; what is not given stays.

    A disabled host is not chosen for new jobs. What jobs already have for it goes on.
    """
    stored = None if labels is None else _json(labels)
    named = {"labels": labels, "address": address, "channel": channel, "state": state}
    changed = {name: value for name, value in named.items() if value is not None}
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                SQL["change"], host_id, version, stored, address, channel, state
            )
            if row is not None:
                detail = {"name": row["name"], **changed}
                await note(
                    connection, by, kind="host", deed="change", subject=host_id, detail=detail
                )
                return Changed(HostOutcome.CHANGED, _host(row))
            row = await connection.fetchrow(SQL["get"], host_id)
    if row is None:
        return Changed(HostOutcome.UNKNOWN_HOST, None)
    return Changed(HostOutcome.STALE, _host(row))


async def delete(pool: Pool, host_id: int, *, version: int, by: Doer) -> Changed:
    """Delete a host of this version and the blocks on it, unless an execution names it.

    Waits for jobs that are being submitted, and makes those that follow wait for it.
    """
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(SQL["lock_to_delete"])
            name = await connection.fetchval(SQL["delete"], host_id, version)
            if name is not None:
                detail = {"name": name}
                await note(
                    connection, by, kind="host", deed="delete", subject=host_id, detail=detail
                )
                return Changed(HostOutcome.DELETED, None)
            row = await connection.fetchrow(SQL["get"], host_id)
    if row is None:
        return Changed(HostOutcome.UNKNOWN_HOST, None)
    stale = row["version"] != version
    return Changed(HostOutcome.STALE if stale else HostOutcome.IN_USE, _host(row))


async def block(
    pool: Pool,
    host_id: int,
    command_type: str,
    *,
    version: int,
    reason: str,
    owner: str,
    expires_at: datetime | None,
    by: Doer,
) -> Ruled:
    """Forbid a command type on a host of this version, in place of any former block.

    What runs already goes on. The type need not exist yet.
    """
    rule = (reason, owner, expires_at)
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(SQL["block"], host_id, command_type, *rule, version)
            if row is None:
                return await _not_ruled(connection, host_id, version)
            *block, now = row
            made = Block(*block)
            detail = {"host": made.host_name, **_rule(command_type, *rule)}
            await note(connection, by, kind="block", deed="block", subject=host_id, detail=detail)
    return Ruled(HostOutcome.CHANGED, now, made)


async def block_chosen(
    pool: Pool,
    selector: Selector,
    command_type: str,
    *,
    reason: str,
    owner: str,
    expires_at: datetime | None,
    by: Doer,
) -> Chosen:
    """Forbid a command type on every host that a selector chooses, in one statement."""
    condition, parameters = to_sql(selector, first=_BLOCK_FROM)
    query = SQL["block_chosen"].replace("{chosen}", condition)
    rule = (command_type, reason, owner, expires_at)
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(query, *rule, names_of(selector), *parameters)
            assert row is not None  # noqa: S101 - counting always answers with one row
            chosen = Chosen(*row)
            if chosen.hosts:
                many = {"selector": describe(selector), "hosts": chosen.hosts}
                detail = {**many, **_rule(*rule)}
                await note(connection, by, kind="block", deed="block_many", detail=detail)
    return chosen


async def lift_chosen(pool: Pool, selector: Selector, command_type: str, *, by: Doer) -> Chosen:
    """Allow a command type again on every host that a selector chooses."""
    condition, parameters = to_sql(selector, first=_LIFT_FROM)
    query = SQL["lift_chosen"].replace("{chosen}", condition)
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(query, command_type, names_of(selector), *parameters)
            assert row is not None  # noqa: S101 - as above
            chosen = Chosen(*row)
            if chosen.lifted:
                many = {"selector": describe(selector), "hosts": chosen.lifted}
                detail = {**many, "command_type": command_type}
                await note(connection, by, kind="block", deed="lift_many", detail=detail)
    return chosen


async def unblock(pool: Pool, host_id: int, command_type: str, *, version: int, by: Doer) -> Ruled:
    """Allow a command type on a host of this version again."""
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(SQL["unblock"], host_id, command_type, version)
            if row is None:
                return await _not_ruled(connection, host_id, version)
            detail = {"host": row["name"], "command_type": command_type}
            await note(connection, by, kind="block", deed="unblock", subject=host_id, detail=detail)
    return Ruled(HostOutcome.CHANGED, row["version"])


async def _not_ruled(connection: Connection, host_id: int, seen: int) -> Ruled:
    row = await connection.fetchrow(SQL["get"], host_id)
    if row is None:
        return Ruled(HostOutcome.UNKNOWN_HOST, None)
    stale = row["version"] != seen
    return Ruled(HostOutcome.STALE if stale else HostOutcome.NOT_BLOCKED, row["version"])


async def blocks_of(
    pool: Pool, host_id: int, *, after: str = "", limit: int | None = None
) -> list[Block]:
    """Return the blocks on a host by command type, those that have expired as well."""
    with answering():
        rows = await pool.fetch(SQL["blocks_of"], host_id, after, limit)
    return [Block(*row) for row in rows]


async def blocks_page(pool: Pool, *, after: tuple[int, str] = (0, ""), limit: int) -> list[Block]:
    """Return the next blocks of all hosts after a host and command type, in that order."""
    host_id, command_type = after
    with answering():
        rows = await pool.fetch(SQL["blocks_page"], host_id, command_type, limit)
    return [Block(*row) for row in rows]


async def types(pool: Pool, *, after: str = "", limit: int | None = None) -> list[CommandType]:
    """Return the command types after a name, by name."""
    with answering():
        return [_type(row) for row in await pool.fetch(SQL["types"], after, limit)]


async def get_type(pool: Pool, name: str) -> CommandType | None:
    """Return a command type as it is now."""
    with answering():
        row = await pool.fetchrow(SQL["get_type"], name)
    return None if row is None else _type(row)


async def put_type(
    pool: Pool,
    name: str,
    *,
    needs_approval: bool,
    read_only: bool,
    timeout_s: float,
    max_retries: int,
    argv: Sequence[str] | None = None,
    masked: Sequence[str] = (),
    seen: str | None = None,
    by: Doer,
) -> PutType:
    """Make a command type, or change the one of this name. Jobs that are there stay as they are.

    With `seen`, a digest, nothing is done unless the type is there and still has it.
    """
    care = (needs_approval, read_only, timeout_s, max_retries)
    written = None if argv is None else _ENCODER.encode(list(argv))
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            if seen is not None:
                present = await connection.fetchrow(SQL["lock_type"], name)
                before = None if present is None else _type(present)
                if before is None or before.digest != seen:
                    return PutType(done=False, type=before)
            row = await connection.fetchrow(SQL["put_type"], name, *care, written, masked)
            assert row is not None  # noqa: S101 - the query always answers with one row
            put = _type(row)
            detail = {each: value for each, value in asdict(put).items() if each != "name"}
            await note(connection, by, kind="command_type", deed="put", subject=name, detail=detail)
    return PutType(done=True, type=put)


async def delete_type(pool: Pool, name: str, *, by: Doer) -> bool:
    """Delete a command type; false if there was none.

    Jobs do not hold it back: each took what it needs of its type when it was made, and runs to its
    end without it. A block on the name stays, and forbids a later type of that name as well.
    """
    with answering():
        async with pool.acquire() as connection, connection.transaction():
            gone = await connection.fetchval(SQL["delete_type"], name) is not None
            if gone:
                await note(connection, by, kind="command_type", deed="delete", subject=name)
    return gone


def _rule(
    command_type: str, reason: str, owner: str, expires_at: datetime | None
) -> dict[str, object]:
    """Tell what is forbidden, as it is written down."""
    told = {"command_type": command_type, "reason": reason, "owner": owner}
    return {**told, "expires_at": expires_at}


def _columns(hosts: Sequence[NewHost]) -> tuple[list[str], ...]:
    return (
        [host.name for host in hosts],
        [_json(host.labels) for host in hosts],
        [host.channel for host in hosts],
        [host.address for host in hosts],
    )


def _type(row: asyncpg.Record) -> CommandType:
    argv = None if row["argv"] is None else tuple(json.loads(row["argv"]))
    return replace(CommandType(*row), argv=argv, masked=tuple(row["masked"]))


def _host(row: asyncpg.Record) -> Host:
    host_id, name, labels, *rest = row
    return Host(host_id, name, json.loads(labels), *rest)


def _json(labels: Mapping[str, str]) -> str:
    return _ENCODER.encode(dict(labels))
