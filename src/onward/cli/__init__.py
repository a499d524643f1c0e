"""The command `onward`: one module a noun, each loaded when it is needed.

What a command has to say goes to standard output, how it gets on to standard error. A failure is
one line there; what the exit codes mean is a table below, and chosen nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Final

import typer

from onward import errors
from onward.cli import agent, bench, db, demo, docs, hosts, scale, storm, trade, up

FAILED: Final = 1
INTERRUPTED: Final = 130

# By class, and no class inherits it: whoever adds an error decides here.
EXIT_CODES: Final[Mapping[type[errors.OnwardError], int]] = MappingProxyType(
    {
        errors.OnwardError: FAILED,
        errors.InvalidInput: FAILED,
        errors.InvalidLifecycle: FAILED,
        errors.UnknownLifecycle: FAILED,
        errors.JobConflict: FAILED,
        errors.PlanChanged: FAILED,
        errors.NotOpen: FAILED,
        errors.ServerProblem: FAILED,
        errors.ServerUnreachable: FAILED,
        errors.ServerTooOld: FAILED,
        errors.ServerNotDurable: FAILED,
        errors.SchemaMismatch: FAILED,
        errors.ChannelError: FAILED,
        errors.NotDelivered: FAILED,
        errors.DeliveryUnknown: FAILED,
        errors.HostRefused: FAILED,
        errors.HostOffline: FAILED,
        errors.HostBusy: FAILED,
        errors.InvariantBroken: FAILED,
        errors.GuardDrift: FAILED,
    }
)

app = typer.Typer(
    name="onward",
    help="Commands on fleets: forward only, ended exactly once, always able to say why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("up")(up.up)
app.command("api")(scale.api)
app.command("worker")(scale.worker)
app.command("beat")(scale.beat)
app.command("agent")(agent.agent)
app.command("demo")(demo.demo)
app.command("storm")(storm.storm)
app.command("bench")(bench.bench)
app.command("docs")(docs.docs)
app.add_typer(hosts.app, name="hosts")
app.add_typer(trade.app, name="trade")
app.add_typer(db.app, name="db")


@app.callback()
def _onward(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole traceback of a failure.")
    ] = False,
) -> None:
    global _debug  # noqa: PLW0603 - the one switch that has to outlive the command it is given to
    _debug = debug


_debug = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    try:
        app(args=arguments)
    except errors.OnwardError as error:
        if _debug:
            raise
        typer.echo(f"onward: {_one_line(error)}", err=True)
        sys.exit(EXIT_CODES.get(type(error), FAILED))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _one_line(error: errors.OnwardError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
