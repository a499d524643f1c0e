"""The law: which statuses a command has, what moves it, and what an event means when it does not.

Standard library only; no input or output, no clock, no chance: whatever the world decides is handed
in, so the same calls give the same answers, and a test needs nothing but the calls.
"""

from __future__ import annotations

from onward.core.lifecycle import Decision, Lifecycle, Move, Timer, move, ranked
from onward.core.lifecycles import (
    AGENT,
    EXECUTION,
    LIFECYCLES,
    NODE,
    ORDER,
    PLATFORM,
    PLATFORM_LENIENT,
    CommandStatus,
    lifecycle_named,
)
from onward.core.registry import Command, CommandRecord, CommandRegistry
from onward.core.verdicts import Transition, TransitionResult

__all__ = [
    "AGENT",
    "EXECUTION",
    "LIFECYCLES",
    "NODE",
    "ORDER",
    "PLATFORM",
    "PLATFORM_LENIENT",
    "Command",
    "CommandRecord",
    "CommandRegistry",
    "CommandStatus",
    "Decision",
    "Lifecycle",
    "Move",
    "Timer",
    "Transition",
    "TransitionResult",
    "lifecycle_named",
    "move",
    "ranked",
]
