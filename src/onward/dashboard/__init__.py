"""The page: plain modules and style sheets, as they are served; there is nothing to build.

All files of one state of the page live below one folder that is named by their digest, so a browser
may keep each of them for ever, and never mixes those of two versions.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from posixpath import dirname, join, normpath
from typing import Final

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"
_MAIN: Final = "main.js"
_PAGES: Final = "pages"
_STYLE: Final = "style.css"
# What others build on comes first; the rest is of single pages.
_GROUND: Final = ("style/tokens.css", "style/base.css", "style/parts.css")
_IMPORTED = re.compile(r'^(?:import|export)\b[^;]*?\bfrom "(\.[^"]+)";', re.MULTILINE).findall


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page."""

    content: bytes
    packed: bytes  # the same, compressed
    media_type: str


@dataclass(frozen=True, slots=True)
class Site:
    """The page and everything that it loads."""

    digest: str
    index: bytes
    files: Mapping[str, File]


@cache
def site() -> Site:
    """Return the page, read once."""
    root = resources.files("onward.dashboard").joinpath("static")
    found = dict(sorted(_walk(root, "")))
    digest = hashlib.sha256()
    for name, content in found.items():
        digest.update(f"{name} {len(content)}\n".encode())
        digest.update(content)
    index = found.pop(_INDEX).decode()
    found = _with_one_style(found)
    version = digest.hexdigest()[:16]
    base = f"dashboard/{version}"
    page = index.replace("{base}", base).replace("{preloads}", _preloads(base, found))
    page = page.replace("{pages}", json.dumps(_pages(found), separators=(",", ":")))
    return Site(version, page.encode(), {name: _file(name, text) for name, text in found.items()})


def _with_one_style(found: Mapping[str, bytes]) -> dict[str, bytes]:
    """Put all style sheets into one: a browser waits for each of them before it draws."""
    sheets = [name for name in found if name.endswith(".css")]
    ordered = sorted(sheets, key=lambda name: (name not in _GROUND, _place(name), name))
    rest = {name: content for name, content in found.items() if name not in sheets}
    return {**rest, _STYLE: b"\n".join(found[name] for name in ordered)}


def _place(name: str) -> int:
    return _GROUND.index(name) if name in _GROUND else 0


def _walk(folder: Traversable, below: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{below}{entry.name}/")
        elif entry.name.endswith((*_TYPES, ".html")):
            yield f"{below}{entry.name}", entry.read_bytes()


def _preloads(base: str, files: Mapping[str, bytes]) -> str:
    """Write down what every page needs: a browser asks for it at once, and not as it finds out."""
    names = sorted(_needed(_MAIN, files) - {_MAIN})
    return "\n".join(f'<link rel="modulepreload" href="{base}/{name}">' for name in names)


def _pages(files: Mapping[str, bytes]) -> Mapping[str, list[str]]:
    """Return what each page needs besides that."""
    always = _needed(_MAIN, files)
    return {
        name.removeprefix(f"{_PAGES}/").removesuffix(".js"): sorted(_needed(name, files) - always)
        for name in files
        if dirname(name) == _PAGES
    }


def _needed(name: str, files: Mapping[str, bytes]) -> set[str]:
    """Return a module, and all that it imports, and so on."""
    found, left = set[str](), [name]
    while left:
        one = left.pop()
        if one in found:
            continue
        found.add(one)
        imported = _IMPORTED(files[one].decode())
        left += [normpath(join(dirname(one), each)) for each in imported]
    return found


def _file(name: str, content: bytes) -> File:
    media_type = _TYPES[name[name.rindex(".") :]]
    return File(content, gzip.compress(content, mtime=0), media_type)
