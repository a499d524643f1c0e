"""The application on a database of the test's own, and keys to call it with.

A module whose tests do not mind each other shares one database: it overrides `opened` with `shared`
and everything below stands on that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from pydantic import Field
from starlette.responses import JSONResponse, Response

import onward
from onward.api.app import create_app
from onward.api.conditional import Guard, Seen, etag, none_match, not_modified
from onward.api.models import Model, Name
from onward.api.paging import Id, Limit, id_of
from onward.api.permissions import Permission, needs
from onward.api.problems import Problem
from onward.api.resources import RESOURCES
from onward.api.routing import router
from onward.api.services import Calling, Services
from onward.errors import GuardDrift, InvalidInput, ServerUnreachable
from onward.service.serving import services as services_for
from onward.store.locks import Locks
from onward.wiring import Onward
from tests.api.fleet import Fleet, People
from tests.conftest import settings_for
from tests.present import TESTER

KeyFor = Callable[..., Awaitable[dict[str, str]]]
BASE = "http://onward.test"
PLATFORMS = Path(__file__).with_name("platforms.toml")  # what the examples of the routes name


@pytest.fixture(scope="module")
async def shared(shared_url: str) -> AsyncIterator[Onward]:
    """Onward, open on a database of the module's own."""
    async with onward.open(settings_for(shared_url, platforms=PLATFORMS)) as found:
        yield found


@pytest.fixture
async def locks(redis_url: str) -> AsyncIterator[Locks]:
    """The locks of a process of the test's own."""
    found = Locks(redis_url, patience_s=5.0)
    yield found
    await found.close()


@pytest.fixture
def services(opened: Onward, locks: Locks) -> Services:
    """What handlers work with."""
    return replace(services_for(opened), locks=locks)


@pytest.fixture
def app(services: Services) -> FastAPI:
    """The application with all its resources."""
    return create_app(services)


@pytest.fixture
def key_for(services: Services) -> KeyFor:
    """Make a key of a role; returns the headers to call with."""

    async def make(role: str, person: str = "ann") -> dict[str, str]:
        _, key = await services.keys.make(f"{role} of a test", person=person, role=role, by=TESTER)
        return {"Authorization": f"Bearer {key}"}

    return make


@pytest.fixture
async def client(app: FastAPI, key_for: KeyFor) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with the key of an admin."""
    async with calling(app, await key_for("admin", person="root")) as found:
        yield found


@pytest.fixture
async def fleet(services: Services) -> Fleet:
    """Hosts and jobs of the test's own, also where others share its database."""
    return await Fleet.made(services.pool)


@pytest.fixture
async def people(app: FastAPI, key_for: KeyFor) -> AsyncIterator[People]:
    """Somebody of each role, and what the operator could do with a second key."""
    keys = {
        "ann": await key_for("operator", person="ann"),
        "ann_approves": await key_for("approver", person="ann"),
        "bob": await key_for("approver", person="bob"),
        "eve": await key_for("approver", person="eve"),
        "vic": await key_for("viewer", person="vic"),
        "root": await key_for("admin", person="root"),
    }
    async with AsyncExitStack() as stack:
        yield People(
            **{
                name: await stack.enter_async_context(calling(app, headers))
                for name, headers in keys.items()
            }
        )


@asynccontextmanager
async def calling(
    app: FastAPI, headers: dict[str, str] | None = None
) -> AsyncIterator[httpx2.AsyncClient]:
    """Give a client that calls an application in this process."""
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
        yield client


class Body(Model):
    """What the sample takes."""

    name: Name
    count: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    ratio: float = 0.0
    params: dict[str, Any] = Field(default_factory=dict)


async def _present(request: Request) -> int:
    return id_of(request, "sample_id")


_SAMPLE = Guard(
    "sample", current=_present, lock=lambda request: f"sample:{id_of(request, 'sample_id')}"
)
SeenSample = Annotated[Seen, Depends(_SAMPLE, scope="function")]


def sample_router() -> APIRouter:  # noqa: C901 - one small route after the other
    """A resource that says back what it understood."""
    sample = router("/sample", "sample")

    @sample.post("", **needs(Permission.RUN))
    async def make_sample(body: Body, caller: Calling) -> dict[str, Any]:
        return {"name": body.name, "count": body.count, "by": caller.person}

    @sample.get("", **needs(Permission.READ))
    async def list_samples(limit: Limit = 100, name: str = "") -> dict[str, Any]:
        return {"limit": limit, "name": name}

    @sample.get("/{sample_id}", **needs(Permission.READ))
    async def get_sample(sample_id: Id, request: Request) -> Response:
        if none_match(request, sample_id):
            return not_modified(sample_id)
        return JSONResponse({"id": sample_id}, headers={"ETag": etag(sample_id)})

    @sample.put("/{sample_id}", **_SAMPLE.on(needs(Permission.MANAGE)))
    async def change_sample(sample_id: Id, seen: SeenSample) -> dict[str, Any]:
        """Change the sample, whose version is its id."""
        if seen.version != sample_id:
            raise seen.stale(sample_id)
        return {"version": seen.version}

    @sample.post("/optional", **needs(Permission.RUN))
    async def maybe_sample(body: Body | None = None) -> dict[str, Any]:
        return {"name": None if body is None else body.name}

    @sample.post("/raw", **needs(Permission.RUN))
    async def raw_sample(request: Request) -> dict[str, Any]:
        return {"bytes": sum([len(chunk) async for chunk in request.stream()])}

    @sample.post("/signed", **needs(Permission.RUN, signed=True))
    async def signed_sample(body: Body, caller: Calling) -> dict[str, Any]:
        return {"name": body.name, "by": caller.person, "role": caller.role}

    @sample.get("/fails/{kind}", **needs(Permission.PUBLIC))
    async def failing_sample(kind: str) -> None:
        raise FAILURES[kind]

    return sample


SECRET = "canary-4711"  # noqa: S105 - looked for in answers, where it must not be
FAILURES: dict[str, Exception] = {
    "bug": ZeroDivisionError(SECRET),
    "drift": GuardDrift(SECRET),
    "input": InvalidInput("params.a[0].b/c", "is not good"),
    "server": ServerUnreachable(f"PostgreSQL at {SECRET} cannot be used"),
    "problem": Problem(
        418, "teapot", "Short and stout", "Tip me over.", extra={"n": 1}, headers={"X-Tea": "yes"}
    ),
}


@pytest.fixture
def sample_app(services: Services) -> FastAPI:
    """An application with the sample and our own resources."""
    return create_app(services, routers=[sample_router(), *RESOURCES])


@pytest.fixture
async def sample(sample_app: FastAPI, key_for: KeyFor) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the sample, with the key of an operator."""
    async with calling(sample_app, await key_for("operator")) as found:
        yield found
