"""How commands talk to a running service: over HTTP, with a key, and told no in a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn
from urllib.parse import urlsplit

import httpx2
import typer

from onward.api.first_key import FILE
from onward.errors import InvalidInput, OnwardError, ServerUnreachable
from onward.settings import Settings

_TIMEOUT_S: Final = 60.0
_CONNECT_S: Final = 5.0
_ANYWHERE: Final = MappingProxyType({"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"})  # noqa: S104 - where others listen
_HERE: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_PAGE: Final = 1_000
_OK: Final = range(200, 300)


class Answer(NamedTuple):
    """What the service said."""

    status: int
    body: dict[str, object]  # empty, if it was not a JSON object
    request_id: str = ""

    @property
    def good(self) -> bool:
        """Whether it did what it was asked for."""
        return self.status in _OK

    @property
    def errors(self) -> list[Mapping[str, object]]:
        """What is wrong with the request, one by one, as far as the service says so."""
        listed = self.body.get("errors")
        return (
            [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        )

    def refuse(self) -> NoReturn:
        """Fail with what the service says, in one sentence."""
        raise OnwardError(_sentence(self))


class Client:
    """A service, as one command calls it."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Answer:
        """Make a request, and return the answer whatever it is."""
        try:
            answer = self._http.request(method, path, params=params, content=content)
        except httpx2.HTTPError as error:
            raise ServerUnreachable(
                f"{self._http.base_url} does not answer ({_reason(error)}): start `onward up`, or "
                "name the service in ONWARD_URL."
            ) from error
        request_id = answer.headers.get("x-request-id", "")
        return Answer(answer.status_code, _object(answer.content), request_id)

    def get(self, path: str, **params: str) -> dict[str, object]:
        """Return what there is, or fail with the sentence why not."""
        answer = self.send("GET", path, params=params)
        return answer.body if answer.good else answer.refuse()

    def pages(self, path: str, **params: str) -> Iterator[dict[str, object]]:
        """Each item of a list, however many pages it has."""
        cursor: object = None
        while True:
            more = {} if cursor is None else {"cursor": str(cursor)}
            page = self.get(path, limit=str(_PAGE), **params, **more)
            items = page.get("items")
            yield from items if isinstance(items, list) else []
            cursor = page.get("next_cursor")
            if cursor is None:
                return


@contextmanager
def calling(settings: Settings) -> Iterator[Client]:
    """Give the service that the settings name, with the key that they name."""
    address = _address(settings)
    here = (urlsplit(address).hostname or "") in _HERE
    _warn_of_plain_text(address, here=here)
    with httpx2.Client(
        base_url=address,
        headers={"Authorization": f"Bearer {_key(settings, here=here)}"},
        timeout=httpx2.Timeout(_TIMEOUT_S, connect=_CONNECT_S),
        # The proxy of a machine is for what is elsewhere.
        trust_env=not here,
    ) as http:
        yield Client(http)


def _address(settings: Settings) -> str:
    if settings.url is None:
        host = _ANYWHERE.get(settings.host, settings.host)
        return (
            f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
        )
    try:
        found = urlsplit(settings.url)
        good = found.scheme in {"http", "https"} and found.hostname and found.port != 0
    except ValueError:
        good = False
    if not good or found.username is not None or found.query or found.fragment:
        raise InvalidInput(
            "ONWARD_URL", "is not the address of a service, such as https://onward.example.com"
        )
    return settings.url


def _warn_of_plain_text(address: str, *, here: bool) -> None:
    if not here and address.startswith("http://"):
        typer.echo(
            f"onward: the way to {address} is not encrypted, and others may read the key: "
            "use https.",
            err=True,
        )


def _key(settings: Settings, *, here: bool) -> str:
    for given in (settings.key, settings.admin_key if here else None):
        if given is not None:
            return _sendable(given.get_secret_value())
    # The key of this machine's own service is nobody else's business.
    path = settings.data_dir / FILE
    if not here:
        raise InvalidInput("ONWARD_KEY", "is not set: it is the key that the service knows you by")
    return _sendable(_read(path))


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no key"
        raise InvalidInput(
            "ONWARD_KEY", f"is not set, and {path} cannot be read ({why}): set one of your own"
        ) from None


def _sendable(key: str) -> str:
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        raise InvalidInput("ONWARD_KEY", "is not a key: it takes printable characters, no spaces")
    return key


def _object(content: bytes) -> dict[str, object]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _sentence(answer: Answer) -> str:
    """Tell a refusal: what it is, why, and with which fields."""
    title = str(answer.body.get("title") or f"The service answered {answer.status}")
    detail = str(answer.body.get("detail") or "")
    fields = [str(each.get("detail", "")) for each in answer.errors]
    said = fields[0] if len(fields) == 1 else detail
    asked = f" (request {answer.request_id})" if answer.status not in range(400, 500) else ""
    return f"{title}: {said}{asked}" if said and said != title else f"{title}{asked}."


def _reason(error: httpx2.HTTPError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
