"""What scripts and people have got used to: every help text, and the shape of all JSON.

The files beside this one hold both. Whoever changes something on purpose writes them anew, looks at
the difference, and commits it: `RENEW=1 pytest tests/cli/test_snapshots.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup
from typer.testing import CliRunner

from onward import cli
from tests.cli.crew import Crew
from tests.cli.test_nouns import UUID, finished, first, waiting

SNAPSHOTS = Path(__file__).parent / "snapshots"


def compare(name: str, now: str) -> None:
    """Compare with what was there, or write it anew."""
    path = SNAPSHOTS / name
    if os.environ.get("RENEW"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(now, "utf-8")
    before = path.read_text("utf-8")
    assert now == before, f"if it is meant so: RENEW=1 pytest {Path(__file__).name}"


def commands() -> Iterator[tuple[str, ...]]:
    """Every command that there is, in the order of the help."""
    root = typer.main.get_command(cli.app)
    assert isinstance(root, TyperGroup)
    yield ()
    for name in root.commands:
        command = root.commands[name]
        if command.hidden:
            continue
        yield (name,)
        if isinstance(command, TyperGroup):
            yield from ((name, verb) for verb in command.commands)


def test_help_is_as_it_was():
    shown = []
    for words in commands():
        said = CliRunner().invoke(
            cli.app, [*words, "--help"], prog_name="onward", env={"COLUMNS": "80"}
        )
        assert said.exit_code == 0, said.output
        shown.append(f"$ {' '.join(['onward', *words, '--help'])}\n{said.output}")
    compare("help.txt", "\n".join(shown))


def shape(value: object) -> object:
    """What a value looks like: its fields, and of which kind they are."""
    match value:
        case dict() if value and all(map(str.isupper, value)):
            return {"STATUS": shape(next(iter(value.values())))}
        case dict():
            # Whether something has happened yet is no part of the shape.
            return {
                name: "time" if name.endswith("_at") else shape(value[name])
                for name in sorted(value)
            }
        case list():
            return [shape(value[0])] if value else []
        case None:
            return "null"
        case _:
            return type(value).__name__


@pytest.fixture(scope="module")
def asked(crew: Crew) -> dict[str, tuple[str, ...]]:
    """Questions whose answers always look the same, by their names."""
    job = finished(
        *(crew, "--host", "web1", "--type", "PING", "--param", "lines:=1"),
        *("--param", "exit_code:=3"),
    )
    execution = str(first(crew, job))
    open_ = str(waiting(crew))
    crew.ok("blocks", "add", "DEPLOY", "--host", "web2", "--reason", "x", "--until", "2h")
    crew.ok("commands", "make", "--type", "dose", "--node", "pump", "--id", UUID)
    crew.ok("commands", "event", UUID, "done", "--duration-ms", "5")
    ping = ("run", "--host", "web3", "--type", "PING", "--param", "lines:=1")
    return {
        "run": ping,
        "run --dry-run": (*ping, "--dry-run"),
        "run --no-wait": (*ping, "--param", "sleep_s:=60", "--no-wait"),
        "jobs": ("jobs", "--limit", "1", "--approval", "waiting"),
        "jobs show": ("jobs", "show", str(job)),
        "jobs plan": ("jobs", "plan", open_),
        "jobs timeline": ("jobs", "timeline", open_),
        "jobs outputs": ("jobs", "outputs", str(job)),
        "jobs causes": ("jobs", "causes", str(job)),
        "executions": ("executions", "--job", str(job)),
        "executions show": ("executions", "show", execution),
        "executions why": ("executions", "why", execution),
        "executions timeline": ("executions", "timeline", execution),
        "executions logs": ("executions", "logs", execution),
        "hosts": ("hosts", "--limit", "1"),
        "hosts show": ("hosts", "show", "web1"),
        "blocks": ("blocks",),
        "commands": ("commands",),
        "commands show": ("commands", "show", UUID),
        "commands event": ("commands", "event", UUID, "done"),
        "commands timeline": ("commands", "timeline", UUID),
        "types": ("types",),
        "workers": ("workers",),
        "agents": ("agents",),
        "audit": ("audit", "--kind", "job", "--subject", open_),
        "keys": ("keys",),
        "whoami": ("whoami",),
        "lifecycles": ("lifecycles", "execution"),
        "approvals show": ("approvals", "show", open_),
        "trade account": ("trade", "account"),
        "trade deposit": ("trade", "deposit", "1"),
        "trade ledger": ("trade", "ledger", "--limit", "1"),
        "context show": ("context", "show"),
    }


def test_json_looks_as_it_did(crew: Crew, asked: dict[str, tuple[str, ...]]):
    shapes = {name: shape(crew.ok(*words, "-o", "json").json) for name, words in asked.items()}
    compare("json.json", json.dumps(shapes, indent=2) + "\n")


def test_every_form_says_the_same(crew: Crew, asked: dict[str, tuple[str, ...]]):
    for name in ("jobs", "hosts", "types", "blocks"):
        whole = crew.ok(*asked[name], "-o", "json").json
        lines = crew.ok(*asked[name], "-o", "jsonl").said.splitlines()
        assert [json.loads(line) for line in lines] == whole
