"""The command line as a whole: what is loaded when, where options may stand, how mistakes end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer.main
from typer.core import TyperGroup

from onward import cli
from onward.cli import TREE, jobs
from onward.cli.client import Client
from onward.cli.exits import MEANINGS, Exit
from tests.cli.crew import Crew
from tests.cli.test_command_line import run

# Typer itself loads it, once there is an option to be read.
TYPERS = {"pydantic", "typing_extensions"}
HEAVY = {
    *("asyncio", "asyncpg", "alembic", "httpx2", "rich", "yaml", *TYPERS),
    *("onward.settings", "onward.wiring", "onward.store", "onward.api", "onward.cli.client"),
}


def loaded_for(*words: str) -> set[str]:
    """The modules that a command has loaded when it has ended."""
    asked = (
        "import sys\n"
        "from onward.cli import main\n"
        f"try:\n    main({list(words)!r})\n"
        "except SystemExit:\n    pass\n"
        "print('LOADED', *sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, timeout=60, check=True
    )
    return set(ended.stdout.rpartition("LOADED")[2].split())


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_help_loads_nothing_that_takes_time(words: tuple[str, ...]):
    loaded = loaded_for(*words)
    assert HEAVY & loaded == set()
    assert "onward.cli.jobs" not in loaded, "no noun is loaded that is not called"


@pytest.mark.parametrize("words", [("help", "exit-codes"), ("complete", "--", "jo")])
def test_what_needs_no_service_loads_none_of_it(words: tuple[str, ...]):
    assert (HEAVY - TYPERS) & loaded_for(*words) == set()


def test_help_of_a_noun_loads_neither_the_client_nor_the_settings():
    assert loaded_for("jobs", "--help") & (HEAVY - TYPERS) == set()


def test_every_branch_of_the_tree_is_there_and_says_what_it_is():
    root = typer.main.get_command(cli.app)
    assert isinstance(root, TyperGroup)
    for name, branch in TREE.items():
        command = root.commands[name]
        assert command.name == name
        assert command.help, name
        assert branch.about.endswith("."), name
        if isinstance(command, TyperGroup):
            assert command.help == branch.about, "the noun says the same itself"


def test_a_noun_without_a_verb_is_its_list(crew: Crew):
    for _ in range(2):
        crew.job("--host", "db1", "--type", "PING")
    whole = crew.ok("jobs", "list", "--json", "job_id").json
    assert crew.ok("jobs", "--json", "job_id").json == whole
    assert crew.ok("jobs", "-q", "--limit", "1").said.strip() == str(whole[0]["job_id"])
    assert "Commands:" in crew.ok("jobs", "--help").said
    assert jobs.app.info.cls is not None


def test_options_of_all_may_stand_before_the_noun_or_after_the_verb(crew: Crew):
    for words in (
        ("--url", crew.up.address, "whoami", "-q"),
        ("whoami", "-q", "--url", crew.up.address),
    ):
        assert crew.ok(*words, ONWARD_URL="http://127.0.0.1:1").said == "admin\n"


def test_a_bug_is_one_line_unless_it_is_asked_for_whole(crew: Crew, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oh")

    monkeypatch.setattr("onward.cli.output.show_one", broken)
    ended = crew.run("whoami")
    assert (ended.code, ended.said) == (1, "")
    assert ended.told.startswith("onward: this is a bug (KeyError: 'oh')")
    assert len(ended.told.splitlines()) == 1
    monkeypatch.setenv("ONWARD_KEY", crew.keys["root"])
    with pytest.raises(KeyError):
        cli.main(["--debug", "--url", crew.up.address, "whoami"])


def test_a_command_that_is_misspelt_is_guessed():
    ended = run("job")
    assert ended.returncode == 2
    assert "Did you mean 'jobs'" in ended.stderr


def test_the_topics_of_help_are_told():
    listed = run("help")
    assert listed.returncode == 0
    for topic in ("exit-codes", "output", "environment", "selectors"):
        assert topic in listed.stdout
        assert len(run("help", topic).stdout.splitlines()) > 5


def test_every_exit_code_has_a_meaning_on_the_page_and_in_the_help():
    shown = run("help", "exit-codes").stdout
    assert set(MEANINGS) == set(Exit)
    assert all(f"{code}  {code.meaning}" in shown for code in Exit)


def test_completion_names_commands_options_contexts_jobs_and_hosts(crew: Crew):
    def offered(*words: str) -> list[str]:
        said = crew.ok("complete", "--", *words).said
        return [line.split("\t")[0] for line in said.splitlines()]

    job = str(crew.job("--host", "db1", "--type", "PING"))
    crew.ok("context", "add", "prod", "--url", "https://onward.example.com", given="x" * 40)
    assert offered("ho") == ["hosts"]
    assert offered("jobs", "wa") == ["watch"]
    assert "--selector" in offered("hosts", "--sel")
    assert offered("hosts", "show", "web1") == ["web1", "web10", "web11", "web12"]
    assert job in offered("jobs", "show", "")
    assert offered("--context", "p") == ["prod"]
    assert offered("-o") == []
    for words in (("run",), ("executions",), ("executions", "list"), ("blocks",)):
        assert offered(*words, "--host", "web1") == ["web1", "web10", "web11", "web12"], words
    assert job in offered("executions", "--job", "")
    for words in (("run", "--type"), ("jobs", "--type"), ("blocks", "add")):
        assert offered(*words, "PI") == ["PING"], words


@pytest.mark.parametrize(
    "words",
    [
        ("hosts", "import", "fle"),
        ("context", "add", "x", "--key-file", "/et"),
        ("run", "--params-file", "par"),
    ],
)
def test_a_shell_offers_files_itself(crew: Crew, words: tuple[str, ...]):
    assert crew.ok("complete", "--", *words).said == ""
    assert "_files" in run("completion", "zsh").stdout
    assert "__fish_complete_path" in run("completion", "fish").stdout


def test_completion_offers_no_name_that_a_shell_could_take_for_something_else(
    crew: Crew, monkeypatch
):
    """A service is not believed: whatever it says, a shell reads it as one plain word."""
    names = ["evil$(touch x)", "evil;rm", "evil`id`", "evil good", "evil\x1b[2J", "evil-but-plain"]
    monkeypatch.setattr(Client, "more", lambda *_, **__: ([{"name": name} for name in names], True))
    assert crew.ok("complete", "--", "hosts", "show", "evil").said == "evil-but-plain\n"


def test_completion_is_silent_where_nobody_answers(crew: Crew):
    nowhere = "http://127.0.0.1:1"
    away = crew.ok("complete", "--", "jobs", "show", "", ONWARD_URL=nowhere)
    assert (away.said, away.told) == ("", "")
    elsewhere = ("--url", crew.up.address, "hosts", "show", "db")
    assert crew.ok("complete", "--", *elsewhere, ONWARD_URL=nowhere).said == "db1\n"


def test_a_real_bash_completes(crew: Crew, tmp_path):
    """The words of the shell come whole to the command, and its answers back to the shell."""
    stub = tmp_path / "onward"
    stub.write_text(f'#!/bin/sh\nexec {sys.executable} -m onward "$@"\n')
    stub.chmod(0o755)
    script = (
        'eval "$(onward completion bash)"\n'
        "COMP_WORDS=(onward hosts show web1); COMP_CWORD=3; _onward\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    surroundings = crew.environment("vic")
    ended = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={**surroundings, "PATH": f"{tmp_path}:{surroundings['PATH']}"},
    )
    assert ended.stdout.split() == ["web1", "web10", "web11", "web12"]
    assert ended.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_evaluate_nothing_that_a_service_says(shell: str):
    script = run("completion", shell).stdout
    assert "onward complete --" in script
    assert "eval" not in script


def test_a_reader_who_goes_away_is_left_quietly(crew: Crew):
    """The pipe is full before its reader goes, so that the next write finds nobody."""
    surroundings = {**crew.environment("root"), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "onward", "executions", "--host", "db1", "-o", "json"]
    for _ in range(3):
        crew.job("--host", "db1", "--type", "PING")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=surroundings
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (Exit.NOBODY_READS, b"")


def test_what_stands_behind_a_bare_json_is_no_field_if_it_cannot_be_one(crew: Crew):
    job = str(crew.job("--host", "db1", "--type", "PING"))
    whole = crew.ok("jobs", "show", "--json", job).json
    assert str(whole["job_id"]) == job
    assert crew.ok("jobs", "show", "--json", "job_id", job).json == {"job_id": int(job)}


def test_json_lines_are_whole_each(crew: Crew):
    lines = crew.ok("hosts", "--all", "-o", "jsonl").said.splitlines()
    assert all("host_id" in json.loads(line) for line in lines)
