"""`onward up`: the service, as somebody starts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from onward.service.up import Ready
    from onward.settings import Settings

Host = Annotated[
    str | None, typer.Option(help="The address to listen on.", show_default="ONWARD_HOST")
]
Port = Annotated[
    int | None,
    typer.Option(
        min=0, max=65_535, help="The port; 0 for any free one.", show_default="ONWARD_PORT"
    ),
]
AccessLog = Annotated[
    bool, typer.Option("--access-log", help="Log every request, besides what goes wrong.")
]


def up(
    *,
    host: Host = None,
    port: Port = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the embedded servers keep their data.", show_default="ONWARD_DATA_DIR"
        ),
    ] = None,
    network: Annotated[
        Literal["perfect", "calm", "bad", "terrible"],
        typer.Option(help="The network between the service and simulated hosts."),
    ] = "calm",
    seed: Annotated[int, typer.Option(help="What that network draws its chances from.")] = 0,
    fleet: Annotated[
        Path | None,
        typer.Option(
            metavar="SOCKET",
            help="Simulated hosts in another process, with a network of their own: "
            "`python -m onward.channels.simulated`.",
        ),
    ] = None,
    access_log: AccessLog = False,
) -> None:
    """Run the service: PostgreSQL and Valkey, the API, the engine and the reaper, in one process.

    The servers are embedded unless ONWARD_DATABASE_URL and ONWARD_REDIS_URL name others. The first
    start makes the key of an admin and says which file it is in.

    SIGTERM or Ctrl-C lets what runs end and leaves; once more, it leaves without waiting. Whatever
    way it ended, the next start on the same data goes on where it was.
    """
    from onward.cli.environment import settings
    from onward.engines.equipment import Simulated
    from onward.service import logs
    from onward.service.up import Service, run

    folder = data_dir.expanduser().resolve() if data_dir else None
    chosen = {"host": host, "port": port, "data_dir": folder}
    changes = {name: value for name, value in chosen.items() if value is not None}
    found: Settings = settings().model_copy(update=changes)
    logs.configure()
    run(Service(found, Simulated(network, seed, fleet), access_log), show)


def show(ready: Ready) -> None:
    """Tell whoever has started it what they need to use it."""
    if not ready.loopback:
        typer.echo(
            f"onward: {ready.address} can be reached by others, and there is no TLS: "
            "put a proxy with TLS before it, or listen on 127.0.0.1.",
            err=True,
        )
    lines = {
        "address": ready.address,
        "docs": f"{ready.address}/docs",
        "key": ready.key,
        "data": ready.data,
        "stop": f"Ctrl-C or kill {os.getpid()}; what runs may end first, unless you say it twice",
    }
    typer.echo("Onward is up.\n")
    for name, value in lines.items():
        typer.echo(f"  {name:<9}{value}")
    typer.echo("")
