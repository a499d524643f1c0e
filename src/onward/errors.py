"""What can go wrong, as one tree.

    OnwardError
    ├── InvalidInput          the caller's data cannot be stored; nothing was written
    │   ├── InvalidLifecycle  a table of states and moves that contradicts itself
    │   ├── UnknownLifecycle  a name that is none of ours
    │   └── JobConflict       an external id that stands for another job
    ├── PlanChanged           the fleet is no longer as the plan says that was seen
    ├── NotOpen               a call outside `async with onward.open()`
    ├── ServerProblem         PostgreSQL or Valkey cannot serve us, and the message says what to do
    │   ├── ServerUnreachable
    │   ├── ServerTooOld
    │   ├── ServerNotDurable
    │   └── SchemaMismatch    the database was migrated by another version of Onward
    ├── ChannelError          a channel could not bring back the host's word
    │   ├── NotDelivered      the host has not got it and will not: sending again is safe
    │   │   ├── HostOffline   it will be there again, and says so itself: wait for it
    │   │   └── HostRefused   the host itself said no
    │   │       └── HostBusy  not now: it is busy, or has seen a newer attempt
    │   └── DeliveryUnknown   the host may have run it
    └── InvariantBroken       a bug of ours: never caught below the edge of the process
        └── GuardDrift        the core and the SQL guard decided differently

Outcomes (duplicate, late, stale) are not errors: they are values, see `onward.core.verdicts`.
Each message is one sentence for a person, with what to do about it.
"""

from __future__ import annotations

_FIELD_MAX = 120


class OnwardError(Exception):
    """The root of everything that Onward raises on purpose."""


class InvalidInput(OnwardError, ValueError):
    """The caller's data cannot be stored; nothing was written."""

    def __init__(self, field: str, problem: str) -> None:
        # A field may be the path to something deep inside; a message stays one line.
        self.field = field if len(field) <= _FIELD_MAX else f"{field[: _FIELD_MAX - 3]}..."
        super().__init__(f"{self.field}: {problem}")
        self.problem = problem


class InvalidLifecycle(InvalidInput):
    """A table of states and moves that contradicts itself."""


class UnknownLifecycle(InvalidInput):
    """A lifecycle name that is none of ours."""


class JobConflict(InvalidInput):
    """An external id that stands for another job."""


class PlanChanged(OnwardError):
    """The fleet is no longer as the plan says that the caller has seen."""

    def __init__(self, digest: str) -> None:
        super().__init__(
            "The fleet has changed since this plan was seen: look at the plan again, and decide."
        )
        self.digest = digest  # of the plan as it is now


class NotOpen(OnwardError):
    """A call that needs a store was made outside `async with onward.open()`."""


class ServerProblem(OnwardError):
    """A server that Onward stands on cannot serve."""


class ServerUnreachable(ServerProblem):
    """Nothing answered at the address, or it refused us."""


class ServerTooOld(ServerProblem):
    """The server answers, but is older than what we rely on."""


class ServerNotDurable(ServerProblem):
    """The server may forget a commit that it has acknowledged."""


class SchemaMismatch(ServerProblem):
    """The database was migrated by another version of Onward."""


class ChannelError(OnwardError):
    """A channel could not bring back the host's word."""


class NotDelivered(ChannelError):
    """The host has not got the command and will not: sending it again is safe."""


class HostOffline(NotDelivered):
    """The host is not connected now; it calls by itself when it is."""


class HostRefused(NotDelivered):
    """The host got the command and said no."""


class HostBusy(HostRefused):
    """The host said not now: it is busy with something else, or has seen a newer attempt."""


class DeliveryUnknown(ChannelError):
    """The host may have run the command, or may be running it still."""


class InvariantBroken(OnwardError, AssertionError):
    """A bug of ours. It is never caught below the edge of the process."""


class GuardDrift(InvariantBroken):
    """The core and the SQL guard decided differently about one event."""
