"""What the page about SSH shows is what happens, on a real sshd."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import asyncssh
import pytest

from onward.channels.program import program_of
from onward.channels.ssh import parse
from onward.channels.ssh.dial import SshWay
from onward.settings import Settings
from tests.channels.ssh.sshd import USER, needs_sshd, prepared, sshd
from tests.proof_table import Tried
from tests.reader import page, reading, steps, table

PAGE = page("ssh.md")
_FINGERPRINT = re.search(r"SHA256:\w+", PAGE)


@needs_sshd
@pytest.mark.skipif(shutil.which("curl") is None, reason="not run: needs curl 7.82 or newer")
def test_everything_on_the_page_happens_as_shown(tmp_path: Path, tried: Tried):
    folder = prepared(tmp_path)
    key = asyncssh.read_public_key(folder / "host_key.pub")
    first, then = PAGE.split("Then accept the key of the host.")
    assert _FINGERPRINT is not None
    with sshd(folder) as server:
        own = {"deploy@10.0.0.7": f"{USER}@127.0.0.1:{server.port}"}
        with reading() as reader:
            done = reader.follow(first)
            made = reader.run("cat ssh/id_ed25519.pub")
            (folder / "authorized_keys").write_text(made)
            reader._replaced = {**own, _FINGERPRINT[0]: key.get_fingerprint()}
            done += reader.follow(then)
    tried("steps of the page about SSH", done, "all as shown")


def test_no_example_is_left_out():
    kinds = set(re.findall(r"^```(\w+)", PAGE, re.MULTILINE))
    assert kinds <= {"console", "text"}
    assert PAGE.count("\n$ ") == sum(step.kind == "console" for step in steps(PAGE))


def test_every_address_on_the_page_is_one():
    for row in table(PAGE, "address", "what it means"):
        assert parse(row[0]).target.host


def test_the_page_names_every_parameter():
    listed = [row[0] for row in table(PAGE, "parameter", "meaning")]
    given: dict[str, object] = dict.fromkeys(listed, "x") | {"argv": ["x"], "env": {"A": "x"}}
    del given["shell"]
    assert program_of(given, argv=None, masked=()).argv == ("x",)
    assert "shell" in listed


def test_the_settings_and_limits_on_the_page_are_those_of_the_program():
    for name in re.findall(r"`ONWARD_(SSH_\w+)`", PAGE):
        assert name.lower() in Settings.model_fields
    way = SshWay(Path("ssh"))
    assert f"KILL {way.grace_s:g} seconds later" in PAGE
    assert f"At most {way.handshakes} handshakes" in PAGE
    assert way.idle_s == 60
    assert "kept for a minute" in PAGE
    assert way.keepalive_s * (way.keepalives + 1) == 60
    assert "after about a minute" in PAGE
