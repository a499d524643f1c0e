"""Where a job comes from is known in the table, the message, the log, and on the host."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from onward.api.app import create_app
from onward.channels.simulated.wire import packed, read_frame
from onward.engines.celery import names
from onward.service.serving import services
from tests.api.conftest import calling
from tests.engines.ground import BOUND_S, Ground, ground
from tests.present import TESTER

REQUEST = "deploy-of-tuesday"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE = {"request_id": REQUEST, "traceparent": PARENT}


async def test_the_request_of_a_job_is_known_wherever_it_goes(server: tuple[str, str]):
    async with ground("celery", server) as there, hosts_that_tell(there.folder) as frames:
        heard = asyncio.create_task(asyncio.to_thread(messages, there, 2))
        await there.start(ONWARD_SIMULATED_FLEET=str(there.folder / "telling"))
        hosts = await there.hosts(1)
        told = await asked(there, hosts.label)
        assert told["request_id"] == REQUEST

        assert await there.ended(told["job_id"]) == {"SUCCESS": 1}
        assert [frame["deliver"]["trace"] for frame in frames] == [TRACE]
        assert await asyncio.wait_for(heard, BOUND_S) == {
            names.PLAN_JOB: TRACE,
            names.RUN_SHARD: TRACE,
        }
        (line,) = there.workers[0].told("planned")
        assert {**TRACE, "job_id": told["job_id"]}.items() <= line.items()


async def asked(there: Ground, label: str) -> dict[str, Any]:
    """Send a job with a request that says where it comes from, and return how it is shown."""
    app = create_app(services(there.opened))
    keys = services(there.opened).keys
    _, key = await keys.make("a test", person="ann", role="operator", by=TESTER)
    async with calling(app, {"Authorization": f"Bearer {key}"}) as client:
        body = {"external_id": "1", "command_type": "noop", "selector": f"test={label}"}
        came_from = {"X-Request-ID": REQUEST, "traceparent": PARENT}
        answer = await client.post("/webhook/jobs", json=body, headers=came_from)
        assert answer.status_code == 202, answer.text
        shown: dict[str, Any] = (await client.get(answer.headers["location"])).json()
    return shown


def messages(there: Ground, number: int) -> dict[str, object]:
    """What the headers of the next messages about work say of where they come from, by task."""
    assert there.broker is not None
    found: dict[str, object] = {}
    with there.broker.client as client, client.monitor() as monitor:
        for order in monitor.listen():
            verb, _, rest = order["command"].partition(" ")
            if verb == "LPUSH" and "{" in rest:
                headers = json.loads(rest[rest.index("{") :])["headers"]
                if headers.get(names.TRACE):
                    found[headers["task"]] = headers[names.TRACE]
            if len(found) == number:
                return found
    raise AssertionError("the broker left")


@asynccontextmanager
async def hosts_that_tell(folder: Path) -> AsyncIterator[list[dict[str, Any]]]:
    """Hosts that do what they are asked at once; gives all that they have heard."""
    frames: list[dict[str, Any]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (frame := await read_frame(reader)) is not None:
            frames.append(frame)
            report = {"succeeded": True, "exit_code": 0, "error": None, "repeated": False}
            writer.write(packed({"id": frame["id"], "report": report}))
        writer.close()

    async with await asyncio.start_unix_server(answer, folder / "telling"):
        yield frames
