"""The Valkey or Redis beside PostgreSQL: there when it is asked for, or one sentence."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis.asyncio

import onward
from onward.errors import InvalidInput, ServerTooOld, ServerUnreachable
from onward.store.orders import NO_TOKEN
from onward.store.valkey import refuse_old
from tests.conftest import settings_for
from tests.databases import copied


@pytest.fixture
def data_dir() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="onward-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def test_the_embedded_one_is_started_when_it_is_asked_for(database_url: str, data_dir: Path):
    settings = settings_for(database_url, data_dir=data_dir)
    async with onward.open(settings, valkey=True) as opened:
        assert opened.redis_url is not None
        client = redis.asyncio.from_url(opened.redis_url)
        await client.set("said", "yes")
        assert await client.get("said") == b"yes"
        await client.aclose()
        # The one that the settings name is used as it is; nothing else is started.
        named = settings_for(database_url, redis_url=opened.redis_url, data_dir=data_dir / "none")
        async with onward.open(named, valkey=True) as other:
            assert other.redis_url == opened.redis_url
            assert not (data_dir / "none").exists()


async def test_without_being_asked_for_it_is_left_alone(database_url: str):
    async with onward.open(settings_for(database_url, redis_url="redis://127.0.0.1:1")) as opened:
        assert opened.redis_url is None


async def test_a_service_begins_without_a_server_that_is_away(database_url: str):
    """It only helps; but one that was named wrongly is refused all the same."""
    away = settings_for(database_url, redis_url="redis://127.0.0.1:1")
    async with onward.open(away, valkey=True, may_be_away=True) as opened:
        async with opened.locks.holding("job:1") as ours:
            assert ours
        assert await opened.tokens.present("ann", "buy") == NO_TOKEN
    wrong = settings_for(database_url, redis_url="http://127.0.0.1:1")
    with pytest.raises(InvalidInput, match="ONWARD_REDIS_URL"):
        async with onward.open(wrong, valkey=True, may_be_away=True):
            pass


@pytest.mark.parametrize(
    ("url", "error"),
    [("redis://127.0.0.1:1", ServerUnreachable), ("nonsense", InvalidInput)],
)
async def test_one_that_does_not_answer_is_one_sentence(
    database_url: str, *, url: str, error: type[Exception]
):
    settings = settings_for(database_url, redis_url=url)
    with pytest.raises(error, match="ONWARD_REDIS_URL") as caught:
        async with onward.open(settings, valkey=True):
            pass
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("version", ["2.8.0", "6.0.16", "5.9"])
def test_one_that_is_too_old_is_refused(version: str):
    with pytest.raises(ServerTooOld, match=version):
        refuse_old(version)


@pytest.mark.parametrize("version", ["6.2.0", "7.2.4", "10.0.1"])
def test_one_that_is_new_enough_is_taken(version: str):
    refuse_old(version)


@pytest.fixture
def second_url(server_url: str, template: str) -> Iterator[str]:
    """Another database on the same server."""
    with copied(server_url, template) as url:
        yield url


async def test_installations_that_share_one_do_not_meet_in_it(
    database_url: str, second_url: str, redis_url: str
):
    """Of the same database, two processes do."""
    ours = settings_for(database_url, redis_url=redis_url)
    others = settings_for(second_url, redis_url=redis_url)
    user, token = f"ann-{uuid4()}", uuid4()
    async with (
        onward.open(ours, valkey=True) as here,
        onward.open(ours, valkey=True) as beside,
        onward.open(others, valkey=True) as elsewhere,
    ):
        async with here.locks.holding(user) as held:
            assert held
            assert await beside.locks.take(user) is None
            async with elsewhere.locks.holding(user) as theirs:
                assert theirs
        await here.tokens.remember(user, "buy", token)
        assert await beside.tokens.present(user, "buy") == token
        assert await elsewhere.tokens.present(user, "buy") == NO_TOKEN
