"""The core decides without asking the world: no clock, no chance, no files, nothing but values."""

import ast
import sys
from pathlib import Path

import pytest

import onward

SOURCE = Path(onward.__file__).parent
FILES = [*sorted((SOURCE / "core").rglob("*.py")), SOURCE / "errors.py"]

WORLDLY_MODULES = {
    *("time", "random", "secrets", "uuid", "os", "socket", "asyncio", "importlib"),
    *("io", "pathlib", "subprocess", "tempfile", "shutil", "glob", "select", "signal"),
    *("multiprocessing", "logging", "ssl", "http", "urllib", "sqlite3", "ctypes", "_thread"),
}
WORLDLY_CALLS = {"open", "print", "input", "breakpoint", "exec", "eval", "compile", "__import__"}
WORLDLY_ATTRIBUTES = {
    *("now", "utcnow", "today", "environ", "getenv", "stdin", "stdout", "stderr", "argv"),
    *("monotonic", "perf_counter", "urandom", "uuid4", "uuid1"),
}


def impurities(source):
    """Name what a module asks of the world, each with its line."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                asked = [name.name for name in names if not pure_module(name.name)]
            case ast.ImportFrom(module=module, level=level, names=names):
                outside = level or not pure_module(module)
                asked = [module or "."] if outside else []
                asked += [name.name for name in names if name.name in WORLDLY_ATTRIBUTES]
            case ast.Name(id=name) if name in WORLDLY_CALLS:
                asked = [name]
            case ast.Attribute(attr=name) if name in WORLDLY_ATTRIBUTES:
                asked = [name]
            case _:
                asked = []
        found += [f"{name} in line {getattr(node, 'lineno', 0)}" for name in asked]
    return found


def pure_module(name):
    top, *rest = name.split(".")
    if top == "onward":
        return rest[:1] in (["core"], ["errors"])
    return top in sys.stdlib_module_names and top not in WORLDLY_MODULES


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_of_the_core_asks_nothing_of_the_world(file):
    assert impurities(file.read_text(encoding="utf-8")) == []


def test_the_core_was_found():
    names = {str(file.relative_to(SOURCE)) for file in FILES}
    assert {"core/lifecycle.py", "core/lifecycles.py", "core/registry.py"} <= names
    assert {"core/verdicts.py", "core/selectors/parser.py", "errors.py"} <= names


@pytest.mark.parametrize(
    "snippet",
    [
        "import time",
        "import time as clock",
        "from time import monotonic",
        "import os.path",
        "from os import environ",
        "import random",
        "import secrets",
        "import uuid",
        "import socket",
        "import asyncio",
        "import importlib",
        "from importlib import import_module",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import date\ndate.today()",
        "import sys\nsys.stdout.write('')",
        "open('file')",
        "opener = open",
        "print('said')",
        "input()",
        "__import__('time')",
        "eval('1')",
        "import asyncpg",
        "import onward",
        "import onward.store",
        "from onward import settings",
        "from onward.store import database",
        "from . import lifecycle",
        "def late():\n    import time",
    ],
)
def test_the_check_sees_what_it_must_refuse(snippet):
    assert impurities(snippet)


@pytest.mark.parametrize(
    "snippet",
    [
        "from datetime import datetime, timedelta",
        "from onward.core.lifecycle import Lifecycle",
        "from onward.errors import InvalidInput",
        "from collections.abc import Mapping",
        "def at(clock):\n    return clock()",
    ],
)
def test_the_check_lets_pass_what_is_pure(snippet):
    assert impurities(snippet) == []
