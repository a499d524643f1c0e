"""What handlers work with: the stores of one process, and who is calling."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import Depends
from starlette.requests import Request

from onward.api.auth import Caller
from onward.api.tracing import request_id_of
from onward.channels.agent.hub import Hub
from onward.channels.keyring import KeyRing
from onward.channels.platform.description import NO_PLATFORMS, Platforms
from onward.errors import InvariantBroken
from onward.fleet.attendance import Attendance
from onward.fleet.submit import Counter
from onward.settings import Settings
from onward.store.audit import Doer
from onward.store.commands import Commands
from onward.store.database import Pool
from onward.store.keys import Keys
from onward.store.locks import Locks
from onward.store.sessions import Sessions
from onward.trading.market import Market

CALLER: Final = "onward.caller"  # where the route keeps the caller in the scope of a request


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that a handler may ask for."""

    settings: Settings
    pool: Pool
    commands: Commands
    keys: Keys
    sessions: Sessions
    locks: Locks
    market: Market
    keyring: KeyRing
    attendance: Attendance  # whoever serves agents runs it: `attendance.run(hub)`
    hub: Hub
    # Whose callbacks are read as they describe them.
    platforms: Platforms = field(default_factory=lambda: NO_PLATFORMS)
    counter: Counter = field(default_factory=Counter)  # where jobs are handed in


def services_of(request: Request) -> Services:
    """Return the services of the application that got this request."""
    found = request.app.state.services
    assert isinstance(found, Services)  # noqa: S101 - create_app has put it there
    return found


def caller_of(request: Request) -> Caller:
    """Return who makes this request; a route that is public has nobody to ask for."""
    found = request.scope.get(CALLER)
    if not isinstance(found, Caller):
        raise InvariantBroken("A public route asks who is calling; nobody has been asked for a key")
    return found


def doer_of(request: Request) -> Doer:
    """Return who does whatever comes of this request, as it is written down."""
    return Doer(caller_of(request).person, request_id_of(request))


# Dependencies are coroutines because FastAPI would run plain functions in a thread.
async def _serving(request: Request) -> Services:
    return services_of(request)


async def _calling(request: Request) -> Caller:
    return caller_of(request)


async def _doing(request: Request) -> Doer:
    return doer_of(request)


Serving = Annotated[Services, Depends(_serving)]
Calling = Annotated[Caller, Depends(_calling)]
Doing = Annotated[Doer, Depends(_doing)]
