"""The gate: what the broker brings is looked at here, before Celery does anything with it.

Celery believes its messages. One may put a task off until next year, shorten its time limit so far
that the process which takes it is killed, name tasks that follow it, or crash the consumer with a
header of the wrong type. A hint has none of that. What does not look like one of ours is refused,
told in one line, counted, and forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from queue import Empty
from typing import Final, NoReturn

import structlog
from celery.utils.log import get_logger
from celery.worker.consumer import Consumer
from kombu import compression
from kombu.message import Message
from kombu.transport import TRANSPORT_ALIASES, redis
from vine import promise

from onward.engines.celery import names
from onward.engines.celery.refusals import REFUSALS
from onward.errors import InvalidInput
from onward.store.inputs import shown

_JSON: Final = "application/json"
_BODY_MAX: Final = 512 * 1024  # more than all the ids that one message may name
_PARTS: Final = 3  # of a body: arguments, arguments by name, what Celery would do besides

# Headers by which a message would tell Celery to do something besides: a hint leaves them empty.
_EMPTY: Final = ("eta", "retries", "group", "shadow", "stamps", "stamped_headers")
# The hard one and the soft one; Celery writes ours into what it sends itself.
_TIME_LIMITS: Final = (None, [None, None], [names.LIMIT_S, None])

log: structlog.stdlib.BoundLogger = structlog.get_logger("onward.celery")


class Gate(Consumer):
    """The consumer of a worker, which lets hints in and nothing else."""

    def create_task_handler(self, promise: type[promise] = promise) -> Callable[[Message], None]:
        """Return what is called with every message."""
        away = self._away()
        let_in = super().create_task_handler(promise)

        def look_at(message: Message) -> None:
            try:
                refuse_strangers(message)
            except InvalidInput as error:
                refused(str(error))
                message.reject_log_error(get_logger(__name__), away)
            else:
                let_in(message)

        return look_at

    def on_decode_error(self, message: Message, exc: Exception) -> None:
        """Refuse what kombu could not unpack."""
        refused(f"message: cannot be read: {_told(exc)}")
        message.reject_log_error(get_logger(__name__), self._away())

    def _away(self) -> tuple[type[BaseException], ...]:
        return self.app.connection_for_read().connection_errors


# What a read raises if there is nothing to be read, or nobody to read from. kombu takes a KeyError
# for a broken connection as well; here, it is a message of which a part is missing.
_MEANT: Final[tuple[type[BaseException], ...]] = (
    Empty,
    *(kind for kind in redis.Transport.connection_errors if kind is not KeyError),
    *redis.Transport.channel_errors,
)


class Channel(redis.Channel):
    """A way to Redis or Valkey that survives what is no message at all."""

    def _brpop_read(self, **options: object) -> bool:
        try:
            return bool(super()._brpop_read(**options))  # type: ignore[misc]  # left out there
        except _MEANT:
            raise
        except Exception as error:  # noqa: BLE001 - anybody may have written anything there
            # It is taken from its queue by now, so nobody will meet it again.
            refused(f"message: cannot be read: {_told(error)}")
            return True


class Transport(redis.Transport):
    """Redis or Valkey, by this way."""

    Channel = Channel


def install() -> None:
    """Have kombu go to Redis and Valkey by this way, and unpack nothing that is compressed.

    It would do so before anybody knows how large it gets, and hints are small.
    """
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
    for kind in compression.encoders():
        compression.register(_leave_packed, _leave_packed, kind)


def _leave_packed(_: object) -> NoReturn:
    raise ValueError("it is compressed")


def refused(problem: str, **more: str) -> None:
    """Say in one line why a message was refused, and count it."""
    log.warning("message_refused", problem=problem, **more)
    REFUSALS.add()


def _told(error: Exception) -> str:
    return shown(f"{type(error).__name__}: {error}")


def refuse_strangers(message: Message) -> None:
    """Refuse whatever cannot be one of our hints; what it asks for is judged by its task."""
    if message.content_type != _JSON:
        raise InvalidInput("message", f"expected {_JSON}, not {shown(message.content_type)}")
    _check_headers(message.headers)
    body = message.body or ""
    if len(body) > _BODY_MAX:
        raise InvalidInput("message", f"{len(body)} are more than {_BODY_MAX} bytes")
    _check_body(body)


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Mapping):
        raise InvalidInput("message", "has no headers")
    task = headers.get("task")
    if not isinstance(task, str) or task not in names.TASKS:
        raise InvalidInput("message", f"there is no task {shown(task)}")
    if not isinstance(headers.get("id"), str):
        raise InvalidInput("message", "has no id")
    for name in _EMPTY:
        if headers.get(name):
            raise InvalidInput("message", f"a hint has no {name}")
    if headers.get("timelimit") not in _TIME_LIMITS:
        raise InvalidInput("message", "a hint has no timelimit of its own")
    _check_expiry(headers.get("expires"))


def _check_expiry(given: object) -> None:
    """Beat's messages are of no use after a while, and say so."""
    try:
        if given is not None:
            datetime.fromisoformat(given)  # type: ignore[arg-type]  # it says so itself
    except (TypeError, ValueError):
        raise InvalidInput("message", f"expires is {shown(given)}") from None


def _check_body(body: str | bytes) -> None:
    try:
        parts = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("message", f"its body is not JSON: {type(error).__name__}") from None
    if not isinstance(parts, list) or len(parts) != _PARTS:
        raise InvalidInput("message", "its body is not that of a task")
    given, named, besides = parts
    if not (isinstance(given, list) and isinstance(named, dict) and isinstance(besides, dict)):
        raise InvalidInput("message", "its body is not that of a task")
    for name, what in besides.items():
        if what:
            raise InvalidInput("message", f"a hint has no {shown(name)}")
