"""When a failed attempt is tried again, and what an execution becomes when it is not.

Theory. An attempt fails for a *cause*. The cause and the number of retries that were made decide
whether there is another attempt; if there is, a *backoff* says how long to wait for it. Neither
knows the time or rolls dice: the caller hands in the chance, and stores the moment that comes out.

Rule 1. The first wait is `base_s`, each further one is twice as long, and none exceeds `max_s`.
Rule 2. Chance spreads the waits. A thousand hosts that fail together must not come back together.
Rule 3. A refusal is an answer. Asking again would only get it again, so it is never retried.
Rule 4. Unknown is not failed. Who fell silent ends as timed out, which the lifecycle only presumes,
        so that a result which still arrives is kept; a failure is certain, and keeps none.
Rule 5. Waiting for a busy host is no cause: nothing was attempted, so it costs no retry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, assert_never

from onward.errors import InvalidInput

_SHORTEST_S: Final = 0.001
_LONGEST_S: Final = 366 * 86_400.0
# The longest wait is less than 2**35 times the shortest: further doubling changes nothing, and
# would in the end not fit a float.
_DOUBLINGS: Final = 64


class Cause(StrEnum):
    """Why an attempt did not succeed."""

    UNREACHABLE = "UNREACHABLE"
    REFUSED = "REFUSED"
    TIMED_OUT = "TIMED_OUT"
    FAILED = "FAILED"
    DELIVERY_UNKNOWN = "DELIVERY_UNKNOWN"

    @property
    def meaning(self) -> str:
        """One sentence for a person who asks why."""
        return _MEANINGS[self]

    @property
    def terminal_event(self) -> Literal["fail", "timeout"]:
        """The event that ends the execution when this was the cause of its last attempt.

        A timeout ends as TIMEOUT and any other error as FAILED. To lose the channel after the
        command may have left is a timeout that was noticed early: nobody knows what the host did.
        """
        match self:
            case Cause.TIMED_OUT | Cause.DELIVERY_UNKNOWN:
                return "timeout"
            case Cause.UNREACHABLE | Cause.REFUSED | Cause.FAILED:
                return "fail"
        assert_never(self)

    @property
    def is_retried(self) -> bool:
        """Whether another attempt could end differently.

        An attempt that may have run is repeated too: the same command id goes with it, so that
        a host which did run it answers from its journal instead of running it again.
        """
        return self is not Cause.REFUSED


_MEANINGS = {
    Cause.UNREACHABLE: "The command was not delivered: the host could not be reached.",
    Cause.REFUSED: "The host refused the command, and would refuse it again.",
    Cause.TIMED_OUT: "The host did not answer in time; it may still be running the command.",
    Cause.FAILED: "The host ran the command, and it failed.",
    Cause.DELIVERY_UNKNOWN: "The channel broke; whether the host got the command is unknown.",
}


class AfterFailure(StrEnum):
    """What follows a failed attempt."""

    RETRY = "retry"
    END = "end"  # with the cause's `terminal_event`


def after_failure(retries_done: int, max_retries: int, cause: Cause) -> AfterFailure:
    """Decide what follows an attempt that failed; the first attempt is not a retry."""
    done = _count("retries_done", retries_done)
    allowed = _count("max_retries", max_retries)
    return AfterFailure.RETRY if cause.is_retried and done < allowed else AfterFailure.END


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt.

    `jitter` says what chance does. "seconds" is S2's formula: the window plus up to one second.
    It keeps the hosts of a failed batch within that second, and so hits whatever failed with all of
    them at once, again and again. "full" spreads them over the whole window instead, with half of
    its wait on average; some are due at once, which the limits of the claim take care of.
    """

    base_s: float
    max_s: float
    jitter: Literal["full", "seconds"] = "full"

    def __post_init__(self) -> None:
        for field in ("base_s", "max_s"):
            object.__setattr__(self, field, _seconds(field, getattr(self, field)))
        if self.base_s > self.max_s:
            raise InvalidInput("base_s", f"{self.base_s:g} is more than max_s, {self.max_s:g}")
        if self.jitter not in ("full", "seconds"):
            raise InvalidInput("jitter", f"{self.jitter!a:.40} is not 'full' or 'seconds'")

    def window_s(self, retries_done: int) -> float:
        """The wait without chance: doubled with every retry that was made, up to `max_s`."""
        doublings = min(_count("retries_done", retries_done), _DOUBLINGS)
        return min(self.max_s, math.ldexp(self.base_s, doublings))

    def delay_s(self, retries_done: int, chance: float) -> float:
        """The wait; `chance` is drawn by the caller, evenly from 0 up to but not including 1.

        At most `max_s` with full jitter, and less than a second more with the other.
        """
        if not 0 <= chance < 1:  # true for NaN as well
            raise InvalidInput("chance", "is not at least 0 and less than 1")
        window_s = self.window_s(retries_done)
        match self.jitter:
            case "full":
                return chance * window_s
            case "seconds":
                return window_s + chance
        assert_never(self.jitter)


def _seconds(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(field, f"expected seconds, not {type(value).__name__}")
    if not _SHORTEST_S <= value <= _LONGEST_S:  # true for NaN as well
        raise InvalidInput(field, f"is not between {_SHORTEST_S} and {_LONGEST_S:.0f} seconds")
    return float(value)


def _count(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(field, f"expected a whole number, not {type(value).__name__}")
    if value < 0:
        raise InvalidInput(field, "is less than 0")
    return value
