"""What became of an event, as it is told over HTTP."""

from __future__ import annotations

from pydantic import BaseModel, Field

from onward.api.problems import Problem
from onward.core.lifecycles import NODE
from onward.core.verdicts import TransitionResult
from onward.store.transitions import Answer


class Verdict(BaseModel):
    """What became of one event, and where its command stands now."""

    verdict: TransitionResult
    changed: bool = Field(description="Whether the command moved: true exactly for `OK`.")
    meaning: str = Field(
        description="The verdict in one sentence.", examples=[TransitionResult.OK.meaning]
    )
    cmd_id: str | None = Field(
        description="`null` where no command is known.",
        examples=["019a9433-7c3e-7d61-8b5e-3f1f3f0c2a77"],
    )
    lifecycle: str | None = Field(examples=[NODE.name])
    status: str | None = Field(examples=[str(NODE.moves["ack"].target)])
    epoch: int | None = Field(examples=[4_711])
    version: int | None = Field(examples=[3])


def verdict(answer: Answer) -> Verdict:
    """Tell an answer of the store."""
    state = answer.record
    return Verdict(
        verdict=answer.result,
        changed=answer.changed,
        meaning=answer.result.meaning,
        cmd_id=state and state.cmd_id,
        lifecycle=state and state.lifecycle,
        status=state and state.status,
        epoch=state and state.epoch,
        version=state and state.version,
    )


def verdict_json(answer: Answer) -> str:
    """Write what `verdict` tells, at a tenth of the cost: all of it is plain text of our own."""
    state = answer.record
    if state is None:
        return f'{_HEADS[answer.result]}"cmd_id":null,{_NOTHING}'
    return (
        f'{_HEADS[answer.result]}"cmd_id":"{state.cmd_id}","lifecycle":"{state.lifecycle}",'
        f'"status":"{state.status}","epoch":{state.epoch},"version":{state.version}}}'
    )


def unknown_command() -> Problem:
    """Make the answer to whoever speaks of a command that is not there."""
    result = TransitionResult.UNKNOWN_COMMAND
    return Problem(
        404,
        "unknown-command",
        "There is no such command",
        result.meaning,
        extra={"verdict": result.value, "changed": False},
    )


_NOTHING = '"lifecycle":null,"status":null,"epoch":null,"version":null}'
_HEADS = {
    result: f'{{"verdict":"{result.value}","changed":{str(result is TransitionResult.OK).lower()},'
    f'"meaning":"{result.meaning}",'
    for result in TransitionResult
}
