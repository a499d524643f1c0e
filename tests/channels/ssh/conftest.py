"""One sshd for most of the tests, and a channel for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from onward.channels.ssh import SshChannel
from tests.channels.ssh.sshd import Server, installed, prepared, sshd


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keys of both sides, which know each other."""
    return prepared(tmp_path_factory.mktemp("sshd"))


@pytest.fixture(scope="session")
def server(folder: Path) -> Iterator[Server]:
    """An sshd that all tests share; who stops one or sets it up otherwise starts their own."""
    if not installed:
        pytest.skip("not run: needs sshd (openssh-server)")
    with sshd(folder) as found:
        yield found


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[SshChannel]:
    """A channel of the test's own to it."""
    async with SshChannel(server.way()) as made:
        yield made
