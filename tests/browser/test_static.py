"""What no file of the dashboard may hold: ways from text to markup or code, and other sites."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from onward.core.lifecycles import EXECUTION, LIFECYCLES

STATIC = Path(str(resources.files("onward.dashboard"))) / "static"
FILES = sorted(str(path.relative_to(STATIC)) for path in STATIC.rglob("*") if path.is_file())

FORBIDDEN = {
    "innerHTML": r"\binnerHTML\b",
    "outerHTML": r"\bouterHTML\b",
    "insertAdjacentHTML": r"\binsertAdjacentHTML\b",
    "a parser of markup": r"\b(DOMParser|createContextualFragment|setHTML\w*|srcdoc)\b",
    "document.write": r"\bdocument\s*\.\s*write",
    "eval": r"\beval\s*\(",
    "new Function": r"\bnew\s+Function\b|(?<!\.)\bFunction\s*\(",
    "code in a string for later": r"\bset(Timeout|Interval)\(\s*[\"'`]",
    "an address of code": r"[\"'`]\s*javascript:",
    "another site": r"(?:https?:|wss?:|[\"'(])//(?!www\.w3\.org/2000/svg)[a-z0-9]",
}
FORBIDDEN_IN_HTML = {
    "a style attribute": r"<[^>]*\sstyle\s*=",
    "an event attribute": r"<[^>]*\son[a-z]+\s*=",
    "a script inside": r"<script(?![^>]*\ssrc=)[^>]*>",
    "a style sheet inside": r"<style",
}


def found_in(name: str, text: str) -> list[str]:
    rules = {**FORBIDDEN, **(FORBIDDEN_IN_HTML if name.endswith((".html", ".svg")) else {})}
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {rule}"
        for rule, pattern in rules.items()
        for match in re.finditer(pattern, text)
    ]


@pytest.mark.parametrize("name", FILES)
def test_no_file_can_make_markup_or_code_out_of_text_or_names_another_site(name):
    assert not found_in(name, (STATIC / name).read_text("utf-8"))


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_what_a_module_imports_is_there(name):
    """There is no build that would say so."""
    found = re.findall(r"""(?:from|import\()\s*"(\.[^"]+)\"""", (STATIC / name).read_text("utf-8"))
    missing = [each for each in found if not (STATIC / name).parent.joinpath(each).is_file()]
    assert not missing


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("a.js", "element.innerHTML = said;"),
        ("a.js", "element.insertAdjacentHTML('beforeend', said)"),
        ("a.js", "document.write(said)"),
        ("a.js", "eval(said)"),
        ("a.js", "const f = new Function(said)"),
        ("a.js", "setTimeout('alert(1)')"),
        ("a.js", 'import x from "https://cdn.example/x.js"'),
        ("a.css", "@import url(//cdn.example/x.css);"),
        ("a.html", '<p style="color: red">'),
        ("a.html", "<body onload='x()'>"),
        ("a.html", "<script>x()</script>"),
    ],
)
def test_what_is_forbidden_would_be_found(name, line):
    assert found_in(name, line)


def test_every_status_of_the_law_has_a_look_of_its_own():
    """A page cannot import the law: what it says of statuses is held against it here."""
    looks = (STATIC / "parts" / "status.js").read_text(encoding="utf-8")
    known = {str(status) for table in LIFECYCLES.values() for status in table.states}
    assert known <= set(re.findall(r'"([A-Z_]+)"', looks))


def test_what_is_open_comes_before_what_has_ended():
    """The picture of a job takes every status up to RUNNING for open, and no other."""
    order = [str(status) for status in EXECUTION.states]
    last = order.index(str(EXECUTION.moves["claim"].target))
    assert {*order[last + 1 :]} == {str(status) for status in EXECUTION.terminal}
    assert f'indexOf("{order[last]}")' in (STATIC / "parts" / "cells.js").read_text("utf-8")
