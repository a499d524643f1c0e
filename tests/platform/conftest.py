"""Onward on a database of the module's own, and its API with a description of the fake platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest

import onward
from onward.api.app import create_app
from onward.channels.platform.file import read
from onward.service.serving import services as services_for
from onward.wiring import Onward
from tests.conftest import settings_for
from tests.platform.fake import Platform, described
from tests.present import TESTER


@pytest.fixture(scope="module")
async def opened(shared_url: str) -> AsyncIterator[Onward]:
    """Onward, open on it: every test has hosts and tasks of its own."""
    async with onward.open(settings_for(shared_url)) as found:
        yield found


@pytest.fixture(scope="module")
async def client(opened: Onward) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody who may call back, to an API that knows `fake`, `strict` and `plain`."""
    async with calling(opened) as found:
        yield found


class calling:  # noqa: N801 - used as a function
    """Give a client with the key of an operator, of an API that knows the platforms."""

    def __init__(self, opened: Onward) -> None:
        self._opened = opened

    async def __aenter__(self) -> httpx2.AsyncClient:
        # Where the platform is does not matter to whoever only listens.
        lenient = described(Platform())
        strict = described(Platform(), lifecycle="platform").replace("fake", "strict")
        plain = '[plain]\nurl = "https://plain.example"\nbody = {}\n'
        services = replace(services_for(self._opened), platforms=read(lenient + strict + plain))
        _, key = await services.keys.make("platform", person="ann", role="operator", by=TESTER)
        transport = httpx2.ASGITransport(app=create_app(services))
        headers = {"Authorization": f"Bearer {key}"}
        self._client = httpx2.AsyncClient(
            transport=transport, base_url="http://onward.test", headers=headers
        )
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
