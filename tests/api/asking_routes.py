"""Requests to every route, made from what the application says of itself.

A `Draft` is a request that is right in every part. A test changes one part of it, so that whatever
comes back is the answer to that part.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote

from fastapi import FastAPI
from starlette.routing import WebSocketRoute
from starlette.types import Message

from onward.api.routing import Route
from tests.api.world import World

Schema = Mapping[str, Any]
Headers = tuple[tuple[bytes, bytes], ...]
At = tuple[str | int, ...]  # the way to a field of a body

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"
BOUND_S: Final = 20.0
_MARK: Final = "\ue000here\ue000"
_BY_TYPE: Final[Mapping[str, object]] = {
    "string": "a",
    "integer": 1,
    "number": 1.5,
    "boolean": False,
    "object": {},
    "null": None,
}


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes

    @property
    def kind(self) -> str:
        return self.headers.get(b"content-type", b"").decode().partition(";")[0]

    def json(self) -> Any:
        return json.loads(self.body)

    def says(self, secret: str) -> bool:
        """Say whether a secret is anywhere in it."""
        return secret.encode() in self.body or any(
            secret.encode() in value for value in self.headers.values()
        )


class Field(NamedTuple):
    """A field of a body."""

    at: At
    types: frozenset[str] | None  # the JSON types that it may have; `None` if any
    required: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """A route with one of its methods, and what it says that it takes."""

    route: Route
    method: str
    parameters: Sequence[Schema]
    contents: Mapping[str, Schema]  # by media type
    must_have_body: bool
    schemas: Schema

    def __str__(self) -> str:
        return f"{self.method} {self.route.path}"

    @property
    def takes_json(self) -> bool:
        """Whether a body that is not strict JSON is refused for that alone."""
        return JSON in self.contents and self.contents[JSON]["schema"].get("type") != "string"

    def named(self, where: str) -> list[Schema]:
        """The parameters that it takes in one part of a request."""
        return [each for each in self.parameters if each["in"] == where]

    @property
    def kinds(self) -> list[str | None]:
        """The kinds of bodies that it takes."""
        return list(self.contents) or [None]

    def draft(self, world: World, kind: str | None) -> Draft:
        """Make a request that is right, with a body of this kind."""
        headers = tuple(
            (each["name"].lower().encode(), str(each["example"]).encode())
            for each in self.named("header")
            if each.get("required")
        )
        draft = Draft(
            self,
            places={each["name"]: self._place(world, each) for each in self.named("path")},
            query=tuple(
                (each["name"].encode(), str(self.value(world, "", each["schema"])).encode())
                for each in self.named("query")
                if each.get("required")
            ),
            headers=headers,
            own=frozenset(name for name, _ in headers),
        )
        return draft if kind is None else self._with_body(draft, world, kind)

    def _place(self, world: World, parameter: Schema) -> bytes:
        found = world.place(self.route.path, parameter["name"])
        if found is None:
            found = str(self.value(world, parameter["name"], parameter["schema"]))
        return quote_from_bytes(found.encode(), safe="").encode()

    def _with_body(self, draft: Draft, world: World, kind: str) -> Draft:
        content = self.contents[kind]
        if kind == LINES:
            return replace(draft, kind=kind, value=self._value(world, self.contents[JSON]))
        if content["schema"].get("type") == "string" and kind != JSON:
            # Whatever is plain text has to be called by its name somewhere else.
            query = ((b"format", b"ini"),) if kind == "text/plain" else ()
            return replace(draft, kind=kind, text=content["example"].encode(), query=query)
        return replace(draft, kind=kind, value=self._value(world, content))

    def _value(self, world: World, content: Schema) -> object:
        if content["schema"].get("type") == "string":
            return json.loads(content["example"])
        return self.value(world, "", content["schema"])

    def value(self, world: World, name: str, schema: Schema) -> object:
        """Make a value of what the schema shows, or else of what it allows."""
        fitting = world.value(self.route.path, name)
        if fitting is not None:
            return fitting
        if "examples" in schema:
            return copy.deepcopy(schema["examples"][0])
        plain = self.plain(schema)
        if "examples" in plain or "enum" in plain:
            return copy.deepcopy((plain.get("examples") or plain["enum"])[0])
        if "properties" in plain:
            return {key: self.value(world, key, each) for key, each in plain["properties"].items()}
        if plain.get("type") == "array":
            return [self.value(world, "", plain["items"])]
        return copy.deepcopy(_BY_TYPE[plain.get("type", "string")])

    def plain(self, schema: Schema) -> Schema:
        """Follow a schema to what it is when it is something."""
        if "$ref" in schema:
            return self.plain(self.schemas[schema["$ref"].rpartition("/")[2]])
        for each in schema.get("anyOf", ()):
            if each.get("type") != "null":
                return self.plain(each)
        return schema

    def fields_of(self, draft: Draft) -> list[Field]:
        """Every field of the body of a draft."""
        said = self.contents[JSON]["schema"] if JSON in self.contents else {}
        return list(self.fields(draft.value, {} if said.get("type") == "string" else said))

    def types(self, schema: Schema) -> frozenset[str] | None:
        """The JSON types that a schema allows; `None` if it does not say."""
        if "$ref" in schema:
            return self.types(self.schemas[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            found = [self.types(each) for each in schema["anyOf"]]
            return frozenset().union(*filter(None, found)) if None not in found else None
        said = schema.get("type")
        if said is None:
            return None
        types = {said} if isinstance(said, str) else set(said)
        return frozenset(types | ({"integer"} if "number" in types else set()))

    def fields(self, value: object, schema: Schema, at: At = ()) -> Iterator[Field]:
        """Every field of a body, also those within others."""
        plain = self.plain(schema)
        if isinstance(value, dict):
            known, other = plain.get("properties", {}), plain.get("additionalProperties")
            for key, item in value.items():
                below = known.get(key, other if isinstance(other, Mapping) else {})
                yield Field((*at, key), self.types(below), key in plain.get("required", ()))
                yield from self.fields(item, below, (*at, key))
        elif isinstance(value, list) and value:
            below = plain.get("items", {})
            yield Field((*at, 0), self.types(below), False)
            yield from self.fields(value[0], below, (*at, 0))


@dataclass(frozen=True, slots=True)
class Draft:
    """A request that is right, until somebody changes a part of it."""

    operation: Operation
    places: Mapping[str, bytes]
    query: tuple[tuple[bytes, bytes], ...] = ()
    headers: Headers = ()
    own: frozenset[bytes] = frozenset()  # the headers that nobody else adds to it
    kind: str | None = None
    value: object = None
    text: bytes | None = None  # the body as it is sent, if it is not what `value` means
    chunks: tuple[bytes, ...] = ()  # sent after it

    def in_path(self, name: str, said: bytes) -> Draft:
        """Put something else into its path."""
        return replace(self, places={**self.places, name: said})

    def in_query(self, name: str, *said: bytes) -> Draft:
        """Put something into its query."""
        kept = tuple(each for each in self.query if each[0] != name.encode())
        return replace(self, query=(*kept, *((name.encode(), value) for value in said)))

    def with_headers(self, name: bytes, *said: bytes) -> Draft:
        """Say a header so often, instead of what it says now."""
        kept = tuple(each for each in self.headers if each[0] != name)
        told = (*kept, *((name, value) for value in said))
        return replace(self, headers=told, own=self.own | {name})

    def with_body(self, text: bytes, *chunks: bytes) -> Draft:
        """Send another body under the same name."""
        return replace(self, text=text, chunks=chunks)

    def with_field(self, at: At, text: bytes) -> Draft:
        """Put a JSON text into a field of the body."""
        changed = copy.deepcopy(self.value)
        _parent(changed, at)[at[-1]] = _MARK
        return self.with_body(json.dumps(changed).encode().replace(_QUOTED, text, 1))

    def without_field(self, at: At) -> Draft:
        """Leave a field out."""
        changed = copy.deepcopy(self.value)
        del _parent(changed, at)[at[-1]]
        return self.with_body(json.dumps(changed).encode())

    @property
    def target(self) -> bytes:
        """Its path, as it stands in the first line of a request."""
        path = self.operation.route.path.encode()
        return re.sub(rb"\{(\w+)[^}]*\}", lambda found: self.places[found[1].decode()], path)

    @property
    def body(self) -> bytes:
        """What it sends."""
        if self.kind is None:
            return self.text or b""
        text = json.dumps(self.value).encode() if self.text is None else self.text
        if self.kind == LINES:
            return text + b"\n" + json.dumps(self.value).encode() + b"\n"
        return text


_QUOTED: Final = json.dumps(_MARK).encode()


def _parent(value: Any, at: At) -> Any:
    for step in at[:-1]:
        value = value[step]
    return value


def operations(app: FastAPI) -> list[Operation]:
    """Every route of an application with each of its methods, also those that no document shows."""
    described = app.openapi()
    schemas = described["components"]["schemas"]
    found = []
    for route in app.routes:
        if isinstance(route, WebSocketRoute):  # they speak no HTTP, and have tests of their own
            continue
        assert isinstance(route, Route), route
        for method in sorted(route.methods or ()):
            said = described["paths"].get(route.path, {}).get(method.lower(), {})
            body = said.get("requestBody", {})
            found.append(
                Operation(
                    route,
                    method,
                    said.get("parameters") or _undescribed(route.path),
                    body.get("content", {}),
                    bool(body.get("required")),
                    schemas,
                )
            )
    return found


def _undescribed(path: str) -> list[Schema]:
    names = re.findall(r"\{(\w+)", path)
    return [{"name": name, "in": "path", "schema": {"type": "string"}} for name in names]


async def ask(app: FastAPI, draft: Draft, *headers: tuple[bytes, bytes]) -> Answer:
    """Send a request straight into the application, byte by byte as a server would hand it over.

    Of an answer without end, the first piece is read.
    """
    kind = ((b"content-type", draft.kind.encode()),) if draft.kind else ()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": draft.operation.method,
        "scheme": "http",
        "path": unquote(draft.target.decode("ascii")),
        "raw_path": draft.target,
        "query_string": b"&".join(b"=".join(each) for each in draft.query),
        "root_path": "",
        "headers": [
            *(each for each in (*kind, *headers) if each[0] not in draft.own),
            *draft.headers,
        ],
        "client": ("127.0.0.1", 4711),
        "server": ("127.0.0.1", 8470),
    }
    messages = _Messages([draft.body, *draft.chunks])
    async with asyncio.timeout(BOUND_S):
        await app(scope, messages.receive, messages.send)
    return messages.answer()


class _Messages:
    """Both ends of a connection, as the application sees them."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = list(pieces)
        self._told = asyncio.Event()
        self._status = 0
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()

    async def receive(self) -> Message:
        if self._pieces:
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self._told.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.lower(): value for name, value in message["headers"]}
        else:
            self._body += message.get("body", b"")
            self._told.set()

    def answer(self) -> Answer:
        return Answer(self._status, self._headers, bytes(self._body))
