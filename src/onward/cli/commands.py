"""`onward commands`: commands that travel by themselves, made and moved by what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from onward.cli.asking import Params, ParamsFile
from onward.cli.finding import Everything, Limit
from onward.cli.shapes import COMMAND, EVENT, VERDICT
from onward.cli.tree import Reading, given_of, noun

app = noun("Commands that travel by themselves.")

CommandId = Annotated[str, typer.Argument(metavar="COMMAND", help="Its id, a UUID.")]


@app.command("list", cls=Reading)
def list_commands(
    context: typer.Context,
    *,
    status: Annotated[str | None, typer.Option(metavar="STATUS", help="Only in this one.")] = None,
    lifecycle: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this lifecycle.")
    ] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="Only for this node.")] = None,
    limit: Limit = 50,
    everything: Everything = False,
) -> None:
    """List commands, the newest first."""
    from onward.cli.finding import show_list

    most = None if everything else limit
    show_list(
        context, COMMAND, "/commands", most=most, status=status, lifecycle=lifecycle, node=node
    )


@app.command("show", cls=Reading)
def show(context: typer.Context, command: CommandId) -> None:
    """Show a command, and what may be said about it now."""
    from onward.cli.client import service
    from onward.cli.output import show_one

    with service(context) as found:
        row = found.get(_path(command))
    show_one(given_of(context), COMMAND, row)


@app.command("timeline", cls=Reading)
def timeline(context: typer.Context, command: CommandId) -> None:
    """Show every event with its verdict, also those that moved nothing."""
    from onward.cli.finding import show_list

    show_list(context, EVENT, f"{_path(command)}/timeline", most=None)


@app.command(
    "make",
    cls=Reading,
    epilog="""
    onward commands make --type dose --node pump-1 --param ml:=5
    """,
)
def make(
    context: typer.Context,
    *,
    kind: Annotated[str, typer.Option("--type", metavar="TYPE", help="What is to be done.")] = "",
    node: Annotated[str, typer.Option(metavar="NODE", help="What it is for.")] = "",
    param: Params = None,
    params_file: ParamsFile = None,
    cmd_id: Annotated[
        str | None,
        typer.Option("--id", metavar="UUID", help="An id of your own makes a repeat harmless."),
    ] = None,
    lifecycle: Annotated[str | None, typer.Option(metavar="NAME", help="How it may move.")] = None,
    task_id: Annotated[
        str | None, typer.Option(metavar="ID", help="What a platform calls it.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Until it times out by itself.")
    ] = None,
) -> None:
    """Make a command, and say what became of that. Making it again changes nothing."""
    from onward.cli.asking import params_of

    said = {
        "cmd_id": cmd_id,
        "lifecycle": lifecycle,
        "task_id": task_id,
        "timeout_s": timeout,
    }
    body = {"type": kind, "node": node, "params": params_of(param, params_file)}
    _send(context, "/commands", {**body, **_named(said)})


@app.command(
    "event",
    cls=Reading,
    epilog="""
    onward commands event 019a9433-7c3e-7d61-8b5e-3f1f3f0c2a77 ack --source gateway-2
    """,
)
def event(
    context: typer.Context,
    command: CommandId,
    name: Annotated[
        str, typer.Argument(metavar="EVENT", help="A verb of its lifecycle, such as ack or done.")
    ],
    *,
    epoch: Annotated[int | None, typer.Option(help="The attempt that speaks.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Who says so.", show_default="the name of the key")
    ] = None,
    duration_ms: Annotated[int | None, typer.Option(help="How long it took.")] = None,
    result_code: Annotated[str | None, typer.Option(help="What the node calls its result.")] = None,
    error_code: Annotated[str | None, typer.Option(help="What the node calls its error.")] = None,
    error_message: Annotated[str | None, typer.Option(help="What went wrong, in words.")] = None,
    result: Annotated[str | None, typer.Option(metavar="JSON", help="What came of it.")] = None,
) -> None:
    """Say something about a command, and show the verdict.

    What comes late, twice or out of order is no error: it is judged, and kept in the timeline.
    """
    from onward.cli.asking import json_of

    said = {
        "epoch": epoch,
        "source": source,
        "duration_ms": duration_ms,
        "result_code": result_code,
        "error_code": error_code,
        "error_message": error_message,
        "result": None if result is None else json_of("--result", result),
    }
    _send(context, f"{_path(command)}/events", {"event": name, **_named(said)})


@app.command(
    "events",
    cls=Reading,
    epilog="""
    onward commands events heard.jsonl
    gateway-log | onward commands events - -o jsonl
    """,
)
def events(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help='Lines such as {"cmd_id": UUID, "event": "ack"}, with the options of `event` as '
            "fields; - for standard input.",
        ),
    ],
) -> None:
    """Say many things about many commands, and show the verdict of each.

    Those about one command are judged in the order of the lines. If a line is wrong, nothing of the
    thousand that it is sent with is recorded.
    """
    from onward.cli.client import service
    from onward.cli.command_events import JUDGED, read_lines, record
    from onward.cli.output import show_rows

    lines = read_lines(file)
    with service(context) as found:
        judged, refusal = record(found, lines)
    show_rows(given_of(context), JUDGED, judged)
    if refusal is not None:
        raise refusal


def _send(context: typer.Context, path: str, body: dict[str, object]) -> None:
    from onward.cli.client import service
    from onward.cli.output import show_one

    with service(context) as found:
        verdict = found.do("POST", path, body=body).body
    show_one(given_of(context), VERDICT, verdict)


def _named(said: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in said.items() if value is not None}


def _path(command: str) -> str:
    from urllib.parse import quote

    return f"/commands/{quote(command, safe='')}"
