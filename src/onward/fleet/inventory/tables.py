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
from onward.fleet.hosts import Channel, label_key, new_host
from onward.fleet.inventory.gathering import Gathering
from onward.store.hosts import NewHost
from onward.store.inputs import shown

_NAMES: Final = ("name", "hostname", "host")
_COLUMNS: Final = {
    **dict.fromkeys(_NAMES, "name"),
    **dict.fromkeys(("address", "ip", "ansible_host"), "address"),
    "channel": "channel",
    "labels": "labels",
}
_LABEL: Final = "labels."  # before the name of a label that is a column of its own
_DELIMITERS: Final = ",;\t"
_WANTED: Final = f"{' or '.join(_NAMES)}, and as you like address, channel, labels and others"


class _Row(NamedTuple):
    line: int
    cells: list[str]


def read(text: str, gathering: Gathering, channel: Channel) -> None:
    """Gather the hosts of a table."""
    rows = _rows(text, gathering)
    header = next(rows, None)
    if header is None:
        gathering.stop(1, f"there is no header; it names the columns: {_WANTED}")
    columns = _columns(header, gathering)
    for row in rows:
        with gathering.at(row.line):
            gathering.add(row.line, _host(columns, row.cells, channel))


def _rows(text: str, gathering: Gathering) -> Iterator[_Row]:
    """The rows that hold something; a broken quote ends them, for nothing behind it is sure."""
    # Comments become empty lines, so that the lines are still counted as they are in the file.
    lines = ["\n" if line.lstrip().startswith("#") else line for line in io.StringIO(text)]
    header = next((line for line in lines if line.strip()), "")
    delimiter = next((sign for sign in _DELIMITERS if sign in header), ",")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            gathering.stop(
                line, f"this is not CSV: {error}; a quote within quotes is written twice"
            )
        if any(cells):
            yield _Row(line, cells)


def _columns(header: _Row, gathering: Gathering) -> list[str]:
    """What each column is: one of the known four, or a label with `labels.` before its name."""
    # Without columns nothing can be said about the rows, so whatever is wrong here is the end.
    try:
        columns = [_column(at, cell) for at, cell in enumerate(header.cells, start=1)]
    except InvalidInput as error:
        gathering.stop(header.line, str(error))
    if "name" not in columns:
        gathering.stop(
            header.line, f"header: no column is the name of the host; there is {_WANTED}"
        )
    for column, count in Counter(columns).items():
        if count > 1:
            gathering.stop(
                header.line,
                f"header: {count} columns are the {shown(column)} of the host; keep one",
            )
    return columns


def _column(at: int, cell: str) -> str:
    if not cell:
        raise InvalidInput("header", f"column {at} has no name; name it or remove it")
    if known := _COLUMNS.get(cell.lower()):
        return known
    return f"{_LABEL}{label_key('header', cell)}"


def _host(columns: Sequence[str], cells: Sequence[str], channel: Channel) -> NewHost:
    if len(cells) != len(columns):
        raise InvalidInput(
            "row",
            f"the header has {len(columns)} cells, and this row {len(cells)}; "
            "put a cell with a separator in it in quotes",
        )
    found = dict(zip(columns, cells, strict=True))
    labels = _listed(found.get("labels", ""))
    for column, cell in found.items():
        if column.startswith(_LABEL) and cell:
            _set(labels, column.removeprefix(_LABEL), cell)
    return new_host(
        found["name"],
        labels=labels,
        channel=found.get("channel") or channel,
        address=found.get("address", ""),
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
