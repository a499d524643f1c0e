"""Guesses the form of an inventory from its first lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from onward.errors import InvalidInput
from onward.fleet.inventory.tables import NAMES, delimiter_of

_ENCRYPTED = "$ANSIBLE_VAULT"
_JSON = re.compile(r"\s*(?:\{|\[\s*[\[{\]\"])").match
# A key with a colon behind it, or the beginning of a document; an INI file has neither.
_YAML = re.compile(r"""---|%YAML|[{"']|[^\s\[\]#;,=]+\s*:(?:\s|$)""").match
_SECTION = re.compile(r"\[[^\[\]]+\]\s*(?:#.*)?$").match
# A host of an INI file: a name or pattern alone, or with variables behind it.
_HOST = re.compile(r"[A-Za-z0-9\[][^\s,;=\"']*(?:\s*#.*|\s+[^\s=]+=.*)?$").match


def guess(text: str) -> str:
    """Return the form of an inventory, or say which there are."""
    first = next(_lines(text), "")
    if first.startswith(_ENCRYPTED):
        raise InvalidInput("line 1", "is encrypted; decrypt it first with `ansible-vault decrypt`")
    if _JSON(text):
        return "json"
    if _is_header(first):
        return "csv"
    if is_yaml(text) or _SECTION(first) or _HOST(first):
        return "ansible"
    raise InvalidInput(
        "form",
        "cannot be told from the content; say csv (with a header that has a column "
        f"{' or '.join(NAMES)}), json (a list of objects) or ansible (INI or YAML)",
    )


def is_yaml(text: str) -> bool:
    """Whether an inventory of Ansible's is in YAML; otherwise it is in INI."""
    return _YAML(next(_lines(text), "")) is not None


def _is_header(line: str) -> bool:
    cells = (cell.strip(" \t\"'").lower() for cell in line.split(delimiter_of(line)))
    return any(cell in NAMES for cell in cells)


def _lines(text: str) -> Iterator[str]:
    """The lines that say something, so far as a guess needs them."""
    for found in islice(re.finditer(r"[^\r\n]+", text), 10_000):
        line = found[0][:1_000].strip()
        if line and line[0] not in "#;":
            yield line
