"""The route of every resource: nobody gets to a handler without being asked who they are.

A route that does not say what it asks for cannot be built, so that forgetting is not allowing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Iterator
from typing import Any

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onward.api import signatures
from onward.api.auth import Caller, caller_of, require
from onward.api.body import StrictRequest
from onward.api.permissions import Permission
from onward.api.services import CALLER, Services
from onward.api.signatures import Signatures
from onward.errors import InvalidInput, InvariantBroken
from onward.store.inputs import shown

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Route(APIRoute):
    """A route that asks for a permission before it asks for anything else."""

    permission: Permission
    signed: bool

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401 - handed on
        said = options.get("openapi_extra") or {}
        try:
            self.permission = Permission(str(said.get("x-permission")))
        except ValueError:
            raise InvariantBroken(
                f"The route {path} does not say what it asks for: use **needs(Permission....)"
            ) from None
        self.signed = bool(said.get("x-signed"))
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Handler:
        """Return FastAPI's handler, behind the question who calls and a strict body."""
        answer = super().get_route_handler()
        asked = frozenset(_asked(self.dependant))
        takes_json = self.body_field is not None
        may_be_empty = self.body_field is not None and not self.body_field.field_info.is_required()

        async def handle(request: Request) -> Response:
            # Starlette hands `_send` on in the same way.
            strict = await self._admitted(request.scope, request.receive, request._send)  # noqa: SLF001
            if request.scope["query_string"]:
                _refuse_unknown(request, asked)
            # FastAPI would turn whatever the body raises into one and the same 400.
            if takes_json and not (may_be_empty and not await strict.body()):
                strict.refuse_other_types()
                await strict.json()
            return await answer(strict)

        return handle

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> StrictRequest:
        """Return the request of somebody who may make it."""
        state = scope["app"].state
        services = state.services
        request = StrictRequest(
            scope,
            receive,
            send,
            max_bytes=services.settings.body_max_bytes,
            patience=state.patience,
        )
        if self.permission is not Permission.PUBLIC:
            caller = await self._caller(request, services)
            require(caller, self.permission)
            scope[CALLER] = caller
        return request

    async def _caller(self, request: StrictRequest, services: Services) -> Caller:
        if not (self.signed and signatures.signed(request.scope)):
            return await caller_of(request.scope, services.keys, services.sessions)
        # With a key besides, the key says who it is; but a signature that is there must be right.
        by_key = None
        if any(name == b"authorization" for name, _ in request.scope["headers"]):
            by_key = await caller_of(request.scope, services.keys, services.sessions)
            require(by_key, self.permission)
        found: Signatures = request.app.state.signatures
        sender = await found.caller(request)
        return by_key or sender


class DirectRoute(Route):
    """A route whose handler takes the request as it comes, and returns the answer as it goes out.

    For what is called thousands of times a second: FastAPI's own part of a small request costs more
    than all the rest of it. Who calls is asked as everywhere; the body is the handler's business.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:  # noqa: ANN401 - handed on
        super().__init__(path, endpoint, **options)
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.endpoint(await self._admitted(scope, receive, send))
        await response(scope, receive, send)


def _asked(dependant: Dependant) -> Iterator[str]:
    """The query parameters of a handler, and of whatever it depends on."""
    yield from (each.alias for each in dependant.query_params)
    for each in dependant.dependencies:
        yield from _asked(each)


def _refuse_unknown(request: Request, asked: Container[str]) -> None:
    """Refuse with 422 what nobody asked for: a filter with a typo in its name filters nothing."""
    for name in request.query_params:
        if name not in asked:
            raise InvalidInput(shown(name)[:80], "is no parameter of this address")


def router(prefix: str, tag: str, *, route_class: type[Route] = Route) -> APIRouter:
    """Make the router of a resource."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=route_class,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
    )


def operation_id(route: APIRoute) -> str:
    """Name an operation by its handler, so that clients are generated with stable names."""
    return route.name
