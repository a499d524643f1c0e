"""`onward run` from the plan to the comparison, as a script uses it."""

from __future__ import annotations

import json

import pytest

from onward.cli import run as command
from onward.cli.client import Client
from tests.cli.crew import Crew

PING = ("run", "--type", "PING")


def jobs(crew: Crew) -> list[int]:
    return [row["job_id"] for row in crew.ok("jobs", "--all", "--json").json]


def test_a_dry_run_shows_the_plan_and_does_nothing(crew: Crew):
    before = jobs(crew)
    ended = crew.ok("run", "--on", "role=web", "--dry-run", "--", "uptime", "-p", who="ann")
    assert ended.said == ""
    assert "RUN_SCRIPT uptime -p on hosts where role=web:" in ended.told
    assert "12 run      web1, web10, web11, web12, web2, and 7 more" in ended.told
    assert "until somebody else has approved it" in ended.told
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
    assert other.code == 1
    assert "but with another" in other.told


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
