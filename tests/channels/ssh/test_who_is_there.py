"""A host is believed by the key that somebody has accepted, and by nothing else.

Each case has an sshd of its own, because it is about who that one claims to be.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from onward.channels.base import Report
from onward.channels.ssh import SshChannel
from onward.errors import HostRefused
from tests.channels.conformance.ground import Ear
from tests.channels.ssh.sshd import Server, delivery, keygen, needs_sshd, prepared, sign, sshd

pytestmark = needs_sshd


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An sshd whose key is certified by an authority, for `localhost` and 127.0.0.1."""
    folder = prepared(tmp_path_factory.mktemp("certified"))
    authority = keygen(folder / "authority")
    certificate = sign(authority, folder / "host_key", "-h", "-n", "localhost,127.0.0.1")
    with sshd(folder, f"HostCertificate {certificate}") as server:
        yield server


@asynccontextmanager
async def knowing(server: Server, tmp_path: Path, *lines: str) -> AsyncIterator[SshChannel]:
    """A channel with the right key, and with these lines about hosts."""
    for name in ("id_ed25519", "id_ed25519.pub"):
        (tmp_path / name).write_bytes((server.folder / "client" / name).read_bytes())
    (tmp_path / "id_ed25519").chmod(0o600)
    (tmp_path / "known_hosts").write_text("\n".join(lines) + "\n")
    async with SshChannel(server.way(tmp_path)) as channel:
        yield channel


async def run(server: Server, channel: SshChannel, address: str | None = None) -> Report:
    return await channel.deliver(delivery(address or server.address, "true"), Ear())


def fingerprint(path: Path) -> str:
    said = subprocess.run(["ssh-keygen", "-lf", path], check=True, capture_output=True, text=True)
    return said.stdout.split()[1]


def public(path: Path) -> str:
    return path.with_name(f"{path.name}.pub").read_text().strip()


async def test_a_host_that_nobody_has_accepted_is_refused_with_how_to(
    server: Server, tmp_path: Path
):
    async with knowing(server, tmp_path) as channel:
        with pytest.raises(HostRefused, match="onward hosts trust web1") as refusal:
            await run(server, channel)
        assert fingerprint(server.folder / "host_key.pub") in str(refusal.value)
        # Accepted meanwhile, as `onward hosts trust` does it: no restart is needed.
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {server.host_key}\n")
        assert (await run(server, channel)).succeeded


async def test_a_host_with_another_key_is_refused_with_both(server: Server, tmp_path: Path):
    other = keygen(tmp_path / "other")
    async with knowing(server, tmp_path, f"[127.0.0.1]:{server.port} {public(other)}") as channel:
        with pytest.raises(HostRefused, match=r"somebody may be in between.* --replace") as refusal:
            await run(server, channel)
    assert fingerprint(server.folder / "host_key.pub") in str(refusal.value)
    assert fingerprint(tmp_path / "other.pub") in str(refusal.value)


async def test_a_host_with_another_kind_of_key_is_a_changed_one(server: Server, tmp_path: Path):
    other = keygen(tmp_path / "other", "-t", "ecdsa")
    async with knowing(server, tmp_path, f"* {public(other)}") as channel:
        with pytest.raises(HostRefused, match="somebody may be in between") as refusal:
            await run(server, channel)
    assert fingerprint(server.folder / "host_key.pub") in str(refusal.value)


async def test_a_host_shows_the_kind_of_key_that_is_known(tmp_path: Path):
    """Whoever has accepted one of several keys is not bothered with the others."""
    folder = prepared(tmp_path)
    other = keygen(folder / "other", "-t", "ecdsa")
    with sshd(folder, f"HostKey {other}") as server:
        for known in (server.host_key, public(other)):
            (folder / "client" / "known_hosts").write_text(f"* {known}\n")
            async with SshChannel(server.way()) as channel:
                assert (await run(server, channel)).succeeded


async def test_a_revoked_key_is_refused_though_it_is_known(server: Server, tmp_path: Path):
    lines = (f"* {server.host_key}", f"@revoked * {server.host_key}")
    async with knowing(server, tmp_path, *lines) as channel:
        with pytest.raises(HostRefused, match="is revoked"):
            await run(server, channel)


async def test_a_key_is_good_for_its_name_and_not_for_what_the_name_resolves_to(
    server: Server, tmp_path: Path
):
    """`localhost` is 127.0.0.1 here, whose key is known; somebody else's DNS could say so too."""
    async with knowing(server, tmp_path, f"[127.0.0.1]:{server.port} {server.host_key}") as channel:
        assert (await run(server, channel)).succeeded
        by_name = server.address.replace("127.0.0.1", "localhost")
        with pytest.raises(HostRefused, match="is not known"):
            await run(server, channel, by_name)


async def test_a_certificate_of_a_known_authority_is_enough(certified: Server, tmp_path: Path):
    authority = f"@cert-authority * {public(certified.folder / 'authority')}"
    async with knowing(certified, tmp_path, authority) as channel:
        assert (await run(certified, channel)).succeeded


async def test_a_certificate_is_good_for_the_names_in_it_only(certified: Server, tmp_path: Path):
    authority = f"@cert-authority * {public(certified.folder / 'authority')}"
    async with knowing(certified, tmp_path, authority) as channel:
        elsewhere = certified.address.replace("127.0.0.1", "127.1")
        with pytest.raises(HostRefused, match="no certificate of a known authority"):
            await run(certified, channel, elsewhere)


async def test_a_certificate_of_somebody_else_is_not(certified: Server, tmp_path: Path):
    other = keygen(tmp_path / "other")
    async with knowing(certified, tmp_path, f"@cert-authority * {public(other)}") as channel:
        with pytest.raises(HostRefused):
            await run(certified, channel)


async def test_a_revoked_authority_certifies_nobody(certified: Server, tmp_path: Path):
    key = public(certified.folder / "authority")
    lines = (f"@cert-authority * {key}", f"@revoked * {key}")
    async with knowing(certified, tmp_path, *lines) as channel:
        with pytest.raises(HostRefused, match="revoked"):
            await run(certified, channel)
