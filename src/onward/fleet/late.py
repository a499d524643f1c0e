"""Settles what an agent reports when nobody waits for it any more.

Its worker died, or gave up, or lost the way to it. The report goes through the guarded path like
any other, for the attempt that it names: what has been decided meanwhile stays, and the report is
evidence in the timeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from onward.channels.agent.hub import Late
from onward.core.retry import Backoff
from onward.errors import DeliveryUnknown
from onward.fleet.masking import hidden_of
from onward.fleet.output import Line, Output
from onward.fleet.report import Attempt, printed, reported, unreported
from onward.store import agents as store
from onward.store import executions
from onward.store.agents import Known, Named
from onward.store.database import Pool
from onward.store.executions import ExecutionEvent

_AGENT = "agent"  # who says it
_MAX_BIGINT = 2**63 - 1
_is_number = re.compile(r"[1-9][0-9]{0,18}").fullmatch

Told = tuple[int, Late]  # by the agent of this host


async def settle_late(
    pool: Pool, results: Sequence[Told], *, backoff: Backoff, chance: Callable[[], float]
) -> None:
    """Write down results that nobody waited for, all in one commit.

    One for an execution that is none of its host's is nobody's business, and is not written down.
    """
    named = [_named(host_id, late) for host_id, late in results]
    known = await store.attempts(pool, named)
    events: list[ExecutionEvent] = []
    lines: list[Line] = []
    for (_, late), found in zip(results, known, strict=True):
        if found is not None:
            output = _output(late, found)
            # What was printed and is not stored yet: an agent tells all of it again.
            lines += (line for line in output.close() if line.line > found.lines)
            events.append(printed(_event(late, found, backoff, chance()), output.digest))
    if events:
        await executions.report(pool, events, lines)


def _named(host_id: int, late: Late) -> Named:
    # Whatever is no number of an execution is that of none.
    number = int(late.command_id) if _is_number(late.command_id) else 0
    return Named(host_id, number if number <= _MAX_BIGINT else 0, late.epoch)


def _event(late: Late, known: Known, backoff: Backoff, chance: float) -> ExecutionEvent:
    hidden = hidden_of(known.params, known.masked)
    attempt = Attempt(known.execution_id, late.epoch, known.retries, known.max_retries, hidden)
    if late.report is None:
        event = unreported(attempt, DeliveryUnknown(late.error), backoff, chance)
    else:
        event = reported(attempt, late.report, backoff, chance)
    return event._replace(source=_AGENT)


def _output(late: Late, known: Known) -> Output:
    hidden = hidden_of(known.params, known.masked)
    output = Output(known.execution_id, late.epoch, max(known.attempt, 1), hidden=hidden)
    for stream, text in late.output:
        output(stream, text)
    return output
