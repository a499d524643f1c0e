"""Hosts from the command line: brought in, listed and trusted, with a real service and sshd."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import asyncssh
import pytest

from onward import cli
from onward.bench import sshd
from onward.bench.sshd import Ground
from onward.channels.ssh.address import Hop
from onward.channels.ssh.known_hosts import KnownHosts
from onward.cli import hosts
from onward.cli.known_hosts import write
from onward.fleet import inventory
from onward.fleet.hosts import Channel
from onward.settings import Settings
from tests.cli.running import (
    BOUND_S,
    Up,
    environment,
    folder_for_servers,
    on_database,
    onward_up,
    settled,
    until,
)
from tests.databases import copied

needs_sshd = pytest.mark.skipif(
    sshd.sshd() is None, reason="not run: needs sshd, which comes with openssh-server"
)


class Ended(NamedTuple):
    """What a command said, and how it left."""

    code: int
    said: str
    told: str  # on standard error


Onward = Callable[..., Ended]


@pytest.fixture(scope="module")
def service(server_url: str, template: str) -> Iterator[Up]:
    """A service that the tests of this module share."""
    with (
        folder_for_servers() as folder,
        copied(server_url, template) as url,
        onward_up(folder, **on_database(url)) as up,
    ):
        yield up


@pytest.fixture
def onward(
    service: Up, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Onward:
    """Runs a command that finds the service, and its key beside its data."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"ONWARD_{name.upper()}", raising=False)
    monkeypatch.setenv("ONWARD_URL", service.address)
    monkeypatch.setenv("ONWARD_DATA_DIR", str(service.data_dir))
    monkeypatch.setenv("ONWARD_CONFIG", str(service.data_dir / "config.toml"))

    def run(*arguments: str, **settings: str) -> Ended:
        with monkeypatch.context() as changed:
            for name, value in settings.items():
                changed.setenv(name, value)
            with pytest.raises(SystemExit) as left:
                cli.main(["hosts", *arguments])
        said, told = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return Ended(left.value.code, said, told)

    return run


def listed(onward: Onward, selector: str) -> dict[str, tuple[str, str]]:
    """The channel and the address of some hosts, by their names."""
    ended = onward("list", "--json", "--selector", selector)
    assert ended.code == 0, ended.told
    return {host["name"]: (host["channel"], host["address"]) for host in json.loads(ended.said)}


# Importing.


def test_the_command_line_knows_every_form_and_channel():
    """They are named twice, so that help is shown without loading the fleet."""
    assert (hosts.Form, hosts.Channel) == (inventory.Form, Channel)


def test_a_configuration_of_openssh_is_imported_with_what_it_includes(
    onward: Onward, tmp_path: Path
):
    config, more = tmp_path / "config", tmp_path / "conf.d"
    more.mkdir()
    config.write_text(
        "Include conf.d/*\nUser ann\nHost cfg1\n  ProxyJump cfg2\nHost cfg*\n  Port 99\n"
    )
    (more / "a").write_text("Host cfg2\n  HostName 10.0.0.2\n  User bob\n")
    (more / "b").write_text("Host cfg3\n")
    tried = onward("import", str(config), "--dry-run")
    assert tried.said == (
        "3 would be created, 0 would be changed, 0 unchanged.\n  created: cfg1, cfg2, cfg3\n"
    )
    assert listed(onward, "name=cfg*") == {}
    assert onward("import", str(config)).said == "3 created, 0 changed, 0 unchanged.\n"
    assert listed(onward, "name=cfg*") == {
        "cfg1": ("ssh", "ann@cfg1:99?jump=bob@10.0.0.2:99"),
        "cfg2": ("ssh", "bob@10.0.0.2:99"),
        "cfg3": ("ssh", "ann@cfg3:99"),
    }


def test_an_inventory_of_ansibles_is_for_ssh_unless_somebody_says_otherwise(
    onward: Onward, tmp_path: Path
):
    inventory = tmp_path / "fleet.ini"
    inventory.write_text("ans1 ansible_user=ann\nans2 ansible_connection=agent\n")
    assert onward("import", str(inventory)).code == 0
    assert listed(onward, "name=ans*") == {"ans1": ("ssh", "ann@ans1"), "ans2": ("agent", "")}
    assert onward("import", str(inventory), "--channel", "mqtt").said.startswith("0 created, 1 ch")
    assert listed(onward, "name=ans1") == {"ans1": ("mqtt", "")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "name\nform-{}\n"),
        ("t.json", '[{{"name": "form-{}"}}]'),
        ("t.yml", "all: {{hosts: {{form-{}: }}}}"),
        ("hosts", "form-{}"),
        ("config", "Host form-{}"),
    ],
)
def test_what_a_file_is_can_be_told_by_its_name(
    onward: Onward, tmp_path: Path, name: str, text: str
):
    (tmp_path / name).write_text(text.format(name.replace(".", "-")))
    ended = onward("import", str(tmp_path / name))
    assert (ended.code, ended.said) == (0, "1 created, 0 changed, 0 unchanged.\n"), ended.told


def test_every_mistake_is_told_with_its_file_and_line(onward: Onward, tmp_path: Path):
    config, other = tmp_path / "config", tmp_path / "other"
    config.write_text("# mine\nInclude other\nHost wrong1\n  Port x\nMatch all\n")
    other.write_text("Host wrong2\n\nHost -wrong3\n")
    ended = onward("import", str(config))
    assert (ended.code, ended.said) == (1, "")
    *mistakes, last = ended.told.splitlines()
    assert [line.split(": ")[0] for line in mistakes] == [
        f"{other}:3", f"{config}:3", f"{config}:5"
    ]  # fmt: skip
    assert last == (
        "onward: The inventory cannot be imported: Nothing was imported. See `errors` for what is "
        "wrong in which line."
    )
    assert listed(onward, "name=wrong*") == {}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "config: cannot be read: No such file"),
        ({"config": "Include config\n"}, "too deep, or in a circle"),
        ({"config": "Host a\nInclude other\n", "other": ""}, "config:2: what is included for some"),
        ({"config": "Include 'other\n"}, "config:1: a quote is not closed"),
    ],
)
def test_a_file_that_cannot_be_read_whole_is_not_sent(
    onward: Onward, tmp_path: Path, files: dict[str, str], said: str
):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ended = onward("import", str(tmp_path / "config"), ONWARD_URL="http://127.0.0.1:1")
    assert (ended.code, len(ended.told.splitlines())) == (1, 1)
    assert said in ended.told


def test_a_file_whose_name_says_nothing_needs_a_format(onward: Onward, tmp_path: Path):
    (tmp_path / "fleet").write_text("name\nfleet1\n")
    assert "--format: is needed" in onward("import", str(tmp_path / "fleet")).told
    assert onward("import", str(tmp_path / "fleet"), "--format", "csv").code == 0


# Listing.


def test_a_list_shows_each_host_on_a_line(onward: Onward, tmp_path: Path):
    table = tmp_path / "t.csv"
    table.write_text("name,address,role\n" + "".join(f"row{n},[b]x,web\n" for n in range(1_200)))
    assert onward("import", str(table)).code == 0
    lines = onward("list", "--selector", "name=row*").said.splitlines()
    assert len(lines) == 1_201
    assert lines[1].split() == ["row0", "simulated", "[b]x", "ACTIVE", "role=web"]
    nobody = onward("list", "--selector", "name=nobody")
    assert (nobody.said, nobody.told) == ("", "There is no such host.\n")


# The service, and who calls it.


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ({"ONWARD_URL": "http://127.0.0.1:1"}, 10, "http://127.0.0.1:1 does not answer"),
        ({"ONWARD_URL": "ftp://x"}, 2, "ONWARD_URL: is not the address of a service"),
        ({"ONWARD_URL": "http://me:secret@x"}, 2, "ONWARD_URL: is not the address of a service"),
        ({"ONWARD_URL": "https://onward.example.com"}, 8, "ONWARD_KEY: is not set"),
        ({"ONWARD_DATA_DIR": "/nowhere"}, 8, "ONWARD_KEY: is not set, and /nowhere/admin-key"),
        ({"ONWARD_KEY": "secret one"}, 1, "ONWARD_KEY: is not a key"),
        ({"ONWARD_KEY": "secret" * 9}, 8, "This key is not known"),
    ],
)
def test_who_cannot_be_asked_or_does_not_know_us_is_told_in_one_line(
    onward: Onward, settings: dict[str, str], code: int, said: str
):
    ended = onward("list", **settings)
    assert (ended.code, ended.said) == (code, "")
    assert len(ended.told.splitlines()) == 1
    assert said in ended.told
    assert "secret" not in ended.told


def test_what_the_service_refuses_is_told_in_its_words(onward: Onward):
    ended = onward("list", "--selector", "role=")
    assert ended.code == 1
    assert len(ended.told.splitlines()) == 1
    assert ended.told.startswith("onward: A field cannot be taken: ")


# Trusting.


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """Two hosts that run sshd."""
    with sshd.hosts(2) as ground:
        yield ground


def fingerprint(ground: Ground) -> str:
    key = asyncssh.read_public_key(ground.folder / "host_key.pub")
    return key.get_fingerprint()


def trusted(folder: Path, port: int) -> list[str]:
    found = KnownHosts(folder / "known_hosts").trusted(Hop(sshd.ADDRESS, port))
    return [key.get_fingerprint() for key in found.keys]


@needs_sshd
def test_a_key_with_the_right_fingerprint_is_trusted_and_with_another_it_is_not(
    onward: Onward, ground: Ground, tmp_path: Path
):
    folder, port = tmp_path / "ssh", ground.ports[0]
    table = tmp_path / "t.csv"
    table.write_text(f"name,channel,address\ntrust1,ssh,me@{sshd.ADDRESS}:{port}\n")
    assert onward("import", str(table)).code == 0
    wrong = onward("trust", "trust1", "--fingerprint", "SHA256:x", ONWARD_SSH_DIR=str(folder))
    assert wrong.code == 1
    assert f"shows {fingerprint(ground)}, and not SHA256:x" in wrong.told
    assert not folder.exists()
    right = ("trust", "trust1", "--fingerprint", fingerprint(ground))
    assert onward(*right, ONWARD_SSH_DIR=str(folder)).code == 0
    assert trusted(folder, port) == [fingerprint(ground)]
    assert (folder.stat().st_mode & 0o777, (folder / "known_hosts").stat().st_mode & 0o777) == (
        0o700, 0o600
    )  # fmt: skip
    again = onward("trust", "trust1", ONWARD_SSH_DIR=str(folder))
    assert again.said == f"me@{sshd.ADDRESS}:{port} is trusted already.\n"
    assert len((folder / "known_hosts").read_text().splitlines()) == 1


@needs_sshd
def test_a_changed_key_is_refused_until_somebody_says_replace(
    onward: Onward, ground: Ground, tmp_path: Path
):
    port = ground.ports[0]
    former = asyncssh.generate_private_key("ssh-ed25519")
    public = former.export_public_key().decode().split()
    name = f"[{sshd.ADDRESS}]:{port}"
    before = (
        f"# mine\nother,{name} {public[0]} {public[1]} a comment\n"
        f"@cert-authority *.example.com {public[0]} {public[1]}\n"
    )
    (tmp_path / "known_hosts").write_text(before)
    address = f"{sshd.ADDRESS}:{port}"
    asked = ("trust", address, "--fingerprint", fingerprint(ground))
    refused = onward(*asked, ONWARD_SSH_DIR=str(tmp_path))
    assert refused.code == 1
    assert f"and not the known {former.get_fingerprint()}" in refused.told
    assert (tmp_path / "known_hosts").read_text() == before
    assert onward(*asked, "--replace", ONWARD_SSH_DIR=str(tmp_path)).code == 0
    assert trusted(tmp_path, port) == [fingerprint(ground)]
    kept = (tmp_path / "known_hosts").read_text().splitlines()
    assert kept[:3] == [
        "# mine",
        f"other {public[0]} {public[1]} a comment",
        before.splitlines()[2],
    ]


@needs_sshd
def test_a_revoked_key_is_not_trusted_whatever_is_said(
    onward: Onward, ground: Ground, tmp_path: Path
):
    key = (ground.folder / "host_key.pub").read_text()
    (tmp_path / "known_hosts").write_text(f"@revoked * {key}")
    address = f"{sshd.ADDRESS}:{ground.ports[0]}"
    asked = ("trust", address, "--fingerprint", fingerprint(ground), "--replace")
    ended = onward(*asked, ONWARD_SSH_DIR=str(tmp_path))
    assert ended.code == 1
    assert "is revoked" in ended.told


@needs_sshd
def test_a_host_behind_another_is_asked_through_it(onward: Onward, ground: Ground, tmp_path: Path):
    jump, port = (f"{ground.user}@{sshd.ADDRESS}:{each}" for each in ground.ports)
    for name in (sshd.KEY, f"{sshd.KEY}.pub"):
        (tmp_path / name).write_bytes((ground.folder / name).read_bytes())
        (tmp_path / name).chmod(0o600)
    asked = ("trust", f"{port}?jump={jump}", "--fingerprint", fingerprint(ground))
    unknown = onward(*asked, ONWARD_SSH_DIR=str(tmp_path))
    assert unknown.code == 1
    assert f"onward hosts trust {jump}" in unknown.told
    first = onward(
        "trust", jump, "--fingerprint", fingerprint(ground), ONWARD_SSH_DIR=str(tmp_path)
    )
    assert first.code == 0
    assert onward(*asked, ONWARD_SSH_DIR=str(tmp_path)).code == 0
    assert trusted(tmp_path, ground.ports[1]) == [fingerprint(ground)]


@needs_sshd
def test_a_host_of_ones_own_configuration_runs_a_job_once_it_is_trusted(
    onward: Onward, service: Up, ground: Ground, tmp_path: Path
):
    keys, config = service.data_dir / "ssh", tmp_path / "config"
    keys.mkdir(mode=0o700, exist_ok=True)
    (keys / sshd.KEY).write_bytes(ground.key.read_bytes())
    (keys / sshd.KEY).chmod(0o600)
    config.write_text(
        f"Host real1\n  Port {ground.ports[0]}\nHost real2\n  Port {ground.ports[1]}\n"
        f"Host real*\n  HostName {sshd.ADDRESS}\n  User {ground.user}\n"
    )
    assert onward("import", str(config)).code == 0
    assert onward("trust", "real1", "--fingerprint", fingerprint(ground)).code == 0
    with service.client() as client:
        kind = {"needs_approval": False, "read_only": True, "timeout_s": 30, "max_retries": 0}
        client.put("/command-types/LOOK", json=kind).raise_for_status()
        body = {"external_id": "look", "command_type": "LOOK", "selector": ["real1", "real2"]}
        made = client.post("/webhook/jobs", json=body | {"params": {"argv": ["echo", "it's me"]}})
        job = made.raise_for_status().json()["job_id"]
        until(lambda: settled(client, job) == 2)
        ran, refused = client.get(f"/jobs/{job}/executions").json()["items"]
        lines = client.get(f"/executions/{ran['execution_id']}/logs").json()["items"]
    assert [line["text"] for line in lines] == ["it's me"]
    assert refused["cause"] == "REFUSED"
    assert "onward hosts trust real2" in refused["error"]


@needs_sshd
def test_where_nobody_can_be_asked_a_fingerprint_is_needed(
    onward: Onward, ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with Path(os.devnull).open(encoding="utf-8") as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        address = f"{sshd.ADDRESS}:{ground.ports[0]}"
        ended = onward("trust", address, ONWARD_SSH_DIR=str(tmp_path))
    assert ended.code == 2
    assert fingerprint(ground) in ended.said
    assert "then say --fingerprint with one of them" in ended.told
    assert list(tmp_path.iterdir()) == []


@needs_sshd
@pytest.mark.parametrize(
    ("answer", "more", "code"), [("y", (), 0), ("n", (), 5), ("y", ("--no-input",), 2)]
)
def test_whoever_is_asked_decides(
    service: Up, ground: Ground, tmp_path: Path, answer: str, more: tuple[str, ...], code: int
):
    port = ground.ports[0]
    ours, theirs = pty.openpty()
    settings = {"ONWARD_URL": service.address, "ONWARD_SSH_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-m", "onward", "hosts", "trust", f"{sshd.ADDRESS}:{port}", *more],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=environment(service.data_dir, **settings),
    ) as asked:
        os.write(ours, f"{answer}\n".encode())
        said, _ = asked.communicate(timeout=BOUND_S)
    told = os.read(ours, 65_536).decode()
    os.close(ours)
    os.close(theirs)
    assert asked.returncode == code, told
    assert re.search(rf"{re.escape(fingerprint(ground))}  ssh-ed25519", said)
    assert bool(trusted(tmp_path, port)) is (code == 0)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "127.0.0.1:1 cannot be reached: Connection refused."),
        ("me@host:port", "'port' is no port"),
        ("sim1", "is reached over simulated"),
    ],
)
def test_who_cannot_be_trusted_is_told_in_one_line(
    onward: Onward, tmp_path: Path, address: str, said: str
):
    (tmp_path / "t.csv").write_text("name\nsim1\n")
    onward("import", str(tmp_path / "t.csv"))
    ended = onward("trust", address, ONWARD_SSH_DIR=str(tmp_path))
    assert ended.code == 1
    assert said in ended.told
    assert len(ended.told.splitlines()) == 1


def test_keys_that_are_written_at_once_are_all_there(tmp_path: Path):
    key = asyncssh.generate_private_key("ssh-ed25519").convert_to_public()
    with ThreadPoolExecutor(16) as pool:
        for number in range(100):
            pool.submit(write, tmp_path, Hop(f"host{number}"), [key], instead=())
    known = KnownHosts(tmp_path / "known_hosts")
    assert all(known.trusted(Hop(f"host{number}")).keys == (key,) for number in range(100))
    assert len((tmp_path / "known_hosts").read_text().splitlines()) == 100
