"""Killed at every step, agent or server: nothing runs twice in one epoch, and no result is lost.

The agent and the server are processes that kill themselves with SIGKILL at a point with a name,
again and again, while command after command is carried out. What really happened is in a file that
the programs themselves have written; what the server knows is on its disk.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from onward.agent.carrying import POINTS
from onward.agent.journal import Journal
from onward.agent.state import State
from tests.agent import office
from tests.agent.desk import enrolled
from tests.proof_table import Tried

PATIENCE_S = 30.0


class Scene:
    """An agent and a server, each with a life after the other."""

    def __init__(self, folder: Path, port: int) -> None:
        self.state = folder / "state"
        self.disk = folder / "disk"
        self.effects = folder / "effects"
        self.log = (folder / "log").open("wb")
        self.recorded: set[str] = set()  # attempts whose end was in the journal at a death
        self.effects.touch()
        self._key = os.urandom(32)
        self._port = port
        enrolled(State(self.state), self._key)
        self.agent: Process
        self.server: Process | None = None

    async def start(self) -> None:
        self.agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.agent.mortal"),
            *(f"http://127.0.0.1:{self._port}", str(self.state)),
            stdin=PIPE, stdout=PIPE, stderr=self.log,
        )  # fmt: skip
        await self.start_server("-")

    async def start_server(self, die_at: str) -> None:
        await end(self.server)
        self.server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.agent.office", str(self._port), self._key.hex()),
            *(str(self.disk), str(self.effects), die_at),
            stdout=PIPE, stderr=self.log,
        )  # fmt: skip
        await self.hear(self.server, "ready")

    async def let_live(self, die_at: str) -> int:
        assert self.agent.stdin is not None
        self.agent.stdin.write(f"{die_at}\n".encode())
        return int((await self.hear(self.agent, "lives")).split()[1])

    async def hear(self, process: Process, word: str) -> str:
        """Wait until a process says something that begins with a word."""
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while line := (await process.stdout.readline()).decode():
                if line.startswith(word):
                    return line
        raise AssertionError(f"it ended before it said {word}: see {self.log.name}")

    async def stop(self) -> None:
        await end(self.agent)
        await end(self.server)
        self.log.close()

    async def server_died(self) -> None:
        """Wait until the server has killed itself."""
        assert self.server is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await self.server.wait() == -signal.SIGKILL


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    scene = Scene(tmp_path, free_port())
    await scene.start()
    try:
        yield scene
    finally:
        await scene.stop()


async def test_an_agent_killed_at_any_step_runs_nothing_twice_and_loses_no_result(
    scene: Scene, proof, tried: Tried
):
    kills = 500 if proof else 33
    # What is only passed after a death in mid-run comes right after one, every other time.
    after = cycle(["recovering", None, "recovered", None])
    points = cycle(point for point in POINTS if point not in {"recovering", "recovered"})
    died: Counter[str] = Counter()
    while died.total() < kills:
        point = next(points)
        await die(scene, point, died)
        if point in {"journaled", "accepted", "executing", "ended"} and (then := next(after)):
            await die(scene, then, died)
    await finish(scene)
    told = check(scene)
    assert set(died) == set(POINTS)
    tried("kill -9 of an agent, at every step", died.total())
    tried("commands carried out meanwhile", told)


async def test_a_server_killed_at_any_step_has_nothing_run_twice_and_loses_no_result(
    scene: Scene, proof, tried: Tried
):
    kills = 100 if proof else 10
    await scene.let_live("-")
    for number in range(kills):
        await scene.start_server(office.POINTS[number % len(office.POINTS)])
        await scene.server_died()
    await scene.start_server("-")
    await done(scene)
    check(scene)
    tried("kill -9 of the server of an agent, at every step", kills)


async def test_both_killed_at_the_same_time_run_nothing_twice_and_lose_no_result(
    scene: Scene, proof, tried: Tried
):
    kills = 60 if proof else 6
    drawn = random.Random(4711)
    for number in range(kills):
        await scene.start_server(office.POINTS[number % len(office.POINTS)])
        pid = await scene.let_live("-")
        await scene.server_died()
        await asyncio.sleep(drawn.uniform(0.0, 0.05))  # anywhere in what the agent was doing
        os.kill(pid, signal.SIGKILL)
        await scene.hear(scene.agent, "ended")
    await scene.start_server("-")
    await finish(scene)
    check(scene)
    tried("kill -9 of an agent and its server together", kills)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


async def die(scene: Scene, point: str, died: Counter[str]) -> None:
    await scene.let_live(point)
    assert await scene.hear(scene.agent, "ended") == f"ended {-signal.SIGKILL}\n"
    died[point] += 1
    if point in {"recorded", "reported", "receipted"}:
        scene.recorded.add(scene.effects.read_text().split()[-1])


async def finish(scene: Scene) -> None:
    """Let the agent live, and the last command end."""
    await scene.let_live("-")
    await done(scene)


async def end(process: Process | None) -> None:
    if process is not None:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def done(scene: Scene) -> None:
    assert scene.server is not None
    scene.server.send_signal(signal.SIGUSR1)
    await scene.hear(scene.server, "done")


def check(scene: Scene) -> int:
    """Compare what the programs did with what the server knows; gives the number of commands."""
    effects = [line.split() for line in scene.effects.read_text().splitlines()]
    counted = Counter(map(tuple, effects))
    assert [each for each, count in counted.items() if count > 1] == []
    lines = [json.loads(line) for line in scene.disk.read_text().splitlines()]
    results = [line["result"] for line in lines if "result" in line]
    names = {name(result) for result in results}
    started = {attempt for what, attempt in effects if what == "started"}
    finished = {attempt for what, attempt in effects if what == "finished"}
    assert started - names == set(), "what has begun is known to the server"
    for result in results:
        assert not (result["unknown"] and name(result) in scene.recorded)
        if result["succeeded"] and not result["repeated"]:
            assert name(result) in finished
        if name(result) in started and name(result) not in finished:
            assert result["unknown"]
    check_order(effects)
    check_journal(scene, names)
    succeeded = {result["cmd"] for result in results if result["succeeded"]}
    assert succeeded == {f"c{number}" for number in range(len(succeeded))}
    return len(succeeded)


def check_order(effects: list[list[str]]) -> None:
    """Whatever was cut off has stopped before anything else began."""
    present = None
    for what, attempt in effects:
        if what == "started":
            present = attempt
        assert attempt == present, f"{attempt} was still running beside {present}"


def check_journal(scene: Scene, known: set[str]) -> None:
    journal = Journal(scene.state / "journal.sqlite")
    try:
        assert {f"{past.cmd}/{past.epoch}" for past in journal.past() if past.result} <= known
    finally:
        journal.close()


def name(result: dict[str, Any]) -> str:
    return f"{result['cmd']}/{result['epoch']}"
