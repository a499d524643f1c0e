"""Whether the worker of this machine gets on, for whoever starts another if it does not.

A process that is there proves nothing: it may hang, or have lost what drives it. So the table is
asked, in which every process of a worker writes down that it breathes and when it last got on.

While PostgreSQL does not answer, nothing is known, and nothing speaks against the worker: it waits
for the server with what its hosts have said, and that would be lost with it.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final, NamedTuple

from onward.errors import InvalidInput, ServerProblem
from onward.fleet.ready import STUCK_AFTER_S
from onward.settings import Settings
from onward.store import database, workers

_PATIENCE_S: Final = 5.0


class Finding(NamedTuple):
    """What was found, in one line."""

    holds: bool  # false: start another
    told: str


async def look(settings: Settings, machine: str | None = None) -> Finding:
    """Say whether a worker of this machine, or of that of another name, gets on."""
    if settings.database_url is None:
        raise InvalidInput("ONWARD_DATABASE_URL", "is not set; workers are looked up there")
    machine = machine or socket.gethostname()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            found = await _found(settings.database_url, machine, settings.worker_lost_after_s)
    except (ServerProblem, TimeoutError):
        return Finding(
            holds=True, told="PostgreSQL does not answer, so nothing is known of this worker."
        )
    if not found.breathing:
        return Finding(holds=False, told=f"No worker breathes on {machine}.")
    if not found.getting_on:
        return Finding(
            holds=False,
            told=f"No worker on {machine} has got on for {STUCK_AFTER_S:g} s, "
            f"though {found.breathing} breathe.",
        )
    return Finding(holds=True, told=f"{found.getting_on} of {found.breathing} get on.")


async def _found(url: str, machine: str, lost_after_s: float) -> workers.OfMachine:
    connection = await database.connect(url)
    try:
        return await workers.of_machine(
            connection, machine, lost_after_s=lost_after_s, stuck_after_s=STUCK_AFTER_S
        )
    finally:
        await connection.close()
