"""`onward run`: plan, confirm, submit what was shown, watch it, and compare what the hosts said."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from onward.cli import asking
from onward.cli.asking import Params, ParamsFile
from onward.cli.exits import Exit, Leaving, ServiceAway, Usage, of_status
from onward.cli.finding import Yes, complete_hosts, complete_types
from onward.cli.tree import Given, Reading, given_of, leaf

if TYPE_CHECKING:
    from onward.cli.client import Answer, Client
    from onward.cli.output import Row
    from onward.cli.terminal import Terminal
    from onward.cli.watching import Watched

SCRIPT: Final = "RUN_SCRIPT"  # the type that says itself what is run
_NAMED: Final = "1000"
_CHANGED: Final = 412

app = leaf()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants to run, and how they want to go about it."""

    body: dict[str, object]
    external_id: str
    yes: bool
    confirm_above: int | None

    def told(self, plan: Row) -> str:
        """What is run, in a word or two, without what nobody is to see."""
        from onward.cli.shapes import program_of
        from onward.fleet.masking import masked_params

        params: dict[str, object] = self.body["params"]  # type: ignore[assignment]  # as it is made
        # A service that does not say which are masked may have masked any of them.
        masked: list[str] = plan.get("masked", list(params))  # type: ignore[assignment]  # of JSON
        shown = masked_params(params, masked)
        return f"{self.body['command_type']} {program_of({'params': shown})}".strip()


@app.command(
    cls=Reading,
    epilog="""
    onward run --on 'role=web and zone=eu' -- uptime
    onward run --host web-1 --host web-2 --dry-run -- systemctl restart nginx
    onward run --on all --type PING --yes --timeout 60
    onward run --on @hosts.txt --shell -- 'df -h / | tail -1'
    """,
)
def run(
    context: typer.Context,
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="What to run, behind --, each word as it is."),
    ] = None,
    on: asking.On = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="This host. May be said often.", autocompletion=complete_hosts
        ),
    ] = None,
    command_type: Annotated[
        str | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="The type of command.",
            show_default=f"{SCRIPT}",
            autocompletion=complete_types,
        ),
    ] = None,
    param: Params = None,
    params_file: ParamsFile = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Hand what is to be run to `sh`, as one script.")
    ] = False,
    max_concurrency: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, metavar="N", help="At most so many at once.")
    ] = None,
    external_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Your own id for it: the same command again finds the same job.",
            show_default="a new one, which is shown",
        ),
    ] = None,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan, and do nothing.")
    ] = False,
    wait: Annotated[
        bool | None,
        typer.Option(
            "--wait/--no-wait",
            help="Wait until it is over, also for approval; or only submit it.",
            show_default="wait, but not for approval",
        ),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Wait no longer than this.")
    ] = None,
    confirm_above: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Ask above so many hosts.", show_default="10, or the config's"
        ),
    ] = None,
) -> None:
    """Run something on hosts: see the plan, confirm it, watch it, and compare what they said.

    What was shown is what runs: if the fleet changes in between, nothing is submitted. Ctrl-C stops
    watching, and the job goes on. What hosts printed is grouped: everybody who said the same is
    shown once.
    """
    from onward.cli.client import service
    from onward.cli.terminal import watcher

    given = given_of(context)
    wanted = Wanted(
        body={
            "command_type": command_type or SCRIPT,
            "params": _params(
                words, asking.params_of(param, params_file), command_type, shell=shell
            ),
            "selector": asking.selector_of(on, host),
            "max_concurrency": max_concurrency,
        },
        external_id=external_id or f"cli-{uuid.uuid4()}",
        yes=yes,
        confirm_above=confirm_above,
    )
    with service(context) as found:
        if dry_run:
            _show_dry_run(found, given, wanted)
            return
        plan = _planned(found, watcher(given), wanted)
        since = str(found.get("/events/page")["next_cursor"])
        accepted = _submitted(found, given, wanted, plan)
        raise typer.Exit(
            _followed(found, given, accepted, wait=wait, timeout_s=timeout, since=since)
        )


def follow(
    service: Client,
    given: Given,
    job_id: int,
    *,
    timeout_s: float | None,
    approval: bool,
    since: str | None = None,
) -> Exit:
    """Watch a job and show how it ended; says what to leave with."""
    from onward.cli.outcome import how_to_come_back, show_outcome
    from onward.cli.terminal import watcher
    from onward.cli.watching import watch

    try:
        watched: Watched = watch(
            service, given, job_id, timeout_s=timeout_s, approval=approval, since=since
        )
        return show_outcome(service, given, watched)
    except KeyboardInterrupt:
        how_to_come_back(watcher(given), job_id)
        return Exit.INTERRUPTED


def _params(
    words: list[str] | None, params: dict[str, object], command_type: str | None, *, shell: bool
) -> dict[str, object]:
    if not words:
        if shell or (command_type is None and not params):
            raise Usage("Say what to run after --, such as -- uptime; or which --type.")
        return params
    program: dict[str, object] = {"shell": " ".join(words)} if shell else {"argv": words}
    if twice := sorted({"argv", "shell"} & params.keys()):
        raise Usage(f"--param {twice[0]}: what is run stands behind -- already.")
    return {**program, **params}


def _planned(service: Client, to: Terminal, wanted: Wanted) -> Row:
    """Ask what would be done, and show it."""
    from onward.cli.planned import show_plan

    answer = service.send("POST", "/jobs/plan", params={"named": _NAMED}, body=wanted.body)
    if not answer.good:
        answer.refuse()
    plan = answer.body
    show_plan(to, plan, what=wanted.told(plan), whom=str(plan.get("selector")))
    return plan


def _show_dry_run(service: Client, given: Given, wanted: Wanted) -> None:
    """Show the plan, which is the data here."""
    from onward.cli.output import Shape, show_one
    from onward.cli.terminal import reader, watcher

    fields = (
        *("total", "runs", "blocked", "busy", "hosts", "blocked_hosts", "busy_hosts"),
        *("selector", "needs_approval", "argv", "masked", "etag"),
    )
    if given.quiet or given.form != "table":
        plan = _planned(service, watcher(given), wanted)
        show_one(given, Shape(key="etag", columns=(), fields=fields), plan)
    else:
        _planned(service, reader(given), wanted)


def _submitted(service: Client, given: Given, wanted: Wanted, plan: Row) -> Row:
    """Submit the plan that was shown and confirmed; if it has changed, show how and ask again."""
    from onward.cli.planned import confirm, show_differences
    from onward.cli.terminal import somebody, watcher

    above = wanted.confirm_above
    if above is None:
        above = service.target.confirm_above if service.target else 0
    if not wanted.yes:
        confirm(given, int(str(plan["runs"])), above=above, deed="Run it")
    while True:
        answer = _sent(service, wanted, plan)
        if answer.status != _CHANGED:
            break
        before, plan = plan, _planned(service, watcher(given), wanted)
        show_differences(watcher(given), before, plan)
        if not somebody(given):
            raise Leaving(
                Exit.CONFLICT,
                "Nothing was submitted: look at the plan as it is now, and run again.",
            )
        # Whoever said yes said it to something else, so this is asked however few they are.
        confirm(given, int(str(plan["runs"])), above=-1, deed="Run it as it is now")
    if not answer.good:
        answer.refuse()
    _tell_accepted(given, answer)
    return answer.body


def _sent(service: Client, wanted: Wanted, plan: Row) -> Answer:
    """Submit it; where no answer says whether that was done, say how to find out."""
    body, seen = {**wanted.body, "external_id": wanted.external_id}, str(plan["etag"])
    unsure = (
        "It may have been submitted: the same command again, with --external-id "
        f"{wanted.external_id}, finds out."
    )
    try:
        # The external id makes a repeat harmless: the service finds the job that is there.
        answer = service.send("POST", "/webhook/jobs", body=body, seen=seen, repeat=True)
        if of_status(answer.status) is Exit.SERVICE_AWAY:
            answer.refuse()
    except KeyboardInterrupt:
        raise Leaving(Exit.INTERRUPTED, unsure) from None
    except (ServiceAway, Leaving) as error:
        raise Leaving(Exit.SERVICE_AWAY, f"{error} {unsure}") from error
    return answer


def _tell_accepted(given: Given, answer: Answer) -> None:
    from onward.cli.terminal import plain, watcher

    to, job = watcher(given), answer.body
    was = "was there before" if job.get("duplicate") else "is submitted"
    to.print(
        f"Job {job['job_id']} {was}; --external-id {plain(job['external_id'])} finds it again."
    )


def _followed(
    service: Client,
    given: Given,
    accepted: Row,
    *,
    wait: bool | None,
    timeout_s: float | None,
    since: str,
) -> Exit:
    """Wait for a job as far as that is wanted."""
    from onward.cli.outcome import show_outcome
    from onward.cli.watching import Until, Watched

    job_id = int(str(accepted["job_id"]))
    if wait is False:
        job = service.get(f"/jobs/{job_id}")
        waits = job["state"] == "WAITING_FOR_APPROVAL"
        if not waits:
            _show_submitted(given, job)
            return Exit.DONE
        return show_outcome(service, given, Watched(job, Until.APPROVAL))
    return follow(service, given, job_id, timeout_s=timeout_s, approval=bool(wait), since=since)


def _show_submitted(given: Given, job: Row) -> None:
    from onward.cli.outcome import OUTCOME
    from onward.cli.output import show_one
    from onward.cli.terminal import reader

    if given.quiet or given.form != "table":
        whole = {"job_id": job["job_id"], "job": job, "outputs": None, "causes": None}
        show_one(given, OUTCOME, whole)
    else:
        reader(given).print(f"{job['job_id']}")
