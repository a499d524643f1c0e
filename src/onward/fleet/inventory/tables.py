"""Inventories in CSV: a header, then a row a host.

    name, hostname or host       the name; this column must be there
    address, ip or ansible_host  where the channel finds it
    channel                      how it is reached
    labels                       a=b;c=d or a=b,c=d; with a ";" in it, a "," belongs to a value
    anything else                a label of that name; an empty cell is no label

Capitals do not matter in the first four. Cells are separated by the first of , ; and tab that the
header has, and may stand in quotes; spaces around them do not count. A line that begins with # is a
comment, since no name does: a first cell that does is written in quotes.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from onward.errors import InvalidInput
from onward.fleet.inventory import checks
from onward.fleet.inventory.checks import quantity
from onward.fleet.inventory.gathering import Gathering
from onward.store.hosts import NewHost
from onward.store.inputs import shown

NAMES: Final = ("name", "hostname", "host")
_COLUMNS: Final = {
    **dict.fromkeys(NAMES, "name"),
    **dict.fromkeys(("address", "ip", "ansible_host"), "address"),
    "channel": "channel",
    "labels": "labels",
}
DELIMITERS: Final = ",;\t"


class _Row(NamedTuple):
    place: str
    cells: list[str]


def read(text: str, gathering: Gathering, channel: str) -> None:
    """Gather the hosts of a table."""
    rows = _rows(text, gathering)
    header = next(rows, None)
    if header is None:
        raise InvalidInput("line 1", f"there is no header; it names the columns: {_wanted()}")
    columns = _columns(header)
    for row in rows:
        with gathering.at(row.place):
            gathering.add(row.place, _host(columns, row.cells, channel))


def delimiter_of(header: str) -> str:
    """The sign that separates the cells of a table with this first line."""
    return next((sign for sign in DELIMITERS if sign in header), ",")


def _rows(text: str, gathering: Gathering) -> Iterator[_Row]:
    """The rows that hold something; a broken quote ends them, for nothing behind it is sure."""
    # Comments become empty lines, so that the lines are still counted as they are in the file.
    lines = ["" if line.lstrip().startswith("#") else line for line in io.StringIO(text)]
    header = next((line for line in lines if line.strip()), "")
    reader = csv.reader(lines, delimiter=delimiter_of(header), skipinitialspace=True, strict=True)
    while True:
        place = f"line {reader.line_num + 1}"
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            gathering.refuse(place, f"{error}; put a cell with quotes in it in quotes, doubled")
            return
        if any(cells):
            yield _Row(place, cells)


def _columns(header: _Row) -> list[str]:
    """What each column is: one of the known four, or a label with `labels.` before its name."""
    # Without columns nothing can be said about the rows, so the first that is wrong is told.
    try:
        columns = [_column(at, cell) for at, cell in enumerate(header.cells, start=1)]
    except InvalidInput as error:
        raise InvalidInput(header.place, str(error)) from None
    if "name" not in columns:
        raise InvalidInput(
            header.place, f"header: no column is the name of the host; there is {_wanted()}"
        )
    for column, count in Counter(columns).items():
        if count > 1:
            raise InvalidInput(
                header.place,
                f"header: {count} columns are the {shown(column)} of the host; keep one",
            )
    return columns


def _column(at: int, cell: str) -> str:
    if not cell:
        raise InvalidInput("header", f"column {at} has no name; name it or remove it")
    if known := _COLUMNS.get(cell.lower()):
        return known
    return f"labels.{checks.label_key('header', cell)}"


def _host(columns: Sequence[str], cells: Sequence[str], channel: str) -> NewHost:
    if len(cells) != len(columns):
        raise InvalidInput(
            "row",
            f"{quantity(len(cells), 'cell')} where the header has {len(columns)}; "
            "put a cell with a separator in it in quotes",
        )
    found = dict(zip(columns, cells, strict=True))
    labels = _listed(found.get("labels", ""))
    for column, cell in found.items():
        if column.startswith("labels.") and cell:
            _set(labels, column.removeprefix("labels."), cell)
    return NewHost(
        checks.host_name("name", found["name"]),
        checks.labels("labels", labels),
        checks.channel("channel", found.get("channel") or channel),
        checks.address("address", found.get("address", "")),
    )


def _listed(cell: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for part in cell.split(";" if ";" in cell else ","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidInput("labels", f"{shown(part)} is not a label; write it as key=value")
        _set(labels, key.strip(), value.strip())
    return labels


def _set(labels: dict[str, str], key: str, value: str) -> None:
    if labels.setdefault(key, value) != value:
        raise InvalidInput(
            "labels", f"{shown(key)} is both {shown(labels[key])} and {shown(value)}; keep one"
        )


def _wanted() -> str:
    return f"{' or '.join(NAMES)}, and as you like address, channel, labels and others"
