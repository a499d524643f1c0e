"""What somebody waits for at a command line: its help, and the list of jobs among many.

Each time is that of a whole process, from its start to its end, the best of several rounds. The two
lists are asked for in turns, each from a service of its own, as `onward jobs` does it: one page.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from onward.bench.result import Result
from onward.bench.runner import Progress
from onward.bench.serving import serving_onward
from onward.bench.work import COMMAND_TYPE, Work, fleet
from onward.core.lifecycles import EXECUTION
from onward.errors import InvariantBroken
from onward.scratch import scratch_servers
from onward.store.database import Pool

_HELP_MS: Final = 150
_AT_MOST: Final = 2.0
_PAGE: Final = 50
_DONE: Final = str(EXECUTION.moves["succeed"].target)

_JOBS: Final = """
WITH made AS (
    INSERT INTO jobs (external_id, command_type, params, selector, requested_by, read_only,
                      timeout_s, max_retries, total)
    SELECT 'job-' || n, $2, '{"argv": ["uptime"]}', '{"expression": "role=web"}',
           'person-' || n % 7, false, 60, 3, 1
      FROM generate_series(1, $1) AS n
    RETURNING id
)
INSERT INTO job_counts (job_id, status, n) SELECT id, $3, 1 FROM made
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    few: int = 100
    many: int = 100_000
    rounds: int = 10


def command_line(progress: Progress, sizes: Sizes | None = None) -> Iterator[Result]:
    """Measure the help, and the list of jobs."""
    sizes = sizes or Sizes()
    progress("starting `onward --help`")
    took = asyncio.run(_help(sizes.rounds)) * 1e3
    yield Result(
        name="`onward --help`",
        value=took,
        unit="ms",
        against=None,
        ratio=None,
        target=f"<= {_HELP_MS} ms",
        holds=took <= _HELP_MS,
    )
    progress("starting PostgreSQL, durable")
    with scratch_servers("bench") as servers:
        few, many = asyncio.run(_lists(servers.database_url, sizes, progress))
    yield Result(
        name=f"`onward jobs` against {sizes.many:,} jobs",
        value=many * 1e3,
        unit="ms",
        against=f"against {sizes.few:,} jobs, {few * 1e3:,.0f} ms",
        ratio=many / few,
        target=f"<= {_AT_MOST:g} x",
        holds=many / few <= _AT_MOST,
    )


async def _help(rounds: int) -> float:
    return min([(await _timed("--help", environment={}))[0] for _ in range(rounds)])


async def _lists(server_url: str, sizes: Sizes, progress: Progress) -> tuple[float, float]:
    async with AsyncExitStack() as stack:
        places = []
        for count in (sizes.few, sizes.many):
            progress(f"making {count:,} jobs")
            work = Work(jobs=0, hosts=1)
            opened = await stack.enter_async_context(fleet(server_url, f"jobs_{count}", work))
            await _make_jobs(opened.commands.pool, count)
            port, key = await stack.enter_async_context(serving_onward(opened.database_url))
            places.append({"ONWARD_URL": f"http://127.0.0.1:{port}", "ONWARD_KEY": key})
        best = [float("inf")] * len(places)
        # The first round warms up both, and does not count.
        for round_ in range(sizes.rounds + 1):
            for place, environment in enumerate(places):
                seconds, said = await _timed("jobs", environment=environment)
                _check(said, (sizes.few, sizes.many)[place])
                best[place] = min(best[place], seconds) if round_ else best[place]
        return best[0], best[1]


async def _make_jobs(pool: Pool, count: int) -> None:
    await pool.execute(_JOBS, count, COMMAND_TYPE, _DONE)
    await pool.execute("ANALYZE jobs, job_counts")


async def _timed(*words: str, environment: Mapping[str, str]) -> tuple[float, str]:
    """Run a command, and return how long it took from its start to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONWARD_")}
    nothing = {"ONWARD_CONFIG": str(Path(tempfile.gettempdir()) / "onward-bench-has-no-contexts")}
    command = (sys.executable, "-m", "onward", *words)
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, env={**kept, **nothing, **environment}
    )
    said, _ = await process.communicate()
    seconds = time.perf_counter() - started
    if process.returncode:
        raise InvariantBroken(f"`onward {' '.join(words)}` left with {process.returncode}")
    return seconds, said.decode()


def _check(said: str, count: int) -> None:
    """A list that is not there would be quick."""
    rows = len(said.splitlines()) - 1
    if rows != min(count, _PAGE):
        raise InvariantBroken(f"`onward jobs` listed {rows} of {count} jobs")
