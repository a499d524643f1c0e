"""Makes the checks one after the other, repairs what may be, and looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import asyncpg

from onward.errors import OnwardError, ServerProblem
from onward.fleet.doctor.check import Check, Finding, Needs, Patient, State, judged

_ROUNDS: Final = 3  # a repair may bring to light what another has to put right
_PATIENCE: Final = 1.5  # times the limit: the server gives up first, and says so

# Hears which check is being made.
Hears = Callable[[Check], None]


async def examine(
    patient: Patient, checks: Sequence[Check], *, quick: bool = False, hears: Hears | None = None
) -> list[Finding]:
    """Make checks; what one says about the server or its schema decides about those after it."""
    found: list[Finding] = []
    missing: dict[Needs, str] = {}
    for check in checks:
        if check.needs in missing:
            found.append(Finding(check, State.NOT_RUN, missing[check.needs]))
        elif quick and check.scans:
            found.append(Finding(check, State.NOT_RUN, "it reads whole tables; not with --quick"))
        else:
            if hears is not None:
                hears(check)
            found.append(await _made(patient, check))
        missing |= _without(found[-1])
    return found


def _without(finding: Finding) -> dict[Needs, str]:
    """Say what cannot be asked any more after this, and why."""
    if finding.state is State.OK or finding.check.opens is None:
        return {}
    why = f"it needs {finding.check.opens.value}"
    # Whatever needs the schema needs the server.
    return dict.fromkeys({finding.check.opens, Needs.SCHEMA}, why)


async def _made(patient: Patient, check: Check) -> Finding:
    try:
        async with asyncio.timeout(patient.limit_s * _PATIENCE):
            return judged(check, await check.ask(patient))
    except (asyncpg.QueryCanceledError, TimeoutError):
        return _not_made(check, f"given up after {patient.limit_s:g} s; --limit gives it longer")
    except asyncpg.PostgresError as error:
        # A table that is not there, or a role that may not read it: another check says so.
        return _not_made(check, _sentence(error))
    except ServerProblem as error:
        return Finding(check, State.BROKEN, _sentence(error), 1)


def _not_made(check: Check, why: str) -> Finding:
    """Say why a check was not made; one that everything else depends on has failed by that."""
    if check.opens is None:
        return Finding(check, State.NOT_RUN, why)
    return Finding(check, State.BROKEN, why, 1)


async def repair(
    patient: Patient,
    checks: Sequence[Check],
    found: Sequence[Finding],
    *,
    quick: bool = False,
    hears: Hears | None = None,
) -> list[Finding]:
    """Put right what can be of what was found, and make all checks again."""
    done: dict[str, str] = {}
    findings = list(found)
    for _ in range(_ROUNDS):
        wrong = [each for each in findings if not each.holds and each.check.repair]
        if not [each for each in wrong if each.check.name not in done]:
            break
        for each in wrong:
            done[each.check.name] = await _repaired(patient, each.check)
        findings = await examine(patient, checks, quick=quick, hears=hears)
    return [_after(finding, done.get(finding.check.name)) for finding in findings]


async def _repaired(patient: Patient, check: Check) -> str:
    """Repair, and say what became of it."""
    assert check.repair is not None  # noqa: S101 - chosen for it
    with suppress(TimeoutError):
        try:
            count = await check.repair.do(patient)
        except (asyncpg.PostgresError, OnwardError, OSError) as error:
            return f"could not be repaired: {_sentence(error)}"
        return f"done: {check.repair.told}" + (f" ({count:,})" if count else "")
    return "could not be repaired in time"


def _after(finding: Finding, done: str | None) -> Finding:
    if done is None:
        return finding
    if finding.state is State.OK:
        return Finding(finding.check, State.REPAIRED, done)
    return Finding(finding.check, finding.state, f"{finding.told}; {done}", finding.count)


def _sentence(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
