"""Makes the application out of its routers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

import onward
from onward.api import documents, problems
from onward.api.edge import Edge
from onward.api.patience import Patience
from onward.api.problems import Problem
from onward.api.routing import DirectRoute, Route, operation_id
from onward.api.services import Services
from onward.api.signatures import Signatures, secrets_of
from onward.api.sockets import sockets
from onward.api.tries import Tries
from onward.errors import InvariantBroken, OnwardError
from onward.fleet.follow import Feed
from onward.fleet.overview import Overview
from onward.fleet.ready import Readiness


class Api(FastAPI):
    """The application, which describes itself with its problems and its keys."""

    def openapi(self) -> dict[str, Any]:
        """Return the description, made once."""
        if self.openapi_schema is None:
            described = super().openapi()
            parts = described.setdefault("components", {})
            parts.setdefault("schemas", {}).update(documents.SCHEMAS)
            parts["securitySchemes"] = documents.SECURITY
            self.openapi_schema = described
        return self.openapi_schema


def create_app(
    services: Services,
    *,
    routers: Sequence[APIRouter] | None = None,
    clock: Callable[[], float] = time.time,
) -> FastAPI:
    """Make the application; `routers` are its resources, all of ours when none are named.

    `clock` judges the age of signed webhooks.
    """
    routers = _resources() if routers is None else routers
    app = Api(
        title="Onward",
        version=onward.__version__,
        description="Commands on fleets: forward only, ended exactly once, always able to say why.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # In the order of the routers, whatever the order in which addresses are looked for.
        openapi_tags=[{"name": name} for name in _tags(routers)],
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        middleware=[Middleware(Edge)],
        exception_handlers={
            Problem: problems.on_problem,
            OnwardError: problems.on_error,
            RequestValidationError: problems.on_invalid,
            HTTPException: _on_http,
        },
    )
    app.state.services = services
    app.state.patience = Patience(services.settings.body_timeout_s)
    app.state.feed = Feed(services.pool)
    app.state.readiness = Readiness(services.pool, services.settings)
    app.state.overview = Overview(services.pool, services.settings)
    app.state.signatures = Signatures(
        secrets_of(services.settings), pool=services.pool, clock=clock
    )
    app.state.tries = Tries()
    app.state.logins = Tries()
    # Also for whoever adds a route to the application itself.
    app.router.route_class = Route
    app.router.routes.extend(_routes(routers))
    app.router.routes.extend(sockets(services))
    return app


def _resources() -> Sequence[APIRouter]:
    # Resources are written on top of this package, so they are imported when they are needed.
    from onward.api.resources import RESOURCES  # noqa: PLC0415 - see above

    return RESOURCES


def _tags(routers: Sequence[APIRouter]) -> list[str]:
    return list(dict.fromkeys(str(tag) for each in routers for tag in each.tags))


def _routes(routers: Sequence[APIRouter]) -> list[BaseRoute]:
    """Return the routes of all routers, each of which has to say what it asks for.

    They become the application's own: a router that is included costs every request a second
    search for its route.
    """
    routes = [route for each in (*routers, documents.documents) for route in each.routes]
    # One address after the other is compared: what is called most is looked for first.
    routes.sort(key=lambda route: not isinstance(route, DirectRoute))
    for route in routes:
        if not isinstance(route, Route):
            raise InvariantBroken(f"{route} is not made by `routing.router`, so nobody guards it")
    return routes


async def _on_http(request: Request, error: Exception) -> Response:
    """Answer what Starlette refuses by itself, with all methods that an address takes."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    problem = problems.of_http(error)
    if problem.status != 405:  # noqa: PLR2004 - the status that has an Allow header
        return problems.answer(request, problem)
    problem.headers = {"Allow": ", ".join(_allowed(request))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=problem.headers)
    return problems.answer(request, problem)


def _allowed(request: Request) -> list[str]:
    """Return the methods of all routes of an address; Starlette only names those of one."""
    found = {"OPTIONS"}
    for route in request.app.routes:
        match, _ = route.matches(request.scope)
        # A WebSocket has no methods, and fits no request.
        if match is not Match.NONE:
            found |= route.methods
    if "GET" in found:
        found.add("HEAD")
    return sorted(found)
