"""The measurements: small, and only as to whether they measure what they say."""

from __future__ import annotations

import json

import pytest

from onward import cli
from onward.bench import filling, large, runner, store
from onward.bench.result import Result
from onward.errors import InvalidInput, InvariantBroken
from tests.bench.results import FIELDS, well_formed

MET = Result("a", 2.0, "events/s", "b 1 tps", 2.0, ">= 1 x", holds=True)
MISSED = Result("c", 2.0, "µs", "d 1 µs", 2.0, "<= 1 x", holds=False)
NOT_RUN = Result("e", 2.0, "ops/s", None, None, ">= 1 x", holds=None)


def test_transitions_are_measured_against_pgbench():
    told: list[str] = []
    sizes = store.Sizes(commands=160, singles=64, callers=8, rounds=1)
    results = list(store.store(told.append, sizes))
    assert [result.name for result in results] == [
        "batch transitions",
        "single transitions, 8 callers",
    ]
    assert all(well_formed(result) for result in results)
    assert all("pgbench" in str(result.against) for result in results)
    assert any("pgbench" in line for line in told)


def test_a_large_table_is_measured_against_a_small_one():
    sizes = large.Sizes(large=2_000, small=200, singles=10, batch=20, batches=2, rounds=2)
    results = list(large.large(lambda _: None, sizes))
    assert [result.unit for result in results] == ["µs", "µs"]
    assert all(well_formed(result) for result in results)


async def test_a_measurement_that_moved_nothing_is_no_measurement(pool):
    async with pool.acquire() as connection:
        await connection.execute(filling._INSERT, 0, 2)
        await filling.verify_moved(connection, 0, to="SENT")
        with pytest.raises(InvariantBroken):
            await filling.verify_moved(connection, 3, to="SENT")


async def test_the_ids_that_python_and_sql_make_are_the_same(pool):
    for number in (0, 1, 4_999_999, 2**40):
        made = await pool.fetchval(f"SELECT {filling.ID_SQL.format(n='$1::bigint')}", number)
        assert str(made) == filling.command_id(number)


@pytest.fixture
def benches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three measurements that take no time."""
    listed = {
        "a": runner.Bench("about a", lambda _: iter([MET])),
        "c": runner.Bench("about c", lambda _: iter([MISSED])),
        "e": runner.Bench("about e", lambda _: iter([NOT_RUN])),
    }
    monkeypatch.setattr(runner, "BENCHES", listed)


@pytest.mark.usefixtures("benches")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["--strict"], 1),
        (["a", "--strict"], 0),
        (["c", "--strict"], 1),
        (["e", "--strict"], 1),
        (["nothing"], 1),
    ],
)
def test_a_missed_target_is_a_failure_only_for_the_strict(arguments: list[str], code: int):
    with pytest.raises(SystemExit) as left:
        cli.main(["bench", *arguments])
    assert left.value.code == code


@pytest.mark.usefixtures("benches")
def test_json_is_a_list_of_the_measurements_and_nothing_else(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "--json"])
    results = json.loads(capsys.readouterr().out)
    assert results == [MET.as_json(), MISSED.as_json(), NOT_RUN.as_json()]
    assert all(set(result) == FIELDS for result in results)


@pytest.mark.usefixtures("benches")
def test_the_table_hides_nothing(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench"])
    table = capsys.readouterr().out
    assert [word for word in table.split() if word in {"holds", "missed", "known"}] == [
        "holds",
        "missed",
        "known",
    ]


@pytest.mark.usefixtures("benches")
def test_what_can_be_measured_is_listed(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["bench", "--list"])
    assert left.value.code == 0
    assert "about a" in capsys.readouterr().out


def test_a_measurement_that_nobody_knows_is_refused_before_any_other_is_run():
    with pytest.raises(InvalidInput, match="nothing"):
        next(runner.run(["store", "nothing"], lambda _: None))
