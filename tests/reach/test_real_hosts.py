"""One service, and hosts of every kind behind it: jobs go there, and their ends come back."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from onward.core.lifecycles import EXECUTION
from tests.channels.mqtt import mosquitto
from tests.channels.mqtt.mosquitto import Mosquitto
from tests.channels.ssh.sshd import needs_sshd, prepared, sshd
from tests.cli.running import Up, environment, folder_for_servers, on_database, onward_up, until
from tests.platform.fake import Platform, described, serving
from tests.reach.hosts import Fleet, agent, node

SUCCESS = str(EXECUTION.moves["succeed"].target)
HELLO = ["printf", "%s\\n", "hello,", "“fleet” $HOME; 指令"]


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_for_servers() as path:
        yield path


@contextmanager
def fleet_of(up: Up) -> Iterator[Fleet]:
    with up.client() as client:
        found = Fleet(client)
        found.command_type("run")
        yield found


@needs_sshd
def test_a_program_runs_over_ssh_and_through_an_agent(database_url: str, folder: Path):
    settings = {**on_database(database_url), "ONWARD_SSH_DIR": str(folder / "client")}
    with (
        sshd(prepared(folder)) as server,
        onward_up(folder, **settings) as up,
        fleet_of(up) as fleet,
    ):
        fleet.host("by-ssh", "ssh", server.address)
        token = enrolment(fleet, fleet.host("by-agent", "agent"))
        with agent(up.address, folder / "agent", token):
            job = fleet.job("run", ["by-ssh", "by-agent"], argv=HELLO)
            ended = fleet.ended(job)
            assert {host: each["status"] for host, each in ended.items()} == {
                "by-ssh": SUCCESS,
                "by-agent": SUCCESS,
            }, ended
            for each in ended.values():
                assert fleet.printed(each["execution_id"]) == HELLO[2:]
            failed = fleet.ended(fleet.job("run", ["by-ssh", "by-agent"], **script("exit 7")))
            assert {each["exit_code"] for each in failed.values()} == {7}


def test_a_host_that_is_offline_is_waited_for_without_cost(database_url: str, folder: Path):
    with onward_up(folder, **on_database(database_url)) as up, fleet_of(up) as fleet:
        token = enrolment(fleet, fleet.host("sleeper", "agent"))
        job = fleet.job("run", ["sleeper"], argv=["true"])
        (execution,) = fleet.executions(job).values()
        until(lambda: fleet.why(execution) == "HOST_OFFLINE")
        with agent(up.address, folder / "agent", token):
            ended = fleet.ended(job)["sleeper"]
        assert (ended["status"], ended["attempt"], ended["retries"]) == (SUCCESS, 1, 0)
        # It is enrolled now, and comes back with its own key.
        job = fleet.job("run", ["sleeper"], argv=["true"])
        with agent(up.address, folder / "agent"):
            assert fleet.ended(job)["sleeper"]["status"] == SUCCESS


def test_a_service_that_leaves_lets_what_runs_on_agents_end(database_url: str, folder: Path):
    with onward_up(folder, **on_database(database_url)) as up, fleet_of(up) as fleet:
        token = enrolment(fleet, fleet.host("busy", "agent"))
        with agent(up.address, folder / "agent", token):
            begun = folder / "begun"
            job = fleet.job("run", ["busy"], **script(f"touch {begun}; sleep 1.5; echo done"))
            until(begun.exists)
            up.stop(signal.SIGTERM)
            with onward_up(folder, **on_database(database_url)) as again, fleet_of(again) as after:
                ended = after.ended(job)["busy"]
                assert (ended["status"], ended["attempt"]) == (SUCCESS, 1)
                assert after.printed(ended["execution_id"]) == ["done"]


def test_a_worker_sends_through_the_process_that_the_agent_is_connected_to(
    database_url: str, folder: Path
):
    settings = {**on_database(database_url), "ONWARD_PORT": "0"}
    with serving_alone(folder, settings) as address, worker(folder, settings):
        key = (folder / "admin-key").read_text("ascii").strip()
        headers = {"Authorization": f"Bearer {key}"}
        with httpx2.Client(base_url=address, headers=headers, timeout=60) as client:
            fleet = Fleet(client)
            fleet.command_type("run")
            token = enrolment(fleet, fleet.host("far", "agent"))
            with agent(address, folder / "agent", token):
                ended = fleet.ended(fleet.job("run", ["far"], argv=HELLO))["far"]
                assert ended["status"] == SUCCESS
                assert fleet.printed(ended["execution_id"]) == HELLO[2:]


@pytest.mark.skipif(not mosquitto.installed, reason=mosquitto.NEEDED)
async def test_a_node_does_what_it_is_told_over_mqtt(database_url: str, folder: Path):
    broker_folder = folder / "broker"
    broker_folder.mkdir()
    broker = Mosquitto(broker_folder, None)
    await broker.start()
    try:
        await asyncio.to_thread(through_mqtt, broker.url, database_url, folder)
    finally:
        await broker.stop()


def through_mqtt(url: str, database_url: str, folder: Path) -> None:
    settings = {**on_database(database_url), "ONWARD_MQTT_URL": url}
    with onward_up(folder, **settings) as up, fleet_of(up) as fleet:
        fleet.command_type("echo")
        host = fleet.host("greenhouse-7", "mqtt")
        keyed = fleet.client.post(f"/hosts/{host}/key")
        assert keyed.status_code == 201, keyed.text
        with node(url, "greenhouse-7", keyed.json()["key"], folder):
            ended = fleet.ended(fleet.job("echo", ["greenhouse-7"], relay=3))["greenhouse-7"]
            assert ended["status"] == SUCCESS, ended
            assert fleet.printed(ended["execution_id"]) == ['{"relay": 3}']
            # One that somebody makes by hand travels the same way.
            made = fleet.client.post("/commands", json={"type": "ping", "node": "greenhouse-7"})
            location = made.headers["location"]
            until(lambda: fleet.client.get(location).json()["finished_at"] is not None)
            assert fleet.client.get(location).json()["status"] == "DONE"


async def test_a_task_at_a_platform_ends_with_its_callback(database_url: str, folder: Path):
    platform = Platform()
    async with serving(platform):
        (folder / "platforms.toml").write_text(described(platform))
        settings = {
            **on_database(database_url),
            "ONWARD_PLATFORMS": str(folder / "platforms.toml"),
        }
        with onward_up(folder, **settings) as up:
            headers = {"Authorization": f"Bearer {up.key}"}
            async with httpx2.AsyncClient(base_url=up.address, headers=headers) as client:

                async def call_back(said: dict[str, object]) -> None:
                    answer = await client.post("/callbacks/platform/fake", json=said)
                    assert answer.status_code in {200, 202}, answer.text

                platform.call_back = call_back
                await asyncio.to_thread(through_platform, up)


def through_platform(up: Up) -> None:
    with fleet_of(up) as fleet:
        fleet.command_type("open_valve")
        fleet.host("valve-1", "platform", "fake/device-1")
        done = fleet.ended(fleet.job("open_valve", ["valve-1"], exit_code=0))["valve-1"]
        assert done["status"] == SUCCESS, done
        failed = fleet.ended(fleet.job("open_valve", ["valve-1"], exit_code=3))["valve-1"]
        assert failed["status"] == str(EXECUTION.moves["fail"].target)


def enrolment(fleet: Fleet, host: int) -> str:
    answer = fleet.client.post(f"/hosts/{host}/enrolment", json={})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


@contextmanager
def serving_alone(folder: Path, settings: dict[str, str]) -> Iterator[str]:
    """The API in a process of its own; gives its address."""
    log = folder / "api.log"
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [sys.executable, "-m", "onward", "api"],
            stdout=said,
            stderr=said,
            env=environment(folder, **settings),
        ) as process,
    ):
        try:
            until(lambda: "http://" in log.read_text())
            yield "http://" + log.read_text().split("http://")[1].split()[0].strip('",')
        finally:
            process.terminate()


@contextmanager
def worker(folder: Path, settings: dict[str, str]) -> Iterator[None]:
    """A worker in a process of its own, which no agent is connected to."""
    log = folder / "worker.log"
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [sys.executable, "-m", "onward.service.worker"],
            stdout=said,
            stderr=said,
            env=environment(folder, **settings),
        ) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def script(text: str) -> dict[str, str]:
    """The parameters of a job that asks for a shell by name."""
    return {"shell": text}
