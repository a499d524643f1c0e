"""We log in with the keys of one folder, their certificates or an agent, also through others."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onward.channels.ssh import SshChannel
from onward.errors import HostRefused, NotDelivered
from tests.channels.conformance.ground import Ear
from tests.channels.ssh.sshd import (
    USER,
    Server,
    delivery,
    free_port,
    keygen,
    needs_sshd,
    prepared,
    sign,
    sshd,
)
from tests.cli.running import folder_for_servers, until

pytestmark = needs_sshd


@pytest.fixture
def empty(server: Server, tmp_path: Path) -> Path:
    """A folder that knows the host, and has no key yet."""
    (tmp_path / "known_hosts").write_text(f"* {server.host_key}\n")
    return tmp_path


def copied(server: Server, folder: Path, name: str) -> Path:
    """Put the key that the server knows into a folder."""
    made = folder / name
    shutil.copy(server.folder / "client" / "id_ed25519", made)
    shutil.copy(server.folder / "client" / "id_ed25519.pub", f"{made}.pub")
    return made


async def succeeds(server: Server, folder: Path, asked: str = "", **changes: object) -> bool:
    async with SshChannel(server.way(folder, **changes)) as channel:
        report = await channel.deliver(delivery(f"{server.address}{asked}", "true"), Ear())
    return report.succeeded


async def test_without_a_key_it_is_said_how_to_make_one(server: Server, empty: Path):
    with pytest.raises(HostRefused, match=r"ssh-keygen -t ed25519 -N '' -f .*/id_ed25519"):
        await succeeds(server, empty)


async def test_a_key_that_the_host_does_not_know_is_refused_with_how_to(
    server: Server, empty: Path
):
    keygen(empty / "id_ed25519")
    with pytest.raises(HostRefused, match=f"does not let {USER} in .* authorized_keys of {USER}"):
        await succeeds(server, empty)


async def test_every_key_of_the_folder_is_tried(server: Server, empty: Path):
    keygen(empty / "id_a_stranger")
    (empty / "id_broken").write_text("no key\n")
    copied(server, empty, "id_zulu")
    assert await succeeds(server, empty)


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
async def test_a_key_of_any_kind_is_good(tmp_path: Path, kind: str):
    ours = prepared(tmp_path)
    keygen(ours / "client" / "id_other", "-t", kind)
    for each in (ours / "client").glob("id_ed25519*"):
        each.unlink()
    (ours / "authorized_keys").write_bytes((ours / "client" / "id_other.pub").read_bytes())
    with sshd(ours) as found:
        assert await succeeds(found, ours / "client")


async def test_an_address_may_name_the_one_key_to_be_tried(server: Server, empty: Path):
    keygen(empty / "id_stranger")
    copied(server, empty, "deploy")
    assert await succeeds(server, empty, "?key=deploy")
    with pytest.raises(HostRefused, match="does not let"):
        await succeeds(server, empty, "?key=id_stranger")
    with pytest.raises(HostRefused, match="names the key missing: put it into"):
        await succeeds(server, empty, "?key=missing")


async def test_a_key_with_a_passphrase_is_left_to_an_agent(server: Server, empty: Path):
    key = copied(server, empty, "id_ed25519")
    change = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", str(key)]
    subprocess.run(change, check=True)  # noqa: ASYNC221 - of the test
    with pytest.raises(HostRefused, match="id_ed25519 has a passphrase: add it to an agent"):
        await succeeds(server, empty)


async def test_a_key_that_came_meanwhile_is_used_without_a_restart(server: Server, empty: Path):
    keygen(empty / "id_stranger")
    async with SshChannel(server.way(empty)) as channel:
        with pytest.raises(HostRefused):
            await channel.deliver(delivery(server.address, "true"), Ear())
        copied(server, empty, "id_ed25519")
        channel._pool._dialler.identities._look_at = 0.0  # a second later
        assert (await channel.deliver(delivery(server.address, "true"), Ear())).succeeded


# Certificates


@contextmanager
def certifying(folder: Path) -> Iterator[Server]:
    """An sshd that knows nobody but an authority."""
    authority = keygen(folder / "authority")
    (folder / "authorized_keys").write_text("")
    with sshd(folder, f"TrustedUserCAKeys {authority}.pub") as server:
        yield server


async def test_a_certificate_beside_the_key_is_shown(tmp_path: Path):
    folder = prepared(tmp_path)
    with certifying(folder) as server:
        with pytest.raises(HostRefused):
            await succeeds(server, folder / "client")
        sign(folder / "authority", folder / "client" / "id_ed25519", "-n", USER)
        assert await succeeds(server, folder / "client")


async def test_a_certificate_for_somebody_else_is_refused(tmp_path: Path):
    folder = prepared(tmp_path)
    with certifying(folder) as server:
        sign(folder / "authority", folder / "client" / "id_ed25519", "-n", "somebody-else")
        with pytest.raises(HostRefused):
            await succeeds(server, folder / "client")


# Agents


@contextmanager
def agent(key: Path) -> Iterator[Path]:
    with (
        # Not below pytest's own folder: the path of a socket has to be short.
        folder_for_servers() as folder,
        subprocess.Popen(
            ["ssh-agent", "-D", "-a", str(path := folder / "agent")], stdout=subprocess.DEVNULL
        ) as process,
    ):
        try:
            until(path.exists)
            environment = {**os.environ, "SSH_AUTH_SOCK": str(path)}
            subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True)
            yield path
        finally:
            process.terminate()


async def test_the_keys_of_an_agent_are_used(server: Server, empty: Path):
    with agent(server.folder / "client" / "id_ed25519") as path:
        assert await succeeds(server, empty, agent=path)


async def test_an_agent_is_not_asked_unless_the_settings_name_it(
    server: Server, empty: Path, monkeypatch: pytest.MonkeyPatch
):
    with agent(server.folder / "client" / "id_ed25519") as path:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        with pytest.raises(HostRefused, match="There is no key"):
            await succeeds(server, empty)


async def test_an_agent_that_is_gone_is_no_more_than_keys_that_are_missing(
    server: Server, empty: Path
):
    with pytest.raises(HostRefused, match="does not let"):
        await succeeds(server, empty, agent=empty / "nobody")
    copied(server, empty, "id_ed25519")
    assert await succeeds(server, empty, agent=empty / "nobody")


async def test_the_host_gets_no_agent_of_ours(server: Server, empty: Path):
    copied(server, empty, "id_ed25519")
    with agent(server.folder / "client" / "id_ed25519") as path:
        async with SshChannel(server.way(empty, agent=path)) as channel:
            ear = Ear()
            asked = delivery(server.address, "sh", "-c", 'echo "[$SSH_AUTH_SOCK$DISPLAY]"')
            await channel.deliver(asked, ear)
    assert ear.stdout == "[]\n"


# Through others


async def test_a_host_is_reached_through_another(server: Server, tmp_path: Path):
    with sshd(prepared(tmp_path)) as jump:
        (tmp_path / "authorized_keys").write_bytes((server.folder / "authorized_keys").read_bytes())
        way = server.way(server.folder / "client", idle_s=0.2)
        known = server.folder / "client" / "known_hosts"
        with known.open("a") as file:
            file.write(f"* {jump.host_key}\n")
        async with SshChannel(way) as channel:
            ear = Ear()
            asked = f"{server.address}?jump={jump.address}"
            report = await channel.deliver(delivery(asked, "sh", "-c", "echo $SSH_CONNECTION"), ear)
            assert report.succeeded
            assert ear.stdout.split()[3] == str(server.port)
            assert channel.connections == 2
            twice = f"{server.address}?jump={jump.address}&jump={server.address}"
            assert (await channel.deliver(delivery(twice, "true"), Ear())).succeeded
        assert channel.connections == 0
    assert jump.log.count("Accepted publickey") == 1, "many hosts share the way to them"


async def test_a_jump_that_cannot_be_reached_is_named(server: Server):
    async with SshChannel(server.way()) as channel:
        jump = f"127.0.0.1:{free_port()}"
        with pytest.raises(NotDelivered, match=jump):
            await channel.deliver(delivery(f"{server.address}?jump={jump}", "true"), Ear())


async def test_a_host_that_the_jump_cannot_reach_was_sent_nothing(server: Server):
    async with SshChannel(server.way()) as channel:
        nobody = f"{USER}@127.0.0.1:{free_port()}?jump={server.address}"
        with pytest.raises(NotDelivered, match="web1"):
            await channel.deliver(delivery(nobody, "true"), Ear())
