"""Data as it is printed: a table for people; JSON, lines of JSON or YAML for programs; ids alone.

What hosts and people have said is never obeyed: in a table it is written out, in JSON escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from onward.cli.exits import Usage
from onward.cli.terminal import Terminal, cut, plain, reader, watcher, wide
from onward.cli.tree import Given

Row: TypeAlias = Mapping[str, object]

_GAP: Final = 2
# Cells that columns keep: at first, if that is too much, and whoever they are if it still is.
_NARROW: Final = ((10, False), (4, False), (4, True))
_LONGEST: Final = 200  # cells of a table, also where lines may be as long as they are
# JSON leaves them as they are, and a terminal might not.
_UNSEEN = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_STEPS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    of: Callable[[Row], object]
    right: bool = False
    whole: bool = False  # is never cut
    mood: bool = False  # has the colour of its status


@dataclass(frozen=True, slots=True)
class Shape:
    """What a kind of thing looks like: its id, its columns, and what else it has."""

    key: str
    columns: tuple[Column, ...]
    fields: tuple[str, ...]
    nothing: str = "There is none."


def column(
    name: str, title: str = "", *, right: bool = False, whole: bool = False, mood: bool = False
) -> Column:
    """A column with one field as it is."""
    return Column(title or name.replace("_", " "), lambda row: row.get(name), right, whole, mood)


def age_column(name: str, title: str = "age") -> Column:
    """A column that says how long ago something was."""
    return Column(title, lambda row: age(row.get(name)), right=True, whole=True)


def time_column(name: str) -> Column:
    """A column that says when something was, to the millisecond."""
    return Column(name, lambda row: _moment(row.get(name)), whole=True)


def show_rows(given: Given, shape: Shape, rows: Iterable[Row]) -> None:
    """Print many things, one document, or one line each as they come."""
    to, found = reader(given), _chosen(given, shape, rows)
    if given.quiet:
        for row in rows:
            to.print(plain(row[shape.key]))
        return
    match given.form:
        case "jsonl":
            for row in found:
                print(_line(row), file=to.stream)
        case "json":
            print(_document(list(found)), file=to.stream)
        case "yaml":
            _print_yaml(to, list(found))
        case "table":
            _show_table(to, shape, list(rows), watcher(given))


def show_one(given: Given, shape: Shape, row: Row) -> None:
    """Print one thing, whole."""
    to = reader(given)
    if given.quiet:
        to.print(plain(row[shape.key]))
        return
    (found,) = _chosen(given, shape, [row])
    match given.form:
        case "jsonl":
            print(_line(found), file=to.stream)
        case "json":
            print(_document(found), file=to.stream)
        case "yaml":
            _print_yaml(to, found)
        case "table":
            show_facts(to, row)


def show_facts(to: Terminal, row: Row) -> None:
    """Print what is known of one thing, a line each; what is empty is left out."""
    known = {name: value for name, value in row.items() if value not in (None, [], {}, "")}
    longest = max(map(len, known), default=0)
    for name, value in known.items():
        said = plain(_said(value))
        to.print(f"{to.style(f'{name:<{longest}}', 'dim')}  {to.mood(said)}")


def age(at: object, *, now: datetime | None = None) -> str:
    """How long ago something was, in one unit."""
    if not isinstance(at, str):
        return ""
    past = (now or datetime.now(UTC)) - datetime.fromisoformat(at)
    seconds = max(int(past.total_seconds()), 0)
    return next((f"{seconds // step}{unit}" for step, unit in _STEPS if seconds >= step), "0s")


def listed(names: Sequence[object], count: int, *, most: int = 5) -> str:
    """Name the first of many, and say how many more there are."""
    shown = [plain(name) for name in names[:most]]
    more = count - len(shown)
    return ", ".join([*shown, f"and {more:,} more"] if more > 0 else shown)


def numbered(count: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def _chosen(given: Given, shape: Shape, rows: Iterable[Row]) -> Iterator[Row]:
    """Leave only the fields that are wanted, and refuse those that nobody knows."""
    wanted = given.fields
    _refuse_unknown(wanted, shape.fields)
    for row in rows:
        yield {name: row.get(name) for name in wanted} if wanted else row


def _refuse_unknown(wanted: Sequence[str], known: Sequence[str]) -> None:
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise Usage(f"--json: there is no field {unknown[0]}; there are {', '.join(known)}.")


def _document(found: object) -> str:
    return _escaped(json.dumps(found, indent=2, ensure_ascii=False))


def _line(found: object) -> str:
    return _escaped(json.dumps(found, ensure_ascii=False))


def _escaped(text: str) -> str:
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _print_yaml(to: Terminal, found: object) -> None:
    import yaml

    text = yaml.safe_dump(found, sort_keys=False, allow_unicode=to.unicode, width=1_000_000)
    if _UNSEEN.search(text):
        text = yaml.safe_dump(found, sort_keys=False, width=1_000_000)
    print(text, end="", file=to.stream)


def _show_table(
    to: Terminal, shape: Shape, rows: Sequence[Row], beside: Terminal | None = None
) -> None:
    """Print a table; that there is nothing in it is no data, and is said `beside` it."""
    if not rows:
        (beside or to).print(shape.nothing)
        return
    cells = [[cut(plain(_said(each.of(row))), _LONGEST) for each in shape.columns] for row in rows]
    widths = _widths(to, shape, cells)
    titles = [each.title for each in shape.columns]
    to.print(to.style(_laid_out(shape, titles, widths), "bold"))
    for row in cells:
        to.print(_laid_out(shape, row, widths, to))


def _laid_out(
    shape: Shape, cells: Sequence[str], widths: Sequence[int], to: Terminal | None = None
) -> str:
    parts = []
    for each, cell, width in zip(shape.columns, cells, widths, strict=True):
        text = cut(cell, width)
        space = " " * (width - wide(text))
        shown = to.mood(text) if to is not None and each.mood else text
        parts.append(f"{space}{shown}" if each.right else f"{shown}{space}")
    return (" " * _GAP).join(parts).rstrip()


def _widths(to: Terminal, shape: Shape, cells: Sequence[Sequence[str]]) -> list[int]:
    """Give every column what it needs, or take from the widest until all of it fits."""
    widths = [
        max(len(each.title), *(wide(row[place]) for row in cells))
        for place, each in enumerate(shape.columns)
    ]
    if to.width is None:
        return widths
    too_much = sum(widths) + _GAP * (len(widths) - 1) - to.width
    for least, whole in _NARROW:
        places = [place for place, each in enumerate(shape.columns) if whole or not each.whole]
        while too_much > 0:
            widest = max(places, key=lambda place: widths[place], default=None)
            if widest is None or widths[widest] <= least:
                break
            widths[widest] -= 1
            too_much -= 1
    return widths


def _moment(at: object) -> str:
    if not isinstance(at, str):
        return ""
    moment = datetime.fromisoformat(at).astimezone(UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def _said(value: object) -> str:
    """Write a value as people read it."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case dict() | list():
            return json.dumps(value, ensure_ascii=False) if value else ""
        case _:
            return str(value)
