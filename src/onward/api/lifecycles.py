"""The lifecycles as data, for whoever draws them or wants to know what may follow on what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel, Field

from onward.api.permissions import Permission, needs
from onward.api.routing import router
from onward.core.lifecycle import Lifecycle as Table
from onward.core.lifecycles import EXECUTION, LIFECYCLES

lifecycles = router("/lifecycles", "operations")

_SUCCEED: Final = EXECUTION.moves["succeed"]


class State(BaseModel):
    """A status that something can be in."""

    name: str = Field(examples=[str(_SUCCEED.target)])
    rank: int = Field(description="Forward is towards the higher one.", examples=[3])
    terminal: bool = Field(description="No move leaves it.")


class Move(BaseModel):
    """What an event does, in the statuses in which it may."""

    event: str = Field(examples=["succeed"])
    sources: list[str] = Field(alias="from", examples=[list(_SUCCEED.sources)])
    to: str = Field(examples=[str(_SUCCEED.target)])


class Lifecycle(BaseModel):
    """The statuses of a kind of thing, and the moves between them."""

    name: str = Field(examples=[EXECUTION.name])
    initial: str = Field(examples=[EXECUTION.initial])
    states: list[State] = Field(description="In the order of their ranks.")
    moves: list[Move]


class LifecycleList(BaseModel):
    """All lifecycles there are."""

    items: list[Lifecycle]


@lifecycles.get("", **needs(Permission.READ))
async def list_lifecycles() -> LifecycleList:
    """Return every lifecycle: its statuses, and which event leads from where to where."""
    return LifecycleList(items=[_shown(table) for table in LIFECYCLES.values()])


def _shown(table: Table) -> Lifecycle:
    return Lifecycle(
        name=table.name,
        initial=str(table.initial),
        states=[
            State(name=str(name), rank=rank, terminal=name in table.terminal)
            for name, rank in sorted(table.states.items(), key=lambda state: state[1])
        ],
        moves=list(_moves(table)),
    )


def _moves(table: Table) -> Iterator[Move]:
    for event, move in table.moves.items():
        sources = list(map(str, move.sources))
        yield Move.model_validate({"event": event, "from": sources, "to": str(move.target)})
