"""Every command that talks to a service, against a real one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from onward import cli
from onward.api.first_key import FILE
from onward.api.permissions import Role
from onward.cli import client, keys
from tests.cli.crew import Crew
from tests.cli.running import settled, until

# They serve, measure or only print; their own tests are elsewhere.
ELSEWHERE = {
    *("up", "api", "worker", "beat", "agent", "demo", "storm", "bench", "docs", "trade", "db"),
    *("completion", "complete", "help", "context", "doctor"),
}
UUID = "019a9433-7c3e-7d61-8b5e-3f1f3f0c2a77"


def leaves() -> Iterator[str]:
    root = typer.main.get_command(cli.app)
    assert isinstance(root, TyperGroup)
    for name in root.commands:
        if name in ELSEWHERE:
            continue
        command = root.commands[name]
        if isinstance(command, TyperGroup):
            yield from (f"{name} {verb}" for verb in command.commands)
        else:
            assert isinstance(command, TyperCommand)
            yield name


def finished(crew: Crew, *words: str) -> int:
    """A job that has ended."""
    job = crew.job(*words)
    with crew.up.client() as http:
        total = http.get(f"/jobs/{job}").json()["total"]
        until(lambda: settled(http, job) == total)
    return job


def waiting(crew: Crew, *words: str) -> int:
    """A job that waits for approval."""
    return crew.job("--host", "db1", "--type", "DEPLOY", *words)


def first(crew: Crew, job: int) -> int:
    """The first execution of a job."""
    return int(crew.ok("executions", "--job", str(job), "--json").json[0]["execution_id"])


def slow(crew: Crew) -> int:
    """A job that runs for long on one host after the other."""
    return crew.job(
        *("--on", "role=web", "--type", "PING", "--param", "sleep_s:=60"),
        *("--max-concurrency", "1"),
    )


def run_(crew: Crew) -> None:
    words = ("run", "--on", "all", "--type", "PING", "--yes", "--param", "lines:=1")
    ended = crew.ok(*words, "--param", "text=fine", who="ann")
    assert "PING lines=1 text=fine on all hosts:" in ended.told
    assert "13 run" in ended.told
    assert re.search(r"Job \d+ is FINISHED: 13 of 13 hosts: 13 SUCCESS\.", ended.said)


def jobs_list(crew: Crew) -> None:
    job = finished(crew, "--host", "db1", "--type", "PING")
    assert crew.ok("jobs", "--quiet", "--limit", "1").said == f"{job}\n"
    assert crew.ok("jobs", "list", "--type", "PING", "--json").json[0]["job_id"] == job
    assert crew.ok("jobs", "--type", "NOTHING", "--json").json == []
    assert [row["job_id"] for row in crew.ok("jobs", "--approval", "waiting", "--json").json] == []


def jobs_show(crew: Crew) -> None:
    job = finished(crew, "--host", "db1", "--type", "PING", "--external-id", "by-name")
    for named in (str(job), "by-name"):
        assert crew.ok("jobs", "show", named, "--json").json["job_id"] == job
    missing = crew.run("jobs", "show", "no-such")
    assert missing.code == 1
    assert "`onward jobs` lists them" in missing.told


def jobs_plan(crew: Crew) -> None:
    job = waiting(crew)
    shown = crew.ok("jobs", "plan", str(job)).said
    assert f"Job {job} of ann, WAITING_FOR_APPROVAL, version 1" in shown
    assert "1 run      db1" in shown
    assert crew.ok("jobs", "plan", str(job), "--json", "runs,blocked").json == {
        "runs": 1,
        "blocked": 0,
    }


def jobs_watch(crew: Crew) -> None:
    job = finished(crew, "--host", "db1", "--type", "PING", "--param", "exit_code:=3")
    ended = crew.run("jobs", "watch", str(job))
    assert ended.code == 3
    assert f"Job {job} is FINISHED: 1 of 1 host: 1 FAILED." in ended.said
    assert f"`onward jobs retry-failed {job}`" in ended.told


def jobs_timeline(crew: Crew) -> None:
    job = waiting(crew)
    (deed,) = crew.ok("jobs", "timeline", str(job), "--json").json
    assert (deed["event"], deed["by"]) == ("submit", "ann")


def jobs_approve(crew: Crew) -> None:
    job = waiting(crew)
    words = ("jobs", "approve", str(job), "--yes", "--reason", "seen")
    own = crew.run(*words, who="ann")
    assert own.code == 8, "an operator may not approve"
    assert "is UNDER_WAY" in crew.ok(*words, who="bob").said
    assert crew.run(*words, who="bob").code == 6, "it was decided"


def jobs_reject(crew: Crew) -> None:
    job = waiting(crew)
    ended = crew.ok("jobs", "reject", str(job), "--yes", "--reason", "not now", who="bob")
    assert "is TURNED_DOWN" in ended.said
    assert crew.run("jobs", "watch", str(job)).code == 5


def jobs_pause(crew: Crew) -> None:
    job = str(slow(crew))
    assert "is PAUSED" in crew.ok("jobs", "pause", job, who="ann").said
    assert "is UNDER_WAY" in crew.ok("jobs", "resume", job, who="ann").said
    crew.ok("jobs", "cancel", job, "--yes", who="ann")


def jobs_cancel(crew: Crew) -> None:
    job = str(slow(crew))
    nobody = crew.run("jobs", "cancel", job, who="ann")
    assert nobody.code == 2
    assert "say --yes" in nobody.told
    crew.ok("jobs", "cancel", job, "--yes", "--reason", "wrong", who="ann")
    assert crew.run("jobs", "watch", job).code == 5
    again = crew.run("jobs", "cancel", str(finished(crew, "--host", "db1", "--type", "PING")))
    assert again.code == 6
    assert "Too late" in again.told


def jobs_edit(crew: Crew) -> None:
    job = str(waiting(crew, "--param", "a=1", "--param", "b=2"))
    crew.ok("jobs", "edit", job, "--param", "b=3", "--max-concurrency", "2", who="ann")
    changed = crew.ok("jobs", "show", job, "--json").json
    assert (changed["params"], changed["max_concurrency"]) == ({"a": "1", "b": "3"}, 2)
    crew.ok("jobs", "edit", job, "--max-concurrency", "0", who="ann")
    assert crew.ok("jobs", "show", job, "--json").json["max_concurrency"] is None
    assert crew.run("jobs", "edit", job, who="ann").code == 2


def jobs_retry(crew: Crew) -> None:
    job = finished(crew, "--host", "db1", "--type", "PING", "--param", "exit_code:=3")
    made = crew.ok("jobs", "retry-failed", str(job), who="ann")
    assert f"Job {made.said.strip()} is made of it, for 1 host." in made.told
    again = crew.run("jobs", "retry-failed", str(job), "--wait", who="ann")
    assert "was made of it before" in again.told
    assert again.code == 3, "it fails again"


def executions_list(crew: Crew) -> None:
    job = finished(crew, "--on", "role=web", "--type", "PING")
    listed = crew.ok("executions", "--job", str(job), "--all", "-o", "jsonl").said
    assert {json.loads(line)["status"] for line in listed.splitlines()} == {"SUCCESS"}
    assert len(listed.splitlines()) == 12
    assert crew.ok("executions", "--job", str(job), "--status", "FAILED", "--json").json == []
    newest = crew.ok("executions", "--host", "web1", "--limit", "1", "--json").json
    assert newest[0]["job_id"] == job
    assert crew.run("executions").code == 2
    assert crew.run("executions", "--job", str(job), "--status", "NOPE").code == 1


def executions_show(crew: Crew) -> None:
    execution = first(crew, finished(crew, "--host", "db1", "--type", "PING"))
    assert crew.ok("executions", "show", str(execution), "--json", "host").json == {"host": "db1"}
    assert "`onward executions list" in crew.run("executions", "show", "999999").told


def executions_why(crew: Crew) -> None:
    execution = str(first(crew, waiting(crew)))
    assert "WAITING_FOR_APPROVAL" in crew.ok("executions", "why", execution).said
    assert crew.ok("executions", "why", execution, "-q").said == "WAITING_FOR_APPROVAL\n"


def executions_logs(crew: Crew) -> None:
    words = ("--host", "db1", "--type", "PING", "--param", "lines:=3", "--param", "text=hello")
    execution = str(first(crew, finished(crew, *words)))
    assert crew.ok("executions", "logs", execution).said == "hello\nstderr: hello\nhello\n"
    followed = crew.ok("executions", "logs", execution, "--follow", "-o", "json").said
    assert [json.loads(line)["text"] for line in followed.splitlines()] == ["hello"] * 3


def executions_timeline(crew: Crew) -> None:
    execution = first(crew, finished(crew, "--host", "db1", "--type", "PING"))
    events = crew.ok("executions", "timeline", str(execution), "--json", "event,verdict").json
    assert {"event": "succeed", "verdict": "OK"} in events


def approvals_list(crew: Crew) -> None:
    job = waiting(crew)
    listed = crew.ok("approvals", "--quiet", who="bob").said.split()
    assert str(job) in listed


def approvals_approve(crew: Crew) -> None:
    job = waiting(crew)
    unasked = crew.run("approvals", "approve", str(job), who="bob")
    assert unasked.code == 2
    assert "--yes" in unasked.told
    crew.ok("approvals", "approve", str(job), "--yes", who="bob")


def approvals_reject(crew: Crew) -> None:
    job = waiting(crew)
    crew.ok("approvals", "reject", str(job), "--yes", who="bob")
    assert crew.ok("jobs", "show", str(job), "--json").json["state"] == "TURNED_DOWN"


def hosts_list(crew: Crew) -> None:
    shown = crew.ok("hosts", "--selector", "role=db").said
    assert re.search(r"^db1 +simulated +ACTIVE +role=db zone=eu$", shown, re.MULTILINE)
    assert crew.ok("hosts", "--limit", "2", "-q").said.count("\n") == 2
    assert crew.run("hosts", "--limit", "2").told.startswith("onward: there are more than these 2")


def hosts_import(crew: Crew) -> None:
    more = crew.folder / "more.csv"
    more.write_text("name\nextra1\n")
    assert crew.ok("hosts", "import", str(more), "--dry-run").said.startswith("1 would be created")


def hosts_add(crew: Crew) -> None:
    made = crew.ok("hosts", "add", "new1", "--label", "role=new", "--json", who="ann").json
    assert made["labels"] == {"role": "new"}
    taken = crew.run("hosts", "add", "new1")
    assert taken.code == 6
    assert "Another host has this name" in taken.told


def hosts_show(crew: Crew) -> None:
    assert crew.ok("hosts", "show", "db1", "-o", "yaml").said.startswith("host_id: ")
    assert "`onward hosts` lists" in crew.run("hosts", "show", "nobody").told
    assert crew.run("hosts", "show", "web*").code == 1, "no pattern is a name"


def hosts_label(crew: Crew) -> None:
    said = crew.ok("hosts", "label", "web1", "canary=yes", "zone-", who="ann").said
    assert said == "web1  canary=yes role=web\n"
    crew.ok("hosts", "label", "web1", "canary-", "zone=eu", who="ann")
    assert crew.run("hosts", "label", "web1", "wrong").code == 2
    assert crew.run("hosts", "label", "web1", "a=b", who="vic").code == 8


def hosts_disable(crew: Crew) -> None:
    crew.ok("hosts", "disable", "web2", who="ann")
    assert crew.ok("hosts", "show", "web2", "--json", "state").json == {"state": "DISABLED"}
    crew.ok("hosts", "enable", "web2", who="ann")
    assert crew.ok("hosts", "show", "web2", "--json", "state").json == {"state": "ACTIVE"}


def hosts_delete(crew: Crew) -> None:
    crew.ok("hosts", "add", "gone1")
    assert crew.run("hosts", "delete", "gone1").code == 2
    crew.ok("hosts", "delete", "gone1", "--yes")
    finished(crew, "--host", "db1", "--type", "PING")
    kept = crew.run("hosts", "delete", "db1", "--yes")
    assert kept.code == 6
    assert "`onward hosts disable`" in kept.told


def hosts_enrol(crew: Crew) -> None:
    made = crew.ok("hosts", "enrol", "web3", "--ttl", "60")
    assert made.said.startswith("oat_")
    assert "shown only here" in made.told
    assert crew.run("hosts", "enrol", "web3", who="ann").code == 8


def hosts_key(crew: Crew) -> None:
    crew.ok("hosts", "add", "node1", "--channel", "mqtt")
    assert re.fullmatch(r"[0-9a-f]{64}\n", crew.ok("hosts", "key", "node1").said)
    assert crew.run("hosts", "key", "web1").code == 6
    crew.ok("hosts", "take-key", "node1", "--yes")


def blocks_list(crew: Crew) -> None:
    until_ = ("--until", "2h")
    words = ("blocks", "add", "DEPLOY", "--host", "web4", "--reason", "its disk", *until_)
    crew.ok(*words, who="ann")
    (block,) = crew.ok("blocks", "--host", "web4", "--json").json
    assert (block["owner"], block["reason"], block["in_force"]) == ("ann", "its disk", True)
    assert block["expires_at"]
    assert "web4" in crew.ok("blocks").said
    crew.ok("blocks", "lift", "DEPLOY", "--host", "web4", who="ann")
    assert crew.ok("blocks", "--host", "web4", "--json").json == []


def blocks_add(crew: Crew) -> None:
    many = ("blocks", "add", "DEPLOY", "--on", "role=web", "--reason", "freeze")
    assert crew.run(*many, who="ann").code == 2, "twelve hosts are more than ten"
    assert "forbidden on 12 hosts" in crew.ok(*many, "--yes", who="ann").said
    lifted = crew.ok("blocks", "lift", "DEPLOY", "--on", "role=web", "--yes", who="ann")
    assert lifted.said.startswith("12 of 12 hosts had the block")
    assert crew.run("blocks", "add", "DEPLOY", "--reason", "whom").code == 2


def commands_make(crew: Crew) -> None:
    words = ("commands", "make", "--type", "dose", "--node", "pump1", "--param", "ml:=5")
    assert crew.ok(*words, "--id", UUID, "--json").json["verdict"] == "OK"
    assert crew.ok(*words, "--id", UUID, "-q").said == "DUPLICATE\n"
    assert crew.run(*words, "--id", UUID, "--param", "ml:=6").code == 1
    assert crew.ok("commands", "show", UUID, "--json", "params").json == {"params": {"ml": 5}}


def commands_event(crew: Crew) -> None:
    made = crew.ok("commands", "make", "--type", "dose", "--node", "pump2", "--json").json["cmd_id"]
    words = ("commands", "event", made)
    assert crew.ok(*words, "ack", "--source", "gateway", "-q").said == "OK\n"
    assert crew.ok(*words, "send", "-q").said == "STALE\n"
    assert crew.ok(*words, "done", "--result", '{"ml": 5}', "--json").json["status"] == "DONE"
    told = crew.ok("commands", "timeline", made, "--json", "event,verdict").json
    assert {"event": "send", "verdict": "STALE"} in told
    assert "pump2" in crew.ok("commands", "--node", "pump2").said
    assert crew.run("commands", "show", "not-a-uuid").code == 1


def workers_list(crew: Crew) -> None:
    (worker,) = crew.ok("workers", "--json").json
    assert worker["lives"] is True


def workers_watch(crew: Crew) -> None:
    looked = crew.ok("workers", "watch", "--times", "2", "--every", "0.2", "-q")
    assert len(looked.said.split()) == 2


def agents_list(crew: Crew) -> None:
    assert crew.ok("agents").said == "No agent was ever connected.\n"
    assert crew.ok("agents", "--json").json == []


def audit_list(crew: Crew) -> None:
    job = waiting(crew)
    (deed,) = crew.ok("audit", "--kind", "job", "--subject", str(job), "--json").json
    assert (deed["by"], deed["deed"]) == ("ann", "submit")
    hosts = crew.ok("audit", "--kind", "host", "--json").json
    assert hosts, "the fleet was imported"


def types_put(crew: Crew) -> None:
    words = ("types", "put", "GREET", "--timeout", "5", "--no-approval", "--", "echo", "{name}")
    made = crew.ok(*words[:6], "--json", *words[6:]).json
    assert made["argv"] == ["echo", "{name}"]
    assert (made["needs_approval"], made["max_retries"]) == (False, 3)
    changed = crew.ok("types", "put", "GREET", "--max-retries", "0", "--json").json
    assert (changed["argv"], changed["timeout_s"]) == (["echo", "{name}"], 5)
    assert "GREET" in crew.ok("types").said
    assert crew.ok("types", "show", "GREET", "-q").said == "GREET\n"
    assert crew.run("types", "put", "GREET", "--max-retries", "1", who="ann").code == 8
    assert crew.run("types", "delete", "GREET").code == 2
    crew.ok("types", "delete", "GREET", "--yes")
    assert "`onward types` lists" in crew.run("types", "show", "GREET").told


def keys_make(crew: Crew) -> None:
    path = crew.folder / "eve.key"
    words = ("keys", "make", "phone", "--person", "eve", "--role", "viewer", "--to", str(path))
    made = crew.ok(*words, "--json")
    assert "key" not in made.json
    assert path.stat().st_mode & 0o777 == 0o600
    key = path.read_text("ascii").strip()
    assert key not in made.said + made.told
    assert crew.ok("whoami", "-q", ONWARD_KEY=key).said == "eve\n"
    assert crew.run(*words).code == 2, "the file is there already"
    number = str(made.json["id"])
    assert crew.run("keys", "revoke", number).code == 2
    crew.ok("keys", "revoke", number, "--yes")
    listed = {row["id"]: row["revoked_by"] for row in crew.ok("keys", "--json").json}
    assert listed[int(number)] == "admin"


def whoami(crew: Crew) -> None:
    assert crew.ok("whoami", "--json", "person,role", who="ann").json == {
        "person": "ann",
        "role": "operator",
    }


def jobs_outputs(crew: Crew) -> None:
    words = ("--on", "zone=eu", "--type", "PING", "--param", "lines:=1", "--param", "text=same")
    job = str(finished(crew, *words))
    (group,) = crew.ok("jobs", "outputs", job, "--json").json
    assert group["count"] == 7
    shown = crew.ok("jobs", "outputs", job).said
    assert shown.startswith("7 hosts said the same (SUCCESS, exit code 0): ")
    assert "\n    same\n7 same\n" in shown


def jobs_causes(crew: Crew) -> None:
    job = finished(crew, "--host", "db1", "--type", "PING", "--param", "exit_code:=3")
    (cause,) = crew.ok("jobs", "causes", str(job), "--json", "cause,count").json
    assert cause == {"cause": "FAILED", "count": 1}


Check = Callable[[Crew], None]
# Who tries which command; several are tried together where one undoes the other.
TRIED: Mapping[str, Check] = {
    "run": run_,
    "jobs list": jobs_list,
    "jobs show": jobs_show,
    "jobs plan": jobs_plan,
    "jobs watch": jobs_watch,
    "jobs outputs": jobs_outputs,
    "jobs causes": jobs_causes,
    "jobs timeline": jobs_timeline,
    "jobs approve": jobs_approve,
    "jobs reject": jobs_reject,
    "jobs pause": jobs_pause,
    "jobs resume": jobs_pause,
    "jobs cancel": jobs_cancel,
    "jobs edit": jobs_edit,
    "jobs retry-failed": jobs_retry,
    "executions list": executions_list,
    "executions show": executions_show,
    "executions why": executions_why,
    "executions timeline": executions_timeline,
    "executions logs": executions_logs,
    "approvals list": approvals_list,
    "approvals approve": approvals_approve,
    "approvals reject": approvals_reject,
    "hosts import": hosts_import,
    "hosts list": hosts_list,
    "hosts show": hosts_show,
    "hosts add": hosts_add,
    "hosts label": hosts_label,
    "hosts disable": hosts_disable,
    "hosts enable": hosts_disable,
    "hosts delete": hosts_delete,
    "hosts enrol": hosts_enrol,
    "hosts key": hosts_key,
    "hosts take-key": hosts_key,
    "blocks list": blocks_list,
    "blocks add": blocks_add,
    "blocks lift": blocks_add,
    "commands list": commands_event,
    "commands show": commands_make,
    "commands timeline": commands_event,
    "commands make": commands_make,
    "commands event": commands_event,
    "workers list": workers_list,
    "workers watch": workers_watch,
    "agents list": agents_list,
    "audit list": audit_list,
    "types list": types_put,
    "types show": types_put,
    "types put": types_put,
    "types delete": types_put,
    "keys list": keys_make,
    "keys make": keys_make,
    "keys revoke": keys_make,
    "whoami": whoami,
}


def test_every_command_is_tried():
    assert set(leaves()) - {"hosts trust"} == set(TRIED)


@pytest.mark.parametrize("check", dict.fromkeys(TRIED.values()), ids=lambda check: check.__name__)
def test_it_does_what_it_says(crew: Crew, check: Check):
    check(crew)


def test_what_is_named_twice_is_the_same():
    """So that help is shown without loading the service."""
    assert keys.Role.__args__ == tuple(map(str, Role))  # type: ignore[attr-defined]  # a Literal
    assert Path(FILE).name == client._FIRST_KEY
