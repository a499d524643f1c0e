"""A real service, a job on devices behind a platform, and callbacks over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from tests.cli.running import BOUND_S, TERMINAL, folder_for_servers, on_database, onward_up
from tests.platform.fake import Manners, Platform, described, serving

CANARY = "tok-canary-4711"
HOSTS = 5


async def test_a_job_runs_on_devices_behind_a_platform(database_url: str):
    platform = Platform(manners=Manners(longest_s=0.2, doubled=0.5), seed=3)
    more = 'headers = { Authorization = "Bearer env:FAKE_TOKEN" }'
    with folder_for_servers() as folder:
        async with serving(platform):
            file = folder / "platforms.toml"
            file.write_text(described(platform, more=more))
            settings = {**on_database(database_url), "ONWARD_PLATFORMS": str(file)}
            with onward_up(folder, FAKE_TOKEN=CANARY, **settings) as up:
                async with httpx2.AsyncClient(
                    base_url=up.address,
                    headers={"Authorization": f"Bearer {up.key}"},
                    timeout=BOUND_S,
                ) as client:
                    platform.call_back = lambda said: client.post(
                        "/callbacks/platform/fake", json=said
                    )
                    job = await run_job(client)
                up.stop()
            told = up.log.read_text("utf-8")
    assert job["counts"] == {"SUCCESS": HOSTS}
    assert len(platform.tasks) == HOSTS
    assert platform.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    assert CANARY not in told


async def run_job(client: httpx2.AsyncClient) -> Any:
    """Import the devices, run a job on all of them, and return it when it has ended."""
    devices = [
        {"name": f"pump-{n}", "channel": "platform", "address": f"fake/dev-{n}"}
        for n in range(HOSTS)
    ]
    imported = await client.post("/hosts/import", json=devices)
    assert imported.json()["created"] == HOSTS, imported.text
    body = {"external_id": "open-1", "command_type": "PING", "selector": "all"}
    taken = await client.post("/webhook/jobs", json=body)
    assert taken.status_code == 202, taken.text
    path = f"/jobs/{taken.json()['job_id']}"
    async with asyncio.timeout(BOUND_S):
        while not ended(job := (await client.get(path)).json()):  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.05)
    return job


def ended(job: Any) -> bool:
    """Whether all executions of a job have come to their end."""
    return bool(sum(job["counts"].get(status, 0) for status in TERMINAL) == job["total"])
