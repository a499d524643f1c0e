"""What a job would do: who runs, who may not and by which rule, who is busy. Looking takes no lock.

Also the plan's digest, by which a submission says which plan it means, and the words for a question
that has no answer: hosts that nobody knows, a command type that there is none of.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

import asyncpg

from onward.core.selectors import Names, Selector, to_sql
from onward.errors import InvalidInput
from onward.store import queries
from onward.store.database import Pool, answering

_PARTS = queries.load("plans.sql")
DIGEST: Final = _PARTS["digest"]
_PREVIEW_FROM: Final = 4  # the first parameter of `preview` that belongs to the selector
_TOLD_MAX: Final = 100  # hosts that are named in a refusal


class Template(NamedTuple):
    """What a type makes of the parameters of its jobs."""

    argv: str | None = None  # JSON: the arguments that they fill
    masked: tuple[str, ...] = ()  # the names of those that nobody is to see


class Plan(NamedTuple):
    """Who would run and who would not. The lists may be cut short, the counts not."""

    total: int
    blocked: int
    busy: int
    runs: list[dict[str, object]]
    blocks: list[dict[str, object]]
    busy_hosts: list[dict[str, object]]


class Preview(NamedTuple):
    """What a job would do if it were submitted now."""

    plan: Plan
    needs_approval: bool
    digest: str
    template: Template


def missing(names: str) -> str:
    """Write the query for what cannot be had of the hosts in this parameter."""
    return _PARTS["missing"].replace("{names}", names)


def names_of(selector: Selector) -> list[str]:
    """Return the names that a selector asks for one by one; each of them has to be there."""
    return list(selector.names) if isinstance(selector, Names) else []


_PREVIEW: Final = (
    _PARTS["preview"]
    .replace("{shown}", _PARTS["shown"].replace("{named}", "$3"))
    .replace("{digest}", DIGEST)
    .replace("{missing}", missing("$1"))
)
_OF_JOB: Final = _PARTS["of_job"].replace("{shown}", _PARTS["shown"].replace("{named}", "$2"))


async def preview(pool: Pool, command_type: str, selector: Selector, *, named: int) -> Preview:
    """Say what a job would do, and name up to `named` hosts of each kind."""
    condition, parameters = to_sql(selector, first=_PREVIEW_FROM)
    query = _PREVIEW.replace("{chosen}", condition)
    with answering():
        row = await pool.fetchrow(query, names_of(selector), command_type, named, *parameters)
    assert row is not None  # noqa: S101 - counting always answers with one row
    if row["needs_approval"] is None:
        raise await unknown_type(pool, command_type)
    refuse_no_hosts(row["missing"], row["total"])
    return Preview(_plan(row), row["needs_approval"], row["digest"], template_of(row))


async def of_job(pool: Pool, job_id: int, *, named: int) -> Plan:
    """Say what a job will do with what it has not begun; nothing, if there is no such job."""
    with answering():
        row = await pool.fetchrow(_OF_JOB, job_id, named)
    assert row is not None  # noqa: S101 - as above
    return _plan(row)


async def unknown_type(pool: Pool, command_type: str) -> InvalidInput:
    """Make the refusal of a command type that there is none of, with those that there are."""
    with answering():
        types = ", ".join(name for (name,) in await pool.fetch(_PARTS["types"]))
    return InvalidInput("command_type", f"{command_type!r} is not one of {types}")


def refuse_no_hosts(missing: Sequence[str], chosen: int) -> None:
    """Refuse hosts that cannot be had, by their names, and a selector that nobody matches."""
    if missing:
        more = " and more" if len(missing) > _TOLD_MAX else ""
        raise InvalidInput("selector", f"no such hosts: {', '.join(missing[:_TOLD_MAX])}{more}")
    if not chosen:
        raise InvalidInput("selector", "no host matches it, so there would be nothing to do")


def template_of(row: asyncpg.Record) -> Template:
    """Read a template from a row that has one, or none."""
    return Template(row["argv"], tuple(row["masked"] or ()))


def _plan(row: asyncpg.Record) -> Plan:
    total, blocked, busy, *lists = row[:6]
    return Plan(total, blocked, busy, *map(json.loads, lists))
