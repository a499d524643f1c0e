"""`onward run` from the plan to the comparison, as a script uses it."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from onward.cli import client, watching
from onward.cli import run as command
from onward.cli.client import Answer, Client
from onward.cli.exits import Exit, Leaving, ServiceAway
from onward.cli.output import Row
from onward.cli.planned import show_differences
from onward.cli.terminal import Terminal
from tests.cli.crew import Crew, _read, _stream

PING = ("run", "--type", "PING")


def jobs(crew: Crew) -> list[int]:
    return [row["job_id"] for row in crew.ok("jobs", "--all", "--json").json]


def test_a_dry_run_shows_the_plan_and_does_nothing(crew: Crew):
    before = jobs(crew)
    ended = crew.ok("run", "--on", "role=web", "--dry-run", "--", "uptime", "-p", who="ann")
    assert ended.told == "", "the plan is the data"
    assert "RUN_SCRIPT uptime -p on hosts where role=web:" in ended.said
    assert "12 run      web1, web10, web11, web12, web2, and 7 more" in ended.said
    assert "until somebody else has approved it" in ended.said
    plan = crew.ok("run", "--on", "role=web", "--dry-run", "--json", "--", "uptime").json
    assert (plan["runs"], len(plan["hosts"]), plan["needs_approval"]) == (12, 12, True)
    assert jobs(crew) == before


def test_what_is_run_is_given_as_it_is_or_to_a_shell_by_name(crew: Crew):
    words = ("--", "echo", "a b", "$HOME; rm")
    job = crew.job("--host", "db1", "--external-id", "as-is", *words)
    assert crew.ok("jobs", "show", str(job), "--json").json["params"] == {
        "argv": ["echo", "a b", "$HOME; rm"]
    }
    job = crew.job("--host", "db1", "--shell", "--param", "cwd=/srv", "--", "df -h | tail -1")
    assert crew.ok("jobs", "show", str(job), "--json").json["params"] == {
        "shell": "df -h | tail -1",
        "cwd": "/srv",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "all"), "Say what to run after --"),
        (("--", "uptime"), "Say whom it is for"),
        (("--on", "all", "--host", "db1", "--", "uptime"), "Say whom it is for"),
        (("--on", "all", "--param", "x", "--", "uptime"), "write NAME=TEXT, or NAME:=JSON"),
        (("--on", "all", "--param", "x:=y", "--", "uptime"), "is not JSON"),
        (("--on", "all", "--param", "argv=x", "--", "uptime"), "stands behind -- already"),
        (("--on", "@/nowhere", "--", "uptime"), "/nowhere: cannot be read"),
        (("--on", "all", "--timeout", "-1", "--", "uptime"), "--timeout"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_refused(
    crew: Crew, words: tuple[str, ...], said: str
):
    ended = crew.run("run", *words, who="ann")
    assert ended.code == 2
    assert said in " ".join(ended.told.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "role=nobody"), "no host"),
        (("--on", "role="), "selector: "),
        (("--host", "nobody"), "nobody"),
        (("--on", "all", "--type", "NOPE"), "NOPE"),
    ],
)
def test_what_the_service_refuses_is_told_before_anything_is_asked(
    crew: Crew, words: tuple[str, ...], said: str
):
    ended = crew.run("run", "--type", "PING", *words, who="ann")
    assert ended.code == 1
    assert said in ended.told
    assert len(ended.told.splitlines()) == 1


def test_more_hosts_than_the_limit_need_somebody_or_a_yes(crew: Crew):
    before = jobs(crew)
    ended = crew.run(*PING, "--on", "role=web", who="ann")
    assert ended.code == 2
    assert "12 run" in ended.told, "the plan is shown first"
    assert ended.told.rstrip().endswith("then say --yes.")
    assert crew.run(*PING, "--on", "role=web", "--confirm-above", "12", who="ann").code == 0
    assert crew.run(*PING, "--host", "db1", "--confirm-above", "0", who="ann").code == 2
    assert len(jobs(crew)) == len(before) + 1


def test_the_limit_may_be_set_in_the_file_of_contexts(crew: Crew, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text("confirm_above = 12\n")
    words = (*PING, "--on", "role=web")
    assert crew.run(*words, who="ann", ONWARD_CONFIG=str(config)).code == 0


def test_names_come_from_a_file_or_standard_input(crew: Crew, tmp_path):
    names = "web1\n# not this one: web2\n\n  web3  \n"
    path = tmp_path / "names"
    path.write_text(names)
    for on, given in ((f"@{path}", ""), ("@-", names)):
        ended = crew.run(*PING, "--on", on, "--json", who="ann", given=given)
        assert ended.json["job"]["selector"] == {"hostnames": ["web1", "web3"]}


def test_parameters_come_from_a_file_too(crew: Crew):
    given = json.dumps({"lines": 1, "text": "from a file"})
    words = ("--host", "db1", "--params-file", "-", "--param", "text=from the line", "--json")
    ended = crew.run(*PING, *words, who="ann", given=given)
    assert ended.json["job"]["params"] == {"lines": 1, "text": "from the line"}
    wrong = crew.run(*PING, "--host", "db1", "--params-file", "-", given="[1]")
    assert wrong.code == 2
    assert "takes a JSON object" in wrong.told


def test_the_same_external_id_finds_the_same_job(crew: Crew):
    words = (*PING, "--host", "db1", "--external-id", "once", "-q")
    first, second = crew.ok(*words, who="ann"), crew.ok(*words, who="ann")
    assert first.said == second.said
    assert "is submitted; --external-id once finds it again" in first.told
    assert "was there before" in second.told
    other = crew.run(*words, "--param", "lines:=1", who="ann")
    assert other.code == 6
    assert "but with another" in other.told


def lost(monkeypatch, *, times: int, error: BaseException) -> None:
    """Lose the answers to so many submissions, which are done."""
    once, left = Client._once, [error] * times

    def unheard(self: Client, method: str, path: str, **given: Any) -> Answer:
        answer = once(self, method, path, **given)
        if path == "/webhook/jobs" and left:
            raise left.pop()
        return answer

    monkeypatch.setattr(Client, "_once", unheard)
    monkeypatch.setattr(client, "_AGAIN_S", 0.0)


def test_a_submission_whose_answer_is_lost_is_repeated_and_runs_once(crew: Crew, monkeypatch):
    before = jobs(crew)
    lost(monkeypatch, times=2, error=ServiceAway("It does not answer."))
    ended = crew.ok(*PING, "--host", "db1", who="ann")
    assert "was there before" in ended.told
    assert len(jobs(crew)) == len(before) + 1


@pytest.mark.parametrize(
    ("error", "code"), [(ServiceAway("It does not answer."), 10), (KeyboardInterrupt(), 130)]
)
def test_whoever_cannot_know_whether_it_was_submitted_is_told_how_to_find_out(
    crew: Crew, monkeypatch, error: BaseException, code: int
):
    before = jobs(crew)
    with monkeypatch.context() as patched:
        lost(patched, times=9, error=error)
        ended = crew.run(*PING, "--host", "db1", who="ann")
    assert ended.code == code
    assert "It may have been submitted: the same command again" in ended.told
    (external_id,) = re.findall(r"--external-id (cli-[0-9a-f-]+)", ended.told)
    again = crew.ok(*PING, "--host", "db1", "--external-id", external_id, who="ann")
    assert "was there before" in again.told
    assert len(jobs(crew)) == len(before) + 1


def test_what_is_masked_is_in_no_plan(crew: Crew):
    crew.ok("types", "put", "LOGIN", "--no-approval", "--masked", "token")
    words = ("run", "--type", "LOGIN", "--host", "db1", "--param", "user=ann")
    for more, given in (
        (("--param", "token=s3cret-word"), ""),
        (("--params-file", "-"), '{"token": "s3cret-word"}'),
    ):
        for form in ((), ("--dry-run",), ("--dry-run", "--json")):
            ended = crew.run(*words, *more, *form, who="ann", given=given)
            assert ended.code == 0, ended
            assert "token=***" in ended.said + ended.told
            assert "s3cret-word" not in ended.said + ended.told


def test_a_params_file_that_is_no_json_is_told_without_what_is_in_it(crew: Crew):
    given = '{"token": "s3cret-word",\n oops}'
    ended = crew.run(*PING, "--host", "db1", "--params-file", "-", who="ann", given=given)
    assert ended.code == 2
    assert "-: is not JSON at line 2, column 2" in ended.told
    assert "s3cret-word" not in ended.told
    typed = crew.run(*PING, "--host", "db1", "--param", "token:=s3cret-word", who="ann")
    assert typed.code == 2
    assert "s3cret-word" not in typed.told


def test_what_a_type_runs_is_in_the_plan_and_in_what_changed(crew: Crew, monkeypatch):
    """Somebody changes the type between the plan and the submission: forced, not slept for."""
    put, sent = ("types", "put", "GREET", "--no-approval"), command._sent
    crew.ok(*put, "--", "echo", "{name}")

    def changed_first(*given: object) -> object:
        crew.ok(*put, "--", "rm", "{name}")
        return sent(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(command, "_sent", changed_first)
    words = ("run", "--type", "GREET", "--param", "name=x", "--host", "db1")
    ended = crew.run(*words, who="ann")
    assert ended.code == 6
    assert "GREET name=x on 1 host: db1:\n          as echo {name}\n" in ended.told
    assert "argv: ['echo', '{name}'] → ['rm', '{name}']" in ended.told


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ({}, "a host is another of the same name"),
        ({"job": {"job_id": 1}}, "somebody touched the job"),
    ],
)
def test_a_change_that_nobody_can_see_is_told_too(plan: Row, said: str):
    stream = _stream("utf-8")
    show_differences(Terminal(stream, colours=False, unicode=True, width=None), plan, plan)
    assert f"  nothing that can be seen in the plan; {said}" in _read(stream)


def test_every_run_has_an_id_of_its_own(crew: Crew):
    first, second = crew.job("--host", "db1", *PING[1:]), crew.job("--host", "db1", *PING[1:])
    assert first != second
    shown = crew.ok("jobs", "show", str(second), "--json").json["external_id"]
    assert crew.ok("jobs", "show", shown, "-q").said == f"{second}\n"


def test_a_plan_that_changed_under_the_submission_is_shown_and_nothing_runs(
    crew: Crew, monkeypatch
):
    """Somebody blocks a host between the plan and the submission: forced, not slept for."""
    before, sent = jobs(crew), command._sent

    def blocked_first(*given: object) -> object:
        crew.ok("blocks", "add", "PING", "--host", "web1", "--reason", "just now")
        return sent(*given)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(command, "_sent", blocked_first)
    ended = crew.run(*PING, "--on", "role=web", "--yes", who="ann")
    crew.ok("blocks", "lift", "PING", "--host", "web1")
    assert ended.code == 6
    assert "It changed under you:\n  runs: 12 → 11\n  blocked: 0 → 1" in ended.told
    assert "blocked now: web1" in ended.told
    assert "Nothing was submitted" in ended.told
    assert jobs(crew) == before


def test_whoever_waits_for_approval_sees_it_through(crew: Crew, monkeypatch):
    """With --wait the job is watched while it waits; it is approved as soon as it is seen."""
    seen: list[object] = []
    get = Client.get

    def approving(self: Client, path: str, **params: str) -> dict[str, object]:
        row = get(self, path, **params)
        if row.get("state") == "WAITING_FOR_APPROVAL" and not seen:
            seen.append(row["job_id"])
            monkeypatch.setattr(Client, "get", get)
            crew.ok("approvals", "approve", str(row["job_id"]), "--yes", who="bob")
        return row

    monkeypatch.setattr(Client, "get", approving)
    ended = crew.run("run", "--host", "db1", "--wait", "--", "true", who="ann")
    assert seen
    assert ended.code == 0, ended
    assert "is FINISHED" in ended.said


def test_a_job_that_is_only_submitted_prints_its_number(crew: Crew):
    ended = crew.ok(*PING, "--host", "db1", "--no-wait", who="ann")
    assert crew.ok("jobs", "--limit", "1", "-q").said == ended.said


def test_failures_are_told_as_they_come_but_not_all_of_them(crew: Crew):
    words = ("--on", "role=web", "--yes", "--param", "exit_code:=3", "--param", "sleep_s:=0.5")
    ended = crew.run(*PING, *words, who="ann")
    assert ended.code == 3
    told = [line for line in ended.told.splitlines() if line.startswith("FAILED  web")]
    assert 1 <= len(told) <= 12
    assert "retry-failed" in ended.told


def test_a_look_at_a_failure_that_fails_is_no_end_of_watching(crew: Crew, monkeypatch):
    get = Client.get

    def refused(self: Client, path: str, **params: str) -> dict[str, object]:
        if path.startswith("/executions/"):
            raise Leaving(Exit.SERVICE_AWAY, "Not now.")
        return get(self, path, **params)

    monkeypatch.setattr(Client, "get", refused)
    words = ("--host", "db1", "--param", "exit_code:=3", "--param", "sleep_s:=0.5")
    ended = crew.run(*PING, *words, who="ann")
    assert ended.code == 3
    assert re.search(r"^FAILED  execution \d+$", ended.told, re.MULTILINE)


def test_the_time_to_wait_is_over_also_while_the_service_is_away(crew: Crew, monkeypatch):
    job = str(crew.job("--host", "db1", "--type", "DEPLOY"))
    get = Client.get

    def away(self: Client, path: str, **params: str) -> dict[str, object]:
        if path == f"/jobs/{job}":
            raise ServiceAway("It does not answer.")
        return get(self, path, **params)

    monkeypatch.setattr(Client, "get", away)
    began = time.monotonic()
    ended = crew.run("jobs", "watch", job, "--timeout", "1")
    assert ended.code == 10
    assert time.monotonic() - began < watching._AWAY_S / 2


def test_a_job_that_does_not_get_on_is_told_why_while_it_is_watched(crew: Crew, monkeypatch):
    monkeypatch.setattr(watching, "_STILL_S", 0.0)
    words = ("--host", "db1", "--param", "sleep_s:=60", "--timeout", "1")
    ended = crew.run(*PING, *words, who="ann")
    crew.ok("jobs", "cancel", crew.ok("jobs", "--limit", "1", "-q").said.strip(), "--yes")
    assert ended.code == 7
    assert ended.told.count("Nothing has changed for 0 s:\n  db1: ") == 1


def test_everybody_who_said_the_same_is_shown_once(crew: Crew):
    crew.ok("blocks", "add", "PING", "--host", "web5", "--reason", "it rests")
    words = ("--on", "role=web", "--yes", "--param", "lines:=2", "--param", "text=fine")
    ended = crew.run(*PING, *words, who="ann")
    crew.ok("blocks", "lift", "PING", "--host", "web5")
    assert ended.code == 5, "one was blocked"
    shown, *lines = ended.said.splitlines()
    assert shown.startswith("11 hosts said the same (SUCCESS, exit code 0): web1, web10, web11, ")
    assert shown.endswith(" and 6 more")
    assert lines[:4] == [
        "    fine",
        "    stderr: fine",
        "1 host printed nothing (BLOCKED): web5",
        "11 same, 1 silent",
    ]
    assert "blocked for PING by admin: it rests" in ended.said
    assert ended.said.endswith("is FINISHED: 12 of 12 hosts: 11 SUCCESS, 1 BLOCKED.\n")
