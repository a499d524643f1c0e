"""The way through third-party platforms: a command becomes a task there.

The platform says what becomes of it by calling back, which is not heard here but by the API. A task
that is asked for again has the same `Idempotency-Key`, so that a platform which honours it answers
with the task that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, NoReturn, Self

from onward.channels.base import Letter, Listener, Target
from onward.channels.platform import forms
from onward.channels.platform.addresses import Resolve
from onward.channels.platform.description import Platform, Platforms
from onward.channels.platform.pointers import NOWHERE
from onward.channels.platform.requests import Answer, Requests
from onward.errors import ChannelError, DeliveryUnknown, HostBusy, HostRefused, NotDelivered

_TASKS_KNOWN: Final = 100_000  # whose name is remembered, to be able to ask for their end
_NAME_MAX: Final = 255  # characters of the name of a task, as it is stored
_OK, _REDIRECTED, _REFUSED, _BROKEN = 200, 300, 400, 500
_CONFLICT: Final = 409
# What refusals mean besides no, and what to do about them.
_ADVICE: Final[Mapping[int, tuple[type[ChannelError], str]]] = MappingProxyType(
    {
        401: (HostRefused, "; check its headers in the file of platforms"),
        403: (HostRefused, "; check its headers in the file of platforms"),
        408: (NotDelivered, ""),
        # Perhaps because the same task is being made at this moment.
        _CONFLICT: (DeliveryUnknown, "; an earlier request may have made the task"),
        429: (HostBusy, ""),
    }
)


class _Place(NamedTuple):
    """A device at a platform."""

    platform: Platform
    device_id: str


class PlatformWire:
    """Makes tasks at the platforms of a file; `environment` has what its headers do not say."""

    def __init__(
        self,
        platforms: Platforms,
        *,
        environment: Mapping[str, str],
        resolve: Resolve | None = None,
    ) -> None:
        self._platforms = platforms
        self._requests = {
            name: Requests(platform, environment=environment, resolve=resolve)
            for name, platform in platforms.items()
        }
        self._tasks: dict[str, str] = {}  # what platforms call the commands that we sent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        async with AsyncExitStack() as stack:
            for requests in self._requests.values():
                stack.push_async_callback(requests.aclose)

    def lifecycle(self, target: Target) -> str:
        """Return how the commands of a host may move; `HostRefused` if it is at no platform."""
        return self._place(target).platform.lifecycle

    async def send(self, letter: Letter) -> str:
        """Make a task, and return what the platform calls it."""
        platform, device_id = self._place(letter.target)
        values = _values(letter, platform, device_id)
        answer = await self._requests[platform.name].send(
            platform.method,
            forms.fill_address(platform.url, values),
            body=forms.fill(platform.body, values),
            key=_key(letter),
            timeout_s=letter.timeout_s,
        )
        task_id = self._task_of(platform, letter, answer)
        self._remember(_key(letter), task_id)
        return task_id

    async def cancel(self, letter: Letter) -> bool:
        """Ask the platform to stop a task; false if it cannot be asked, or will not."""
        try:
            platform, device_id = self._place(letter.target)
            task_id = self._tasks.get(_key(letter))
            if platform.cancel_url is None or (
                task_id is None and "{task_id}" in platform.cancel_url
            ):
                return False
            values = _values(letter, platform, device_id) | {"task_id": task_id}
            answer = await self._requests[platform.name].send(
                platform.cancel_method,
                forms.fill_address(platform.cancel_url, values),
                body={},
                key=f"{_key(letter)}-cancel",
                timeout_s=platform.timeout_s,
            )
        except ChannelError:
            return False
        return _OK <= answer.status < _REDIRECTED

    async def listen(self, heard: Listener) -> NoReturn:
        """Do nothing: what platforms say comes to the API."""
        del heard
        while True:
            await asyncio.Event().wait()

    def _place(self, target: Target) -> _Place:
        name, _, device_id = target.address.partition("/")
        if not device_id or name not in self._platforms:
            raise HostRefused(
                f"{target.address!a:.80} is no address at a platform: it takes the name of one in "
                "the file of platforms, a slash, and the device's id there."
            )
        return _Place(self._platforms[name], device_id)

    def _task_of(self, platform: Platform, letter: Letter, answer: Answer) -> str:
        """Return the name of the task that an answer is about."""
        if answer.status == _CONFLICT and platform.task_id is None:
            # It has our own id, and is there already.
            return _key(letter)
        if not _OK <= answer.status < _REDIRECTED:
            raise self._refusal(platform, letter, answer)
        if platform.task_id is None:
            return _key(letter)
        found = platform.task_id.find(answer.json())
        name = str(found) if type(found) is int else found
        if name is NOWHERE or not isinstance(name, str) or not _is_name(name):
            raise DeliveryUnknown(
                f"The platform {platform.name} has taken the task, but its answer has no name for "
                "it where task_id in the file of platforms says."
            )
        return name

    def _refusal(self, platform: Platform, letter: Letter, answer: Answer) -> ChannelError:
        """What an answer means that is not yes."""
        hidden = [*self._requests[platform.name].secrets, *_texts(letter.params)]
        told = f"The platform {platform.name} says {answer.told(hidden)}"
        if not _REDIRECTED <= answer.status < _BROKEN:
            return DeliveryUnknown(f"{told}; it may have made the task all the same.")
        if answer.status < _REFUSED:
            return HostRefused(f"{told}; no redirect is followed: check its url.")
        kind, advice = _ADVICE.get(answer.status, (HostRefused, ""))
        return kind(f"{told}{advice}.")

    def _remember(self, cmd_id: str, task_id: str) -> None:
        if len(self._tasks) >= _TASKS_KNOWN:
            self._tasks.clear()
        self._tasks[cmd_id] = task_id


def _key(letter: Letter) -> str:
    """What the platform is to know a task by, so that it makes it once."""
    return letter.key or letter.cmd_id


def _values(letter: Letter, platform: Platform, device_id: str) -> dict[str, object]:
    return {
        "cmd_id": _key(letter),
        "device_id": device_id,
        "command_type": letter.command_type,
        "params": letter.params,
        "timeout_s": letter.timeout_s,
        "timeout_ms": max(1, round(letter.timeout_s * 1_000)),
        "callback_url": platform.callback_url,
    }


def _is_name(text: str) -> bool:
    return 0 < len(text) <= _NAME_MAX and text.isprintable()


def _texts(value: object) -> Iterator[str]:
    """Every text in the parameters: a platform that repeats one may repeat a secret."""
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)
