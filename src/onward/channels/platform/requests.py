"""One request to a platform, and what is known when it has gone wrong.

Until the first byte of a request has left, nothing was delivered. From then on only an answer says
what the platform did: whatever breaks in between may have made the task.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Collection, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import httpcore2

from onward.channels.platform.addresses import CheckedNetwork, Resolve
from onward.channels.platform.description import Platform
from onward.errors import DeliveryUnknown, InvalidInput, NotDelivered

FROM_ENVIRONMENT: Final = "env:"  # what a header begins with whose value is not in the file

_ANSWER_MAX: Final = 1024 * 1024  # bytes
_TOLD_MAX: Final = 200  # characters of what a platform says, in a message
_SECRET_MIN: Final = 4  # characters; what is shorter is in every message
_IDLE_S: Final = 30.0
_EXPLAINING: Final = ("detail", "message", "error_description", "error", "title")


class Answer(NamedTuple):
    """What a platform said."""

    status: int
    body: bytes

    def json(self) -> object:
        """Return what it means, or nothing if it is no JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def told(self, hidden: Collection[str]) -> str:
        """Say the status, and what the platform says about it, without what nobody is to see."""
        phrase = f"{self.status} {_phrase(self.status)}".rstrip()
        value = self.json()
        said = _explanation(value) if isinstance(value, dict) else ""
        # The longest first: what is left of one that holds another would give both away.
        for secret in sorted(hidden, key=len, reverse=True):
            if len(secret) >= _SECRET_MIN:
                said = said.replace(secret, "***")
        return f"{phrase}: {said[:_TOLD_MAX]}" if said else phrase


class Requests:
    """The connections to one platform."""

    def __init__(
        self, platform: Platform, *, environment: Mapping[str, str], resolve: Resolve | None
    ) -> None:
        self._platform = platform
        self._headers = _headers(platform, environment)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_trust(platform),
            max_connections=platform.connections,
            keepalive_expiry=_IDLE_S,
            network_backend=CheckedNetwork(private=platform.private, resolve=resolve),
        )

    async def aclose(self) -> None:
        """Hang up."""
        await self._pool.aclose()

    @property
    def secrets(self) -> Iterator[str]:
        """What is sent and must not be told: the values of headers, and what they are made of."""
        for value in self._headers.values():
            yield value
            yield from value.split()

    async def send(
        self, method: str, url: str, *, body: object, key: str, timeout_s: float
    ) -> Answer:
        """Send a request and return the answer, whatever it says. No redirect is followed."""
        left = False

        async def trace(event: str, _info: Mapping[str, Any]) -> None:
            nonlocal left
            left = left or event.endswith("send_request_headers.started")

        try:
            async with asyncio.timeout(min(timeout_s, self._platform.timeout_s)):
                return await self._answer(method, url, body=body, key=key, trace=trace)
        except httpcore2.NetworkError as error:
            raise self._broken("did not answer", error, left=left) from None
        except httpcore2.ProtocolError:
            # What the library says repeats what came, which may be what was sent.
            broken = "gave an answer that is broken, or too long"
            raise self._broken(broken, left=left) from None
        except (httpcore2.TimeoutException, TimeoutError) as error:
            raise self._broken("did not answer in time", error, left=left) from None

    async def _answer(
        self, method: str, url: str, *, body: object, key: str, trace: object
    ) -> Answer:
        headers = {
            **self._headers,
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "User-Agent": "onward",
        }
        async with self._pool.stream(
            method,
            url,
            headers=list(headers.items()),
            content=json.dumps(body, allow_nan=False).encode(),
            extensions={"trace": trace},
        ) as response:
            return Answer(response.status, await _read(response))

    def _broken(
        self, what: str, error: Exception | None = None, *, left: bool
    ) -> NotDelivered | DeliveryUnknown:
        name, why = self._platform.name, f" ({error})" if error and str(error) else ""
        if left:
            return DeliveryUnknown(
                f"The platform {name} {what}{why}; it may have made the task all the same."
            )
        return NotDelivered(f"The platform {name} could not be reached{why}.")


async def _read(response: httpcore2.Response) -> bytes:
    found = bytearray()
    async for piece in response.aiter_stream():
        found += piece
        if len(found) > _ANSWER_MAX:
            raise httpcore2.RemoteProtocolError("its answer is too long")
    return bytes(found)


def _headers(platform: Platform, environment: Mapping[str, str]) -> dict[str, str]:
    return {name: _value(platform, name, environment) for name in platform.headers}


def _value(platform: Platform, name: str, environment: Mapping[str, str]) -> str:
    """Return what a header says; a part of it may be in the environment, and not in the file."""
    told, place = platform.headers[name], f"{platform.name}.headers.{name}"
    before, found, variable = told.partition(FROM_ENVIRONMENT)
    if not found:
        return told
    if variable not in environment:
        raise InvalidInput(place, f"the environment has no {variable:.80}")
    value = before + environment[variable].strip()
    if not value.isascii() or not value.isprintable():
        raise InvalidInput(place, f"{variable:.80} is not plain ASCII on one line")
    return value


def _trust(platform: Platform) -> ssl.SSLContext | None:
    """Whom to believe that they are the platform; nobody has to prove it without TLS."""
    if not platform.url.startswith("https:"):
        return None
    if platform.ca is None:
        return httpcore2.default_ssl_context()
    try:
        return ssl.create_default_context(cafile=platform.ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"{platform.name}.ca", f"cannot be read: {error}") from None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _explanation(value: Mapping[str, object]) -> str:
    """What a platform says went wrong, in the one of its fields that is for people."""
    said = next((text for key in _EXPLAINING if isinstance(text := value.get(key), str)), "")
    return "".join(each if each.isprintable() else " " for each in said).strip()
