"""One guarded path writes status, and one module writes statuses down.

The sources themselves are read: every `.sql` file, and every string in the `.py` files, however it
is put together. The scanner is shown planted snippets first, so that its silence means something.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from onward.core.lifecycles import LIFECYCLES
from onward.store.guarded import GUARDED
from tests.proof_table import Tried

SOURCES = Path(__file__).parents[2] / "src" / "onward"
STATUSES = {str(status) for table in LIFECYCLES.values() for status in table.states}

# What was put into a string at run time, and cannot be known: {…} of an f-string, %s, {0}.
_HOLE = "\N{REPLACEMENT CHARACTER}"

# The only form that assigns `status`, once for each table, and the only place that makes a command.
FORM = "store/sql/guarded.sql"
GUARDED_PATHS = {(FORM, table.function) for table in GUARDED}
CREATION = ("store/sql/commands.sql", "create")

# Not Onward's own writing, and only ever on a database that is thrown away afterwards.
ELSEWHERE = {
    "storm/sabotage.py": "breaks a promise on purpose, to show that the storm would notice",
    "bench/store.py": "the hand-written SQL that the guarded path is measured against",
    "bench/filling.py": "makes commands by the million to measure with",
}


class Text(NamedTuple):
    """A piece of source that may be SQL: where it stands, and what it says."""

    file: str
    name: str  # the query or function that it belongs to, or its line
    text: str


def texts_of(root: Path) -> list[Text]:
    """Everything below a folder that may be SQL."""
    found = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name == FORM:
            found += [Text(name, table.function, table.sql()) for table in GUARDED]
        elif path.suffix == ".sql":
            found += texts_of_sql(name, path.read_text(encoding="utf-8"))
        elif path.suffix == ".py":
            found += texts_of_python(name, path.read_text(encoding="utf-8"))
    return found


def texts_of_sql(file: str, source: str) -> list[Text]:
    """Cut a file where its queries are named and its functions made."""
    start = re.compile(
        r"^(?:-- name: (\w+)$|CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) (?:\w+\.)?(\w+))",
        re.MULTILINE | re.IGNORECASE,
    )
    cuts = [(match.start(), match[1] or match[2]) for match in start.finditer(source)]
    bounds = [(0, "the beginning"), *cuts, (len(source), "")]
    return [
        Text(file, name, source[begin:end])
        for (begin, name), (end, _) in pairwise(bounds)
        if source[begin:end].strip()
    ]


def texts_of_python(file: str, source: str) -> list[Text]:
    """Every string of a module but its docstrings, put together as far as it can be known."""
    tree = ast.parse(source)
    skipped = set(docstrings(tree))
    found = []

    def visit(node: ast.AST) -> None:
        if node in skipped:
            return
        if (text := constant_text(node)) is not None:
            found.append(Text(file, str(getattr(node, "lineno", 0)), text))
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


def docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
            and isinstance(node.body[0].value, ast.Constant)
        ):
            yield node.body[0].value


def constant_text(node: ast.AST) -> str | None:
    """The text of a string expression, with holes where it depends on something."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%(?:\(\w+\))?s|\{\w*\}", _HOLE, text)
        case ast.JoinedStr(values=values):
            return "".join(constant_text(value) or _HOLE for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = constant_text(left), constant_text(right)
            return None if parts == (None, None) else "".join(part or _HOLE for part in parts)
        case ast.BinOp(left=left, op=ast.Mod()):
            return constant_text(left)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(joint)), attr="join"),
            args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
        ):
            return joint.join(constant_text(part) or _HOLE for part in parts)
    return None


_NOT_SQL = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)
_WORD = re.compile(rf'"(?:[^"]|"")*"|[\w{_HOLE}$.]+|\S')


def words_of(sql: str) -> list[str]:
    """SQL as lower-case words, without comments, values and the quotes around names."""
    bare = _NOT_SQL.sub(lambda cut: "''" if cut[0].startswith("'") else " ", sql)
    return [word.strip('"').lower() for word in _WORD.findall(bare)]


def assigned_columns(sql: str) -> set[str]:
    """Every column that an UPDATE of any kind in this text assigns."""
    words = words_of(sql)
    found = set()
    for position, word in enumerate(words):
        # UPDATE t SET, DO UPDATE SET, WHEN MATCHED THEN UPDATE SET; not the SET of a session.
        if word == "set" and "update" in words[max(0, position - 6) : position]:
            found |= set(_targets(words[position + 1 :]))
    return found


def _targets(words: list[str]) -> Iterator[str]:
    """The left-hand sides of an assignment list, which ends with its statement or clause."""
    depth, left = 0, True
    for word in words:
        if depth == 0 and word in {"from", "where", "returning", "when", ";"}:
            return
        depth += (word in "([") - (word in ")]")
        if depth < 0:
            return
        if word == "=" and depth == 0:
            left = False
        elif word == "," and depth == 0:
            left = True
        elif left and word not in "(),":
            yield word.rpartition(".")[2]


def inserted_tables(sql: str) -> set[str]:
    """Every table that this text inserts into, or copies or merges into."""
    words = words_of(sql)
    pairs = zip(words, words[1:], words[2:], strict=False)
    return {
        (name if verb in {"insert", "merge"} else into).rpartition(".")[2]
        for verb, into, name in pairs
        if (verb in {"insert", "merge"} and into == "into") or verb == "copy"
    }


def writes_status(sql: str) -> bool:
    """Whether a text assigns `status`, or something that cannot be known to be another column."""
    return any(column == "status" or _HOLE in column for column in assigned_columns(sql))


PLANTED = {
    "plain": "UPDATE commands SET status = 'SENT' WHERE cmd_id = $1",
    "lower case": "update commands set status='SENT'",
    "over lines": "UPDATE\n  onward.commands AS c\n   SET version = 1,\n       status\n = $1",
    "quoted": 'UPDATE "commands" SET "status" = $1',
    "behind a comment": "UPDATE commands /* SET */ SET -- the status\n status = $1",
    "after a function": "UPDATE commands SET version = greatest(1, 2), status = $1",
    "after a select": "UPDATE c SET a = (SELECT x FROM t WHERE y = 1), status = $1",
    "as a row": "UPDATE commands SET (version, status) = (1, $1)",
    "upsert": "INSERT INTO t (id) VALUES (1) ON CONFLICT DO UPDATE SET status = excluded.status",
    "merge": "MERGE INTO commands c USING t ON true WHEN MATCHED THEN UPDATE SET status = t.status",
    "only": "UPDATE ONLY commands * SET status = 'SENT'",
    "second statement": "SELECT 1; UPDATE commands SET status = 'SENT'",
    "in a CTE": "WITH m AS (UPDATE commands SET status = 'A' RETURNING 1) SELECT * FROM m",
    "in a body": "CREATE FUNCTION f() AS $$ BEGIN UPDATE commands SET status = 'A'; END $$",
}
PLANTED_PYTHON = {
    "f-string": 'f"UPDATE {table} SET status = $1"',
    "column by f-string": 'f"UPDATE commands SET {column} = $1"',
    "joined": '"UPDATE commands " "SET status = $1"',
    "added": '"UPDATE commands SET " + "status = $1"',
    "added to what is not known": '"UPDATE commands SET " + column + " = $1"',
    "formatted": '"UPDATE commands SET {} = $1".format(column)',
    "by per cent": '"UPDATE commands SET %s = $1" % column',
    "by join": '" ".join(["UPDATE commands SET", "status = $1"])',
    "triple quoted": '"""\n  UPDATE commands\n     SET status = $1\n"""',
}
HARMLESS = {
    "read": "SELECT status FROM commands WHERE status = 'SENT' FOR UPDATE",
    "guard": "UPDATE commands SET version = 2 WHERE status = 'SENT'",
    "guard after a join": "UPDATE commands SET version = 2 FROM t WHERE commands.status = t.status",
    "value": "UPDATE commands SET params = 'status = 1'",
    "condition in a value": "UPDATE c SET n = CASE WHEN status = 'A' THEN 1 ELSE 2 END, m = 1",
    "comment": "-- UPDATE commands SET status = 1\nSELECT 1",
    "session": "SET status = 1; ALTER FUNCTION f SET status = 1",
    "near name": "UPDATE commands SET status_code = 1, last_status = 2",
}


@pytest.mark.parametrize("sql", PLANTED.values(), ids=PLANTED)
def test_a_planted_write_of_status_is_seen(sql: str):
    assert writes_status(sql)


@pytest.mark.parametrize("source", PLANTED_PYTHON.values(), ids=PLANTED_PYTHON)
def test_a_planted_write_in_python_is_seen(source: str):
    texts = texts_of_python("planted.py", f"async def f():\n    await execute(\n{source}\n)")
    assert any(writes_status(text.text) for text in texts)


@pytest.mark.parametrize("sql", HARMLESS.values(), ids=HARMLESS)
def test_what_does_not_write_status_is_left_alone(sql: str):
    assert not writes_status(sql)


def test_a_docstring_may_speak_of_sql():
    assert texts_of_python("m.py", '"""UPDATE commands SET status = 1"""') == []


def test_only_the_guarded_path_assigns_status(tried: Tried):
    texts = texts_of(SOURCES)
    writing = {(text.file, text.name) for text in texts if writes_status(text.text)}
    assert {place for place in writing if place[0] not in ELSEWHERE} == GUARDED_PATHS
    tried("texts of the sources, for one that assigns status", len(texts), "the guarded path only")


def test_only_creation_inserts_commands(tried: Tried):
    texts = texts_of(SOURCES)
    inserting = {
        (text.file, text.name)
        for text in texts
        if {"commands", _HOLE} & inserted_tables(text.text) and "commands" in text.text
    }
    assert {place for place in inserting if place[0] not in ELSEWHERE} == {CREATION}
    tried("texts of the sources, for one that inserts commands", len(texts), "1, the creation")


def test_what_writes_elsewhere_is_still_there():
    """An exception that nobody needs any more is taken off the list."""
    texts = texts_of(SOURCES)
    writing = {
        text.file
        for text in texts
        if writes_status(text.text) or "commands" in inserted_tables(text.text)
    }
    assert set(ELSEWHERE) <= writing


# Where statuses may be listed: the tables themselves.
THE_TABLES = "core/lifecycles.py"
# A revision is history: it says what the schema was, also when the law has moved on.
REVISIONS = "store/migrations/versions/"


def listed_statuses(text: str) -> set[str]:
    """The statuses that a text names, as whole words."""
    return STATUSES & set(re.findall(r"[A-Z_]+", re.sub(r"--[^\n]*|/\*.*?\*/", " ", text)))


def status_lists(file: str, source: str) -> Iterator[tuple[str, int, set[str]]]:
    """Every expression of a module in which two statuses or more are typed."""
    tree = ast.parse(source)
    skipped = set(docstrings(tree))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if (text := constant_text(node)) is not None:
            named = listed_statuses(text)
        else:
            children = ast.iter_child_nodes(node)
            named = {
                child.value
                for child in children
                if isinstance(child, ast.Constant) and child.value in STATUSES
            }
        if len(named) > 1:
            yield file, getattr(node, "lineno", 0), named


PLANTED_LISTS = (
    "WHERE = \"status IN ('QUEUED', 'SENT')\"",
    'LIVE = ("QUEUED", "SENT", "ACK")',
    'LIVE = {"QUEUED", "SENT"}',
    'NEXT = {"QUEUED": 1, "SENT": 2}',
    'if status in ["QUEUED", "SENT"]:\n    pass',
    'allowed = f"{name} IN (QUEUED, SENT)"',
)


@pytest.mark.parametrize("source", PLANTED_LISTS)
def test_a_planted_list_of_statuses_is_seen(source: str):
    assert list(status_lists("planted.py", source))


def test_statuses_are_listed_in_the_lifecycles_and_nowhere_else(tried: Tried):
    found: list[tuple[str, object, set[str]]] = []
    scanned = 0
    for path in sorted(SOURCES.rglob("*")):
        file = path.relative_to(SOURCES).as_posix()
        if file == THE_TABLES or file in ELSEWHERE or path.suffix not in {".py", ".sql"}:
            continue
        if file.startswith(REVISIONS):
            continue
        scanned += 1
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            found += status_lists(file, source)
            continue
        found += [
            (file, text.name, named)
            for text in texts_of_sql(file, source)
            if len(named := listed_statuses(text.text)) > 1
        ]
    assert found == []
    tried("files of the sources, for a list of statuses typed by hand", scanned, "0 found")
