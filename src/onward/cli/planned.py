"""A plan as somebody sees it before it is run or approved, and what has changed since."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onward.cli.output import Row, listed, numbered
from onward.cli.shapes import argv_of, program_of, selector_of
from onward.cli.terminal import Terminal, asked, asked_to_type, plain
from onward.cli.tree import Given

_MANY: Final = 100  # above this, a letter is too easily typed
_NAMED: Final = 5
_TOLD: Final = (
    *("state", "command_type", "params", "argv", "selector", "max_concurrency", "total", "runs"),
    *("blocked", "busy", "needs_approval"),
)


def show_plan(to: Terminal, plan: Row, *, what: str, whom: str) -> None:
    """Show what would run, where, and where not."""
    to.print(f"{to.style(plain(what), 'bold')} on {plain(whom)}:")
    if argv := _with_job(plan).get("argv"):
        to.print(f"          as {plain(argv_of(argv))}")
    runs = _count(plan, "runs")
    to.print(f"  {runs:>7,} run      {listed(_names(plan, 'hosts'), runs, most=_NAMED)}")
    if blocked := _count(plan, "blocked"):
        told = [f"{name} ({why})" for name, why in _blocks(plan)]
        word = to.style("blocked", "yellow")
        to.print(f"  {blocked:>7,} {word}  {listed(told, blocked, most=_NAMED)}")
    if busy := _count(plan, "busy"):
        told = list(_names(plan, "busy_hosts"))
        to.print(f"  {busy:>7,} busy     {listed(told, busy, most=_NAMED)}; they run when free")
    if plan.get("needs_approval"):
        to.print("          It waits until somebody else has approved it.")


def show_job_plan(to: Terminal, plan: Row) -> None:
    """Show what a job that is there would do now."""
    job = job_of(plan)
    what = f"{job.get('command_type')} {program_of(job)}".strip()
    to.print(
        f"Job {job.get('job_id')} of {plain(job.get('requested_by'))}, "
        f"{to.mood(str(job.get('state')))}, version {job.get('version')}"
    )
    show_plan(to, plan, what=what, whom=selector_of(job))


def confirm(given: Given, count: int, *, above: int, deed: str) -> None:
    """Ask before something is done on more than so many hosts."""
    if count <= above:
        return
    hosts = numbered(count, "host")
    if count > _MANY:
        question = f"{deed} on {hosts}: type {count} to go on"
        asked_to_type(given, question, word=str(count), flag="--yes")
    else:
        asked(given, f"{deed} on {hosts}?", flag="--yes")


def differences(before: Row, after: Row) -> Iterator[str]:
    """Say what of a plan has changed, a line each."""
    old, new = _with_job(before), _with_job(after)
    for name in _TOLD:
        if old.get(name) != new.get(name):
            yield f"{name}: {plain(old.get(name))} → {plain(new.get(name))}"
    for kind, word in (("hosts", "would run"), ("blocked_hosts", "blocked")):
        was, now = set(_names(before, kind)), set(_names(after, kind))
        if now - was:
            yield f"{word} now: {listed(sorted(now - was), len(now - was))}"
        if was - now:
            yield f"{word} no more: {listed(sorted(was - now), len(was - now))}"


def show_differences(to: Terminal, before: Row, after: Row) -> None:
    """Show what has changed under somebody who was about to decide."""
    to.print(to.style("It changed under you:", "yellow"))
    touched = "somebody touched the job" if job_of(after) else "a host is another of the same name"
    told = list(differences(before, after))
    for line in told or [f"nothing that can be seen in the plan; {touched}"]:
        to.print(f"  {line}")


def job_of(plan: Row) -> Row:
    """The job that a plan belongs to, if it has one."""
    job = plan.get("job")
    return job if isinstance(job, dict) else {}


def _with_job(plan: Row) -> Row:
    return {**job_of(plan), **plan}


def _blocks(plan: Row) -> Iterator[tuple[str, str]]:
    blocks = plan.get("blocked_hosts")
    for each in blocks if isinstance(blocks, list) else []:
        yield str(each["name"]), f"{each['owner']}: {each['reason']}"


def _names(plan: Row, kind: str) -> list[str]:
    found = plan.get(kind)
    return [str(each["name"]) for each in found] if isinstance(found, list) else []


def _count(plan: Row, name: str) -> int:
    value = plan.get(name)
    return value if isinstance(value, int) else 0
