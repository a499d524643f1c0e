"""`onward doctor`: whether the installation and the database are as they must be."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from onward.fleet.doctor import Check, Finding, Found, Patient
    from onward.fleet.doctor.examination import Hears
    from onward.settings import Settings

_COLOURS: Final = {
    "ok": "green",
    "warning": "yellow",
    "broken": "bold red",
    "repaired": "cyan",
    "not run": "dim",
}


class Output(StrEnum):
    """How the findings are written."""

    TABLE = "table"
    JSON = "json"


def doctor(
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what reads whole tables.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Put right what is safe to, and look again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what --repair would do, and change nothing.")
    ] = False,
    limit: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds after which a question is given up.")
    ] = 60,
    output: Annotated[
        Output, typer.Option("-o", "--output", help="`table` or `json`.")
    ] = Output.TABLE,
) -> None:
    """Check the installation and every invariant of the database, and repair what is safe.

    Nobody has to wait for it, and a busy system gives no false alarm: each question is one
    statement that only reads. Leaves with 1 when something is broken; a warning is not.
    """
    from onward.cli.environment import settings

    found = _looked(settings(), quick=quick, repairing=repair and not dry_run, limit_s=limit)
    if output is Output.JSON:
        typer.echo(json.dumps(_plain(found), indent=2))
    else:
        _show(found, planned=dry_run)
    if any(finding.state == "broken" for finding in found):
        sys.exit(1)


def _looked(settings: Settings, *, quick: bool, repairing: bool, limit_s: float) -> list[Finding]:
    from onward.errors import OnwardError
    from onward.fleet.doctor import Patient, examine

    checks = _checks()
    with _progress() as hears:
        try:
            with _database(settings) as url:
                return asyncio.run(
                    _examined(
                        url,
                        settings,
                        checks,
                        quick=quick,
                        repairing=repairing,
                        limit_s=limit_s,
                        hears=hears,
                    )
                )
        except OnwardError as error:
            # What can be said without a database is said all the same.
            patient = Patient(settings, limit_s, away=str(error))
            return asyncio.run(examine(patient, checks, quick=quick, hears=hears))


def _checks() -> list[Check]:
    from onward.fleet.doctor import INVARIANTS, MACHINE, SERVER, Check

    books = Check(
        "books",
        "Every balance of trading follows from its entries, and every deal from its orders.",
        _audited,
        "Run `onward trade check`, and find out who wrote into the tables.",
        scans=True,
    )
    return [*MACHINE, *SERVER, *INVARIANTS, books]


async def _audited(patient: Patient) -> Found:
    from onward.fleet.doctor import Found
    from onward.trading.audit import audit

    found = await audit(patient.pool)
    return Found(found.faults, len(found.faults), basis=f"{found.operations:,} operations")


@contextmanager
def _database(settings: Settings) -> Iterator[str]:
    """Give the address of the database; an embedded one that is not there is not made."""
    from onward.cli.environment import database_of
    from onward.errors import ServerUnreachable

    if settings.database_url is None and not (settings.data_dir / "postgresql").is_dir():
        raise ServerUnreachable(
            f"There is no database in {settings.data_dir} yet: run `onward up`, or set "
            "ONWARD_DATABASE_URL or ONWARD_DATA_DIR to where it is."
        )
    with database_of(settings) as url:
        yield url


async def _examined(
    url: str,
    settings: Settings,
    checks: Sequence[Check],
    *,
    quick: bool,
    repairing: bool,
    limit_s: float,
    hears: Hears,
) -> list[Finding]:
    from onward.fleet.doctor import Patient, examine, repair
    from onward.store import database

    async with database.pooled(url, size=2) as pool:
        patient = Patient(settings, limit_s, pool)
        found = await examine(patient, checks, quick=quick, hears=hears)
        if not repairing:
            return found
        for finding in found:
            if (planned := _planned(finding)) is not None:
                typer.echo(f"repairing {finding.check.name}: {planned}", err=True)
        return await repair(patient, checks, found, quick=quick, hears=hears)


def _planned(finding: Finding) -> str | None:
    """Say what a repair would do; nothing if there is nothing to repair, or no way to."""
    return None if finding.holds or finding.check.repair is None else finding.check.repair.told


@contextmanager
def _progress() -> Iterator[Hears]:
    """Show on a terminal which check is being made."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    with console.status("") as status:
        yield lambda check: status.update(f"[dim]{check.name}[/]")


def _show(found: Sequence[Finding], *, planned: bool) -> None:
    """Write a line for each check, and what there is to know and to do below those that need it."""
    from rich.console import Console
    from rich.markup import escape

    from onward.cli.terminal import plain

    console = Console(highlight=False)
    width = max(len(finding.check.name) for finding in found) + 2

    def tell(text: str) -> None:
        console.print(f"{'':<{width + 10}}{escape(plain(text))}", soft_wrap=True)

    for finding in found:
        word = f"[{_COLOURS[finding.state]}]{finding.state:<10}[/]"
        name = f"{finding.check.name:<{width}}"
        aside = (
            f" [dim]({escape(plain(finding.told))})[/]" if finding.holds and finding.told else ""
        )
        console.print(f"{word}{name}{escape(finding.check.holds)}{aside}", soft_wrap=True)
        if not finding.holds:
            tell(finding.told)
            tell(f"-> {finding.check.advice}")
        if planned and (plan := _planned(finding)) is not None:
            tell(f"-> --repair would {plan}.")
    console.print()
    console.print(_verdict(found), soft_wrap=True)


def _verdict(found: Sequence[Finding]) -> str:
    counts = Counter(str(finding.state) for finding in found)
    told = ", ".join(f"{counts[state]} {state}" for state in _COLOURS if counts[state])
    broken = [finding.check.name for finding in found if finding.state == "broken"]
    if broken:
        return f"[bold red]Broken: {', '.join(broken)}.[/] ({told})"
    return f"[bold]Everything that was checked holds.[/] ({told})"


def _plain(found: Sequence[Finding]) -> dict[str, object]:
    return {
        "holds": not any(finding.state == "broken" for finding in found),
        "checks": [
            {
                "name": finding.check.name,
                "state": str(finding.state),
                "holds": finding.check.holds,
                "told": finding.told,
                "count": finding.count,
                "advice": None if finding.holds else finding.check.advice,
                "repair": finding.check.repair.told if finding.check.repair else None,
            }
            for finding in found
        ],
    }
