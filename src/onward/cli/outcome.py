"""How a job ended, for somebody to see: who said the same, who differs, what went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from onward.cli.exits import Exit, of_counts
from onward.cli.output import Row, Shape, age, listed, numbered, show_one
from onward.cli.shapes import counts_of
from onward.cli.statuses import OPEN
from onward.cli.terminal import Terminal, plain, reader, watcher
from onward.cli.tree import Given
from onward.cli.watching import Until, Watched, told

if TYPE_CHECKING:
    from onward.cli.client import Client

OUTCOME: Final = Shape(key="job_id", columns=(), fields=("job_id", "job", "outputs", "causes"))

_EXPLAINED: Final = 3
_WAYS: Final = 3  # that are counted one by one
_ARROW: Final = "    "


def show_outcome(service: Client, given: Given, watched: Watched) -> Exit:
    """Show how a job stands now that nobody watches it any more, and say what to leave with."""
    job, job_id = watched.job, watched.job["job_id"]
    causes = _items(_known(service, f"/jobs/{job_id}/causes"))
    outputs = _known(service, f"/jobs/{job_id}/outputs")
    if given.quiet or given.form != "table":
        whole = {"job_id": job_id, "job": job, "outputs": outputs, "causes": causes}
        show_one(given, OUTCOME, whole)
    else:
        to = reader(given)
        show_outputs(to, outputs)
        show_causes(to, causes)
        to.print(f"Job {job_id} is {to.mood(str(job['state']))}: {told(job)}.")
    _advise(service, watcher(given), watched)
    return code_of(watched, causes)


def _known(service: Client, path: str) -> Row:
    """What the service says; nothing, where it is too old to know the question."""
    answer = service.send("GET", path)
    if not answer.good and answer.code != "not-found":
        answer.refuse()
    return answer.body if answer.good else {}


def code_of(watched: Watched, causes: Sequence[Row]) -> Exit:
    """What to leave with."""
    if watched.until is Until.APPROVAL:
        return Exit.WAITING_FOR_APPROVAL
    if watched.until is Until.TIME:
        waits = watched.job["state"] == "WAITING_FOR_APPROVAL"
        return Exit.WAITING_FOR_APPROVAL if waits else Exit.STILL_RUNNING
    if watched.job["state"] in {"TURNED_DOWN", "STOPPED"} and not _failed(watched.job):
        return Exit.STOPPED
    unreachable = sum(
        int(str(each["count"]))
        for each in causes
        if (each["status"], each["cause"]) == ("FAILED", "UNREACHABLE")
    )
    return of_counts(counts_of(watched.job), unreachable=unreachable)


def show_outputs(to: Terminal, outputs: Row) -> None:
    """Show every output once, with who said it, the most common one first."""
    groups = _items(outputs, "groups")
    if not groups:
        return
    for place, group in enumerate(groups):
        _show_group(to, group, first=place == 0)
    others = outputs.get("others")
    if isinstance(others, dict) and others.get("groups"):
        to.print(
            f"{numbered(others['count'], 'host')} said something else, in "
            f"{numbered(others['groups'], 'way')}."
        )
    to.print(to.style(headline(outputs), "bold"))


def headline(outputs: Row) -> str:
    """Count who said the same: `983 same, 14 differ this way, 3 silent`."""
    shown = [(each.get("output"), int(str(each["count"]))) for each in _items(outputs, "groups")]
    numbers = [count for output, count in shown if output is not None]
    silent, unknown = (int(str(outputs.get(name) or 0)) for name in ("silent", "unknown"))
    parts = [f"{numbers[0]:,} same"] if numbers else []
    parts += [
        f"{count:,} {'differ this way' if place == 0 else 'another'}"
        for place, count in enumerate(numbers[1:_WAYS])
    ]
    rest = numbers[_WAYS:]
    others = outputs.get("others")
    if isinstance(others, dict):
        # Those who are silent are counted as such, also where their group is too small to be shown.
        unseen = silent + unknown - sum(count for output, count in shown if output is None)
        rest = [*rest, int(str(others["count"])) - unseen]
    if sum(rest):
        parts.append(f"{sum(rest):,} in other ways")
    if silent:
        parts.append(f"{silent:,} silent")
    if unknown:
        parts.append(f"{unknown:,} unknown")
    return ", ".join(parts)


def show_causes(to: Terminal, causes: Sequence[Row]) -> None:
    """Show why it went wrong, the most common reason first."""
    for each in causes:
        count = int(str(each["count"]))
        late = int(str(each.get("late") or 0))
        since = f"; {late:,} of them turned out to be done after all" if late else ""
        error = f": {plain(each['error'])}" if each.get("error") else ""
        to.print(
            f"{count:,} {to.mood(str(each['status']))}{_because(each)}{since}, "
            f"such as {plain(each['host'])} (execution {each['execution_id']}){error}"
        )


def _because(each: Row) -> str:
    return "" if each.get("cause") in {None, each["status"]} else f" because of {each['cause']}"


def how_to_come_back(to: Terminal, job_id: object) -> None:
    """Say that a job goes on without us."""
    to.print(f"onward: job {job_id} goes on. `onward jobs watch {job_id}` comes back to it.")


def _show_group(to: Terminal, group: Row, *, first: bool) -> None:
    count = int(str(group["count"]))
    names = listed(_texts(group.get("hosts")), count)
    code = f", exit code {group['exit_code']}" if group.get("exit_code") is not None else ""
    told_already = group.get("cause") in {None, group["status"]}
    cause = "" if told_already else f", {group['cause']}"
    silent = group.get("output") is None
    word = "said the same" if first else "said this"
    if silent:
        word = "printed nothing" if group.get("known", True) else "printed what nobody knows"
    status = to.mood(str(group["status"]))
    to.print(f"{numbered(count, 'host')} {word} ({status}{code}{cause}): {names}")
    for line in _items(group, "lines"):
        mark = "" if line["stream"] == "stdout" else to.style(f"{plain(line['stream'])}: ", "dim")
        to.print(f"{_ARROW}{mark}{plain(line['text'])}")
    if group.get("more"):
        to.print(f"{_ARROW}… `onward executions logs {group['execution_id']}` has all of it")


def _advise(service: Client, to: Terminal, watched: Watched) -> None:
    """Say what can be done now."""
    job, job_id = watched.job, watched.job["job_id"]
    match watched.until:
        case Until.APPROVAL:
            to.print(
                f"onward: job {job_id} waits until somebody else approves it: an approver or an "
                f"admin other than {plain(job['requested_by'])}, with "
                f"`onward approvals approve {job_id}`. Then `onward jobs watch {job_id}`."
            )
        case Until.TIME:
            for line in reasons(service, job_id):
                to.print(f"  {line}")
            how_to_come_back(to, job_id)
        case Until.OVER:
            if "retry" in _texts(job.get("allowed")) and _failed(job):
                to.print(f"onward: `onward jobs retry-failed {job_id}` runs again what failed.")


def reasons(service: Client, job_id: object) -> Iterator[str]:
    """Why some of what is not over yet is where it is."""
    waiting, _ = service.more(f"/jobs/{job_id}/executions", most=_EXPLAINED, status=OPEN[::-1])
    for each in waiting:
        why = service.get(f"/executions/{each['execution_id']}/why")
        yield f"{plain(each['host'])}: {plain(why['text'])} ({age(each['created_at'])})"


def _failed(job: Row) -> int:
    found = counts_of(job)
    return found.get("FAILED", 0) + found.get("TIMEOUT", 0)


def _items(found: Mapping[str, object], name: str = "items") -> list[Row]:
    listed_there = found.get(name)
    return listed_there if isinstance(listed_there, list) else []


def _texts(found: object) -> list[str]:
    return [str(each) for each in found] if isinstance(found, list) else []
