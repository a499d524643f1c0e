"""What the registry costs: time an event, beside two libraries and a bare dict; memory a command.

Every contender takes the same commands through the same lifecycle, received, accepted, executed, in
three waves: first all are received, then all accepted, then all executed. So all commands are live
at once, and nothing is found in the processor's cache because it was touched a moment ago.
To a library, receiving a command means making the object that it moves.
The collector runs as it always does. Times are processor times, and each is the best of several
rounds that are taken in turns, so that a busy machine troubles all of them alike.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module

from onward.bench.result import Result
from onward.core import AGENT, Command, CommandRegistry

_LIVE = 1_000_000  # that many at once are normal
_LIBRARY_LIVE = 10_000  # fewer are kinder to a library, and a round still ends within seconds
_ROUNDS = 3
_EVENTS = 3  # received, accepted, executed
_MISSING = 'not run: pip install "onward[bench]"'

# Takes commands through their life, and gives the seconds that it took.
_Round = Callable[[Sequence[Command]], float]

_MEMORY_PROBE = """
import sys, time
from onward.core import Command, CommandRegistry

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

count = int(sys.argv[1])
registry = CommandRegistry(clock=time.monotonic)
before = resident()
for number in range(count):
    registry.on_received(Command(f"018f6b0e-7c1a-7000-8000-{number:012x}", "restart", {}))
print((resident() - before) / count)
"""


def registry(progress: Callable[[str], None]) -> Iterator[Result]:
    """Measure the registry; `progress` is told what is being measured."""
    yield _against_libraries(progress)
    # Beside so little, what a verdict, a clock and a lock cost shows most while everything is in
    # the processor's cache, and least where both wait for memory.
    yield _against_dict(progress, "a million live", _LIVE)
    yield _against_dict(progress, "ten thousand live", _LIBRARY_LIVE)
    yield _memory(progress)


def _against_libraries(progress: Callable[[str], None]) -> Result:
    name, target = "registry transitions", ">= 10 x"
    rounds: dict[str, _Round] = {"registry": _registry_round}
    for library, contender in _LIBRARIES.items():
        try:
            import_module(library)
        except ImportError:
            continue
        rounds[library] = contender
    progress(f"registry: events a second, beside {', '.join(_LIBRARIES)}")
    rates = _race(rounds, _LIBRARY_LIVE)
    ours = rates.pop("registry")
    # The claim is about the faster of the two, so it takes both.
    if len(rates) < len(_LIBRARIES):
        return Result(name, ours, "events/s", _MISSING, None, target, None)
    fastest = max(rates, key=rates.__getitem__)
    ratio = ours / rates[fastest]
    return Result(name, ours, "events/s", fastest, ratio, target, ratio >= 10)  # noqa: PLR2004 - the target beside it


def _against_dict(progress: Callable[[str], None], shown: str, live: int) -> Result:
    progress(f"registry: events a second, beside a bare dict, {shown}")
    rates = _race({"registry": _registry_round, "dict": _dict_round}, live)
    ratio = rates["registry"] / rates["dict"]
    name = f"registry transitions, {shown}"
    return Result(
        name, rates["registry"], "events/s", "a bare dict", ratio, ">= 1/4", ratio >= 1 / 4
    )


def _memory(progress: Callable[[str], None]) -> Result:
    progress("registry: memory of a million live commands")
    name, target = "registry memory per live command", "<= 600 bytes"
    if sys.platform != "linux":
        return Result(name, math.nan, "bytes", "not run: needs Linux", None, target, None)
    # In a process of its own, so that nothing which was freed earlier is counted as free.
    command = [sys.executable, "-c", _MEMORY_PROBE, str(_LIVE)]
    probe = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own words
    size = float(probe.stdout)
    return Result(name, size, "bytes", None, None, target, size <= 600)  # noqa: PLR2004 - the target beside it


def _race(rounds: dict[str, _Round], live: int) -> dict[str, float]:
    """Let all run in turns, and give the best rate of each, in events a second."""
    commands = [Command(f"command-{number:012x}", "restart", {}) for number in range(live)]
    best = dict.fromkeys(rounds, math.inf)
    for _ in range(_ROUNDS):
        for name, contender in rounds.items():
            best[name] = min(best[name], contender(commands))
    return {name: live * _EVENTS / seconds for name, seconds in best.items()}


def _registry_round(commands: Sequence[Command]) -> float:
    ids = [command.command_id for command in commands]
    ours = CommandRegistry(clock=time.monotonic)
    started = time.process_time()
    for command in commands:
        ours.on_received(command)
    for command_id in ids:
        ours.on_accepted(command_id)
    for command_id in ids:
        ours.on_executed(command_id)
    # What the moves left behind in the queues is part of their price.
    ours.expire_timeouts()
    return time.process_time() - started


def _dict_round(commands: Sequence[Command]) -> float:
    """The least that could be called a registry: no times, no verdicts, no threads, no limits."""
    ids = [command.command_id for command in commands]
    table: dict[str, dict[str | None, str]] = {
        event: dict.fromkeys(move.sources, move.target) for event, move in AGENT.moves.items()
    }
    table["receive"] = {None: AGENT.initial}
    status: dict[str, str] = {}

    def move(event: str, command_id: str) -> None:
        status[command_id] = table[event][status.get(command_id)]

    started = time.process_time()
    for event in ("receive", "accept", "execute"):
        for command_id in ids:
            move(event, command_id)
    return time.process_time() - started


def _transitions_round(commands: Sequence[Command]) -> float:
    transitions = import_module("transitions")

    class Held:
        pass

    machine = transitions.Machine(
        model=None, states=list(AGENT.states), initial=AGENT.initial, auto_transitions=False
    )
    for event, move in AGENT.moves.items():
        machine.add_transition(event, list(move.sources), move.target)
    held = [Held() for _ in commands]
    started = time.process_time()
    machine.add_model(held)
    for model in held:
        model.accept()  # type: ignore[attr-defined]  # the library writes the triggers into the model
    for model in held:
        model.execute()  # type: ignore[attr-defined]  # as above
    return time.process_time() - started


def _statemachine_round(commands: Sequence[Command]) -> float:
    library = import_module("statemachine")
    states = {
        status: library.State(initial=status == AGENT.initial, final=status in AGENT.terminal)
        for status in AGENT.states
    }
    moves = {}
    for event, move in AGENT.moves.items():
        first, *rest = (states[source].to(states[move.target]) for source in move.sources)
        for other in rest:
            first |= other
        moves[event] = first
    machine = type(library.StateMachine)("Held", (library.StateMachine,), {**states, **moves})
    started = time.process_time()
    held = [machine() for _ in commands]
    for model in held:
        model.accept()
    for model in held:
        model.execute()
    return time.process_time() - started


_LIBRARIES: dict[str, _Round] = {
    "transitions": _transitions_round,
    "statemachine": _statemachine_round,
}
