"""One real PostgreSQL for the whole run, and a database of its own for every test that asks.

The schema is made once, in a template; a test's database is a copy of it. The server forgets on a
crash (`durable=False`) because these tests measure nothing and lose nothing; what does measure or
crash starts its own.

`ONWARD_TEST_DATABASE_URL` points the suite at another server (PostgreSQL 15 or newer, a role that
may create databases) instead of the embedded one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

import onward
from onward import embedded
from onward.settings import Settings
from onward.wiring import Onward
from tests.databases import copied, drop, make, on
from tests.memory import move_in, move_out

pytest_plugins = ("tests.proof_table",)

_TEMPLATE = "onward_test_template"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--proof", action="store_true", help="run the long tests at their full figures"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let what tests start hear an interrupt, also below a shell in the background."""
    if (folder := move_in()) is not None:
        config.add_cleanup(lambda: move_out(folder))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def proof(request: pytest.FixtureRequest) -> bool:
    """Whether to run the full figures instead of the sample."""
    return bool(request.config.getoption("--proof"))


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of a server on which databases may be made and dropped."""
    if url := os.environ.get("ONWARD_TEST_DATABASE_URL"):
        yield url
        return
    # Not below pytest's own folder: that is closed to the user that the server runs as under root.
    folder = Path(tempfile.mkdtemp(prefix="onward-tests-"))
    folder.chmod(0o755)
    try:
        with embedded.servers(folder, durable=False) as servers:
            yield servers.database_url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of a Valkey that all tests share; who stops or empties one starts their own."""
    folder = Path(tempfile.mkdtemp(prefix="onward-tests-"))
    folder.chmod(0o755)
    try:
        with embedded.servers(folder, postgresql=False, valkey=True) as servers:
            assert servers.redis_url is not None
            yield servers.redis_url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    """The name of a database that has the schema and nothing else."""
    make(server_url, _TEMPLATE)

    async def migrate() -> None:
        async with onward.open(settings_for(on(server_url, _TEMPLATE))):
            pass

    asyncio.run(migrate())
    yield _TEMPLATE
    drop(server_url, _TEMPLATE)


@pytest.fixture
def database_url(server_url: str, template: str) -> Iterator[str]:
    """A database of the test's own."""
    with copied(server_url, template) as url:
        yield url


@pytest.fixture(scope="module")
def shared_url(server_url: str, template: str) -> Iterator[str]:
    """A database of the module's own: whoever breaks something there takes it back."""
    with copied(server_url, template) as url:
        yield url


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[Onward]:
    """Onward, open on a database of the test's own."""
    async with onward.open(settings_for(database_url)) as found:
        yield found


@pytest.fixture
async def pool(opened: Onward) -> asyncpg.Pool:
    """The pool of what is open."""
    return opened.commands.pool


def settings_for(url: str, **changes: object) -> Settings:
    """Settings for a server that may forget, as the tests' own does."""
    return Settings(database_url=url, require_durable=False, **changes)  # type: ignore[arg-type]  # pydantic checks
