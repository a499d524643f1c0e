"""The whole way: a channel made of the wire, the fake platform, and the API that it calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2

from onward.channels.platform.file import read
from onward.channels.platform.wire import PlatformWire
from onward.fleet.carry import Carriage, Carrier
from onward.wiring import Onward
from tests.platform.fake import Platform, described, serving


@asynccontextmanager
async def carried(
    opened: Onward,
    client: httpx2.AsyncClient,
    platform: Platform,
    *,
    lifecycle: str = "platform_lenient",
) -> AsyncIterator[Carrier]:
    """Give the channel to hosts at `fake`, while the platform runs and calls back to the API."""
    answers = {200, 202}

    async def call_back(said: dict[str, Any]) -> None:
        name = "strict" if lifecycle == "platform" else "fake"
        answer = await client.post(f"/callbacks/platform/{name}", json=said)
        assert answer.status_code in answers, answer.text

    platform.call_back = call_back
    async with serving(platform):
        text = described(platform, lifecycle=lifecycle)
        if lifecycle == "platform":
            text = text.replace("[fake", "[strict")
        async with PlatformWire(read(text), environment={}) as wire:
            carrier = Carrier(
                opened.commands, opened.settings, Carriage(wire, "platform", wire.lifecycle)
            )
            running = asyncio.create_task(carrier.run())
            try:
                yield carrier
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
