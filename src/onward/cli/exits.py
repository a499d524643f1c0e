"""What a command leaves with: one table, and nobody else knows a number."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from onward import errors


class Exit(IntEnum):
    """How a command ended, as a shell sees it."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    HOSTS_FAILED = 3
    HOSTS_UNREACHABLE = 4
    STOPPED = 5
    CONFLICT = 6
    STILL_RUNNING = 7
    NOT_AUTHORISED = 8
    WAITING_FOR_APPROVAL = 9
    SERVICE_AWAY = 10
    INTERRUPTED = 130
    NOBODY_READS = 141

    @property
    def meaning(self) -> str:
        """The sentence about it that people read."""
        return MEANINGS[self]


MEANINGS: Final[Mapping[Exit, str]] = MappingProxyType(
    {
        Exit.DONE: "It was done; of a job: on every host.",
        Exit.FAILED: "It failed, and a line on standard error says why; or a check did.",
        Exit.USAGE: "The command line was not understood, or nobody was there to be asked.",
        Exit.HOSTS_FAILED: "The job ended, and failed on some hosts.",
        Exit.HOSTS_UNREACHABLE: (
            "The job ended; some hosts were not reached or did not answer in time, and none failed "
            "otherwise."
        ),
        Exit.STOPPED: "It was rejected, blocked or cancelled, or not confirmed.",
        Exit.CONFLICT: "It is no longer as it was seen, or stands otherwise; nothing was done.",
        Exit.STILL_RUNNING: "The job goes on; the time to wait for it is over.",
        Exit.NOT_AUTHORISED: "The key is missing or unknown, or its role does not allow it.",
        Exit.WAITING_FOR_APPROVAL: "The job is there, and somebody else has to approve it.",
        Exit.SERVICE_AWAY: "The service does not answer, or cannot serve now.",
        Exit.INTERRUPTED: "It was interrupted with Ctrl-C; a job that it watched goes on.",
        Exit.NOBODY_READS: "Whoever read its output has gone, as `head` does.",
    }
)


class Leaving(errors.OnwardError):
    """A sentence for a person, and what to leave with."""

    def __init__(self, code: Exit, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Usage(errors.OnwardError):
    """A command line that cannot be meant."""


class KeyMissing(errors.InvalidInput):
    """There is no key to show to the service."""


class ServiceAway(errors.ServerUnreachable):
    """The service that a command talks to does not answer."""


# By class, and no class inherits it: whoever adds an error decides here.
EXIT_CODES: Final[Mapping[type[errors.OnwardError], Exit]] = MappingProxyType(
    {
        errors.OnwardError: Exit.FAILED,
        errors.InvalidInput: Exit.FAILED,
        errors.InvalidLifecycle: Exit.FAILED,
        errors.UnknownLifecycle: Exit.FAILED,
        errors.JobConflict: Exit.CONFLICT,
        errors.PlanChanged: Exit.CONFLICT,
        errors.NotOpen: Exit.FAILED,
        errors.ServerProblem: Exit.FAILED,
        errors.ServerUnreachable: Exit.FAILED,
        errors.ServerTooOld: Exit.FAILED,
        errors.ServerNotDurable: Exit.FAILED,
        errors.SchemaMismatch: Exit.FAILED,
        errors.ChannelError: Exit.FAILED,
        errors.NotDelivered: Exit.FAILED,
        errors.DeliveryUnknown: Exit.FAILED,
        errors.HostRefused: Exit.FAILED,
        errors.HostOffline: Exit.FAILED,
        errors.HostBusy: Exit.FAILED,
        errors.InvariantBroken: Exit.FAILED,
        errors.GuardDrift: Exit.FAILED,
        Leaving: Exit.FAILED,  # it carries its own
        Usage: Exit.USAGE,
        KeyMissing: Exit.NOT_AUTHORISED,
        ServiceAway: Exit.SERVICE_AWAY,
    }
)

_BY_STATUS: Final[Mapping[int, Exit]] = MappingProxyType(
    {
        401: Exit.NOT_AUTHORISED,
        403: Exit.NOT_AUTHORISED,
        409: Exit.CONFLICT,
        412: Exit.CONFLICT,
        428: Exit.CONFLICT,
        502: Exit.SERVICE_AWAY,
        503: Exit.SERVICE_AWAY,
        504: Exit.SERVICE_AWAY,
    }
)
# What stands otherwise is told as something that cannot be taken, too.
_BY_CODE: Final[Mapping[str, Exit]] = MappingProxyType(
    {"job-conflict": Exit.CONFLICT, "command-conflict": Exit.CONFLICT}
)


def of_error(error: errors.OnwardError) -> Exit:
    """What to leave with after a failure."""
    if isinstance(error, Leaving):
        return error.code
    return EXIT_CODES.get(type(error), Exit.FAILED)


def of_status(status: int, code: str = "") -> Exit:
    """What to leave with after a refusal of the service, which may have a name."""
    return _BY_CODE.get(code) or _BY_STATUS.get(status, Exit.FAILED)


def of_counts(counts: Mapping[str, int], *, unreachable: int) -> Exit:
    """What to leave with after a job that has ended, by how many of it ended how.

    `unreachable` says how many of the failed ones were never reached.
    """
    failed = counts.get("FAILED", 0) - unreachable
    if failed > 0:
        return Exit.HOSTS_FAILED
    if unreachable > 0 or counts.get("TIMEOUT", 0) > 0:
        return Exit.HOSTS_UNREACHABLE
    if counts.get("BLOCKED", 0) > 0 or counts.get("CANCELLED", 0) > 0:
        return Exit.STOPPED
    return Exit.DONE
