"""A small platform: makes tasks over HTTP, runs them on devices, and calls back as badly as asked.

It keeps one task a key, answers a repeat with the task that it has, and can be told to answer
wrongly or not at all. What its devices do is what the parameters of a task say.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

# Called with what the platform says; whoever gives it passes it on to us.
CallBack = Callable[[dict[str, Any]], Awaitable[object]]

_REASONS = {200: "OK", 201: "Created", 404: "Not Found"}


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked of the platform."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Manners:
    """How badly it calls back."""

    longest_s: float = 0.0  # by which each callback may be late, so that they overtake each other
    doubled: float = 0.0  # the share of those that come twice
    early: bool = False  # callbacks come before the answer to whoever made the task
    statuses: tuple[str, ...] = ("sent", "delivered")  # said before the end


@dataclass
class Platform:
    """The platform; `answers` are bytes to be sent instead of an answer, one a request."""

    call_back: CallBack | None = None
    manners: Manners = field(default_factory=Manners)
    seed: int = 0
    requests: list[Request] = field(default_factory=list)
    tasks: dict[str, str] = field(default_factory=dict)  # by the key of the request
    answers: list[bytes | None] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    port: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._numbers = count(1)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._calls: set[asyncio.Task[object]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        # While it is clear, callbacks wait as they do when nobody can be reached.
        self.reaching = asyncio.Event()
        self.reaching.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self._writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                if self.answers:
                    answer = self.answers.pop(0)
                    if answer is None:
                        break
                else:
                    answer = await self._answer(request)
                writer.write(answer)
                await writer.drain()
        self._writers.discard(writer)
        with suppress(ConnectionError, ssl.SSLError):
            writer.close()
            await writer.wait_closed()

    async def _answer(self, request: Request) -> bytes:
        if request.method == "DELETE":
            return http(200 if self._stop(request.path.rpartition("/")[2]) else 404, {})
        key = request.headers["idempotency-key"]
        if request.body["params"].get("refused"):
            return http(422, {"detail": "no such valve"})
        if key in self.tasks:
            return http(200, {"task": {"id": self.tasks[key]}})
        task = self.tasks[key] = f"t-{next(self._numbers)}"
        self._running[task] = asyncio.create_task(self._run(task, request.body))
        if self.manners.early:
            await asyncio.wait({self._running[task]})
            await self.quiet()
        return http(201, {"task": {"id": task}})

    def _stop(self, task: str) -> bool:
        running = self._running.get(task)
        return running is not None and not running.done() and running.cancel()

    async def _run(self, task: str, body: Any) -> None:
        device, params = body["device"], body["params"]
        name = params.get("id", task)
        try:
            self.effects.append(f"started {name}")
            if params.get("echoes"):
                echoed = ",".join(each.encode().hex() for each in params["echoes"])
                self.effects.append(f"echoed {echoed}")
            for status in self.manners.statuses:
                await self._say(task, device, status)
            await asyncio.sleep(params.get("sleep_s", 0))
            self.effects.append(f"finished {name}")
        except asyncio.CancelledError:
            await self._say(task, device, "stopped")
            raise
        code = params.get("exit_code", 0)
        for _ in range(params.get("answers", 1)):
            if code:
                await self._say(task, device, "failed", why=f"exit code {code}")
            else:
                await self._say(task, device, params.get("ends", "done"))

    async def _say(self, task: str, device: str, status: str, **more: Any) -> None:
        """Call back: at once, or some time later and perhaps twice."""
        if self.call_back is None:
            return
        said = {"task": {"id": task}, "device": device, "state": status, **more}
        for _ in range(2 if self._chance.random() < self.manners.doubled else 1):
            if self.manners.longest_s:
                later = self._later(said, self._chance.random() * self.manners.longest_s)
                call = asyncio.create_task(later)
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
            else:
                await self._later(said, 0)

    async def _later(self, said: dict[str, Any], delay_s: float) -> object:
        await asyncio.sleep(delay_s)
        await self.reaching.wait()
        return None if self.call_back is None else await self.call_back(said)

    async def quiet(self) -> None:
        """Wait until everything that was to be said has been said."""
        while waiting := [*self._calls, *(run for run in self._running.values() if not run.done())]:
            await asyncio.wait(waiting)

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def open(self, context: ssl.SSLContext | None = None) -> None:
        """Listen: on a port of its own, or on the one that it had."""
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", self.port, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more. What runs goes on."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()

    async def end(self) -> None:
        """Stop whatever runs, and say nothing more."""
        left = [*self._calls, *self._running.values()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


@asynccontextmanager
async def serving(
    platform: Platform, *, context: ssl.SSLContext | None = None
) -> AsyncIterator[Platform]:
    """Serve a platform on a port of its own."""
    await platform.open(context)
    try:
        yield platform
    finally:
        platform.call_back = None
        await platform.end()
        await platform.close()


def http(status: int, value: object, *headers: str) -> bytes:
    """An answer."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, json.loads(body) if body else None)


def described(platform: Platform, *, lifecycle: str = "platform_lenient", more: str = "") -> str:
    """How the file of platforms describes it."""
    return f"""
[fake]
url = "{platform.url}/tasks"
cancel_url = "{platform.url}/tasks/{{task_id}}"
cancel_method = "DELETE"
lifecycle = "{lifecycle}"
insecure = true
private = true
task_id = "/task/id"
{more}

[fake.body]
device = "{{device_id}}"
command = "{{command_type}}"
params = "{{params}}"
timeout = "{{timeout_s}}"

[fake.callback]
task_id = "/task/id"
device_id = "/device"
status = "/state"
error = "/why"
result = "/result"

[fake.words]
queued = "SAVED"
sent = "SENT"
delivered = "DELIVERED"
done = "COMPLETED"
failed = {{ status = "COMPLETED", failed = true }}
stopped = {{ status = "COMPLETED", cancelled = true }}
lost = "TIMEOUT"
expired = "TTL_TIMEOUT"
"""
