"""What changes, followed from a terminal: a line each at once, and from where to go on."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from onward.cli.events import _Shown
from onward.cli.stream import ANEW, GONE, LOST
from onward.cli.tree import Given
from tests.cli.crew import Crew, seated
from tests.cli.running import BOUND_S
from tests.cli.test_nouns import cursor_of, finished


def test_changes_are_told_as_they_come_until_somebody_has_seen_enough(crew: Crew):
    only = ("events", "--kind", "execution", "--after")
    words = (*only, cursor_of(crew), "--follow")
    with seated(words, crew.environment("ann")) as seat:
        job = finished(crew, "--host", "db1", "--type", "PING")
        seat.until(rf"of job {job}  succeed")
        seat.interrupt()
        assert seat.left() == 130
    after = re.search(r"--after (\S+) goes on from here", seat.seen)
    assert after is not None
    assert crew.ok(*only, after[1], "--json").json == []


def test_each_line_is_flushed_and_says_after_what_to_go_on(crew: Crew):
    after = cursor_of(crew)
    job = finished(crew, "--host", "db1", "--type", "PING")
    words = ("events", "--follow", "--after", after, "--job", str(job), "-o", "jsonl")
    with subprocess.Popen(
        [sys.executable, "-m", "onward", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=crew.environment("ann"),
    ) as process:
        assert process.stdout is not None
        found = []
        for line in process.stdout:
            found.append(json.loads(line))
            if found[-1]["event"] == "succeed":
                break
        process.terminate()
        process.communicate(timeout=BOUND_S)
    assert {each["job_id"] for each in found} == {job}
    page = crew.ok("events", "--after", after, "--job", str(job), "--json").json
    pairs = [(each["seq"], each["event"]) for each in page]
    assert [(each["seq"], each["event"]) for each in found] == pairs[: len(found)]
    rest = crew.ok("events", "--after", found[0]["id"], "--job", str(job), "--json").json
    assert [each["seq"] for each in rest] == [seq for seq, _ in pairs[1:]]


def test_a_break_is_told_once_and_what_is_missing_is_said(capsys: pytest.CaptureFixture[str]):
    shown = _Shown(Given(), "p0")
    for change in (ANEW, LOST, LOST, ANEW, GONE, ANEW):
        shown.tell(change)
    assert capsys.readouterr().err.splitlines() == [
        "onward: the stream broke; trying again.",
        "onward: the stream goes on.",
        "onward: there is no way on from the last one; what came since is missing here.",
    ]
    assert shown.last_id == "p0"


def test_whoever_may_not_look_is_told_so_at_once(crew: Crew):
    ended = crew.run("events", "--follow", who="tom")
    assert ended.code == 8
