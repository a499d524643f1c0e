"""How an attempt is put to an agent, and what its answer means."""

from __future__ import annotations

from typing import Final

from onward.channels.agent.messages import PING, Refused, Result, Run
from onward.channels.base import Delivery, Report
from onward.channels.program import Program, program_for
from onward.errors import ChannelError, DeliveryUnknown, HostBusy, HostRefused, NotDelivered

INTERRUPTED: Final = "The agent was interrupted while the command ran."

_OWN_PROGRAM: Final = frozenset({"argv", "shell"})
_EXIT_CODES: Final = range(-(2**31), 2**31)


def run_of(delivery: Delivery) -> Run:
    """The message that has an agent carry out an attempt; `HostRefused` if nothing says what."""
    program = _program(delivery)
    # Where the job itself says what is run, the program holds all of it, and once is enough.
    told = program is None or delivery.argv is not None
    return Run(
        delivery.command_id,
        delivery.epoch,
        PING if program is None else delivery.command_type,
        {n: v for n, v in delivery.params.items() if told and n not in delivery.masked},
        program,
        delivery.timeout_s,
        delivery.exclusive,
        delivery.trace,
    )


def _program(delivery: Delivery) -> Program | None:
    """The program of an attempt; none for what an agent answers by itself."""
    built_in = delivery.command_type.lower() == PING and delivery.argv is None
    if built_in and not _OWN_PROGRAM & delivery.params.keys():
        return None
    return program_for(delivery)


def report_of(delivery: Delivery, message: Result | Refused | None, *, written: bool) -> Report:
    """What the last word about an attempt means; none if the connection was lost before it."""
    match message:
        case Result(unknown=False):
            return reported(message)
        case Result():
            raise DeliveryUnknown(storable(message.error or INTERRUPTED))
        case Refused(busy=True):
            raise HostBusy(storable(message.why))
        case Refused():
            raise HostRefused(storable(message.why))
        case None:
            raise _lost(delivery, written=written)


def _lost(delivery: Delivery, *, written: bool) -> ChannelError:
    name = delivery.target.name
    if written:
        return DeliveryUnknown(
            f"The agent of {name} was lost before it said how the command ended."
        )
    return NotDelivered(f"The agent of {name} was lost before the command was sent to it.")


def reported(result: Result) -> Report:
    """What an agent has said of an attempt that it has finished."""
    exit_code = result.exit_code
    if exit_code is None or exit_code not in _EXIT_CODES:  # none would be looked for one by one
        exit_code = None
    error = result.error
    if error is None and not result.succeeded:
        error = "The command failed." if exit_code is None else f"It ended with {exit_code}."
    error = None if error is None else storable(error)
    return Report(result.succeeded, exit_code, error, result.repeated)


def storable(text: str) -> str:
    """Write out what no database takes: whoever has a host's key could send it."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
