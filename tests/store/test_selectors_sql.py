"""A selector as SQL takes the same hosts as the selector itself, on a real PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from itertools import product

import asyncpg
import pytest
from asyncpg.pool import PoolConnectionProxy
from hypothesis import HealthCheck, example, given, settings

from onward.core.selectors import Selector, matches, parse, to_sql
from tests.core.test_selectors import FLEET, selectors

# Names and values that mean something to the expression, to JSON, to LIKE or to SQL.
_TEXTS = ("a", "b", "ab", "*", "?", "a*", "\\", "%", "a%", "_", "a_b", '"', "'", "; --", "$1", "éa")
_HOSTS: Mapping[str, Mapping[str, str]] = {
    **FLEET,
    **{name: {} for name in _TEXTS},
    "long": {"role": "a" * 255},
    **{
        f"{key} {value}": {key: value}
        for key, value in product(("a", "role", "in", "name", "x/y.z-1_"), (*_TEXTS, "", " "))
    },
    **{f"{role}|{zone}": {"a": role, "role": zone} for role, zone in product(_TEXTS, _TEXTS)},
}


@pytest.fixture
async def hosts(pool: asyncpg.Pool) -> AsyncIterator[PoolConnectionProxy]:
    """A connection that sees the hosts in a temporary table, with the index that is promised."""
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "CREATE TEMP TABLE h (name text PRIMARY KEY, labels jsonb NOT NULL) ON COMMIT DROP"
        )
        await connection.executemany(
            "INSERT INTO h VALUES ($1, $2::text::jsonb)",
            [(name, json.dumps(labels)) for name, labels in _HOSTS.items()],
        )
        await connection.execute("CREATE INDEX h_labels ON h USING gin (labels jsonb_path_ops)")
        yield connection


async def taken(hosts: PoolConnectionProxy, selector: Selector) -> set[str]:
    condition, parameters = to_sql(selector, first=2)
    # A parameter of the caller's own comes first, as it will in every query.
    rows = await hosts.fetch(f"SELECT name FROM h WHERE $1 AND {condition}", True, *parameters)  # noqa: S608 - the condition is ours, the rest travels in parameters
    return {row["name"] for row in rows}


@given(selector=selectors)
@example(selector=parse("all"))
@example(selector=parse(["a", "%", "'", "unknown"]))
@example(selector=parse("a!=a*"))
@example(selector=parse("not a in (a*, b, '%')"))
@example(selector=parse(r"name=?_? or a=*\\* or a=%*"))
@example(selector=parse(r"role='\\' or role='\"' or role=''"))
@example(selector=parse("has name and not has role"))
@settings(
    max_examples=200,
    deadline=None,
    # The hosts are only read, so that every example may meet the same ones.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_sql_takes_the_same_hosts_as_the_selector(hosts, selector):
    expected = {name for name, labels in _HOSTS.items() if matches(selector, name, labels)}
    assert await taken(hosts, selector) == expected


@pytest.mark.parametrize(
    "text",
    [
        ",".join(f"k{number}!=v" for number in range(290)),
        f"role in ({','.join(f'v{number}' for number in range(550))})",
        f"role in ({','.join(f'v{number}*' for number in range(470))})",
        "not (has role or " * 21 + "has a" + ")" * 21,
        "role=" + "*a" * 1_000 + "b",
        [f"host-{number}" for number in range(10_000)],
    ],
    ids=["wide and", "long list", "many patterns", "deep", "many stars", "many names"],
)
async def test_the_largest_selectors_are_no_trouble_for_the_database(hosts, text):
    selector = parse(text)
    expected = {name for name, labels in _HOSTS.items() if matches(selector, name, labels)}
    assert await taken(hosts, selector) == expected


@pytest.mark.parametrize(
    "text", ["role=web", "role=web,zone=eu", "role in (web, db)", "role=web or zone in (eu, us)"]
)
@pytest.mark.parametrize("plans", ["force_custom_plan", "force_generic_plan"])
async def test_equality_of_labels_is_served_by_the_index(hosts, text, plans):
    """With the way through the whole table forbidden, only an index that applies is left."""
    await hosts.execute(f"SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = {plans}")
    condition, parameters = to_sql(parse(text))
    rows = await hosts.fetch(
        f"EXPLAIN SELECT name FROM h WHERE {condition}",  # noqa: S608 - as above
        *parameters,
    )
    plan = "\n".join(row[0] for row in rows)
    assert "Bitmap Index Scan on h_labels" in plan
    assert "Seq Scan" not in plan
