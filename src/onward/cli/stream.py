"""The stream of changes as a command listens to it: resumed where it broke, without an end.

A thread listens, so that whoever waits can also look at the clock and be interrupted. A break is
bridged from the last id that was heard; if there is no way on from there, that is told as `ANEW`,
and whoever listens looks at how things stand.
"""

from __future__ import annotations

import json
import queue
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import httpx2

from onward.cli.client import Client

Change: TypeAlias = Mapping[str, object]
Wanted: TypeAlias = Mapping[str, str | Sequence[str]]

ANEW: Final[Change] = {"kind": "anew"}
LOST: Final[Change] = {"kind": "lost"}
GONE: Final[Change] = {"kind": "gone"}  # the position that was to be gone on from

_SILENCE_S: Final = 40.0  # a comment comes every 15
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 5.0
_GONE: Final = 410
_OK: Final = 200
_REFUSED: Final = frozenset({401, 403, 404, 422})


class Listening:
    """What has changed since somebody began to listen."""

    def __init__(self, http: httpx2.Client, params: Wanted, *, ids: bool = False) -> None:
        self._http = http
        self._params = dict(params)
        self._ids = ids
        self._heard: queue.SimpleQueue[Change] = queue.SimpleQueue()
        self._last_id = ""
        self._over = threading.Event()
        self._open = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def next(self, wait_s: float) -> Sequence[Change]:
        """Wait for changes, and return those that have come; none when the time is over."""
        found: list[Change] = []
        with suppress(queue.Empty):
            found.append(self._heard.get(timeout=max(wait_s, 0.0)))
            while True:
                found.append(self._heard.get_nowait())
        return found

    def begin(self, wait_s: float) -> None:
        """Listen; return when the stream is open, so that nothing after this is missed."""
        self._thread.start()
        self._open.wait(wait_s)

    @property
    def going_on(self) -> bool:
        """Whether more may be heard; not by whoever was refused."""
        return self._thread.is_alive()

    def end(self) -> None:
        """Listen no more; the thread ends with its connection, or with the process."""
        self._over.set()

    def _listen(self) -> None:
        pause_s = _FIRST_WAIT_S
        while not self._over.is_set():
            began = time.monotonic()
            with suppress(httpx2.HTTPError, OSError, ValueError):
                if not self._hear():
                    return
            if self._over.is_set():
                return
            self._heard.put(LOST)
            # Whoever was heard for a while is tried again at once.
            lasted = time.monotonic() - began > _LONGEST_WAIT_S
            pause_s = _FIRST_WAIT_S if lasted else min(pause_s * 2, _LONGEST_WAIT_S)
            self._over.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - so that not all come back at once

    def _hear(self) -> bool:
        """Hear one connection to its end; says whether there is any use in another one."""
        headers = {"Last-Event-ID": self._last_id} if self._last_id else {}
        timeout = httpx2.Timeout(_SILENCE_S, connect=5.0)
        with self._http.stream(
            "GET", "/events", params=self._params, headers=headers, timeout=timeout
        ) as answer:
            if answer.status_code == _GONE:
                self._last_id = ""
                self._params.pop("after", None)
                self._heard.put(GONE)
                self._heard.put(ANEW)
                return True
            if answer.status_code in _REFUSED:
                return False
            if answer.status_code != _OK:
                return True
            self._open.set()
            # Something may have happened between two connections that had no id between them.
            self._heard.put(ANEW)
            for event_id, data in events(answer.iter_lines()):
                self._last_id = event_id or self._last_id
                if data:
                    change = json.loads(data)
                    self._heard.put({"id": event_id, **change} if self._ids else change)
                if self._over.is_set():
                    return False
        return True


def events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Read server-sent events: the id and the data of each, as far as it has them."""
    event_id = ""
    data: list[str] = []
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            yield event_id, "\n".join(data)
            event_id, data = "", []
        elif field == "id":
            event_id = value
        elif field == "data":
            data.append(value)


@contextmanager
def listening(
    service: Client, params: Wanted | None = None, *, wait_s: float = 5.0, ids: bool = False
) -> Iterator[Listening]:
    """Listen to what changes from now on, or after the position that `params` name.

    With `ids`, each change has the id after which the stream would go on.
    """
    found = Listening(service.http, params or {}, ids=ids)
    found.begin(wait_s)
    try:
        yield found
    finally:
        found.end()
