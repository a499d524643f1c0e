"""How a job went: who printed the same, what went wrong for which cause, and who exactly."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from onward.channels.base import Stream
from onward.fleet.output import Output
from onward.fleet.report import printed
from onward.store import executions
from onward.store.executions import Claimed, ExecutionEvent
from onward.wiring import Onward
from tests.api.fleet import Fleet, People
from tests.api.test_foundation import told
from tests.api.test_jobs import get, pages


@pytest.fixture(scope="module")
def opened(shared: Onward) -> Onward:
    """Every test has a fleet of its own, so that the database can be shared."""
    return shared


async def end(
    fleet: Fleet, claimed: Sequence[Claimed], text: str, event: str = "succeed", **data: object
) -> str | None:
    """Let runs end that have printed something; returns the digest of that."""
    digest = None
    for run in claimed:
        output = Output(run.execution_id, run.epoch, run.attempt)
        output(Stream.STDOUT, text)
        lines, digest = output.close(), output.digest
        said = ExecutionEvent(run.execution_id, event, run.epoch, "worker", _json(data))
        await executions.report(fleet.pool, [printed(said, digest or "")], lines)
    return digest


def _json(data: dict[str, object]) -> str | None:
    return json.dumps(data) if data else None


# Outputs


async def test_hosts_that_printed_the_same_are_one_group_and_the_largest_comes_first(
    fleet: Fleet, people: People
):
    names = await fleet.hosts(12)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    same = await end(fleet, claimed[:7], "nginx reloaded\nok\n", exit_code=0)
    other = await end(fleet, claimed[7:9], "caddy reloaded\n", exit_code=0)
    await end(fleet, claimed[9:10], "", exit_code=0)
    failed = await end(
        fleet, claimed[10:11], "nginx reloaded\nok\n", "fail", exit_code=3, cause="FAILED"
    )
    assert failed == same
    found = await get(people.vic, f"/jobs/{job_id}/outputs")
    assert (found["total"], found["ended"], found["silent"]) == (12, 11, 1)
    assert found["others"] == {"groups": 0, "count": 0}
    fields = ("output", "status", "exit_code", "cause", "count", "hosts", "execution_id")
    assert [tuple(group[name] for name in fields) for group in found["groups"]] == [
        (same, "SUCCESS", 0, None, 7, names[:5], claimed[0].execution_id),
        (other, "SUCCESS", 0, None, 2, names[7:9], claimed[7].execution_id),
        (None, "SUCCESS", 0, None, 1, names[9:10], claimed[9].execution_id),
        (same, "FAILED", 3, "FAILED", 1, names[10:11], claimed[10].execution_id),
    ]
    lines = [{"stream": "stdout", "text": text} for text in ("nginx reloaded", "ok")]
    assert [group["lines"] for group in found["groups"]] == [
        lines,
        [{"stream": "stdout", "text": "caddy reloaded"}],
        [],
        lines,
    ]
    assert not any(group["more"] for group in found["groups"])


async def test_those_that_printed_the_same_are_told_apart_by_how_they_ended(
    fleet: Fleet, people: People
):
    names = await fleet.hosts(7)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    await end(fleet, claimed[:2], "", "fail", cause="FAILED")
    await end(fleet, claimed[2:3], "", "fail", cause="REFUSED")
    await end(fleet, claimed[3:5], "", "timeout", cause="FAILED")
    await end(fleet, claimed[5:6], "", "fail", cause="FAILED", exit_code=1)
    await end(fleet, claimed[6:], "", "cancel")
    found = await get(people.vic, f"/jobs/{job_id}/outputs")
    assert [
        (group["status"], group["cause"], group["exit_code"], group["hosts"])
        for group in found["groups"]
    ] == [
        ("FAILED", "FAILED", None, names[:2]),
        ("TIMEOUT", "FAILED", None, names[3:5]),
        ("FAILED", "REFUSED", None, names[2:3]),
        ("FAILED", "FAILED", 1, names[5:6]),
        ("CANCELLED", None, None, names[6:]),
    ]
    assert found["silent"] == 7


async def test_a_job_of_which_nothing_has_ended_has_no_groups(fleet: Fleet, people: People):
    await fleet.hosts(2)
    job_id = await fleet.submit(people.ann)
    await fleet.claim(job_id)
    assert await get(people.vic, f"/jobs/{job_id}/outputs") == {
        "total": 2,
        "ended": 0,
        "silent": 0,
        "unknown": 0,
        "groups": [],
        "others": {"groups": 0, "count": 0},
    }


@pytest.mark.parametrize(
    ("text", "lines", "more"),
    [
        ("line\n" * 20, 20, False),
        ("line\n" * 21, 20, True),
        ("x" * 1_000, 1, False),
        ("x" * 1_001, 1, True),
    ],
)
async def test_of_an_example_the_beginning_is_shown(
    fleet: Fleet, people: People, text: str, lines: int, *, more: bool
):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    await end(fleet, await fleet.claim(job_id), text)
    (group,) = (await get(people.vic, f"/jobs/{job_id}/outputs"))["groups"]
    assert (len(group["lines"]), group["more"]) == (lines, more)
    assert max(len(line["text"]) for line in group["lines"]) <= 1_000


async def test_an_example_shows_the_attempt_that_counts(fleet: Fleet, people: People):
    await fleet.hosts(3)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    await end(fleet, claimed, "first try\n", "retry")
    again = await fleet.claim(job_id, at_most=2)
    await end(fleet, again[:1], "second try\n")
    await end(fleet, again[1:], "")
    await people.ann.post(f"/jobs/{job_id}/cancel")
    found = await get(people.vic, f"/jobs/{job_id}/outputs")
    shown = {
        group["status"] + str(group["output"] is None): [line["text"] for line in group["lines"]]
        for group in found["groups"]
    }
    assert shown == {
        "SUCCESSFalse": ["second try"],
        "SUCCESSTrue": [],
        # It was cancelled while it waited for its second try.
        "CANCELLEDFalse": ["first try"],
    }
    assert found["silent"] == 1


async def test_that_nobody_knows_what_was_printed_is_not_told_as_silence(
    fleet: Fleet, people: People
):
    """A host answered from its memory, which keeps no output; another was never asked."""
    names = await fleet.hosts(3)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id, at_most=2)
    await fleet.say(claimed[:1], "succeed", exit_code=0)
    await end(fleet, claimed[1:], "", exit_code=0)
    await people.ann.post(f"/jobs/{job_id}/cancel")
    found = await get(people.vic, f"/jobs/{job_id}/outputs")
    assert (found["ended"], found["silent"], found["unknown"]) == (3, 2, 1)
    assert [(group["hosts"], group["known"]) for group in found["groups"]] == [
        (names[:1], False),
        (names[1:2], True),
        (names[2:], True),
    ]


async def test_groups_that_are_too_many_are_counted(fleet: Fleet, people: People):
    await fleet.hosts(60)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id)
    await end(fleet, claimed[:5], "the same\n")
    for number, run in enumerate(claimed[5:]):
        await end(fleet, [run], f"{number}\n")
    found = await get(people.vic, f"/jobs/{job_id}/outputs")
    assert [group["count"] for group in found["groups"]] == [5, *[1] * 49]
    assert found["others"] == {"groups": 6, "count": 6}
    assert found["ended"] == 60


# Causes


async def test_what_went_wrong_is_told_by_its_cause(fleet: Fleet, people: People):
    names = await fleet.hosts(8)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id, at_most=7)
    await fleet.say(claimed[:3], "timeout", cause="TIMED_OUT", error="nothing was heard")
    await fleet.say(claimed[1:2], "succeed")
    await fleet.say(claimed[2:3], "fail")
    await fleet.say(claimed[3:5], "fail", cause="FAILED", exit_code=3, error="no space left")
    await fleet.say(claimed[5:6], "fail", cause="UNREACHABLE", error="no route")
    await fleet.say(claimed[6:7], "succeed")
    found = await get(people.vic, f"/jobs/{job_id}/causes")
    assert found["items"] == [
        {
            "status": "TIMEOUT",
            "cause": "TIMED_OUT",
            "count": 3,
            "late": 1,
            "execution_id": claimed[0].execution_id,
            "host": names[0],
            "error": "nothing was heard",
        },
        {
            "status": "FAILED",
            "cause": "FAILED",
            "count": 2,
            "late": 0,
            "execution_id": claimed[3].execution_id,
            "host": names[3],
            "error": "no space left",
        },
        {
            "status": "FAILED",
            "cause": "UNREACHABLE",
            "count": 1,
            "late": 0,
            "execution_id": claimed[5].execution_id,
            "host": names[5],
            "error": "no route",
        },
    ]
    await people.ann.post(f"/jobs/{job_id}/cancel")
    found = await get(people.vic, f"/jobs/{job_id}/causes")
    assert [(item["status"], item["cause"]) for item in found["items"]][-1] == ("CANCELLED", None)


async def test_where_nothing_went_wrong_there_are_no_causes(fleet: Fleet, people: People):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    await fleet.say(await fleet.claim(job_id), "succeed")
    assert await get(people.vic, f"/jobs/{job_id}/causes") == {"items": []}


# Who exactly


@pytest.fixture
async def mixed(fleet: Fleet, people: People) -> tuple[int, list[str], dict[str, str | None]]:
    """A job whose executions ended in many ways; its hosts, and digests of what they printed."""
    names = await fleet.hosts(9)
    job_id = await fleet.submit(people.ann)
    claimed = await fleet.claim(job_id, at_most=8)
    digests = {
        "ok": await end(fleet, claimed[:2], "ok\n", exit_code=0),
        "": await end(fleet, claimed[2:3], "", exit_code=0),
        "full": await end(fleet, claimed[3:5], "disk full\n", "fail", exit_code=28, cause="FAILED"),
    }
    await fleet.say(claimed[5:7], "timeout", cause="TIMED_OUT")
    await fleet.say(claimed[6:7], "succeed", exit_code=0)
    return job_id, names, digests


async def test_executions_are_found_by_what_is_known_of_them(
    people: People, mixed: tuple[int, list[str], dict[str, str | None]]
):
    job_id, names, digests = mixed
    for query, expected in {
        "": names,
        f"output={digests['ok']}": names[:2],
        f"output={digests['full']}&exit_code=28&cause=FAILED&status=FAILED": names[3:5],
        "output=none": names[2:3],
        "output=unknown": names[5:7],
        "output=unknown&status=SUCCESS": [],
        f"output={'0' * 32}": [],
        "exit_code=28": names[3:5],
        "exit_code=0": names[:3],
        "exit_code=-1": [],
        "cause=TIMED_OUT": names[5:7],
        "cause=NOBODY": [],
        "cause=none": [*names[:3], *names[7:]],
        "cause=none&status=TIMEOUT": [],
        "late=true": names[6:7],
        "late=false&status=TIMEOUT": names[5:6],
        f"host={names[4]}": names[4:5],
        f"host={names[4].upper()}": names[4:5],
        f"host={names[0][:-1]}": names,
        "host=%25": [],
        "host=_": [],
        "status=TIMEOUT&late=true": names[6:7],
        "status=FAILED&status=SUCCESS&exit_code=28": names[3:5],
    }.items():
        path = f"/jobs/{job_id}/executions?{query}"
        found = await get(people.vic, f"{path}&count=true")
        assert [item["host"] for item in found["items"]] == expected, query
        assert found["count"] == len(expected), query
        plain = await get(people.vic, path)
        assert plain == {"items": found["items"], "next_cursor": None}, query


async def test_a_count_is_of_all_pages(
    people: People, mixed: tuple[int, list[str], dict[str, str | None]]
):
    job_id, names, _ = mixed
    path = f"/jobs/{job_id}/executions"
    first = await get(people.vic, f"{path}?limit=2&count=true&exit_code=0")
    assert (len(first["items"]), first["count"]) == (2, 3)
    rest = await get(
        people.vic, f"{path}?limit=2&count=true&exit_code=0&cursor={first['next_cursor']}"
    )
    assert (len(rest["items"]), rest["count"]) == (1, 3)
    assert await pages(people.vic, f"{path}?limit=4&host={names[0][:-1]}", "host") == [
        names[:4],
        names[4:8],
        names[8:],
    ]


async def test_an_execution_says_what_it_printed_in_short(
    people: People, mixed: tuple[int, list[str], dict[str, str | None]]
):
    job_id, _, digests = mixed
    items: list[dict[str, Any]] = (await get(people.vic, f"/jobs/{job_id}/executions"))["items"]
    assert [item["output"] for item in items[:4]] == [
        *(digests["ok"], digests["ok"]),
        *(None, digests["full"]),
    ]
    one = await get(people.vic, f"/executions/{items[0]['execution_id']}")
    assert one == items[0]


BAD_QUERIES = (
    *("output=x", "output=", f"output={'0' * 31}", f"output={'G' * 32}", f"output={'A' * 32}"),
    *("output=none%0A", "exit_code=x", "exit_code=", "exit_code=2147483648", "exit_code=1.5"),
    *("late=x", "late=", "host=", f"host={'x' * 256}", f"cause={'x' * 256}"),
    *("count=x", "count=", "cursor=x", "causes=FAILED"),
)


async def test_the_table_of_bad_filters(fleet: Fleet, people: People):
    await fleet.hosts(1)
    job_id = await fleet.submit(people.ann)
    for query in BAD_QUERIES:
        told(await people.vic.get(f"/jobs/{job_id}/executions?{query}"), 422, "invalid")
    for part in ("host", "cause"):
        answer = await people.vic.get(f"/jobs/{job_id}/executions?{part}=%00")
        assert answer.status_code in {400, 422}
