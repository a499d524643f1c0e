"""The lifecycles of Onward: each is the table of one kind of command, and nothing else.

This is the only place where a status, an event or a legal move is written down by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from onward.core.lifecycle import Lifecycle, move, ranked
from onward.core.verdicts import TransitionResult
from onward.errors import UnknownLifecycle

OK, DUPLICATE, UNKNOWN_COMMAND, INVALID_STATE, TERMINAL, STALE, *_ = TransitionResult

_LIVE_NODE = ("QUEUED", "SENT", "ACK")

NODE = Lifecycle(
    name="node",
    states=ranked(
        "QUEUED",
        "SENT",
        "ACK",
        "SEND_FAILED",
        "DONE",
        "NO_EFFECT",
        "ERROR",
        "INVALID",
        "BUSY",
        "TIMEOUT",
    ),
    initial="QUEUED",
    moves={
        "send": move("QUEUED", "SEND_FAILED", to="SENT"),
        # The same without leave to send again.
        "send_once": move("QUEUED", to="SENT"),
        "send_fail": move("QUEUED", to="SEND_FAILED"),
        "ack": move("QUEUED", "SENT", to="ACK"),
        # A result is taken before its ACK: refusing a DONE because the ACK is late
        # would throw away the only evidence of what the node did.
        "done": move(*_LIVE_NODE, to="DONE"),
        "no_effect": move(*_LIVE_NODE, to="NO_EFFECT"),
        "fail": move(*_LIVE_NODE, to="ERROR"),
        "invalid": move(*_LIVE_NODE, to="INVALID"),
        "busy": move(*_LIVE_NODE, to="BUSY"),
        "timeout": move(*_LIVE_NODE, to="TIMEOUT"),
    },
    refuse_in_order=(TERMINAL, DUPLICATE, STALE, INVALID_STATE),
    # A failed send is waiting to be sent again; the seed lets nothing else move it.
    untimed=frozenset({"SEND_FAILED"}),
    presumed=frozenset({"SEND_FAILED", "TIMEOUT"}),
    results=frozenset({"done", "no_effect", "fail", "invalid", "busy"}),
)

_PLATFORM_STATES = ranked(
    "INITIALIZED",
    "SAVED",
    "SENT",
    "DELIVERED",
    "COMPLETED",
    "TTL_TIMEOUT",
    "TIMEOUT",
    first=1,  # these ranks are the platform's own codes, 1 to 7
)

PLATFORM = Lifecycle(
    name="platform",
    states=_PLATFORM_STATES,
    initial="INITIALIZED",
    moves={
        # A callback may name any status, so each has its event. The first can only be a repeat,
        # and no callback of the platform's can bring a command to TTL_TIMEOUT.
        "initialize": move(to="INITIALIZED"),
        "save": move("INITIALIZED", to="SAVED"),
        "send": move("INITIALIZED", "SAVED", to="SENT"),
        "deliver": move("SENT", to="DELIVERED"),
        "complete": move("DELIVERED", to="COMPLETED"),
        "ttl_timeout": move(to="TTL_TIMEOUT"),
        "timeout": move("SENT", to="TIMEOUT"),
    },
    refuse_in_order=(TERMINAL, DUPLICATE, STALE, INVALID_STATE),
    unreachable=frozenset({"TTL_TIMEOUT"}),
    untimed=frozenset({"INITIALIZED", "SAVED", "DELIVERED"}),
    presumed=frozenset({"TTL_TIMEOUT", "TIMEOUT"}),
    results=frozenset({"complete"}),
)

_LIVE_PLATFORM = ("INITIALIZED", "SAVED", "SENT", "DELIVERED")

PLATFORM_LENIENT = Lifecycle(
    name="platform_lenient",
    states=_PLATFORM_STATES,
    initial="INITIALIZED",
    moves={
        "initialize": move(to="INITIALIZED"),
        "save": move(*_LIVE_PLATFORM[:1], to="SAVED"),
        "send": move(*_LIVE_PLATFORM[:2], to="SENT"),
        "deliver": move(*_LIVE_PLATFORM[:3], to="DELIVERED"),
        "complete": move(*_LIVE_PLATFORM, to="COMPLETED"),
        "ttl_timeout": move(*_LIVE_PLATFORM, to="TTL_TIMEOUT"),
        "timeout": move(*_LIVE_PLATFORM, to="TIMEOUT"),
    },
    refuse_in_order=(TERMINAL, DUPLICATE, STALE, INVALID_STATE),
    presumed=frozenset({"TTL_TIMEOUT", "TIMEOUT"}),
    results=frozenset({"complete"}),
)

EXECUTION = Lifecycle(
    name="execution",
    states=ranked(
        "NEW",
        "QUEUED",
        "RUNNING",
        "SUCCESS",
        "FAILED",
        "TIMEOUT",
        "BLOCKED",
        "CANCELLED",
    ),
    initial="NEW",
    moves={
        "plan": move("NEW", to="QUEUED"),
        "claim": move("QUEUED", to="RUNNING", draws_epoch=True),
        "succeed": move("RUNNING", to="SUCCESS"),
        "fail": move("RUNNING", to="FAILED"),
        "timeout": move("RUNNING", to="TIMEOUT"),
        "block": move("QUEUED", to="BLOCKED"),
        "cancel": move("NEW", "QUEUED", "RUNNING", to="CANCELLED"),
        # The one way back, and it is a new attempt: what the former one still has to say is
        # refused by its epoch.
        "retry": move("RUNNING", to="QUEUED", draws_epoch=True),
    },
    refuse_in_order=(TERMINAL, DUPLICATE, STALE, INVALID_STATE),
    untimed=frozenset({"NEW", "QUEUED"}),
    presumed=frozenset({"TIMEOUT", "CANCELLED"}),
    results=frozenset({"succeed", "fail"}),
)


class CommandStatus(StrEnum):
    """Where a command is on the host that runs it."""

    RECEIVED = "RECEIVED"
    ACCEPTED = "ACCEPTED"
    EXECUTED = "EXECUTED"
    REJECTED = "REJECTED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"


AGENT = Lifecycle(
    name="agent",
    states=ranked(*CommandStatus),
    initial=CommandStatus.RECEIVED,
    moves={
        "accept": move(CommandStatus.RECEIVED, to=CommandStatus.ACCEPTED),
        "execute": move(CommandStatus.ACCEPTED, to=CommandStatus.EXECUTED),
        "reject": move(CommandStatus.RECEIVED, to=CommandStatus.REJECTED),
        "fail": move(CommandStatus.ACCEPTED, to=CommandStatus.FAILED),
        "timeout": move(CommandStatus.RECEIVED, CommandStatus.ACCEPTED, to=CommandStatus.TIMEOUT),
    },
    # Strict on purpose: what comes out of order is not put right here, so that it is seen.
    refuse_in_order=(DUPLICATE, TERMINAL, INVALID_STATE),
    presumed=frozenset({"TIMEOUT"}),
    results=frozenset({"execute", "fail"}),
)

ORDER = Lifecycle(
    name="order",
    states=ranked("OPEN", "FILLED", "CANCELLED"),
    initial="OPEN",
    moves={
        "fill": move("OPEN", to="FILLED"),
        "cancel": move("OPEN", to="CANCELLED"),
    },
    refuse_in_order=(TERMINAL, DUPLICATE, STALE, INVALID_STATE),
    # An offer stands until it is taken or withdrawn.
    untimed=frozenset({"OPEN"}),
)

LIFECYCLES: Mapping[str, Lifecycle] = MappingProxyType(
    {table.name: table for table in (NODE, PLATFORM, PLATFORM_LENIENT, EXECUTION, AGENT, ORDER)}
)


def lifecycle_named(name: object) -> Lifecycle:
    """Find a lifecycle by its name."""
    if isinstance(name, str) and (found := LIFECYCLES.get(name)):
        return found
    # Not all of it: the name is whatever somebody sent, and the message may be sent back.
    raise UnknownLifecycle(
        "lifecycle", f"{name!a:.80} is not one of {', '.join(sorted(LIFECYCLES))}"
    )
