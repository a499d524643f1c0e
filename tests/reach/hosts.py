"""Real hosts of every kind behind a real service, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.cli.running import until


class Fleet:
    """What a test asks of a service, over HTTP."""

    def __init__(self, client: httpx2.Client) -> None:
        self.client = client
        self._jobs = 0

    def host(self, name: str, channel: str, address: str = "") -> int:
        """Make a host; returns its id."""
        body = {"name": name, "channel": channel, "address": address}
        answer = self.client.post("/hosts", json=body)
        assert answer.status_code == 201, answer.text
        return int(answer.json()["host_id"])

    def command_type(self, name: str, **changes: Any) -> None:
        """Make a command type that needs no approval."""
        body = {
            "needs_approval": False,
            "read_only": False,
            "timeout_s": 20,
            "max_retries": 0,
            **changes,
        }
        answer = self.client.put(f"/command-types/{name}", json=body)
        assert answer.status_code == 200, answer.text

    def job(self, command_type: str, hosts: list[str], **params: Any) -> int:
        """Submit a job; returns its id."""
        self._jobs += 1
        body = {
            "external_id": f"reach-{self._jobs}",
            "command_type": command_type,
            "params": params,
            "selector": hosts,
        }
        answer = self.client.post("/webhook/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return int(answer.json()["job_id"])

    def ended(self, job: int) -> dict[str, dict[str, Any]]:
        """Wait until a job has ended everywhere; returns its executions by host."""
        found: dict[str, dict[str, Any]] = {}

        def over() -> bool:
            answer = self.client.get(f"/jobs/{job}/executions").raise_for_status().json()
            found.update({each["host"]: each for each in answer["items"]})
            return all(each["finished_at"] is not None for each in found.values())

        until(over)
        return found

    def executions(self, job: int) -> dict[str, int]:
        """The executions of a job by host."""
        answer = self.client.get(f"/jobs/{job}/executions").raise_for_status().json()
        return {each["host"]: each["execution_id"] for each in answer["items"]}

    def why(self, execution: int) -> str:
        """The reason why an execution is where it is."""
        answer = self.client.get(f"/executions/{execution}/why").raise_for_status()
        return str(answer.json()["reason"])

    def printed(self, execution: int) -> list[str]:
        """What an execution has printed."""
        answer = self.client.get(f"/executions/{execution}/logs").raise_for_status()
        return [line["text"] for line in answer.json()["items"]]


@contextmanager
def agent(server: str, state: Path, token: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """An agent in a process of its own; with a token it is enrolled first."""
    options = ["--allow-root"] if os.geteuid() == 0 else []
    if token is not None:
        file = state.with_name(f"{state.name}-token")
        file.write_text(token)
        file.chmod(0o600)
        options += ["--token-file", str(file)]
    command = [sys.executable, "-m", "onward", "agent", "--server", server, "--state", str(state)]
    log = state.with_name(f"{state.name}.log")
    with log.open("ab") as said, subprocess.Popen([*command, *options], stderr=said) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def node(url: str, name: str, key: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The reference node in a process of its own."""
    file = folder / f"{name}.key"
    file.write_text(key)
    command = [sys.executable, "-m", "onward.channels.mqtt.node", "--name", name]
    files = ["--key-file", str(file), "--journal", str(folder / f"{name}.journal")]
    environment = {**os.environ, "ONWARD_MQTT_URL": url}
    log = folder / f"{name}.log"
    with (
        log.open("ab") as said,
        subprocess.Popen([*command, *files], env=environment, stderr=said) as process,
    ):
        try:
            yield process
        finally:
            process.kill()
