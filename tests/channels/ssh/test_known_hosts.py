"""A file of known hosts means what OpenSSH takes it to mean."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
from pathlib import Path

import asyncssh
import pytest

from onward.channels.ssh.address import Hop
from onward.channels.ssh.known_hosts import KnownHosts
from onward.errors import HostRefused


@pytest.fixture
def keys() -> list[asyncssh.SSHKey]:
    made = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(3))
    return [key.convert_to_public() for key in made]


def text_of(key: asyncssh.SSHKey) -> str:
    return key.export_public_key().decode().strip()


def known(tmp_path: Path, *lines: str) -> KnownHosts:
    path = tmp_path / "known_hosts"
    path.write_text("\n".join(lines) + "\n")
    return KnownHosts(path)


def hashed(name: str) -> str:
    salt = hashlib.sha1(name.encode(), usedforsecurity=False).digest()
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


NAMES = {
    "web1": (Hop("web1"), True),
    "WEB1,web2": (Hop("web1"), True),
    "web2,10.0.0.1": (Hop("10.0.0.1"), True),
    "web*": (Hop("web17"), True),
    "web?": (Hop("web17"), False),
    "*,!web1": (Hop("web1"), False),
    "!web1,*": (Hop("web2"), True),
    "[web1]:2222": (Hop("web1", 2222), True),
    "[web1]:2223": (Hop("web1", 2222), False),
    "[*]:2222": (Hop("web1", 2222), True),
    "[web1]:22": (Hop("web1"), False),
    "::1": (Hop("::1"), True),
    hashed("web1"): (Hop("web1"), True),
    hashed("web2"): (Hop("web1"), False),
    hashed("[web1]:2222"): (Hop("web1", 2222), True),
    "|1|broken": (Hop("web1"), False),
    "|2|c2FsdA==|eA==": (Hop("web1"), False),
}


@pytest.mark.parametrize("names", NAMES)
def test_a_line_means_the_hosts_that_it_names(
    tmp_path: Path, names: str, keys: list[asyncssh.SSHKey]
):
    hop, meant = NAMES[names]
    found = known(tmp_path, f"{names} {text_of(keys[0])} a comment").trusted(hop)
    assert found.keys == ((keys[0],) if meant else ())


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="not run: needs ssh-keygen")
@pytest.mark.parametrize("names", [each for each in NAMES if "|" not in each or "==|" not in each])
def test_openssh_reads_a_line_in_the_same_way(
    tmp_path: Path, names: str, keys: list[asyncssh.SSHKey]
):
    hop, meant = NAMES[names]
    known(tmp_path, f"{names} {text_of(keys[0])}")
    asked = ["ssh-keygen", "-F", hop.known_as, "-f", str(tmp_path / "known_hosts")]
    said = subprocess.run(asked, check=False, capture_output=True, text=True)
    assert (said.returncode == 0) == meant


def test_authorities_and_revoked_keys_are_told_apart(tmp_path: Path, keys: list[asyncssh.SSHKey]):
    plain, authority, revoked = keys
    found = known(
        tmp_path,
        "# a comment",
        "",
        f"web1 {text_of(plain)}",
        f"@cert-authority *.example.org,web* {text_of(authority)}",
        f"@revoked * {text_of(revoked)}",
        f"@something-new web1 {text_of(revoked)}",
        "web1 ssh-unknown AAAA",
        "web1",
    ).trusted(Hop("web1"))
    assert found == ((plain,), (authority,), (revoked,))


def test_a_host_at_a_port_is_also_known_without_it_and_revoked_either_way(
    tmp_path: Path, keys: list[asyncssh.SSHKey]
):
    hosts = known(tmp_path, f"web1 {text_of(keys[0])}", f"@revoked [web1]:2222 {text_of(keys[1])}")
    assert hosts.trusted(Hop("web1", 2222)) == ((keys[0],), (), (keys[1],))


def test_a_revocation_that_cannot_be_read_is_not_passed_over(tmp_path: Path):
    with pytest.raises(HostRefused, match="Line 1 of"):
        known(tmp_path, "@revoked * ssh-ed25519 AAAA").trusted(Hop("web1"))


def test_a_file_that_has_changed_is_read_again(tmp_path: Path, keys: list[asyncssh.SSHKey]):
    hosts = KnownHosts(tmp_path / "known_hosts")
    assert hosts.trusted(Hop("web1")).keys == ()
    hosts.path.write_text(f"web1 {text_of(keys[0])}\n")
    assert hosts.trusted(Hop("web1")).keys == (keys[0],)
    with hosts.path.open("a") as file:
        file.write(f"web1 {text_of(keys[1])}\n")
    assert hosts.trusted(Hop("web1")).keys == (keys[0], keys[1])
    hosts.path.unlink()
    assert hosts.trusted(Hop("web1")).keys == ()
