"""`uptime` over SSH on 500 hosts, beside Ansible and parallel-ssh, each over new connections.

The hosts are real sshds on loopback (`bench/sshd.py`). Each side opens a connection to each of
them, logs in with a key, runs the command and reads what it says. On one machine, the greater part
of the work is that of the sshds, and is the same for all.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import uvloop

from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.sshd import ADDRESS, Ground, hosts, sshd
from onward.channels.base import Delivery, Report, Stream, Target
from onward.channels.ssh import SshChannel, SshWay
from onward.errors import InvariantBroken

_COMMAND: Final = "uptime"
_SAYS: Final = "load average"
_PATIENCE_S: Final = 600.0
_COMPLAINT_MAX: Final = 2_000
_MISSING: Final = 'not run: pip install "onward[bench]"'
_NO_SSHD: Final = "not run: needs sshd (openssh-server)"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    hosts: int = 500
    rounds: int = 3
    at_once: tuple[int, ...] = (10, 25, 50, 100, 250)  # forks or greenlets of a peer, all tried


@dataclass(slots=True)
class _Rival:
    """A peer, and how many hosts a second it reached, by how many it had under way."""

    name: str
    package: str
    at_least: float
    at_once_is: str
    run: Callable[[Ground, int], float]  # seconds
    rates: dict[int, float] = field(default_factory=dict)

    @property
    def fastest(self) -> int:
        """How many under way were fastest so far."""
        return max(self.rates, key=self.rates.__getitem__)

    def take_turn(self, ground: Ground, sizes: Sizes, progress: Progress) -> None:
        """Take part in a round: at first in every way, then in the fastest."""
        for at_once in [self.fastest] if self.rates else sizes.at_once:
            rate = len(ground.ports) / self.run(ground, at_once)
            self.rates[at_once] = max(rate, self.rates.get(at_once, 0.0))
            progress(f"{self.name}, {at_once} {self.at_once_is}: {rate:,.1f} hosts/s")


def ssh(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure hosts a second, beside each peer."""
    sizes = sizes or Sizes()
    rivals = [
        _Rival("ansible -m raw", "ansible", 10, "forks", _ansible),
        _Rival("parallel-ssh", "pssh", 1, "greenlets", _parallel_ssh),
    ]
    ours = _measured(rivals, sizes, progress) if sshd() else None
    for rival in rivals:
        yield _result(rival, ours, sizes)


def _result(rival: _Rival, ours: float | None, sizes: Sizes) -> Result:
    name = f"{_COMMAND} over SSH on {sizes.hosts} hosts, beside {rival.name}"
    target = f">= {rival.at_least:g} x"
    if ours is None or not rival.rates:
        why = _NO_SSHD if ours is None else _MISSING
        return Result(name, ours or float("nan"), "hosts/s", why, None, target, None)
    theirs = rival.rates[rival.fastest]
    against = f"{theirs:,.1f} hosts/s, {rival.fastest} {rival.at_once_is}"
    ratio = ours / theirs
    return Result(name, ours, "hosts/s", against, ratio, target, ratio >= rival.at_least)


def _measured(rivals: list[_Rival], sizes: Sizes, progress: Progress) -> float:
    """Let all take turns, and return our own best rate."""
    progress(f"starting {sizes.hosts} hosts")
    ours = 0.0
    with hosts(sizes.hosts) as ground:
        for round_ in range(1, sizes.rounds + 1):
            rate = sizes.hosts / uvloop.run(_ours(ground))
            ours = max(ours, rate)
            progress(f"round {round_} of {sizes.rounds}: onward {rate:,.1f} hosts/s")
            for rival in rivals:
                if find_spec(rival.package):
                    rival.take_turn(ground, sizes, progress)
    return ours


async def _ours(ground: Ground) -> float:
    said: dict[int, str] = dict.fromkeys(ground.ports, "")
    way = SshWay(directory=ground.folder, user=ground.user, connections=len(ground.ports))

    async def deliver(channel: SshChannel, port: int) -> Report:
        def heard(_stream: Stream, text: str) -> None:
            said[port] += text

        return await channel.deliver(_delivery(port), heard)

    started = time.perf_counter()
    async with SshChannel(way) as channel:
        reports = await asyncio.gather(*(deliver(channel, port) for port in ground.ports))
        seconds = time.perf_counter() - started
    done = sum(report.succeeded for report in reports)
    _check(done, sum(_SAYS in text for text in said.values()), ground)
    return seconds


def _delivery(port: int) -> Delivery:
    return Delivery(
        command_id=f"uptime-{port}",
        epoch=1,
        target=Target(port, f"host-{port}", f"{ADDRESS}:{port}"),
        command_type="uptime",
        params={"argv": [_COMMAND]},
        timeout_s=_PATIENCE_S,
    )


def _parallel_ssh(ground: Ground, at_once: int) -> float:
    wanted = {
        "ports": list(ground.ports),
        "user": ground.user,
        "key": str(ground.key),
        "command": _COMMAND,
        "pool": at_once,
    }
    module = "onward.bench.peers.parallel_ssh"
    told = json.loads(_run([sys.executable, "-m", module], told=json.dumps(wanted)))
    _check(told["done"], told["done"], ground)
    return float(told["seconds"])


def _ansible(ground: Ground, at_once: int) -> float:
    inventory = ground.folder / "inventory.ini"
    inventory.write_text(_inventory(ground), "utf-8")
    (ground.folder / "ansible.cfg").touch()
    # The program that belongs to this interpreter, not another of the machine.
    program = Path(sys.executable).with_name("ansible")
    command = [f"{program}", "all", "-i", f"{inventory}", "-m", "raw", "-a", _COMMAND]
    started = time.perf_counter()
    said = _run([*command, "-f", str(at_once)], **_ansible_settings(ground))
    seconds = time.perf_counter() - started
    done = said.count(_SAYS)
    _check(done, done, ground)
    return seconds


def _inventory(ground: Ground) -> str:
    lines = [f"h{port} ansible_host={ADDRESS} ansible_port={port}" for port in ground.ports]
    return "\n".join([*lines, "[all:vars]", f"ansible_user={ground.user}", ""])


def _ansible_settings(ground: Ground) -> dict[str, str]:
    # Without a master connection, which would stay open into the next round, and which is only
    # more work where each host is asked once.
    arguments = f"-F none -o ControlMaster=no -o UserKnownHostsFile={ground.known_hosts}"
    return {
        "ANSIBLE_CONFIG": str(ground.folder / "ansible.cfg"),
        "ANSIBLE_HOME": str(ground.folder / "ansible"),
        "ANSIBLE_SSH_ARGS": arguments,
        "ANSIBLE_PRIVATE_KEY_FILE": str(ground.key),
        "ANSIBLE_NOCOLOR": "1",
    }


def _run(command: list[str], *, told: str = "", **settings: str) -> str:
    """Run a program to its end, and return what it said."""
    ended = subprocess.run(  # noqa: S603 - our own words
        command,
        input=told,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
        env={**os.environ, **settings},
    )
    if ended.returncode:
        complaint = (ended.stderr or ended.stdout)[-_COMPLAINT_MAX:]
        raise InvariantBroken(f"{Path(command[0]).name} failed: {complaint}")
    return ended.stdout


def _check(done: int, said: int, ground: Ground) -> None:
    if (done, said) != (len(ground.ports), len(ground.ports)):
        raise InvariantBroken(
            f"of {len(ground.ports)} hosts, {done} ran the command and {said} said so"
        )
