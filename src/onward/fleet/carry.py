"""Makes a channel of a wire: a way on which the answer comes later, by itself.

Each attempt leaves a row in `commands`. Whoever has a wire to its host hands it over, again and
again until the host has answered; what the host says moves the row by the guarded path, in whatever
process it is heard; and how the row ends is what the attempt brought back. Commands that somebody
made by hand for such a host travel the same way.

The host knows a command by one id, whatever the attempt, and the attempt by its epoch. The row of
an attempt is called by both.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, NoReturn

import structlog

from onward.channels.base import Delivery, Heard, Letter, Output, Report, Stream, Target, Wire
from onward.core.lifecycles import NODE, lifecycle_named
from onward.core.verdicts import TransitionResult
from onward.errors import (
    ChannelError,
    DeliveryUnknown,
    HostBusy,
    HostRefused,
    InvalidInput,
    NotDelivered,
    ServerProblem,
)
from onward.fleet import commands as fleet
from onward.fleet.attempt_ids import letter_id, row_id, row_id_of
from onward.settings import Settings
from onward.store import sendings
from onward.store.commands import Commands, NewCommand
from onward.store.sendings import Ended, Sending
from onward.store.transitions import Answer, Event

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.carry")

INTERRUPTED: Final = "INTERRUPTED"  # the error code of one that went down in the middle of a run
CANCELLED: Final = "CANCELLED"  # the result code of a node that has stopped because it was asked to

_HOLD_S: Final = 10.0  # in which the maker of a command is the only one to hand it over
_SOON_S: Final = 1.0  # until it is tried again, if it is known that nobody got it
_AGAIN_S: Final = 5.0  # until it is handed over again, if nothing came back; then twice as long
_AGAIN_MAX_S: Final = 60.0
_TAKEN_AT_ONCE: Final = 500
_SWEEP_S: Final = 0.5
_WATCH_S: Final = 0.5
_PAUSE_S: Final = 0.5  # while PostgreSQL is away
_CANCEL_S: Final = 8.0
_CANCEL_LOOK_S: Final = 0.05


class Carriage(NamedTuple):
    """A wire, and what its commands are."""

    wire: Wire
    channel: str  # by which hosts know it
    lifecycle: Callable[[Target], str]


class Carrier:
    """The channel that a wire makes. `run` keeps it going."""

    def __init__(self, commands: Commands, settings: Settings, carriage: Carriage) -> None:
        self._commands = commands
        self._settings = settings
        self._wire, self._channel, self._lifecycle = carriage
        self._waiting: dict[str, asyncio.Future[Ended]] = {}

    async def run(self) -> None:
        """Listen, hand over what is due, and look for ends that others heard of."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._wire.listen(self.heard))
            loops.create_task(_repeat(self._sweep, _SWEEP_S))
            loops.create_task(_repeat(self._watch, _WATCH_S))

    async def deliver(self, delivery: Delivery, output: Output) -> Report:
        """Leave a command for the host, and wait until it has come to its end."""
        cmd_id = row_id(delivery.command_id, delivery.epoch)
        waiting = self._waiting.get(cmd_id)
        if waiting is None:
            waiting = self._waiting[cmd_id] = asyncio.get_running_loop().create_future()
        try:
            with _server_needed():
                return await self._carried(cmd_id, delivery, waiting, output)
        finally:
            self._waiting.pop(cmd_id, None)

    async def cancel(self, delivery: Delivery) -> bool:
        """Ask the host to stop; true once it says that it has, or if it has never got it."""
        cmd_id = row_id(delivery.command_id, delivery.epoch)
        with _server_needed():
            if await sendings.ended(self._commands.pool, [cmd_id]):
                return False
            standing = await sendings.abandon(self._commands.pool, cmd_id)
            if standing is None or standing.unsent:
                self._break(cmd_id, NotDelivered("It was stopped before it was sent."))
                return True
            if not await self._wire.cancel(await self._keyed(cmd_id, _letter(delivery))):
                return False
            return await self._stopped(cmd_id)

    async def _stopped(self, cmd_id: str) -> bool:
        """Wait for the end of a command; true if it ended because it was asked to."""
        async with asyncio.timeout(_CANCEL_S):
            # Another process may hear of it, so the row is looked at.
            while not (ended := await sendings.ended(self._commands.pool, [cmd_id])):  # noqa: ASYNC110
                await asyncio.sleep(_CANCEL_LOOK_S)
        return ended[cmd_id].result_code == CANCELLED

    async def _carried(
        self, cmd_id: str, delivery: Delivery, waiting: asyncio.Future[Ended], output: Output
    ) -> Report:
        try:
            async with asyncio.timeout(delivery.timeout_s):
                await self._begin(cmd_id, delivery)
                ended = await asyncio.shield(waiting)
        except TimeoutError:
            await self._give_up(cmd_id, delivery)
        except HostRefused:
            await sendings.abandon(self._commands.pool, cmd_id)
            raise
        return await self._told(cmd_id, ended, output)

    async def heard(self, said: Sequence[Heard]) -> None:
        """Record what was said; returns once it is on disk."""
        events = [event for each in said if (event := self._event(each)) is not None]
        while True:
            try:
                answers = await self._commands.record_all(events)
                break
            except ServerProblem as error:
                log.warning("answers_wait", answers=len(events), problem=str(error))
                await asyncio.sleep(_PAUSE_S)
        for event, answer in zip(events, answers, strict=True):
            self._end(event, answer)

    def _event(self, heard: Heard) -> Event | None:
        """What was said, as an event of its row; none if no row can be meant."""
        # Details that cannot be kept are no reason to lose the word itself.
        for data in (heard.data, {}):
            try:
                return fleet.event(
                    self._settings,
                    row_id_of(heard),
                    heard.event,
                    epoch=heard.epoch,
                    source=self._channel,
                    data=data,
                )
            except InvalidInput as error:
                log.warning("answer_unreadable", channel=self._channel, problem=str(error))
        return None

    def _end(self, event: Event, answer: Answer) -> None:
        """Release whoever waits for a command that has come to its end with this event."""
        waiting = self._waiting.get(event.cmd_id)
        if waiting is None or waiting.done() or not answer.changed or answer.record is None:
            return
        if answer.record.status in lifecycle_named(answer.record.lifecycle).terminal:
            data = json.loads(event.data) if event.data else {}
            waiting.set_result(
                Ended(
                    answer.record.status,
                    *(data.get(key) for key in Ended._fields[1:]),
                )
            )

    async def _begin(self, cmd_id: str, delivery: Delivery) -> None:
        """Make the row of an attempt and hand it over; a repeat only waits for the first."""
        letter = _letter(delivery)
        answer = await self._commands.create(
            NewCommand(
                cmd_id=cmd_id,
                lifecycle=self._lifecycle(delivery.target),
                node=delivery.target.name,
                type=delivery.command_type,
                task_id=None,
                params=json.dumps(delivery.params, ensure_ascii=False),
                timeout_s=delivery.timeout_s,
                source=self._channel,
                epoch=delivery.epoch,
                hold_s=_HOLD_S,
            )
        )
        if answer.result is TransitionResult.CONFLICT:
            raise DeliveryUnknown("Another command was sent as this attempt before.")
        if answer.changed and answer.record is not None:
            await self._hand_over(cmd_id, answer.record.lifecycle, letter, doubt=False)

    async def _hand_over(self, cmd_id: str, lifecycle: str, letter: Letter, *, doubt: bool) -> None:
        """Send a letter once, and note what is known about that."""
        node = lifecycle == NODE.name
        try:
            name = await self._wire.send(letter if node else await self._keyed(cmd_id, letter))
        except NotDelivered as error:
            if node:
                await self._note(cmd_id, letter.epoch, "send_fail", error_message=str(error))
            if not doubt:
                await sendings.certain(self._commands.pool, cmd_id, again_s=_SOON_S)
            if isinstance(error, HostRefused):
                raise
        except DeliveryUnknown as error:
            log.info("sending_unknown", cmd_id=cmd_id, problem=str(error))
        else:
            if name is not None:
                await self._commands.name_task(cmd_id, name)
            await self._note(cmd_id, letter.epoch, "send" if node else "save")

    async def _keyed(self, cmd_id: str, letter: Letter) -> Letter:
        """Give a letter the key by which it is made once: another one after a failure."""
        failed = await sendings.failed_before(self._commands.pool, letter.cmd_id, cmd_id)
        return letter if failed is None else letter._replace(key=f"{letter.cmd_id}-{failed}")

    async def _note(self, cmd_id: str, epoch: int, event: str, **data: object) -> None:
        said = fleet.event(
            self._settings, cmd_id, event, epoch=epoch, source=self._channel, data=data
        )
        await self._commands.record(said)

    async def _give_up(self, cmd_id: str, delivery: Delivery) -> NoReturn:
        """Say what is known about an attempt whose time is up."""
        host = delivery.target.name
        standing = await sendings.abandon(self._commands.pool, cmd_id)
        if standing is None or standing.unsent:
            raise NotDelivered(f"{host} could not be reached within {delivery.timeout_s:g} s.")
        raise _silent(host, standing.status)

    async def _told(self, cmd_id: str, ended: Ended, output: Output) -> Report:
        """Turn the end of a command into what the host has said."""
        if ended.result is not None:
            output(Stream.STDOUT, _printed(ended.result))
        status, problem = ended.status, ended.error_message or ended.error_code
        if status in _ENDS["timeout"] | _ENDS["ttl_timeout"]:
            before = await sendings.left_from(self._commands.pool, cmd_id, status)
            raise _silent("The host", before or "")
        if status in _ENDS["invalid"]:
            raise HostRefused(problem or "The host does not know this command.")
        if status in _ENDS["busy"]:
            raise HostBusy(problem or "The host is busy.")
        if ended.error_code == INTERRUPTED:
            raise DeliveryUnknown(
                problem or "The host was interrupted; it may have done all of it."
            )
        failed = status in _ENDS["fail"] or ended.error_code is not None
        return Report(
            succeeded=not failed,
            exit_code=_number(ended.result_code),
            error=(problem or "The host says that it failed.") if failed else None,
        )

    async def _sweep(self) -> None:
        """Hand over what is due, also what others made."""
        taken = await sendings.take(
            self._commands.pool,
            self._channel,
            limit=_TAKEN_AT_ONCE,
            again_s=_AGAIN_S,
            again_max_s=_AGAIN_MAX_S,
        )
        await asyncio.gather(*(self._send_again(each) for each in taken))

    async def _send_again(self, sending: Sending) -> None:
        letter = Letter(
            letter_id(sending.cmd_id),
            sending.epoch,
            Target(sending.host_id, sending.host_name, sending.address, sending.key_generation),
            sending.type,
            sending.params,
            sending.left_s,
        )
        try:
            async with asyncio.timeout(_HOLD_S):
                await self._hand_over(
                    sending.cmd_id, sending.lifecycle, letter, doubt=sending.doubt
                )
        except TimeoutError:
            log.info("sending_slow", cmd_id=sending.cmd_id)
        except HostRefused as refusal:
            await sendings.abandon(self._commands.pool, sending.cmd_id)
            self._break(sending.cmd_id, refusal)

    def _break(self, cmd_id: str, error: ChannelError) -> None:
        """Tell whoever waits for a command that there is nothing to wait for."""
        waiting = self._waiting.get(cmd_id)
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    async def _watch(self) -> None:
        """Look for ends that another process has heard of."""
        if not self._waiting:
            return
        for cmd_id, ended in (
            await sendings.ended(self._commands.pool, list(self._waiting))
        ).items():
            waiting = self._waiting.get(cmd_id)
            if waiting is not None and not waiting.done():
                waiting.set_result(ended)


# How commands can end, by the event that ends them, in whatever lifecycle.
_ENDS: Final = {
    event: frozenset(
        str(table.moves[event].target)
        for table in map(lifecycle_named, ("node", "platform", "platform_lenient"))
        if event in table.moves
    )
    for event in ("timeout", "ttl_timeout", "invalid", "busy", "fail")
}
_UNDER_WAY: Final = NODE.moves["ack"].target


def _letter(delivery: Delivery) -> Letter:
    return Letter(
        letter_id(row_id(delivery.command_id, delivery.epoch)),
        delivery.epoch,
        delivery.target,
        delivery.command_type,
        delivery.params,
        delivery.timeout_s,
    )


def _silent(host: str, status: str) -> ChannelError | TimeoutError:
    """What is known of a host that has not said how it ended."""
    if status == _UNDER_WAY:
        return TimeoutError(f"{host} has begun, and has not said how it ended.")
    return DeliveryUnknown(f"{host} has not answered; it may have got the command.")


def _printed(result: object) -> str:
    match result:
        case {"output": str(text)} | str(text):
            return text
        case _:
            return json.dumps(result, ensure_ascii=False) + "\n"


def _number(code: str | None) -> int | None:
    return int(code) if code is not None and code.isascii() and code.isdigit() else None


@contextmanager
def _server_needed() -> Iterator[None]:
    """Without PostgreSQL nobody knows what has become of a command."""
    try:
        yield
    except ServerProblem as error:
        raise DeliveryUnknown(f"What became of it could not be written down: {error}") from error


async def _repeat(step: Callable[[], Awaitable[None]], pause_s: float) -> NoReturn:
    """Take one step after the other; a server that is away is waited for."""
    while True:
        try:
            await step()
        except ServerProblem as error:
            log.warning("server_away", problem=str(error))
        await asyncio.sleep(pause_s)
