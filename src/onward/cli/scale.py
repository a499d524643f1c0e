"""`onward api`, `onward worker`, `onward beat`: the parts of the service, each for itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from onward.cli.up import AccessLog, Host, Port, show

if TYPE_CHECKING:
    from onward.settings import Settings


def api(
    *,
    host: Host = None,
    port: Port = None,
    access_log: AccessLog = False,
) -> None:
    """Run the API alone; `onward worker` does the work.

    Any number of them may run, on the PostgreSQL of ONWARD_DATABASE_URL.
    """
    from onward.cli.environment import settings
    from onward.service import logs
    from onward.service.up import Service, run

    chosen = {"host": host, "port": port}
    changes = {name: value for name, value in chosen.items() if value is not None}
    found: Settings = settings().model_copy(update=changes)
    logs.configure()
    run(Service(found, None, access_log), show)


def worker(
    *,
    processes: Annotated[
        int,
        typer.Option(min=1, max=256, help="Processes of this worker.", show_default="one a core"),
    ] = os.cpu_count() or 1,
    check: Annotated[
        bool,
        typer.Option(
            "--check", hidden=True, help="Only say whether the worker of this machine gets on."
        ),
    ] = False,
) -> None:
    """Run a Celery worker: it plans, claims, delivers and reports what the broker tells it of.

    Any number of them may run, on any number of machines, with the PostgreSQL of
    ONWARD_DATABASE_URL and the broker of ONWARD_BROKER_URL. SIGTERM or Ctrl-C lets what runs end
    and leaves; once more, it leaves without waiting.
    """
    from onward.cli.environment import settings

    if check:
        _check(settings())
        return
    from onward.service import logs, supervise

    logs.configure()
    supervise.work(settings(), processes=processes)


def _check(settings: Settings) -> None:
    """Leave with 1 if the worker of this machine is to be replaced."""
    import asyncio

    from onward.service import probe

    found = asyncio.run(probe.look(settings))
    typer.echo(found.told, err=not found.holds)
    if not found.holds:
        raise typer.Exit(1)


def beat() -> None:
    """Run Celery's Beat, which asks workers to look at the outbox and at what is due.

    Workers look by themselves as well, only less often: without Beat, everything takes seconds
    longer and nothing is lost.
    """
    from onward.cli.environment import settings
    from onward.service import logs, supervise

    logs.configure()
    supervise.beat(settings())
