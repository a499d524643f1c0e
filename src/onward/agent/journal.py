"""What an agent must not forget, in a SQLite file that is on disk before anybody is told.

Every change is one transaction, and each returns after the disk has confirmed it
(`synchronous=FULL`): a power cut loses nothing that has been acted on. A row is one attempt; it is
either refused, or begun and perhaps ended, and stays until its result is receipted and some time
has passed. The highest epoch outlives all rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, NamedTuple

from onward.agent.output import Piece
from onward.agent.running import Process
from onward.channels.agent.messages import Block, Refused, Result
from onward.channels.base import Stream
from onward.errors import InvalidInput

_OUTPUTS_KEPT: Final = 1_000  # results that wait with their output; older ones wait without
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS attempts (
    cmd          TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    digest       TEXT NOT NULL,
    type         TEXT NOT NULL,
    boot         TEXT,
    keeper_pid   INTEGER, keeper_start INTEGER,
    pid          INTEGER, start INTEGER,
    refused      TEXT,
    busy         INTEGER,
    ended_at     REAL,
    succeeded    INTEGER, exit_code INTEGER, error TEXT, unknown INTEGER,
    output       TEXT,
    receipted_at REAL,
    PRIMARY KEY (cmd, epoch)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS attempts_waiting ON attempts (ended_at) WHERE receipted_at IS NULL;
CREATE TABLE IF NOT EXISTS seen (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL);
INSERT OR IGNORE INTO seen VALUES (1, 0);
CREATE TABLE IF NOT EXISTS blocks (
    type TEXT PRIMARY KEY, reason TEXT NOT NULL, owner TEXT NOT NULL, expires_at REAL
);
"""


class Past(NamedTuple):
    """An attempt as the journal has it: refused, ended, or neither if it was cut off."""

    cmd: str
    epoch: int
    digest: str
    type: str
    refusal: Refused | None
    result: Result | None
    receipted: bool
    boot: str | None
    processes: tuple[Process, ...]


class Journal:
    """The journal, open. All calls come from one thread, and none of them waits for another."""

    def __init__(self, path: Path | str) -> None:
        self._rows = sqlite3.connect(path, isolation_level=None, timeout=10.0)
        self._rows.row_factory = sqlite3.Row
        try:
            self._rows.execute("PRAGMA journal_mode = WAL")
            self._rows.execute("PRAGMA synchronous = FULL")
            self._rows.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            self._rows.close()
            raise InvalidInput(
                "--state",
                f"the journal {path} cannot be used ({error}); without it, what has run before "
                "may run again: restore it, or remove it if you are sure that nothing will",
            ) from None

    def close(self) -> None:
        """Let go of the file."""
        self._rows.close()

    @property
    def highest(self) -> int:
        """The highest epoch that this host has seen."""
        (epoch,) = self._rows.execute("SELECT epoch FROM seen").fetchone()
        return int(epoch)

    def begin(
        self,
        cmd: str,
        epoch: int,
        *,
        digest: str,
        type_: str,
        boot: str,
        processes: Sequence[Process],
    ) -> None:
        """Write down that an attempt begins, before it does."""
        numbers = [number for process in processes for number in process]
        with self._transaction():
            self._see(epoch)
            self._rows.execute(
                "INSERT INTO attempts (cmd, epoch, digest, type, boot,"
                " keeper_pid, keeper_start, pid, start) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (cmd, epoch, digest, type_, boot, *numbers),
            )

    def refuse(self, refusal: Refused, *, digest: str, type_: str, at: float) -> None:
        """Write down that an attempt will not run, however late a copy of it comes."""
        with self._transaction():
            self._see(refusal.epoch)
            self._rows.execute(
                "INSERT OR IGNORE INTO attempts (cmd, epoch, digest, type, refused, busy,"
                " receipted_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (refusal.cmd, refusal.epoch, digest, type_, refusal.why, refusal.busy, at),
            )

    def answer(self, result: Result, *, digest: str, type_: str, ended_at: float) -> None:
        """Write down that an attempt was answered with what an earlier one has done."""
        with self._transaction():
            self._see(result.epoch)
            self._rows.execute(
                "INSERT INTO attempts (cmd, epoch, digest, type) VALUES (?, ?, ?, ?)",
                (result.cmd, result.epoch, digest, type_),
            )
            self._end(result, [], ended_at)

    def end(self, result: Result, output: Sequence[Piece], *, ended_at: float) -> None:
        """Write down how an attempt ended, with as much of its output as is kept."""
        with self._transaction():
            self._end(result, output, ended_at)
            self._rows.execute(
                "UPDATE attempts SET output = NULL WHERE receipted_at IS NULL AND ended_at <"
                " (SELECT ended_at FROM attempts WHERE receipted_at IS NULL"
                " ORDER BY ended_at DESC LIMIT 1 OFFSET ?)",
                (_OUTPUTS_KEPT,),
            )

    def receipt(self, cmd: str, epoch: int, *, at: float) -> None:
        """Write down that the server has the result; its output is not needed any more."""
        with self._transaction():
            self._rows.execute(
                "UPDATE attempts SET receipted_at = ?, output = NULL"
                " WHERE cmd = ? AND epoch = ? AND ended_at IS NOT NULL AND receipted_at IS NULL",
                (at, cmd, epoch),
            )

    def waiting(self) -> list[Result]:
        """The results that the server has not receipted, the oldest first."""
        rows = self._rows.execute(
            "SELECT * FROM attempts"
            " WHERE receipted_at IS NULL AND ended_at IS NOT NULL ORDER BY ended_at, epoch"
        )
        return [_result(row) for row in rows]

    def output(self, cmd: str, epoch: int) -> list[Piece]:
        """What is kept of an attempt's output."""
        row = self._rows.execute(
            "SELECT output FROM attempts WHERE cmd = ? AND epoch = ?", (cmd, epoch)
        ).fetchone()
        pieces = json.loads(row[0]) if row and row[0] else []
        return [(Stream(stream), text) for stream, text in pieces]

    def past(self) -> Iterator[Past]:
        """All attempts that are remembered, in the order of their epochs."""
        for row in self._rows.execute("SELECT * FROM attempts ORDER BY epoch").fetchall():
            yield _past(row)

    def forget(self, *, before: float, most: int) -> list[tuple[str, int]]:
        """Remove what was receipted before, and the oldest of what is more than that.

        The attempt of the highest epoch stays: only its copy would not be refused as too old.
        """
        with self._transaction():
            gone = self._rows.execute(
                "DELETE FROM attempts WHERE epoch < (SELECT epoch FROM seen)"
                " AND (receipted_at < ? OR (cmd, epoch) IN (SELECT cmd, epoch FROM attempts"
                " WHERE receipted_at IS NOT NULL ORDER BY epoch DESC LIMIT -1 OFFSET ?))"
                " RETURNING cmd, epoch",
                (before, most),
            )
            return [(row["cmd"], row["epoch"]) for row in gone.fetchall()]

    def keep_blocks(self, rules: Iterable[Block]) -> None:
        """Write down what the host is not to run, instead of what was said before."""
        with self._transaction():
            self._rows.execute("DELETE FROM blocks")
            self._rows.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)", rules)

    def blocks(self) -> list[Block]:
        """What the host is not to run."""
        return [Block(*row) for row in self._rows.execute("SELECT * FROM blocks")]

    def see(self, epoch: int) -> None:
        """Write down that an epoch has been seen."""
        with self._transaction():
            self._see(epoch)

    def _see(self, epoch: int) -> None:
        self._rows.execute("UPDATE seen SET epoch = max(epoch, ?)", (epoch,))

    def _end(self, result: Result, output: Sequence[Piece], ended_at: float) -> None:
        self._rows.execute(
            "UPDATE attempts SET ended_at = ?, succeeded = ?, exit_code = ?, error = ?,"
            " unknown = ?, output = ? WHERE cmd = ? AND epoch = ?",
            (
                ended_at,
                result.succeeded,
                result.exit_code,
                _storable(result.error),
                result.unknown,
                json.dumps(output) if output else None,
                result.cmd,
                result.epoch,
            ),
        )

    def _transaction(self) -> AbstractContextManager[object]:
        self._rows.execute("BEGIN IMMEDIATE")
        return self._rows  # commits in the end, or takes all of it back


def _storable(error: str | None) -> str | None:
    """An error as SQLite takes it, which is without half a pair."""
    return error and error.encode("utf-8", "backslashreplace").decode()


def _result(row: sqlite3.Row) -> Result:
    return Result(
        row["cmd"],
        row["epoch"],
        bool(row["succeeded"]),
        row["exit_code"],
        row["error"],
        unknown=bool(row["unknown"]),
    )


def _past(row: sqlite3.Row) -> Past:
    cmd, epoch = row["cmd"], row["epoch"]
    refused = row["refused"]
    return Past(
        cmd,
        epoch,
        digest=row["digest"],
        type=row["type"],
        refusal=None if refused is None else Refused(cmd, epoch, bool(row["busy"]), refused),
        result=None if row["ended_at"] is None else _result(row),
        receipted=row["receipted_at"] is not None,
        boot=row["boot"],
        processes=(
            Process(row["keeper_pid"] or 0, row["keeper_start"] or 0),
            Process(row["pid"] or 0, row["start"] or 0),
        ),
    )
