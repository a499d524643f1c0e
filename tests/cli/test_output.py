"""What is printed: forms, fields, widths, colours, and that nobody's words garble a terminal."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from onward.cli import shapes
from onward.cli.executions import _show_more
from onward.cli.exits import Exit, Leaving
from onward.cli.outcome import headline
from onward.cli.output import Row, Shape, age, column, listed
from onward.cli.output import _show_table as show_table
from onward.cli.terminal import Terminal, cut, plain, wide
from onward.cli.tree import Given
from tests.cli.crew import Crew, _read, _stream

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe [bold]x[/] <script>alert(1)</script>"
UNSEEN = ("\x1b", "\x07", "\x9b", "\u202e")


@pytest.fixture(scope="module")
def marked(crew: Crew) -> Crew:
    """A host whose label, and a job whose reason, say what could do harm."""
    crew.ok("hosts", "add", "evil1", "--label", "x=plain", "--label", "role=evil")
    body = {"labels": {"role": "evil", "note": "<script>alert(1)</script> [bold]x[/]"}}
    with crew.up.client() as http:
        host = http.get("/hosts", params={"selector": 'name="evil1"'}).json()["items"][0]
        answer = http.patch(
            f"/hosts/{host['host_id']}", json=body, headers={"If-Match": f'"{host["version"]}"'}
        )
        assert answer.status_code == 200, answer.text
    return crew


def test_lists_are_one_document_or_lines_or_ids(crew: Crew):
    words = ("hosts", "--selector", "role=web", "--limit", "3")
    whole = crew.ok(*words, "-o", "json").json
    assert [row["name"] for row in whole] == ["web1", "web10", "web11"]
    lines = crew.ok(*words, "-o", "jsonl").said.splitlines()
    assert [json.loads(line) for line in lines] == whole
    assert yaml.safe_load(crew.ok(*words, "-o", "yaml").said) == whole
    assert crew.ok(*words, "--quiet").said.split() == ["web1", "web10", "web11"]
    assert crew.ok(*words, "--json", "name,channel").json[0] == {
        "name": "web1",
        "channel": "simulated",
    }


def test_a_field_that_nobody_knows_is_answered_with_those_that_there_are(crew: Crew):
    ended = crew.run("hosts", "--json", "name,nmae")
    assert (ended.code, ended.said) == (2, "")
    assert "there is no field nmae; there are host_id, name, labels" in ended.told


def test_every_field_that_a_service_gives_is_known(crew: Crew):
    """So that `--json` can say which there are without asking anybody."""
    job = crew.job("--host", "db1", "--type", "PING")
    for words, shape in (
        (("jobs", "show", str(job)), shapes.JOB),
        (("executions", "--job", str(job)), shapes.EXECUTION),
        (("jobs", "timeline", str(job)), shapes.DEED),
        (("hosts", "show", "db1"), shapes.HOST),
        (("types", "show", "PING"), shapes.TYPE),
        (("workers",), shapes.WORKER),
        (("keys",), shapes.KEY),
        (("whoami",), shapes.ME),
    ):
        found = crew.ok(*words, "--json").json
        row = found[0] if isinstance(found, list) else found
        assert set(row) <= set(shape.fields), words


def test_nothing_but_data_is_on_standard_output(crew: Crew):
    ended = crew.run("run", "--host", "db1", "--type", "PING", "--json", who="ann")
    assert ended.code == 0
    assert ended.json["job"]["state"] == "FINISHED"
    assert "1 run      db1" in ended.told


def test_markup_of_labels_is_shown_as_it_is(marked: Crew):
    shown = marked.ok("hosts", "--selector", "role=evil").said
    assert "note=<script>alert(1)</script> [bold]x[/]" in shown


def test_what_could_move_a_cursor_is_written_out(marked: Crew):
    """In a reason that somebody gave, as tables, facts, errors and YAML show it."""
    words = ("blocks", "add", "PING", "--host", "evil1", "--reason", HOSTILE)
    marked.ok(*words)
    for form in ("table", "json", "jsonl", "yaml"):
        shown = marked.ok("blocks", "--host", "evil1", "-o", form).said
        assert not any(sign in shown for sign in UNSEEN), form
        assert "<script>alert(1)</script>" in shown
    (block,) = marked.ok("blocks", "--host", "evil1", "--json").json
    assert block["reason"] == HOSTILE, "a program gets what was said"
    plan = marked.run("run", "--host", "evil1", "--type", "PING", "--dry-run").said
    assert "\\x1b[31mred" in plan
    assert not any(sign in plan for sign in UNSEEN)
    marked.ok("blocks", "lift", "PING", "--host", "evil1")


def test_what_a_host_printed_is_written_out(crew: Crew):
    job = crew.job(
        *("--host", "db1", "--type", "PING", "--param", "lines:=1"),
        *("--param", f"text={HOSTILE}"),
    )
    crew.ok("jobs", "watch", str(job))
    (row,) = crew.ok("executions", "--job", str(job), "--json", "execution_id").json
    shown = crew.ok("executions", "logs", str(row["execution_id"])).said
    shown += crew.ok("jobs", "outputs", str(job)).said
    assert "<script>alert(1)</script>" in shown
    assert not any(sign in shown for sign in UNSEEN)


def test_where_nothing_but_ascii_can_be_shown_nothing_else_is(crew: Crew):
    crew.ok("hosts", "label", "db1", "title=Größe→…")
    ended = crew.run("hosts", "show", "db1", encoding="ascii")
    assert ended.code == 0
    assert "Gr\\xf6\\xdfe->..." in ended.said
    crew.ok("hosts", "label", "db1", "title-")


@pytest.mark.parametrize(
    ("changes", "words", "coloured"),
    [
        ({}, (), False),
        ({"CLICOLOR_FORCE": "1"}, (), True),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, (), False),
        ({"NO_COLOR": "1"}, ("--color", "always"), True),
        ({"CLICOLOR_FORCE": "1"}, ("--color", "never"), False),
    ],
)
def test_colour_is_for_whoever_wants_it(
    crew: Crew, changes: dict[str, str], words: tuple[str, ...], *, coloured: bool
):
    assert ("\x1b[" in crew.ok("types", *words, **changes).said) is coloured


def test_a_table_is_as_wide_as_its_terminal():
    shape = Shape("a", (column("a", whole=True), column("b"), column("c")), ("a", "b", "c"))
    rows: list[Row] = [
        {"a": "whole" * 3, "b": "b" * 60, "c": "短" * 20},
        {"a": "x", "b": None, "c": True},
    ]
    stream = _stream("utf-8")
    show_table(Terminal(stream, colours=False, unicode=True, width=50), shape, rows)
    lines = _read(stream).splitlines()
    assert max(map(wide, lines)) <= 50
    assert lines[1].startswith("wholewholewhole  ")
    assert lines[1].count("…") == 2
    assert lines[2].split() == ["x", "yes"]


LONG: Row = {
    **dict.fromkeys(("job_id", "execution_id"), 1_234_567),
    **dict.fromkeys(("state", "command_type", "status"), "WAITING_FOR_APPROVAL"),
    **dict.fromkeys(("at", "created_at", "updated_at"), "2031-05-01T12:00:00.123456Z"),
    **dict.fromkeys(("requested_by", "by", "deed", "kind", "subject", "source"), "somebody.long"),
    **dict.fromkeys(("host", "cause", "error", "event", "verdict", "detail"), "INVALID_STATE"),
    **dict.fromkeys(("exit_code", "attempt", "epoch"), 3),
    **dict.fromkeys(("from_status", "to_status"), "SEND_FAILED"),
    "selector": {"expression": "role=web and not zone=eu"},
    "params": {"argv": ["systemctl", "restart", "nginx"]},
    "counts": {"SUCCESS": 1_000, "FAILED": 20},
}


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("shape", [shapes.JOB, shapes.EXECUTION, shapes.EVENT, shapes.AUDIT])
def test_every_table_fits_a_terminal(shape: Shape, width: int):
    stream = _stream("utf-8")
    show_table(Terminal(stream, colours=False, unicode=True, width=width), shape, [LONG])
    assert max(map(wide, _read(stream).splitlines())) <= width


def test_one_long_cell_does_not_make_every_line_long():
    shape = Shape("a", (column("a"), column("b")), ("a", "b"))
    rows: list[Row] = [{"a": "x" * 1_000_000, "b": "y"}, *[{"a": "x", "b": "y"}] * 9]
    stream = _stream("utf-8")
    show_table(Terminal(stream, colours=False, unicode=True, width=None), shape, rows)
    assert len(_read(stream)) < 5_000


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("短短短", 5, "短短…"),
        ("短短短", 6, "短短短"),
    ],
)
def test_what_is_cut_fits(text: str, width: int, shown: str):
    assert cut(text, width) == shown
    assert wide(shown) <= width


def test_plain_text_stays_as_it_is():
    assert plain("Größe 短 🚀 [x]") == "Größe 短 🚀 [x]"
    assert plain(HOSTILE).startswith("\\x1b[31mred")
    assert plain("a\nb\tc") == "a\\nb\\tc"


def test_what_is_followed_is_written_as_it_comes(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    _show_more(Given(output="jsonl"), [{"line": 1, "text": "tick"}])
    assert json.loads(raw.getvalue())["text"] == "tick"


def test_what_a_service_says_in_a_refusal_is_written_out(crew: Crew, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise Leaving(Exit.FAILED, HOSTILE)

    monkeypatch.setattr("onward.cli.output.show_one", refused)
    told = crew.run("whoami").told
    assert "\\x1b[31mred" in told
    assert not any(sign in told for sign in UNSEEN)


def test_names_are_shown_also_where_a_dot_has_no_letter(crew: Crew, tmp_path: Path):
    table = tmp_path / "hosts.csv"
    table.write_text("name\n" + "".join(f"dry{n}\n" for n in range(30)))
    ended = crew.run("hosts", "import", str(table), "--dry-run", encoding="latin-1")
    assert ended.code == 0, ended
    assert ended.said.rstrip().endswith(", ...")


def test_ages_and_lists_are_short():
    now = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)
    ages = ["2031-05-01T11:59:58Z", "2031-05-01T11:00:00Z", "2031-04-01T11:00:00+00:00", None]
    assert [age(at, now=now) for at in ages] == ["2s", "1h", "30d", ""]
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b"], 9, most=1) == "a, and 8 more"


@pytest.mark.parametrize(
    ("counts", "silent", "others", "said"),
    [
        ([983, 14], 3, 0, "983 same, 14 differ this way, 3 silent"),
        ([10], 0, 0, "10 same"),
        ([], 5, 0, "5 silent"),
        ([9, 3, 2, 1, 1], 0, 0, "9 same, 3 differ this way, 2 another, 2 in other ways"),
        ([9, 3], 1, 50, "9 same, 3 differ this way, 50 in other ways, 1 silent"),
    ],
)
def test_who_said_the_same_is_counted(counts: list[int], silent: int, others: int, said: str):
    groups: list[Row] = [{"output": "x", "count": count} for count in counts]
    if silent:
        groups.append({"output": None, "count": silent})
    told = {"groups": groups, "silent": silent, "others": {"groups": others, "count": others}}
    assert headline(told) == said


def test_whoever_is_silent_in_a_small_group_is_counted_once():
    groups: list[Row] = [{"output": "x", "count": 9}, {"output": None, "count": 2}]
    told = {"groups": groups, "silent": 3, "others": {"groups": 2, "count": 2}}
    assert headline(told) == "9 same, 1 in other ways, 3 silent"
    told = {"groups": groups, "silent": 3, "unknown": 1, "others": {"groups": 2, "count": 2}}
    assert headline(told) == "9 same, 3 silent, 1 unknown"
