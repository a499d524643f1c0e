"""What a check is, as data, and what comes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from onward.settings import Settings
from onward.store import doctor
from onward.store.database import Pool
from onward.store.doctor import COUNTED_MAX

_EXAMPLES: Final = 3


class State(StrEnum):
    """What came of a check."""

    OK = "ok"
    WARNING = "warning"  # nothing is wrong yet, or nothing is lost by it
    BROKEN = "broken"
    REPAIRED = "repaired"
    NOT_RUN = "not run"


class Needs(StrEnum):
    """What has to be there before a check can be made."""

    NOTHING = "nothing"
    SERVER = "a database"
    SCHEMA = "a database with the schema of this program"


@dataclass(frozen=True, slots=True)
class Patient:
    """What is looked at."""

    settings: Settings
    limit_s: float  # after which a question is given up
    connected: Pool | None = None  # none: there is no server
    away: str = ""  # why there is none

    @property
    def pool(self) -> Pool:
        """The database, for checks that need one."""
        assert self.connected is not None  # noqa: S101 - see `Needs`
        return self.connected


@dataclass(frozen=True, slots=True)
class Found:
    """What a check has found: nothing, or what speaks against it."""

    breaches: Sequence[str] = ()  # the first of them
    count: int = 0
    basis: str = ""  # what there is to say if all is well
    warns: bool | None = None  # otherwise than the check does in general


Ask = Callable[[Patient], Awaitable[Found]]


@dataclass(frozen=True, slots=True)
class Repair:
    """How something is put right."""

    told: str  # what it does, as in "it would …"
    do: Callable[[Patient], Awaitable[int]]  # returns how many rows, or whatever it is


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold."""

    name: str
    holds: str  # in one sentence
    ask: Ask
    advice: str  # what to do if it does not
    warns: bool = False  # whether it is no more than a warning
    scans: bool = False  # whether it reads whole tables
    needs: Needs = Needs.SCHEMA
    opens: Needs | None = None  # what is not there unless this holds
    repair: Repair | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check."""

    check: Check
    state: State
    told: str = ""  # what was found, or what was done, or why it was not run
    count: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing has to be done."""
        return self.state not in {State.WARNING, State.BROKEN}


def judged(check: Check, found: Found) -> Finding:
    """Say what a check comes to."""
    if not found.count:
        return Finding(check, State.OK, found.basis)
    warns = check.warns if found.warns is None else found.warns
    more = found.count - len(found.breaches[:_EXAMPLES])
    some = f"more than {COUNTED_MAX:,}" if found.count > COUNTED_MAX else f"{more:,}"
    told = "; ".join(found.breaches[:_EXAMPLES]) + (f"; and {some} more" if more else "")
    return Finding(check, State.WARNING if warns else State.BROKEN, told, found.count)


def broken(*breaches: str, warns: bool | None = None) -> Found:
    """Say what a probe has found wrong; nothing is wrong without any."""
    return Found(breaches, len(breaches), warns=warns)


def query(name: str, given: Callable[[Settings], Sequence[object]] | None = None) -> Ask:
    """Ask a question of `doctor.sql`, with what the settings have to do with it."""

    async def ask(patient: Patient) -> Found:
        parameters = given(patient.settings) if given else ()
        found = await doctor.breaches(patient.pool, name, *parameters, limit_s=patient.limit_s)
        return Found(found.shown, found.number)

    return ask


def statement(name: str, told: str) -> Repair:
    """Repair with one statement of `doctor.sql`."""

    async def do(patient: Patient) -> int:
        return await doctor.repair(patient.pool, name, limit_s=patient.limit_s)

    return Repair(told, do)
