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
    *("up", "api", "worker", "beat", "agent", "demo", "storm", "bench", "docs", "db"),
    *("completion", "complete", "help", "context", "doctor"),
    *("hosts trust", "trade demo", "trade check"),
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
    assert crew.run("jobs", "--external-id", "", "--quiet").said == "", "nothing has no id"
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
    for words in (("approvals",), ("jobs", "--approval", "waiting", "--all")):
        assert str(job) in crew.ok(*words, "--quiet", who="bob").said.split()
    crew.ok("jobs", "cancel", str(job), "--yes", who="ann")
    for words in (("approvals",), ("jobs", "--approval", "waiting", "--all")):
        until(lambda: str(job) not in crew.ok(*words, "--quiet").said.split())  # noqa: B023 - now


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


def hosts_change(crew: Crew) -> None:
    crew.ok("hosts", "add", "moved1", "--label", "role=moved")
    words = ("hosts", "change", "moved1", "--channel", "ssh", "--address", "deploy@10.0.0.8")
    moved = crew.ok(*words, "--json", who="ann").json
    assert (moved["channel"], moved["address"], moved["version"]) == ("ssh", "deploy@10.0.0.8", 2)
    assert moved["labels"] == {"role": "moved"}, "what is not named stays"
    assert crew.run("hosts", "change", "moved1").code == 2
    assert crew.run(*words, who="vic").code == 8


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
    assert crew.run(*words, "--id", UUID, "--param", "ml:=6").code == 6
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
    nobody = crew.ok("agents")
    assert (nobody.said, nobody.told) == ("", "No agent was ever connected.\n")
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
    for said, masked in (("--masked=pin", ["pin"]), ("--exclusive", ["pin"]), ("--no-masked", [])):
        put = crew.ok("types", "put", "GREET", said, "--json")
        assert put.json["masked"] == masked
    assert crew.ok("types", "put", "GREET", "--masked", "", "--json").json["masked"] == []
    assert crew.run("types", "put", "GREET", "--masked", "a", "--no-masked").code == 2
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


def overview(crew: Crew) -> None:
    job = waiting(crew)
    shown = crew.ok("overview").said
    for line in (r"^jobs +\d+ open, \d+ wait for approval, 0 paused$", r"^hosts +\d+ ACTIVE"):
        assert re.search(line, shown, re.MULTILINE), shown
    assert "\nworkers\n" in shown
    whole = crew.ok("overview", "-o", "json").json
    assert {"jobs", "attention", "workers", "activity"} <= whole.keys()
    # An answer may be a second old.
    until(lambda: job in [row["job_id"] for row in crew.ok("overview", "--json").json["waiting"]])
    assert crew.ok("overview", "--json", "blocks").json.keys() == {"blocks"}
    looked = crew.ok("overview", "--watch", "--times", "2", "--every", "0.2", "-q")
    assert len(looked.said.split()) == 2


def cursor_of(crew: Crew, *words: str) -> str:
    told = crew.ok("events", *words).told
    found = re.search(r"onward: --after (\S+) goes on from here\.", told)
    assert found is not None, told
    return found[1]


def events(crew: Crew) -> None:
    after = cursor_of(crew)
    job = finished(crew, "--host", "db1", "--type", "PING")
    words = ("events", "--after", after, "--job", str(job))
    told = crew.ok(*words, "--json", "kind,event,status").json
    assert {"kind": "execution", "event": "succeed", "status": "SUCCESS"} in told
    only = crew.ok(*words, "--kind", "job", "--kind", "command", "--json", "kind").json
    assert {each["kind"] for each in only} == {"job"}
    assert f"of job {job}  succeed" in crew.ok(*words).said
    on = cursor_of(crew, "--after", after)
    assert crew.ok("events", "--after", on, "--job", str(job), "--json").json == []
    wrong = crew.run("events", "--after", "nonsense")
    assert (wrong.code, wrong.said) == (1, "")
    assert crew.run("events", "--follow", "--after", "nonsense").code == 1


def lifecycles(crew: Crew) -> None:
    names = crew.ok("lifecycles", "-q").said.split()
    assert {"execution", "order", "node"} <= set(names)
    assert [row["name"] for row in crew.ok("lifecycles", "-o", "json").json] == names
    shown = crew.ok("lifecycles", "execution").said
    assert re.search(r"^execution +RUNNING +succeed +SUCCESS$", shown, re.MULTILINE), shown
    assert crew.ok("lifecycles", "execution", "-o", "json").json["initial"] == "NEW"
    missing = crew.run("lifecycles", "nonsense")
    assert missing.code == 1
    assert "there are " in missing.told


def commands_events(crew: Crew) -> None:
    made = crew.ok("commands", "make", "--type", "dose", "--node", "pump3", "--json").json["cmd_id"]
    file = crew.folder / "heard.jsonl"
    said = [{"cmd_id": made, "event": event} for event in ("ack", "send", "done")]
    lines = [json.dumps(each) for each in (*said, {"cmd_id": UUID[:-1] + "0", "event": "ack"})]
    file.write_text(lines[0] + "\n\n" + "\n".join(lines[1:]))
    judged = crew.ok("commands", "events", str(file), "--json", "line,verdict").json
    verdicts = ["OK", "STALE", "OK", "UNKNOWN_COMMAND"]
    assert judged == [
        {"line": line, "verdict": verdict}
        for line, verdict in zip((1, 3, 4, 5), verdicts, strict=True)
    ]
    again = crew.run("commands", "events", "-", "-o", "table", given=lines[2])
    assert (again.code, "TERMINAL" in again.said) == (0, True)
    wrong = crew.run("commands", "events", "-", given=f'{lines[0]}\n{{"cmd_id": "x"}}\n')
    assert wrong.code == 1
    assert "onward: line 2: " in wrong.told
    assert "Recorded: 0 events, all before line 1." in wrong.told
    for given in ("[]", "nonsense"):
        assert "line 1: " in crew.run("commands", "events", "-", given=given).told
    assert crew.run("commands", "events", str(crew.folder / "nowhere")).code == 2


def workers_show(crew: Crew) -> None:
    (worker,) = crew.ok("workers", "--json").json
    number = str(worker["worker_id"])
    assert crew.ok("workers", "show", number, "--json", "name").json == {"name": worker["name"]}
    assert "`onward workers` lists" in crew.run("workers", "show", "999999").told


def keys_show(crew: Crew) -> None:
    key = crew.ok("keys", "--json").json[-1]
    assert crew.ok("keys", "show", str(key["id"]), "--json").json == key
    missing = crew.run("keys", "show", "999999")
    assert missing.code == 1
    assert "`onward keys` lists" in missing.told
    assert crew.run("keys", "show", "1", who="ann").code == 8


def blocks_show(crew: Crew) -> None:
    crew.ok("blocks", "add", "DEPLOY", "--host", "web5", "--reason", "its disk", who="ann")
    shown = crew.ok("blocks", "show", "DEPLOY", "--host", "web5").said
    assert re.search(r"^reason +its disk$", shown, re.MULTILINE)
    crew.ok("blocks", "lift", "DEPLOY", "--host", "web5", who="ann")
    missing = crew.run("blocks", "show", "DEPLOY", "--host", "web5")
    assert missing.code == 1
    assert "Nobody forbids" in missing.told


def approvals_show(crew: Crew) -> None:
    job = waiting(crew)
    shown = crew.ok("approvals", "show", str(job), who="bob").said
    assert shown == crew.ok("jobs", "plan", str(job)).said
    assert crew.ok("approvals", "show", str(job), "--json", "runs").json == {"runs": 1}


def executions_watch(crew: Crew) -> None:
    for words, code, said in (
        (("--param", "sleep_s:=0.5"), 0, "is SUCCESS, exit code 0."),
        (("--param", "sleep_s:=0.5", "--param", "exit_code:=3"), 3, "is FAILED, exit code 3"),
    ):
        execution = str(first(crew, crew.job("--host", "db1", "--type", "PING", *words)))
        ended = crew.run("executions", "watch", execution)
        assert (ended.code, f"Execution {execution} on db1 {said}" in ended.said) == (code, True)
        assert " " + said.split()[1].rstrip(",.") in ended.told, "each change is told"
    long = str(first(crew, crew.job("--host", "db1", "--type", "PING", "--param", "sleep_s:=60")))
    assert crew.run("executions", "watch", long, "--timeout", "0.2").code == 7
    cancelled = crew.ok("executions", "show", long, "--json").json["job_id"]
    crew.ok("jobs", "cancel", str(cancelled), "--yes")
    assert crew.run("executions", "watch", long).code == 5
    unapproved = crew.run("executions", "watch", str(first(crew, waiting(crew))), "--timeout", "0")
    assert unapproved.code == 9
    assert "comes back to it" in unapproved.told
    assert crew.run("executions", "watch", "999999").code == 1


def trade_account(crew: Crew) -> None:
    words = ("trade", "deposit", "1000.5", "--currency", "USD")
    made = crew.ok(*words, "--key", "first", who="tom")
    assert made.told == "tom has 0.00 USD available and 0.00 held, version 1.\n"
    assert re.fullmatch(
        r"Operation \d+: deposit 1,000\.50 USD; 1,000\.50 USD is available, version 2\.\n",
        made.said,
    )
    assert crew.ok(*words, "--key", "first", who="tom").said == made.said, "it was done once"
    taken = crew.ok("trade", "withdraw", "0.50", "--currency", "USD", "--json", who="tom").json
    assert (taken["amount"], taken["account"]["available"]) == (50, 100_000)
    number = str(taken["operation_id"])
    assert crew.ok("trade", "ledger", "-q", "--limit", "1", who="tom").said == f"{number}\n"
    assert crew.ok("trade", "ledger", number, "--json", who="tom").json == taken
    assert re.search(r"withdraw +-0\.50 USD", crew.ok("trade", "ledger", who="tom").said)
    shown = crew.ok("trade", "account", "--currency", "USD", who="tom").said
    assert re.search(r"^available +1,000\.00$", shown, re.MULTILINE)
    whole = crew.ok("trade", "account", "--currency", "USD", "--json", who="tom").json
    assert (whole["available"], whole["version"]) == (100_000, 3)
    assert crew.run("trade", "account", who="vic").code == 8


def trade_orders(crew: Crew) -> None:
    issued = crew.ok("trade", "issue", "7", "--to", "sue", "--quantity", "3")
    assert issued.said == "sue has 3 more of item 7.\n"
    assert crew.run("trade", "issue", "7", "--to", "sue", who="tom").code == 8
    made = crew.ok("keys", "make", "trading", "--person", "sue", "--role", "trader")
    sue = made.said.strip()
    assert crew.ok("trade", "items", "--json", ONWARD_KEY=sue).json == [
        {"item_id": 7, "available": 3, "held": 0}
    ]
    placed = crew.ok("trade", "sell", "7", "--price", "9", ONWARD_KEY=sue)
    assert placed.told == "You have placed no order to sell yet.\n"
    assert re.fullmatch(r"Order \d+: item 7 for 9\.00 EUR, OPEN\.\n", placed.said)
    assert re.search(r"sell +9\.00 +EUR +1$", crew.ok("trade", "book", "7").said, re.MULTILINE)
    book = crew.ok("trade", "book", "7", "--json", who="tom").json
    assert book["asks"] == [{"price": 900, "orders": 1}]
    crew.ok("trade", "deposit", "100", who="tom")
    bought = crew.ok("trade", "buy", "7", "--price", "10.00", "--json", who="tom").json
    number = str(bought["id"])
    until(lambda: bool(crew.ok("trade", "deals", "--json", who="tom").json))
    (deal,) = crew.ok("trade", "deals", "--json", who="tom").json
    assert (deal["price"], deal["order_id"]) == (900, bought["id"])
    late = crew.run("trade", "cancel", number, who="tom")
    assert late.code == 6
    assert "`onward trade deals`" in late.told
    open_ = crew.ok("trade", "sell", "7", "--price", "20", "-q", ONWARD_KEY=sue).said.strip()
    assert crew.ok("trade", "orders", open_, "--json", ONWARD_KEY=sue).json["status"] == "OPEN"
    assert crew.ok("trade", "cancel", open_, "--json", ONWARD_KEY=sue).json["status"] == "CANCELLED"
    assert crew.ok("trade", "orders", "-q", "--status", "FILLED", who="tom").said == f"{number}\n"
    assert crew.ok("trade", "orders", "--side", "sell", "--json", who="tom").json == []
    assert "`onward trade orders`" in crew.run("trade", "orders", "999999", who="tom").told


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
    "hosts change": hosts_change,
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
    "overview": overview,
    "events": events,
    "lifecycles": lifecycles,
    "commands events": commands_events,
    "workers show": workers_show,
    "keys show": keys_show,
    "blocks show": blocks_show,
    "approvals show": approvals_show,
    "executions watch": executions_watch,
    "trade account": trade_account,
    "trade deposit": trade_account,
    "trade withdraw": trade_account,
    "trade ledger": trade_account,
    "trade orders": trade_orders,
    "trade buy": trade_orders,
    "trade sell": trade_orders,
    "trade cancel": trade_orders,
    "trade book": trade_orders,
    "trade deals": trade_orders,
    "trade items": trade_orders,
    "trade issue": trade_orders,
}


def test_every_command_is_tried():
    assert set(leaves()) - ELSEWHERE == set(TRIED)


@pytest.mark.parametrize("check", dict.fromkeys(TRIED.values()), ids=lambda check: check.__name__)
def test_it_does_what_it_says(crew: Crew, check: Check):
    check(crew)


def test_a_type_that_changed_under_somebody_is_a_conflict(crew: Crew, monkeypatch):
    """Somebody else changes it after it was read, before it is put: forced, not slept for."""
    crew.ok("types", "put", "RACED", "--timeout", "5")
    send = client.Client.send

    def quicker(self: client.Client, method: str, path: str, **said: object) -> client.Answer:
        if method == "PUT" and crew.ok("types", "show", "RACED", "--json").json["timeout_s"] == 5:
            with crew.up.client() as http:
                whole = http.get(path).json()
                whole.pop("name")
                http.put(path, json={**whole, "timeout_s": 7}).raise_for_status()
        return send(self, method, path, **said)  # type: ignore[arg-type]  # as it was called

    with monkeypatch.context() as patched:
        patched.setattr(client.Client, "send", quicker)
        ended = crew.run("types", "put", "RACED", "--max-retries", "9")
    assert ended.code == 6
    assert "RACED changed under you, and nothing was done." in ended.told
    now = crew.ok("types", "show", "RACED", "--json").json
    assert (now["timeout_s"], now["max_retries"]) == (7, 3)


def test_what_is_named_twice_is_the_same():
    """So that help is shown without loading the service."""
    assert keys.Role.__args__ == tuple(map(str, Role))  # type: ignore[attr-defined]  # a Literal
    assert Path(FILE).name == client._FIRST_KEY
