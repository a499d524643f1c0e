"""Every exit code is seen once, as a script would see it."""

from __future__ import annotations

import pytest

from onward.cli.exits import Exit, of_counts, of_status
from tests.cli.crew import Crew, Ended

ON_DB = ("run", "--host", "db1")
PING = (*ON_DB, "--type", "PING")


def done(crew: Crew) -> Ended:
    return crew.run(*PING, who="ann")


def failed(crew: Crew) -> Ended:
    return crew.run("jobs", "show", "999999")


def usage(crew: Crew) -> Ended:
    return crew.run("run", "--", "uptime")


def hosts_failed(crew: Crew) -> Ended:
    return crew.run(*PING, "--param", "exit_code:=1", who="ann")


def hosts_unreachable(crew: Crew) -> Ended:
    crew.ok("types", "put", "SHORT", "--no-approval", "--timeout", "0.2", "--max-retries", "0")
    return crew.run(*ON_DB, "--type", "SHORT", "--param", "sleep_s:=30", who="ann")


def stopped(crew: Crew) -> Ended:
    crew.ok("blocks", "add", "PING", "--host", "web12", "--reason", "it rests")
    ended = crew.run("run", "--host", "web12", "--type", "PING", who="ann")
    crew.ok("blocks", "lift", "PING", "--host", "web12")
    return ended


def conflict(crew: Crew) -> Ended:
    job = crew.job("--host", "db1", "--type", "DEPLOY")
    crew.ok("jobs", "reject", str(job), "--yes", who="bob")
    return crew.run("jobs", "approve", str(job), "--yes", who="bob")


def still_running(crew: Crew) -> Ended:
    ended = crew.run(*PING, "--param", "sleep_s:=60", "--timeout", "0.5", who="ann")
    (job,) = crew.ok("jobs", "--limit", "1", "-q").said.split()
    crew.ok("jobs", "cancel", job, "--yes")
    return ended


def not_authorised(crew: Crew) -> Ended:
    return crew.run(*PING, who="vic")


def waiting(crew: Crew) -> Ended:
    return crew.run(*ON_DB, "--", "uptime", who="ann")


def away(crew: Crew) -> Ended:
    return crew.run("jobs", "--url", "http://127.0.0.1:1")


SEEN = {
    Exit.DONE: done,
    Exit.FAILED: failed,
    Exit.USAGE: usage,
    Exit.HOSTS_FAILED: hosts_failed,
    Exit.HOSTS_UNREACHABLE: hosts_unreachable,
    Exit.STOPPED: stopped,
    Exit.CONFLICT: conflict,
    Exit.STILL_RUNNING: still_running,
    Exit.NOT_AUTHORISED: not_authorised,
    Exit.WAITING_FOR_APPROVAL: waiting,
    Exit.SERVICE_AWAY: away,
}
# A terminal and a pipe have tests of their own.
ELSEWHERE = {Exit.INTERRUPTED, Exit.NOBODY_READS}


def test_every_exit_code_is_seen():
    assert set(SEEN) | ELSEWHERE == set(Exit)


@pytest.mark.parametrize("code", SEEN, ids=lambda code: code.name)
def test_it_leaves_with(crew: Crew, code: Exit):
    ended = SEEN[code](crew)
    assert ended.code == code, ended
    assert "Traceback" not in ended.told


def test_what_still_waits_is_explained_and_how_to_come_back(crew: Crew):
    told = still_running(crew).told
    assert "db1: It runs on db1, attempt 1." in told
    assert "goes on. `onward jobs watch " in told


def test_who_can_approve_and_how_is_told(crew: Crew):
    told = waiting(crew).told
    assert "an approver or an admin other than ann" in told
    assert "`onward approvals approve " in told


@pytest.mark.parametrize(
    ("counts", "unreachable", "code"),
    [
        ({"SUCCESS": 3}, 0, Exit.DONE),
        ({"SUCCESS": 3, "FAILED": 1}, 0, Exit.HOSTS_FAILED),
        ({"FAILED": 2, "TIMEOUT": 1}, 1, Exit.HOSTS_FAILED),
        ({"FAILED": 2}, 2, Exit.HOSTS_UNREACHABLE),
        ({"TIMEOUT": 1, "BLOCKED": 1}, 0, Exit.HOSTS_UNREACHABLE),
        ({"SUCCESS": 1, "BLOCKED": 1}, 0, Exit.STOPPED),
        ({"CANCELLED": 1}, 0, Exit.STOPPED),
    ],
)
def test_the_worst_of_a_job_counts(counts: dict[str, int], unreachable: int, code: Exit):
    assert of_counts(counts, unreachable=unreachable) is code


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, 8), (403, 8), (404, 1), (409, 6), (412, 6), (422, 1), (428, 6), (500, 1), (503, 10)],
)
def test_a_refusal_is_told_apart_by_its_status(status: int, code: int):
    assert of_status(status) == code
