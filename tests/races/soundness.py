"""What of jobs and executions holds whatever was done to them, and whoever came first."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from onward.core.lifecycle import Timer
from onward.core.lifecycles import EXECUTION
from onward.core.verdicts import TransitionResult
from onward.store import jobs
from onward.store.database import Pool

if TYPE_CHECKING:
    import asyncpg

(QUEUED,) = map(str, EXECUTION.moves["claim"].sources)
RUNNING = str(EXECUTION.moves["claim"].target)
UNSUCCESSFUL = EXECUTION.terminal - {EXECUTION.moves["succeed"].target}


async def unsound(pool: Pool) -> list[str]:
    """Everything in the database that should never be so."""
    rows = await pool.fetch(
        "SELECT id, job_id, host_id, read_only, status, due_at, deadline_at, finished_at, "
        "worker_id FROM executions"
    )
    return [
        *await miscounted(pool, rows),
        *await not_replayed(pool, rows),
        *await misplaced(pool, rows),
        *await forgotten(pool),
        *(
            f"execution {row['id']} has no owner of its time: {row}"
            for row in rows
            if unwatched(row)
        ),
    ]


async def misplaced(pool: Pool, rows: list[asyncpg.Record]) -> list[str]:
    """What waits, what runs and what failed is in the table for it, and nothing else is."""
    due: dict[str, set[tuple[object, ...]]] = {"queue": set(), "runs": set(), "failures": set()}
    for key, job_id, host_id, read_only, status, due_at, deadline_at, _, worker_id in rows:
        if status == QUEUED:
            due["queue"].add((host_id, key, job_id, read_only, due_at))
        elif status == RUNNING:
            place = key if read_only else 0
            due["runs"].add((host_id, place, key, read_only, worker_id, deadline_at))
        elif status in UNSUCCESSFUL:
            due["failures"].add((job_id, host_id, key, status))
    found = {name: {tuple(row) for row in await pool.fetch(f"TABLE {name}")} for name in due}
    return [f"{name}: {found[name] ^ due[name]}" for name in due if found[name] != due[name]]


async def forgotten(pool: Pool) -> list[str]:
    """Nothing is left unplanned behind where its job will be planned from."""
    rows = await pool.fetch(
        "SELECT e.id FROM executions e JOIN jobs j ON j.id = e.job_id "
        "WHERE e.status = $1 AND (j.planned OR e.host_id <= j.planned_host)",
        str(EXECUTION.initial),
    )
    return [f"execution {row['id']} will never be planned" for row in rows]


async def miscounted(pool: Pool, rows: list[asyncpg.Record]) -> list[str]:
    counted: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counted[row["job_id"]][row["status"]] += 1
    told = [(job_id, await jobs.counts(pool, job_id)) for job_id in counted]
    return [
        f"job {key} counts {counts}, has {counted[key]}"
        for key, counts in told
        if counts != counted[key]
    ]


def unwatched(row: asyncpg.Record) -> bool:
    """Nothing is open without a time at which somebody looks, and nothing that runs unowned."""
    timer = EXECUTION.timer(row["status"])
    return (
        (row["due_at"] is not None) != (timer is Timer.DUE)
        or (row["deadline_at"] is not None) != (timer is Timer.DEADLINE)
        or (row["finished_at"] is not None) != (timer is Timer.NONE)
        or (row["worker_id"] is not None) != (timer is Timer.DEADLINE)
    )


async def not_replayed(pool: Pool, rows: list[asyncpg.Record]) -> list[str]:
    wrong = []
    status = {row["id"]: str(EXECUTION.initial) for row in rows}
    for key, event, verdict, seen, target in await pool.fetch(
        "SELECT execution_id, event, verdict, from_status, to_status FROM execution_timeline "
        "ORDER BY execution_id, seq"
    ):
        if seen != status[key]:
            wrong.append(f"execution {key}: {event} saw {seen}, the timeline was at {status[key]}")
        if verdict != TransitionResult.STALE_EPOCH:
            decided = EXECUTION.decide(seen, event)
            if decided != (TransitionResult(verdict), target):
                wrong.append(f"execution {key}: {event} in {seen} is {decided}, not {verdict}")
        status[key] = target
    return wrong + [
        f"execution {row['id']} is {row['status']}, its timeline ends in {status[row['id']]}"
        for row in rows
        if row["status"] != status[row["id"]]
    ]
