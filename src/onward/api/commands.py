"""Commands that travel by themselves: made, looked at, and moved by what is said about them.

Whatever is said is answered with its verdict. That an event came late, twice or out of order is
the network's doing and no error of whoever brings it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from onward.api import conditional, paging
from onward.api.models import Model, Name
from onward.api.paging import Cursor, Limit
from onward.api.permissions import Permission, needs, problem_response
from onward.api.problems import Problem
from onward.api.routing import router
from onward.api.services import Calling, Services, Serving
from onward.api.verdicts import Verdict, unknown_command, verdict
from onward.core.lifecycles import LIFECYCLES, NODE, lifecycle_named
from onward.core.verdicts import TransitionResult
from onward.errors import InvalidInput
from onward.fleet import commands as fleet
from onward.fleet.attempt_ids import execution_of
from onward.fleet.masking import Hidden, hidden_of, masked_params
from onward.store import browse, inputs
from onward.store.commands import NewCommand, Row
from onward.store.transitions import Event

_LIST: Final = "commands"
_TIMELINE: Final = "command timeline"
_EVENTS_MAX: Final = 10_000
_EXAMPLE_ID: Final = "019a9433-7c3e-7d61-8b5e-3f1f3f0c2a77"
_UNKNOWN: Final = {404: problem_response("There is no such command")}
_NAMES: Final = ", ".join(LIFECYCLES)
# What a node has said, and may have repeated a secret in.
_SAID: Final = frozenset(
    {"error_message", "error_code", "result_code", "result", "late_result", "detail"}
)

commands = router("/commands", "commands")


def _command_id(value: str) -> str:
    try:
        return inputs.command_id(value)
    except InvalidInput:
        raise ValueError("a command id is a UUID") from None


CommandId = Annotated[str, AfterValidator(_command_id)]
InPath = Annotated[CommandId, Path(examples=[_EXAMPLE_ID])]
# What other systems number or name; it is kept as text.
Code = Annotated[str | int | None, Field(description="Kept as text.", examples=["E42"])]


class CommandRequest(Model):
    """A command to be made."""

    cmd_id: CommandId | None = Field(
        default=None,
        description="An id of your own makes a repeat of the request harmless. A UUIDv7, please: "
        "lists are in the order of the ids. Made here if there is none.",
        examples=[_EXAMPLE_ID],
    )
    type: str = Field(default="", description="What is to be done.", examples=["set_relay"])
    params: dict[str, Any] = Field(default_factory=dict, examples=[{"relay": 3, "on": True}])
    node: str = Field(default="", description="What it is for.", examples=["greenhouse-7"])
    lifecycle: str = Field(default=NODE.name, description=f"One of {_NAMES}.", examples=[NODE.name])
    task_id: Code = Field(
        default=None,
        description="The name that a third-party platform has for it, and calls back with.",
        examples=["64"],
    )
    timeout_s: float | None = Field(
        default=None, description="Without it, ONWARD_COMMAND_TIMEOUT_S.", examples=[300.0]
    )


class CommandSummary(BaseModel):
    """A command as it is listed, without what could be large."""

    cmd_id: str = Field(examples=[_EXAMPLE_ID])
    lifecycle: str = Field(examples=[NODE.name])
    node: str = Field(examples=["greenhouse-7"])
    type: str = Field(examples=["set_relay"])
    task_id: str | None
    status: str = Field(examples=[str(NODE.moves["done"].target)])
    epoch: int = Field(description="The fence of the present attempt.", examples=[4_711])
    version: int = Field(examples=[3])
    timeout_s: float = Field(examples=[300.0])
    created_at: datetime
    updated_at: datetime
    deadline_at: datetime | None = Field(description="When it times out, if nobody finishes it.")
    due_at: datetime | None = Field(
        description="When somebody should look at it: in this status no timeout ends it."
    )
    finished_at: datetime | None
    duration_ms: int | None = Field(examples=[1_200])
    result_code: str | None
    error_code: str | None


class Command(CommandSummary):
    """A command, and what may be said about it now."""

    params: dict[str, Any] = Field(examples=[{"relay": 3, "on": True}])
    error_message: str | None
    result: Any
    late_result: dict[str, Any] | None = Field(
        description="What the node said when it was too late to change the status."
    )
    allowed: list[str] = Field(
        description="The events that would move it on from here.", examples=[["ack", "done"]]
    )


class CommandPage(BaseModel):
    """A page of commands, the newest first; with a filter it may be short, or even empty."""

    items: list[CommandSummary]
    next_cursor: str | None


class TimelineEvent(BaseModel):
    """Something that was said about a command, and what became of it."""

    at: datetime
    event: str = Field(examples=["done"])
    verdict: TransitionResult
    from_status: str | None
    to_status: str | None
    epoch: int | None
    source: str = Field(description="Who said it.", examples=["gateway"])
    detail: dict[str, Any] | None = Field(examples=[{"duration_ms": 1_200}])


class CommandTimeline(BaseModel):
    """Everything that was said about a command, in the order in which it was judged."""

    items: list[TimelineEvent]
    next_cursor: str | None


class Said(Model):
    """Something that is said about a command."""

    event: Name = Field(description="A verb of its lifecycle.", examples=["done"])
    epoch: int | None = Field(
        default=None,
        description="The attempt that speaks. What a former one says is refused as STALE_EPOCH.",
        examples=[4_711],
    )
    source: str = Field(
        default="", description="Who says so; without it, the name of the key.", examples=["edge-2"]
    )
    duration_ms: int | None = Field(default=None, examples=[1_200])
    result_code: Code = None
    error_code: Code = None
    error_message: str | None = None
    result: Any = Field(default=None, description="Any JSON.", examples=[{"relay": "on"}])


class SaidOf(Said):
    """Something that is said about one of many commands."""

    cmd_id: CommandId = Field(examples=[_EXAMPLE_ID])


class Batch(Model):
    """Events over many commands; those of one command are applied in the order given."""

    events: list[SaidOf] = Field(min_length=1, max_length=_EVENTS_MAX)


class Verdicts(BaseModel):
    """One verdict for each event, in its place."""

    verdicts: list[Verdict]


@commands.post(
    "",
    status_code=201,
    **needs(
        Permission.RUN,
        responses={
            200: {"description": "DUPLICATE: it was made before, just so", "model": Verdict},
            422: problem_response(
                "A field is wrong; or CONFLICT: the id, or the platform's task, stands for "
                "another command"
            ),
        },
    ),
)
async def create_command(
    wanted: CommandRequest, response: Response, caller: Calling, services: Serving
) -> Verdict:
    """Make a command. Saying so again changes nothing."""
    new = fleet.new_command(services.settings, **wanted.model_dump(), source=caller.name)
    answer = await services.commands.create(new)
    if answer.result is TransitionResult.CONFLICT:
        raise _conflict(new, await services.commands.get(new.cmd_id))
    response.status_code = 201 if answer.changed else 200
    response.headers["Location"] = f"/commands/{new.cmd_id}"
    return verdict(answer)


@commands.get("", **needs(Permission.READ))
async def list_commands(
    services: Serving,
    limit: Limit = 100,
    cursor: Cursor = None,
    lifecycle: Annotated[str | None, Query(description=f"Only of {_NAMES}.")] = None,
    node: Annotated[str | None, Query(description="Only for this node.")] = None,
    status: Annotated[
        str | None, Query(description="Only in this status of its lifecycle.")
    ] = None,
) -> CommandPage:
    """List commands, the newest first. Follow `next_cursor` to the end, also past short pages.

    With a filter, a page looks at 50,000 commands at most, so that it may be short.
    """
    position = paging.decode(_LIST, cursor)
    found = await services.commands.page(
        limit=limit,
        lifecycle=None if lifecycle is None else lifecycle_named(lifecycle).name,
        node=None if node is None else inputs.name("node", node, empty=True),
        status=None if status is None else _status(status, lifecycle),
        **({"before": inputs.command_id(position[0])} if position else {}),
    )
    return CommandPage(
        items=[CommandSummary.model_validate(row) for row in found.items],
        next_cursor=None if found.before is None else paging.encode(_LIST, [found.before]),
    )


@commands.get("/{cmd_id}", response_model=Command, **needs(Permission.READ, responses=_UNKNOWN))
async def get_command(cmd_id: InPath, request: Request, services: Serving) -> Response:
    """Return a command. Its ETag is its version, which every change raises."""
    row = await services.commands.get(cmd_id)
    if row is None:
        raise unknown_command()
    shown = _command(*await _without_secrets(services, cmd_id, [row]))
    if conditional.none_match(request, shown.version):
        return conditional.not_modified(shown.version)
    return Response(
        shown.model_dump_json(),
        media_type="application/json",
        headers={"ETag": conditional.etag(shown.version)},
    )


@commands.get("/{cmd_id}/timeline", **needs(Permission.READ, responses=_UNKNOWN))
async def get_command_timeline(
    cmd_id: InPath, services: Serving, limit: Limit = 100, cursor: Cursor = None
) -> CommandTimeline:
    """Return every event with its verdict, also those that moved nothing.

    What was said about an id that no command has is kept as well.
    """
    kind = f"{_TIMELINE} {cmd_id}"
    position = paging.decode_ids(kind, cursor, length=1)
    found = await services.commands.timeline(
        cmd_id, after=position[0] if position else 0, limit=limit + 1
    )
    if not found and not position and await services.commands.get(cmd_id) is None:
        raise unknown_command()
    page, more = found[:limit], len(found) > limit
    told = await _without_secrets(services, cmd_id, page)
    return CommandTimeline(
        items=[TimelineEvent.model_validate(row) for row in told],
        next_cursor=paging.encode(kind, [_seq(page[-1])]) if more else None,
    )


@commands.post("/events", **needs(Permission.REPORT))
async def record_events(batch: Batch, caller: Calling, services: Serving) -> Verdicts:
    """Record many events over many commands at once.

    Each is judged on its own merit. The batch is not a transaction; but if a field of any event is
    wrong, none is recorded.
    """
    events = [
        _event(services, said.cmd_id, said, by=caller.name, field=f"events[{number}].")
        for number, said in enumerate(batch.events)
    ]
    answers = await services.commands.record_all(events)
    return Verdicts(verdicts=[verdict(answer) for answer in answers])


@commands.post("/{cmd_id}/events", **needs(Permission.REPORT, responses=_UNKNOWN))
async def record_event(cmd_id: InPath, said: Said, caller: Calling, services: Serving) -> Verdict:
    """Record what is said about a command, and answer with the verdict, whatever it is."""
    answer = await services.commands.record(_event(services, cmd_id, said, by=caller.name))
    if answer.record is None:
        raise unknown_command()
    return verdict(answer)


def _status(status: str, lifecycle: str | None) -> str:
    tables = LIFECYCLES.values() if lifecycle is None else [lifecycle_named(lifecycle)]
    known = dict.fromkeys(str(state) for table in tables for state in table.states)
    if status not in known:
        raise InvalidInput("status", f"is not one of {', '.join(known)}")
    return status


def _event(services: Services, cmd_id: str, said: Said, *, by: str, field: str = "") -> Event:
    try:
        return fleet.event(
            services.settings,
            cmd_id,
            said.event,
            epoch=said.epoch,
            source=said.source or by,
            data=said.model_dump(
                include={"duration_ms", "result_code", "error_code", "error_message", "result"}
            ),
        )
    except InvalidInput as error:
        raise InvalidInput(f"{field}{error.field.removeprefix('data.')}", error.problem) from None


async def _without_secrets(services: Services, cmd_id: str, rows: Sequence[Row]) -> Sequence[Row]:
    """Return what is known about a command, as it may be shown."""
    found = await browse.masked_of_command(services.pool, cmd_id, execution_of(cmd_id))
    if found is None:
        return rows
    params, masked = found
    hidden = hidden_of(params, masked)
    return [_veiled(row, masked, hidden) for row in rows]


def _veiled(row: Row, masked: Sequence[str], hidden: Hidden | None) -> Row:
    told = dict(row)
    if isinstance(params := row.get("params"), Mapping):
        told["params"] = masked_params(params, masked)
    if hidden is not None:
        told |= {name: hidden.out_of_value(row[name]) for name in _SAID.intersection(row)}
    return told


def _command(row: Row) -> Command:
    table, status = lifecycle_named(row["lifecycle"]), str(row["status"])
    return Command.model_validate({**row, "allowed": table.allowed(status)})


def _conflict(new: NewCommand, row: Mapping[str, object] | None) -> Problem:
    result = TransitionResult.CONFLICT
    if row is None:
        told = "The platform's task of this node belongs to another command; give it another name."
        differs = ["task_id"]
    else:
        told = "It differs in what `differs` names; make the new one under an id of its own."
        differs = fleet.differences(new, row)
    return Problem(
        422,
        "command-conflict",
        "The id stands for another command",
        told,
        extra={"verdict": result.value, "changed": False, "differs": differs},
    )


def _seq(row: Row) -> int:
    seq = row["seq"]
    assert isinstance(seq, int)  # noqa: S101 - it is the key of the table
    return seq
