"""The conformance suite, for hosts that are reached through a platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import httpx2
import pytest

import onward
from onward.channels.base import Channel, Delivery, Target
from onward.wiring import Onward
from tests.channels.conformance.ground import Does, Ear, Ground, Nature, counted, named
from tests.channels.conformance.suite import *  # noqa: F403 - the suite is what this module runs
from tests.conftest import settings_for
from tests.platform.carried import carried
from tests.platform.conftest import calling
from tests.platform.fake import Platform

NUMBERS = count(1)


class PlatformGround:
    """One device at the fake platform."""

    nature = Nature(remembers=True, recovers=True, limits=False, talks=False)

    def __init__(self, channel: Channel, platform: Platform, target: Target) -> None:
        self.channel, self._platform, self._target = channel, platform, target

    def delivery(
        self,
        does: Does,
        *,
        command_id: str | None = None,
        epoch: int | None = None,
        timeout_s: float = 20.0,
        exclusive: bool = True,
    ) -> Delivery:
        delivery = Delivery(
            command_id=command_id or str(next(NUMBERS)),
            epoch=epoch or next(NUMBERS),
            target=self._target,
            command_type="open",
            params={},
            timeout_s=timeout_s,
            exclusive=exclusive,
        )
        params = does.told() | {"id": named(delivery), "refused": does.refused}
        return delivery._replace(params=params)

    def effects(self) -> list[str]:
        return list(self._platform.effects)

    async def away(self) -> None:
        await self._platform.close()

    async def back(self) -> None:
        if not self._platform.reaching.is_set():
            self._platform.reaching.set()
        else:
            await self._platform.open()

    async def cut(self) -> None:
        """Nothing that the platform says arrives, and no connection to it lives on."""
        self._platform.reaching.clear()
        self._platform.cut()


@pytest.fixture(scope="module")
async def opened(shared_url: str) -> AsyncIterator[Onward]:
    """Onward, open on it."""
    async with onward.open(settings_for(shared_url)) as found:
        yield found


@pytest.fixture(scope="module")
async def client(opened: Onward) -> AsyncIterator[httpx2.AsyncClient]:
    """Whoever the platform calls back to."""
    async with calling(opened) as found:
        yield found


@pytest.fixture
async def ground(opened: Onward, client: httpx2.AsyncClient) -> AsyncIterator[PlatformGround]:
    """A platform and a device of the test's own."""
    pool, name = opened.commands.pool, f"host-{next(NUMBERS)}"
    host_id = await pool.fetchval(
        "INSERT INTO hosts (name, channel, address) VALUES ($1, 'platform', $2) RETURNING id",
        name,
        f"fake/{name}",
    )
    platform = Platform()
    async with carried(opened, client, platform) as channel:
        yield PlatformGround(channel, platform, Target(host_id, name, f"fake/{name}"))
    await pool.execute("DELETE FROM sendings")


async def test_an_attempt_that_was_displaced_is_refused(  # type: ignore[no-redef]  # in its place
    ground: Ground,
):
    """A platform knows no epochs, so it cannot refuse: whoever claims attempts has to.

    What it can be held to is that either attempt hears of its own task, and of no other.
    """
    old, new = ground.delivery(Does()), ground.delivery(Does(exit_code=3))
    assert not (await ground.channel.deliver(new, Ear())).succeeded
    assert (await ground.channel.deliver(old, Ear())).succeeded
    assert counted(ground.effects()) == {named(new): 1, named(old): 1}
