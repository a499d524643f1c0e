"""Looks at how it goes: jobs and workers through the API, what happened last in the tables."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from onward.demo.caller import Caller
from onward.demo.programs import Program
from onward.demo.state import (
    EVENTS_SHOWN,
    EventState,
    JobState,
    State,
    View,
    WorkerState,
)
from onward.store import database
from onward.store.database import Connection

_CAUSES: Final = """
SELECT detail ->> 'cause' AS cause, count(*) AS n
  FROM execution_timeline
 WHERE verdict = 'OK' AND detail ? 'cause'
 GROUP BY 1 ORDER BY 2 DESC
"""
_EVENTS: Final = """
SELECT h.name, j.external_id, t.from_status, t.to_status, coalesce(t.detail ->> 'cause', '')
  FROM execution_timeline t
  JOIN executions e ON e.id = t.execution_id
  JOIN hosts h ON h.id = e.host_id
  JOIN jobs j ON j.id = e.job_id
 WHERE t.verdict = 'OK'
 ORDER BY t.seq DESC LIMIT $1
"""
_RATE_OVER_S: Final = 3.0


@asynccontextmanager
async def watching(
    database_url: str, caller: Caller, programs: Sequence[Program], view: View
) -> AsyncIterator[Watch]:
    """Give somebody who looks and shows."""
    connection = await database.connect(database_url)
    try:
        yield Watch(connection, caller, programs, view)
    finally:
        await connection.close()


class Watch:
    """Looks whenever it is asked to, and shows what it sees."""

    def __init__(
        self, connection: Connection, caller: Caller, programs: Sequence[Program], view: View
    ) -> None:
        self._connection = connection
        self._caller = caller
        self._programs = programs
        self._view = view
        self._jobs: dict[str, int] = {}
        self._began_at = time.monotonic()
        self._settled: deque[tuple[float, int]] = deque()
        self.state = State(0.0, 0.0, (), {}, (), ())

    def follow(self, name: str, job_id: int) -> None:
        """Look at this job as well from now on."""
        self._jobs[name] = job_id

    @property
    def over(self) -> bool:
        """Whether everything had ended when it was last looked at."""
        return self.state.settled == self.state.total

    def running(self, program: Program) -> int:
        """Return how many runs a program had under way when it was last looked at."""
        return sum(each.running for each in self.state.workers if each.name == program.name)

    async def look(self) -> None:
        """See how it goes now."""
        jobs = [await self._job(name, job_id) for name, job_id in self._jobs.items()]
        workers = await self._caller.get("/workers")
        causes = await self._connection.fetch(_CAUSES)
        events = await self._connection.fetch(_EVENTS, EVENTS_SHOWN)
        self.state = State(
            elapsed_s=time.monotonic() - self._began_at,
            rate=self._rate(sum(job.settled for job in jobs)),
            jobs=jobs,
            causes={row["cause"]: row["n"] for row in causes},
            workers=sorted(map(self._worker, workers["items"])),
            events=[EventState(*row) for row in events],
        )
        self._view.show(self.state)

    async def _job(self, name: str, job_id: int) -> JobState:
        found = await self._caller.get(f"/jobs/{job_id}")
        waits = found["approval_state"] == "WAIT_APPROVAL"
        return JobState(name, found["total"], waits, found["counts"])

    def _worker(self, found: Mapping[str, Any]) -> WorkerState:
        names = {f"{socket.gethostname()}:{each.pid}": each for each in self._programs}
        program = names.get(found["name"])
        killed = program is not None and program.dismissed
        condition = "killed" if killed else "lives" if found["lives"] else "lost"
        return WorkerState(program.name if program else found["name"], condition, found["running"])

    def _rate(self, settled: int) -> float:
        now = time.monotonic()
        self._settled.append((now, settled))
        while now - self._settled[0][0] > _RATE_OVER_S:
            self._settled.popleft()
        since, before = self._settled[0]
        return (settled - before) / (now - since) if now > since else 0.0
