"""Puts the promises to what is left: the tables judged by the core, and by the hosts' own journal.

The journal is no part of the system that is judged: the hosts wrote it, in a process of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from onward.channels.simulated import Effect, What, check_journal
from onward.core.lifecycles import EXECUTION
from onward.core.verdicts import TransitionResult
from onward.demo.evidence import Evidence, Said
from onward.demo.state import SUCCEEDED, TERMINAL
from onward.findings import Finding

_BLOCKED: Final = str(EXECUTION.moves["block"].target)


def check(evidence: Evidence) -> list[Finding]:
    """Judge every promise."""
    return [
        _nothing_lost(evidence),
        _nothing_doubled(evidence),
        _one_at_a_time(evidence),
        _only_forward(evidence),
        _adds_up(evidence),
        _blocked(evidence),
        _approved_first(evidence),
    ]


def _nothing_lost(evidence: Evidence) -> Finding:
    breaches = [
        f"execution {each.execution_id} is left {each.status}"
        for each in evidence.executions.values()
        if each.status not in TERMINAL
    ]
    asked: dict[int, Counter[int]] = {job_id: Counter() for job_id in evidence.jobs}
    for each in evidence.executions.values():
        asked[each.job_id][each.host_id] += 1
    for job_id, hosts in asked.items():
        name = evidence.jobs[job_id].name
        breaches += [f"{name} has no execution for host {h}" for h in evidence.hosts - set(hosts)]
    done = {_key(effect) for effect in evidence.effects if effect.succeeded}
    claimed = [each for each in evidence.executions.values() if each.status == SUCCEEDED]
    breaches += [
        f"execution {each.execution_id} is {each.status}, and host {each.host_id} never did it"
        for each in claimed
        if (each.host_id, str(each.execution_id)) not in done
    ]
    return Finding(
        "nothing-lost",
        "Every host that was asked has an end for every job.",
        f"{len(evidence.executions):,} executions of {len(evidence.jobs)} jobs; the hosts "
        f"themselves have done each of the {len(claimed):,} that succeeded",
        tuple(breaches),
    )


def _nothing_doubled(evidence: Evidence) -> Finding:
    ends: Counter[int] = Counter()
    for said in evidence.timeline:
        ends[said.execution_id] += said.moved and said.to_status in TERMINAL
    breaches = [
        f"execution {execution_id} ended {ends[execution_id]} times"
        for execution_id in evidence.executions
        if ends[execution_id] != 1
    ]
    done = Counter(_key(effect) for effect in evidence.effects if effect.succeeded)
    breaches += [
        f"host {host_id} did command {command} {times} times"
        for (host_id, command), times in done.items()
        if times > 1
    ]
    answered = evidence.seen(What.ANSWERED)
    return Finding(
        "nothing-doubled",
        "Every execution ended once, and no host did anything twice.",
        f"{ends.total():,} ends; {len(done):,} commands done, and {answered:,} repeats of them "
        "answered from memory",
        tuple(breaches),
    )


def _one_at_a_time(evidence: Evidence) -> Finding:
    return Finding(
        "one-at-a-time",
        "No host ran two commands at once, or an attempt that was over.",
        f"{evidence.seen(What.STARTED):,} runs in the hosts' own journal, "
        f"{evidence.seen(What.REFUSED):,} refused by the hosts",
        tuple(check_journal(evidence.journal)),
    )


def _only_forward(evidence: Evidence) -> Finding:
    breaches = [
        breach for execution_id, said in evidence.told() for breach in _steps(execution_id, said)
    ]
    last = {said.execution_id: said.to_status for said in evidence.timeline}
    breaches += [
        f"execution {each.execution_id} is {each.status}, and its timeline ends otherwise"
        for each in evidence.executions.values()
        if last.get(each.execution_id) != each.status
    ]
    return Finding(
        "only-forward",
        "No status ever went backwards.",
        f"{len(evidence.timeline):,} events replayed through the core, each with its verdict",
        tuple(breaches),
    )


def _steps(execution_id: int, timeline: Iterable[Said]) -> Iterator[str]:
    """Replay one timeline; a former attempt that speaks is refused before the law is asked."""
    status = str(EXECUTION.initial)
    for said in timeline:
        expected = (TransitionResult.STALE_EPOCH.value, status)
        if said.verdict != TransitionResult.STALE_EPOCH:
            decision = EXECUTION.decide(status, said.event)
            expected = (decision.result.value, str(decision.target))
        if (said.from_status, said.verdict, said.to_status) != (status, *expected):
            yield (
                f"execution {execution_id}: {said.event} in {status} is {expected[0]} by the core, "
                f"but {said.verdict} from {said.from_status} to {said.to_status} in the timeline"
            )
        status = expected[1]


def _adds_up(evidence: Evidence) -> Finding:
    rows = Counter((each.job_id, each.status) for each in evidence.executions.values())
    breaches = [
        f"{evidence.jobs[job_id].name} counts {counted} {status}, and has {rows[job_id, status]}"
        for (job_id, status), counted in (rows | Counter(evidence.counters)).items()
        if evidence.counters.get((job_id, status), 0) != rows[job_id, status]
    ]
    breaches += [
        f"{job.name} is for {job.total} hosts, and the demo has {len(evidence.hosts)}"
        for job in evidence.jobs.values()
        if job.total != len(evidence.hosts)
    ]
    breaches += [f"execution {each} still waits or runs somewhere" for each in evidence.left]
    failed = {
        each.execution_id: each.status
        for each in evidence.executions.values()
        if each.status in TERMINAL - {SUCCEEDED}
    }
    if failed != evidence.failures:
        breaches.append(f"{len(failed)} failed, and {len(evidence.failures)} are known to have")
    return Finding(
        "adds-up",
        "The counters of every job equal its rows, and nothing is queued or running.",
        f"{len(rows)} counters, kept by the moves themselves; {len(failed)} failures, each known",
        tuple(breaches),
    )


def _blocked(evidence: Evidence) -> Finding:
    forbidden = {
        each.execution_id: each
        for each in evidence.executions.values()
        if (each.host_id, evidence.command_type(each.execution_id)) in evidence.blocks
    }
    breaches = [
        f"execution {each.execution_id} is {each.status} on host {each.host_id}, which forbids it"
        for each in forbidden.values()
        if each.status != _BLOCKED
    ]
    breaches += [
        f"host {effect.host_id} ran execution {effect.command_id}, which is forbidden there"
        for effect in evidence.effects
        if effect.what is What.STARTED and int(effect.command_id) in forbidden
    ]
    if len(forbidden) < len(evidence.blocks):
        breaches.append(f"{len(evidence.blocks)} blocks met {len(forbidden)} executions")
    return Finding(
        "blocked",
        "Nothing ran where it was forbidden.",
        f"{len(forbidden)} executions ended {_BLOCKED}, none of which reached its host",
        tuple(breaches),
    )


def _approved_first(evidence: Evidence) -> Finding:
    asking = {job.job_id: job for job in evidence.jobs.values() if job.approval_state is not None}
    breaches = [
        f"{job.name} was asked for and decided by {job.decided_by}"
        for job in asking.values()
        if job.decided_by in {None, job.requested_by}
    ]
    claims = 0
    for said in evidence.timeline:
        each = evidence.executions.get(said.execution_id)
        job = asking.get(each.job_id) if each else None
        if job is None or said.event != "claim" or not said.moved:
            continue
        claims += 1
        if job.decided_at is None or said.at < job.decided_at:
            breaches.append(f"execution {said.execution_id} was begun before it was approved")
    for effect in evidence.effects[: evidence.before_approval]:
        each = evidence.executions.get(int(effect.command_id))
        if each is not None and each.job_id in asking:
            breaches.append(f"host {effect.host_id} had heard of {effect.command_id} by then")
    return Finding(
        "approved-first",
        "Nothing ran before somebody else had approved it.",
        f"{claims:,} claims after the approval; none of it was in the first "
        f"{evidence.before_approval:,} lines of the journal, written before",
        tuple(breaches),
    )


def _key(effect: Effect) -> tuple[int, str]:
    return effect.host_id, effect.command_id
