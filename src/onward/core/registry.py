"""The commands that a host holds in memory, and the only way to move them.

Theory. A command is an entry in one map, and stands in one queue: that of its status, in the order
in which commands came to it. Everything in one status has the same time to live, and the time never
goes backwards here, so the order of a queue is the order of its deadlines: whatever is due stands
at the front, and a sweep looks no further. What may move where, and how a refusal is explained, is
read from `AGENT`; no status is named here.

Rule 1. Nothing moves by itself. `expire_timeouts` and `gc_ttl` are the only ones that look at
        deadlines; an event that comes after its deadline and before the sweep is judged by the
        status on record, so that the same calls always give the same answers.
Rule 2. The clock is handed in. A clock that steps back counts as one that stands still.
Rule 3. A due time belongs to what it ends: a command is timed out once `clock() >= deadline_at`.
Rule 4. What has not ended is never removed. A removed id is remembered for a second `ttl_s`: its
        late repeat is a DUPLICATE rather than a new command that would run again.
Rule 5. An id means one content. The same id with another type or payload is a CONFLICT, and
        nothing changes.
Rule 6. Every call may come from any thread. Callers get snapshots that never change; foreign code
        (the clock, a payload's own comparison) never runs while the lock is held.

A sweep costs one step for each command that it ends or removes, and one for each that has left the
front of its queue since the last sweep, whatever the number of commands held.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple

from onward.core.lifecycles import AGENT, CommandStatus
from onward.core.verdicts import Transition, TransitionResult
from onward.errors import InvalidInput

# As module constants, because looking a member up on its enum costs as much as the move itself.
_OK = TransitionResult.OK
_INITIAL = CommandStatus(AGENT.initial)
_TIMEOUT = CommandStatus(AGENT.moves[AGENT.timeout_event].target)
_DIGEST_BYTES = 8  # it is only compared with another content of the same id
_DIGEST_DEPTH = 32  # what lies deeper in a payload is not looked at

# What a named tuple's own constructor calls, without the Python function around it.
_make = tuple.__new__


@dataclass(frozen=True, slots=True)
class Command:
    """What a host is asked to do.

    The payload is read-only, and a shallow copy: what the caller adds to its own mapping later, or
    takes from it, is not seen here. Values inside it are shared, and should be left alone.
    """

    command_id: str
    command_type: str
    payload: Mapping[str, object] = field(hash=False)

    def __post_init__(self) -> None:
        _check_text("command_id", self.command_id)
        _check_text("command_type", self.command_type)
        if not isinstance(self.payload, Mapping):
            raise InvalidInput("payload", f"a mapping is needed, not {_kind(self.payload)}")
        object.__setattr__(self, "payload", MappingProxyType(dict(self.payload)))

    def __reduce__(self) -> tuple[type[Command], tuple[str, str, dict[str, object]]]:
        # A read-only view can be neither pickled nor copied; what it shows can.
        return Command, (self.command_id, self.command_type, dict(self.payload))


class CommandRecord(NamedTuple):
    """A command as it stood at one moment. Times are those of the registry's clock, in seconds."""

    command: Command
    status: CommandStatus
    received_at: float
    updated_at: float  # when it came to this status
    deadline_at: float | None  # when it times out; None once it has ended

    @property
    def command_id(self) -> str:
        """The id of the command."""
        return self.command.command_id


class _Entry:
    """A command as it stands now. It changes under the lock only, and never leaves the registry."""

    __slots__ = ("command", "received_at", "status", "updated_at")

    # Without `__init__`, which would double the price of receiving a command.
    command: Command
    status: CommandStatus
    received_at: float
    updated_at: float


class _Tombstone(NamedTuple):
    """What is remembered of a removed command."""

    digest: bytes
    forget_at: float


def _event(event: str, meaning: str) -> Callable[[CommandRegistry, str], Transition[CommandRecord]]:
    """Make the method that applies an event, with its part of the lifecycle at hand."""
    move = AGENT.moves[event]
    sources = tuple(CommandStatus(source) for source in move.sources)
    target = CommandStatus(move.target)
    place = tuple(CommandStatus).index(target)

    def on_event(self: CommandRegistry, command_id: str) -> Transition[CommandRecord]:
        now = self._clock()
        self._acquire()
        try:
            if now > self._latest:
                self._latest = now
            else:
                now = self._latest
            entry = self._entries.get(command_id)
            if entry is None or entry.status not in sources:
                return self._refuse(command_id, entry, event)
            entry.status = target
            entry.updated_at = now
            # It also stays in the queue that it leaves, until that queue's sweep comes by: to take
            # it out of the middle would cost more than everything else here.
            queue, timeout_s = self._places[place]
            queue.append(entry)
        except TypeError:
            _check_text("command_id", command_id)  # a list, say, which cannot be looked up
            raise
        finally:
            self._release()
        deadline_at = None if timeout_s is None else now + timeout_s
        record = _make(CommandRecord, (entry.command, target, entry.received_at, now, deadline_at))
        return _make(Transition, (record, _OK, True))

    on_event.__doc__ = meaning
    return on_event


class CommandRegistry:
    """Commands by id, moved by events; see the rules above.

    `clock` gives seconds and only needs to go forward. A command is timed out `accept_timeout_s`
    after it was received or `exec_timeout_s` after it was accepted, and removed `ttl_s` after it
    ended, by the sweeps `expire_timeouts` and `gc_ttl`, which the owner calls as often as it likes.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        accept_timeout_s: float = 15.0,
        exec_timeout_s: float = 80.0,
        ttl_s: float = 600.0,
    ) -> None:
        if not callable(clock):
            raise InvalidInput("clock", f"a callable is needed, not {_kind(clock)}")
        self._clock = clock
        self._latest = -math.inf
        self._ttl_s = _duration("ttl_s", ttl_s)
        # Each timeout is the time that its event is given to come.
        patience = {
            "accept": _duration("accept_timeout_s", accept_timeout_s),
            "execute": _duration("exec_timeout_s", exec_timeout_s),
        }
        self._timeouts = {
            CommandStatus(source): timeout_s
            for event, timeout_s in patience.items()
            for source in AGENT.moves[event].sources
        }
        self._entries: dict[str, _Entry] = {}
        self._tombstones: OrderedDict[str, _Tombstone] = OrderedDict()
        # Those that have ended share one queue: they all have the same time left.
        self._ended: deque[_Entry] = deque()
        self._queues: dict[CommandStatus, deque[_Entry]] = {
            status: deque() if status in self._timeouts else self._ended for status in CommandStatus
        }
        self._places = tuple(
            (self._queues[status], self._timeouts.get(status)) for status in CommandStatus
        )
        self._arrivals = self._queues[_INITIAL]
        self._arrival_timeout_s = self._timeouts[_INITIAL]
        self._lock = Lock()
        # Every event pays for the lock, and `with` would double the price.
        self._acquire = self._lock.acquire
        self._release = self._lock.release

    def on_received(self, command: Command) -> Transition[CommandRecord]:
        """Register a command. An id that is known is DUPLICATE, or CONFLICT with another content.

        The duplicate of a command that was removed has no record any more.
        """
        if not isinstance(command, Command):
            raise InvalidInput("command", f"a Command is needed, not {_kind(command)}")
        command_id = command.command_id
        now = self._clock()
        self._acquire()
        try:
            if now > self._latest:
                self._latest = now
            else:
                now = self._latest
            if command_id in self._entries or command_id in self._tombstones:
                record, tombstone = self._known(command_id)
            else:
                entry = self._entries[command_id] = _Entry()
                entry.command = command
                entry.status = _INITIAL
                entry.received_at = entry.updated_at = now
                self._arrivals.append(entry)
                record = tombstone = None
        finally:
            self._release()
        if record is not None:
            return _repeated(record, same=record.command == command)
        if tombstone is not None:
            return _repeated(None, same=tombstone.digest == _digest(command))
        deadline_at = now + self._arrival_timeout_s
        record = _make(CommandRecord, (command, _INITIAL, now, now, deadline_at))
        return _make(Transition, (record, _OK, True))

    on_accepted = _event("accept", "The host has taken the command on.")
    on_executed = _event("execute", "The command has been carried out.")
    on_rejected = _event("reject", "The host will not take the command on.")
    on_failed = _event("fail", "The command was taken on, and could not be carried out.")

    def expire_timeouts(self) -> tuple[Transition[CommandRecord], ...]:
        """Time out what is due, and give the transitions made: by status, then by deadline."""
        now = self._clock()
        made: list[Transition[CommandRecord]] = []
        for status, timeout_s in self._timeouts.items():
            # The lock is taken anew for each, so that a long sweep keeps nobody waiting.
            while (record := self._expire_first(status, timeout_s, now)) is not None:
                made.append(Transition(record, _OK, changed=True))
        return tuple(made)

    def gc_ttl(self) -> int:
        """Remove what ended at least `ttl_s` ago, and say how many commands that were."""
        now = self._clock()
        self._forget(now)
        removed = 0
        while (entry := self._take_ended(now)) is not None:
            # Outside the lock: this is the dear part, and it runs the payload's own code.
            digest = _digest(entry.command)
            self._bury(entry, digest, now)
            removed += 1
        return removed

    def get(self, command_id: str) -> CommandRecord | None:
        """The command as it stands, or None when there is none."""
        with self._lock:
            return self._snapshot(self._entries.get(command_id))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, command_id: object) -> bool:
        return command_id in self._entries

    def _refuse(
        self, command_id: str, entry: _Entry | None, event: str
    ) -> Transition[CommandRecord]:
        if entry is None:
            _check_text("command_id", command_id)
            return Transition(None, TransitionResult.UNKNOWN_COMMAND, changed=False)
        decision = AGENT.decide(entry.status, event)
        return Transition(self._snapshot(entry), decision.result, changed=False)

    def _expire_first(
        self, status: CommandStatus, timeout_s: float, now: float
    ) -> CommandRecord | None:
        queue = self._queues[status]
        with self._lock:
            now = self._advance(now)
            # No command comes to a status twice, so one that is elsewhere has left this queue.
            while queue and queue[0].status is not status:
                queue.popleft()
            if not queue or now < queue[0].updated_at + timeout_s:
                return None
            entry = queue.popleft()
            entry.status = _TIMEOUT
            entry.updated_at = now
            self._queues[_TIMEOUT].append(entry)
            return self._snapshot(entry)

    def _take_ended(self, now: float) -> _Entry | None:
        """Take the first command whose time is up out of the queue; it is still on record."""
        with self._lock:
            now = self._advance(now)
            if self._ended and now >= self._ended[0].updated_at + self._ttl_s:
                return self._ended.popleft()
            return None

    def _bury(self, entry: _Entry, digest: bytes, now: float) -> None:
        command_id = entry.command.command_id
        with self._lock:
            now = self._advance(now)
            del self._entries[command_id]
            self._tombstones[command_id] = _Tombstone(digest, now + self._ttl_s)

    def _forget(self, now: float) -> None:
        with self._lock:
            now = self._advance(now)
            while self._tombstones:
                command_id, tombstone = next(iter(self._tombstones.items()))
                if now < tombstone.forget_at:
                    break
                del self._tombstones[command_id]

    def _advance(self, now: float) -> float:
        """Move the registry's time forward, and give it; the lock is held."""
        self._latest = max(self._latest, now)
        return self._latest

    def _known(self, command_id: str) -> tuple[CommandRecord | None, _Tombstone | None]:
        entry = self._entries.get(command_id)
        return self._snapshot(entry), self._tombstones.get(command_id)

    def _snapshot(self, entry: _Entry | None) -> CommandRecord | None:
        """Copy an entry, if there is one; the lock is held."""
        if entry is None:
            return None
        timeout_s = self._timeouts.get(entry.status)
        return CommandRecord(
            command=entry.command,
            status=entry.status,
            received_at=entry.received_at,
            updated_at=entry.updated_at,
            deadline_at=None if timeout_s is None else entry.updated_at + timeout_s,
        )


def _repeated(record: CommandRecord | None, *, same: bool) -> Transition[CommandRecord]:
    result = TransitionResult.DUPLICATE if same else TransitionResult.CONFLICT
    return Transition(record, result, changed=False)


def _digest(command: Command) -> bytes:
    """Shorten the content of a command to what tells it from another one of the same id."""
    content = f"{_canonical(command.command_type)} {_canonical(command.payload)}"
    return hashlib.blake2b(
        content.encode(errors="backslashreplace"), digest_size=_DIGEST_BYTES
    ).digest()


def _canonical(value: object, depth: int = _DIGEST_DEPTH) -> str:
    """Write a value so that what is equal reads equal: 1 as 1.0, and keys in any order."""
    match value:
        case _ if depth == 0:
            text = "…"  # also what ends the walk through a payload that contains itself
        case str():
            text = str.__repr__(value)
        case int():
            text = hex(value)
        case float() if value.is_integer():
            text = hex(int(value))
        case Mapping():
            pairs = (_canonical(pair, depth - 1) for pair in value.items())
            text = f"{{{','.join(sorted(pairs))}}}"
        case list():
            text = f"[{','.join(_canonical(item, depth - 1) for item in value)}]"
        case tuple():
            text = f"({','.join(_canonical(item, depth - 1) for item in value)})"
        case set() | frozenset():
            text = f"<{','.join(sorted(_canonical(item, depth - 1) for item in value))}>"
        case _:
            text = repr(value)
    return text


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(name, f"a text is needed, not {_kind(value)}")
    if not value:
        raise InvalidInput(name, "it is empty")


def _duration(name: str, seconds: object) -> float:
    match seconds:
        case bool():
            pass
        # Not by `isfinite`, which raises on a whole number beyond all floats.
        case int() | float() if 0 < seconds <= sys.float_info.max:
            return float(seconds)
    raise InvalidInput(name, "a finite number of seconds above 0 is needed")


def _kind(value: object) -> str:
    return type(value).__name__
