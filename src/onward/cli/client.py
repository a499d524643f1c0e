"""How commands talk to a running service: over HTTP, with a key, and told no in a sentence."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn
from urllib.parse import urlsplit

import httpx2
import typer

from onward.cli import contexts
from onward.cli.exits import Exit, KeyMissing, Leaving, ServiceAway, Usage, of_status
from onward.cli.tree import Given, given_of
from onward.errors import InvalidInput
from onward.settings import Settings

if TYPE_CHECKING:
    from onward.cli.contexts import Target

_TIMEOUT_S: Final = 60.0
_CONNECT_S: Final = 5.0
_ANYWHERE: Final = MappingProxyType({"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"})  # noqa: S104 - where others listen
_HERE: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_FIRST_KEY: Final = "admin-key"  # as the first start names it
_PAGE: Final = 1_000
_OK: Final = range(200, 300)
_TRIES: Final = 4
_PATIENCE_S: Final = 2.0
_AGAIN_S: Final = 0.5  # before a repeat that nobody has named a time for
_MAYBE_LATER: Final = 503
_BETWEEN: Final = frozenset({502, 504})  # as a proxy says it, of a service that it does not reach
_ELSEWHERE: Final = range(300, 400)

# What to do about a refusal, where the service itself does not say it in words of the command line.
_NEXT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "key-missing": "Set ONWARD_KEY, or name a key with `onward context add`.",
        "key-malformed": "Set ONWARD_KEY, or name a key with `onward context add`.",
        "key-unknown": "Set ONWARD_KEY, or name another key with `onward context add`.",
        "permission-missing": "`onward whoami` says what yours allows; an admin makes others.",
        "four-eyes": "Ask somebody else.",
        "unknown-job": "`onward jobs` lists those that there are.",
        "unknown-execution": "`onward executions list --job JOB` lists those that there are.",
        "unknown-host": "`onward hosts` lists those that there are.",
        "unknown-block": "`onward blocks` lists those that there are.",
        "unknown-command": "`onward commands` lists those that there are.",
        "unknown-command-type": "`onward types` lists those that there are.",
        "unknown-key": "`onward keys` lists those that there are.",
        "not-found": "The service may be older than this command.",
        "unavailable": "Try again in a moment.",
        "locked": "Try again in a moment.",
        "host-in-use": "`onward hosts disable` keeps it out of new jobs.",
        "job-conflict": "Choose another --external-id.",
    }
)


class Answer(NamedTuple):
    """What the service said."""

    status: int
    body: dict[str, object]  # empty, if it was not a JSON object
    request_id: str = ""
    etag: str = ""
    retry_after_s: float = 0.0

    @property
    def good(self) -> bool:
        """Whether it did what it was asked for."""
        return self.status in _OK

    @property
    def code(self) -> str:
        """What a refusal is called."""
        return str(self.body.get("code") or "")

    @property
    def errors(self) -> list[Mapping[str, object]]:
        """What is wrong with the request, one by one, as far as the service says so."""
        listed = self.body.get("errors")
        return (
            [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        )

    def refuse(self) -> NoReturn:
        """Fail with what the service says, in one sentence, and what to do about it."""
        raise Leaving(of_status(self.status, self.code), _sentence(self))


class Client:
    """A service, as one command calls it."""

    def __init__(
        self,
        http: httpx2.Client,
        target: Target | None = None,
        *,
        tries: int = _TRIES,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self.http = http
        self.target = target
        self._tries = tries
        self._timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))

    def once(self, timeout_s: float) -> Client:
        """The same service, for whoever knows better when to ask again."""
        return Client(self.http, self.target, tries=1, timeout_s=min(timeout_s, _TIMEOUT_S))

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | Sequence[str]] | None = None,
        content: bytes | None = None,
        body: object = None,
        seen: str | None = None,
        repeat: bool = False,
    ) -> Answer:
        """Make a request, and return the answer whatever it is.

        `seen` is the version that it is for. Where another request is changing the same thing at
        this moment, or a question cannot be answered now, it is made again a few times; with
        `repeat`, which says that a repeat is harmless, also where nobody says whether it was done.
        """
        headers = {} if seen is None else {"If-Match": seen}
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        for left in reversed(range(self._tries)):
            try:
                answer = self._once(method, path, params=params, content=content, headers=headers)
            except ServiceAway:
                if not repeat or not left:
                    raise
                time.sleep(_AGAIN_S)
                continue
            if not left or not _later(answer, method, repeat=repeat):
                break
            wait_s = _AGAIN_S if answer.status in _BETWEEN else answer.retry_after_s
            time.sleep(min(wait_s, _PATIENCE_S))
        return answer

    def get(self, path: str, **params: str | Sequence[str]) -> dict[str, object]:
        """Return what there is, or fail with the sentence why not."""
        answer = self.send("GET", path, params=params)
        return self._told(answer).body

    def look(self, path: str, **params: str | Sequence[str]) -> Answer:
        """Return what there is with its version, or fail with the sentence why not."""
        return self._told(self.send("GET", path, params=params))

    def do(self, method: str, path: str, *, body: object = None, seen: str | None = None) -> Answer:
        """Have something done, or fail with the sentence why not."""
        answer = self.send(method, path, body=body, seen=seen)
        return answer if answer.good else answer.refuse()

    def pages(
        self, path: str, *, most: int | None = None, **params: str | Sequence[str]
    ) -> Iterator[dict[str, object]]:
        """Each item of a list, page by page, up to so many."""
        return islice(self._each(path, min(most or _PAGE, _PAGE), params), most)

    def more(
        self, path: str, *, most: int, **params: str | Sequence[str]
    ) -> tuple[list[dict[str, object]], bool]:
        """The first items of a list, and whether there are others."""
        found = list(self.pages(path, most=most + 1, **params))
        return found[:most], len(found) > most

    def _each(
        self, path: str, size: int, params: Mapping[str, str | Sequence[str]]
    ) -> Iterator[dict[str, object]]:
        cursor: object = None
        while True:
            more = {} if cursor is None else {"cursor": str(cursor)}
            page = self.get(path, **{"limit": str(size), **params, **more})
            items = page.get("items")
            yield from items if isinstance(items, list) else []
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def _once(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | Sequence[str]] | None,
        content: bytes | None,
        headers: Mapping[str, str],
    ) -> Answer:
        try:
            answer = self.http.request(
                method,
                path,
                params=_params(params),
                content=content,
                headers=headers,
                timeout=self._timeout,
            )
        except httpx2.HTTPError as error:
            raise away(self.http, error) from error
        head = answer.headers
        return Answer(
            answer.status_code,
            _object(answer.content),
            head.get("x-request-id", ""),
            head.get("etag", ""),
            _seconds(head.get("retry-after", "")),
        )

    def _told(self, answer: Answer) -> Answer:
        if not answer.good:
            answer.refuse()
        if not answer.body:
            raise Leaving(
                Exit.SERVICE_AWAY,
                f"{self.http.base_url} answers, but not as Onward does: look at the address.",
            )
        return answer


def away(http: httpx2.Client, error: httpx2.HTTPError) -> ServiceAway:
    """Say that a service does not answer, and what to do about it."""
    return ServiceAway(
        f"{http.base_url} does not answer ({_reason(error)}): start `onward up`, or "
        "name the service in ONWARD_URL or with `onward context use`."
    )


@contextmanager
def calling(settings: Settings, given: Given | None = None) -> Iterator[Client]:
    """Give the service that is meant, with the key that is meant."""
    target = contexts.target(settings, given or Given())
    address = address_of(target, settings)
    here = is_here(address)
    _warn_of_plain_text(address, here=here)
    with httpx2.Client(
        base_url=address,
        headers={"Authorization": f"Bearer {key_of(target, settings, here=here)}"},
        # The proxy of a machine is for what is elsewhere.
        trust_env=not here,
        # To read whom one may trust takes longer than most commands, and plain HTTP asks nobody.
        verify=address.startswith("https"),
    ) as http:
        yield Client(http, target)


@contextmanager
def service(context: typer.Context) -> Iterator[Client]:
    """Give the service that a command line means."""
    from onward.cli.environment import settings

    with calling(settings(), given_of(context)) as found:
        yield found


def address_of(target: Target, settings: Settings) -> str:
    """The address of a service, checked."""
    if target.url is None:
        host = _ANYWHERE.get(settings.host, settings.host)
        return (
            f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
        )
    return checked_address(target.url, said=target.url_from)


def is_here(address: str) -> bool:
    """Whether a service is on this machine."""
    return (urlsplit(address).hostname or "") in _HERE


def checked_address(url: str, *, said: str) -> str:
    """Return the address of a service, or say that it is none."""
    try:
        found = urlsplit(url)
        good = found.scheme in {"http", "https"} and found.hostname and found.port != 0
        # What no name server could be asked for is told here, and not when it is asked for.
        httpx2.URL(url).host.encode("idna")
    except (ValueError, httpx2.InvalidURL):
        good = False
    good = good and url.isprintable() and " " not in url
    if not good or found.username is not None or found.query or found.fragment:
        raise Usage(f"{said}: is not the address of a service, such as https://onward.example.com.")
    return url


def _warn_of_plain_text(address: str, *, here: bool) -> None:
    if not here and address.startswith("http://"):
        typer.echo(
            f"onward: the way to {address} is not encrypted, and others may read the key: "
            "use https.",
            err=True,
        )


def key_of(target: Target, settings: Settings, *, here: bool) -> str:
    """The key for a service, wherever it is kept."""
    if target.key is not None:
        return sendable(target.key)
    if target.key_file is not None:
        return sendable(
            _read(
                target.key_file,
                str(target.key_file),
                "cannot be read",
                "it is to hold the key of the context",
            )
        )
    if here and settings.admin_key is not None:
        return sendable(settings.admin_key.get_secret_value())
    # The key of this machine's own service is nobody else's business.
    if not here:
        raise KeyMissing(
            "ONWARD_KEY",
            "is not set: it is the key that the service knows you by; "
            "or name one with `onward context add`",
        )
    path = settings.data_dir / _FIRST_KEY
    return sendable(
        _read(path, "ONWARD_KEY", f"is not set, and {path} cannot be read", "set one of your own")
    )


def sendable(key: str) -> str:
    """Return a key that can stand in a header, or say that it cannot."""
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        raise InvalidInput("ONWARD_KEY", "is not a key: it takes printable characters, no spaces")
    return key


def _read(path: Path, field: str, problem: str, advice: str) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no key"
        raise KeyMissing(field, f"{problem} ({why}): {advice}") from None


def _params(
    params: Mapping[str, str | Sequence[str]] | None,
) -> list[tuple[str, str | int | float | bool | None]]:
    """Write a filter of several values as so many of them."""
    return [
        (name, each)
        for name, value in (params or {}).items()
        for each in ([value] if isinstance(value, str) else value)
    ]


def _object(content: bytes) -> dict[str, object]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _later(answer: Answer, method: str, *, repeat: bool) -> bool:
    """Whether another try may be answered otherwise, and does no harm."""
    if answer.status == _MAYBE_LATER:
        return repeat or method == "GET"
    return answer.code == "locked" or (repeat and answer.status in _BETWEEN)


def _seconds(said: str) -> float:
    return float(said) if said.isdigit() else 0.0


def _sentence(answer: Answer) -> str:
    """Tell a refusal: what it is, why, with which fields, and what to do about it."""
    title = str(answer.body.get("title") or f"The service answered {answer.status}")
    detail = str(answer.body.get("detail") or "")
    fields = [_field(each) for each in answer.errors]
    said = fields[0] if len(fields) == 1 else detail
    inside = answer.request_id and answer.status not in range(400, 500)
    asked = f" (request {answer.request_id})" if inside else ""
    told = f"{title}: {said}{asked}" if said and said != title else f"{title}{asked}."
    return " ".join(part for part in (told, _advice(answer)) if part)


def _field(error: Mapping[str, object]) -> str:
    """Tell what is wrong with a field, and which one it is."""
    name = str(error.get("pointer") or "").strip("/").replace("/", ".")
    detail = str(error.get("detail") or "")
    return f"{name}: {detail}" if name else detail


def _advice(answer: Answer) -> str:
    allowed = answer.body.get("allowed")
    if isinstance(allowed, list) and answer.code in {"job-stands-otherwise", "too-late"}:
        return f"As it stands, it allows {', '.join(map(str, allowed)) or 'nothing'}."
    if answer.status in _ELSEWHERE:
        return "It is elsewhere: name its own address, with https if it has that."
    if answer.status in _BETWEEN and not answer.code:
        return (
            "Something before it does not reach it: try again in a moment, or look at the address."
        )
    return _NEXT.get(answer.code, "")


def _reason(error: httpx2.HTTPError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
