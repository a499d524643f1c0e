"""Says whether work gets done: the database answers, its schema is ours, and a worker gets on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onward.errors import ServerProblem
from onward.settings import Settings
from onward.store import browse, schema
from onward.store.database import Pool

# A worker that lives and has not come round in this time is stuck.
STUCK_AFTER_S: Final = 30.0
_PATIENCE_S: Final = 3.0

_NO_DATABASE: Final = "The database does not answer."
_NO_SCHEMA: Final = "The database has not the schema of this program; run `onward db upgrade`."
_NO_WORKER: Final = "No worker is there; start one."
_STUCK: Final = "No worker gets on with its work."


@dataclass(frozen=True, slots=True)
class Standing:
    """What is there, and what is missing in words."""

    database: bool
    schema: bool
    workers: bool
    missing: Sequence[str]


class Readiness:
    """Looks at how things stand; whoever asks while somebody else does gets the same answer."""

    def __init__(self, pool: Pool, settings: Settings, *, patience_s: float = _PATIENCE_S) -> None:
        self._pool = pool
        self._lost_after_s = settings.worker_lost_after_s
        self._patience_s = patience_s
        self._looking: asyncio.Task[Standing] | None = None

    async def standing(self) -> Standing:
        """Say how things stand now."""
        # Anybody may ask, without a key: a crowd of them costs the database one question at a time.
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(self._looked)
        return await asyncio.shield(self._looking)

    def _looked(self, _: asyncio.Task[Standing]) -> None:
        self._looking = None

    async def _look(self) -> Standing:
        try:
            async with asyncio.timeout(self._patience_s):
                found = await browse.readiness(
                    self._pool, lost_after_s=self._lost_after_s, stuck_after_s=STUCK_AFTER_S
                )
        except (ServerProblem, TimeoutError):
            return Standing(database=False, schema=False, workers=False, missing=[_NO_DATABASE])
        if found is None or found["revision"] != schema.HEAD:
            return Standing(database=True, schema=False, workers=False, missing=[_NO_SCHEMA])
        if found["getting_on"]:
            return Standing(database=True, schema=True, workers=True, missing=[])
        told = _STUCK if found["breathing"] else _NO_WORKER
        return Standing(database=True, schema=True, workers=False, missing=[told])
