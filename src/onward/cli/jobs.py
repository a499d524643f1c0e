"""`onward jobs`: what was asked for, looked at, watched, decided about, stopped and run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onward.cli.asking import Params, ParamsFile
from onward.cli.finding import Everything, Job, Limit, Reason, Yes, complete_types
from onward.cli.shapes import CAUSE, DEED, GROUP, JOB
from onward.cli.tree import Calling, Reading, given_of, noun

if TYPE_CHECKING:
    from onward.cli.client import Answer

app = noun("What was asked for: list, watch, decide, stop, retry.")

Approval = Literal["waiting", "approved", "rejected"]
_STORED = {"waiting": "WAIT_APPROVAL", "approved": "APPROVED", "rejected": "REJECTED"}
Timeout = Annotated[
    float | None, typer.Option(min=0, metavar="SECONDS", help="Watch no longer than this.")
]


@app.command(
    "list",
    cls=Reading,
    epilog="""
    onward jobs --open
    onward jobs --by ann --json job_id,state,counts
    onward jobs --all -o jsonl
    """,
)
def list_jobs(
    context: typer.Context,
    *,
    open_: Annotated[bool, typer.Option("--open", help="Only what is not over yet.")] = False,
    command_type: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only of this type.", autocompletion=complete_types
        ),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="PERSON", help="Only what this person asked for.")
    ] = None,
    approval: Annotated[
        Approval | None, typer.Option(help="Only what somebody has to decide, or has decided.")
    ] = None,
    external_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Only the one with this id of yours.")
    ] = None,
    limit: Limit = 50,
    everything: Everything = False,
) -> None:
    """List jobs, the newest first."""
    from onward.cli.finding import show_list

    show_list(
        context,
        JOB,
        "/jobs",
        most=None if everything else limit,
        # A cancelled job that nobody decided about waits for nobody.
        open="true" if open_ or approval == "waiting" else None,
        command_type=command_type,
        requested_by=by,
        approval_state=_STORED[approval] if approval else None,
        external_id=external_id,
    )


@app.command("show", cls=Reading)
def show(context: typer.Context, job: Job) -> None:
    """Show a job, whole."""
    from onward.cli.client import service
    from onward.cli.finding import job_id
    from onward.cli.output import show_one

    with service(context) as found:
        row = found.get(f"/jobs/{job_id(found, job)}")
    show_one(given_of(context), JOB, row)


@app.command("plan", cls=Reading)
def plan(context: typer.Context, job: Job) -> None:
    """Show what of a job would run now, what a rule blocks, and which hosts are busy."""
    from onward.cli.client import service
    from onward.cli.finding import job_id
    from onward.cli.output import Shape, show_one
    from onward.cli.planned import show_job_plan
    from onward.cli.terminal import reader

    given = given_of(context)
    with service(context) as found:
        row = found.get(f"/jobs/{job_id(found, job)}/plan", named="1000")
    if given.quiet or given.form != "table":
        fields = (
            *("total", "runs", "blocked", "busy", "hosts", "blocked_hosts", "busy_hosts"),
            "job",
        )
        show_one(given, Shape(key="total", columns=(), fields=fields), row)
    else:
        show_job_plan(reader(given), row)


@app.command(
    "watch",
    cls=Reading,
    epilog="""
    onward jobs watch 17
    onward jobs watch nightly-2031-05-01 --timeout 600
    """,
)
def watch(context: typer.Context, job: Job, timeout: Timeout = None) -> None:
    """Watch a job until it is over, and compare what its hosts said.

    Ctrl-C stops watching, and the job goes on. The exit code says how it ended.
    """
    from onward.cli.client import service
    from onward.cli.finding import job_id
    from onward.cli.run import follow

    with service(context) as found:
        number = job_id(found, job)
        code = follow(found, given_of(context), number, timeout_s=timeout, approval=True)
    raise typer.Exit(code)


@app.command("outputs", cls=Reading)
def outputs(context: typer.Context, job: Job) -> None:
    """Show what the hosts of a job printed; everybody who said the same is shown once."""
    from onward.cli.client import service
    from onward.cli.finding import job_id
    from onward.cli.outcome import show_outputs
    from onward.cli.output import show_rows
    from onward.cli.terminal import reader

    given = given_of(context)
    with service(context) as found:
        row = found.get(f"/jobs/{job_id(found, job)}/outputs")
    groups = row.get("groups")
    if given.quiet or given.form != "table" or not groups:
        show_rows(given, GROUP, groups if isinstance(groups, list) else [])
    else:
        show_outputs(reader(given), row)


@app.command("causes", cls=Reading)
def causes(context: typer.Context, job: Job) -> None:
    """Show why a job went wrong, the most common cause first."""
    from onward.cli.client import service
    from onward.cli.finding import job_id
    from onward.cli.output import show_rows

    with service(context) as found:
        items = found.get(f"/jobs/{job_id(found, job)}/causes").get("items")
    show_rows(given_of(context), CAUSE, items if isinstance(items, list) else [])


@app.command("timeline", cls=Reading)
def timeline(context: typer.Context, job: Job) -> None:
    """Show who did what with a job, and why."""
    from onward.cli.client import service
    from onward.cli.finding import job_id, show_items

    with service(context) as found:
        number = job_id(found, job)
        show_items(context, DEED, found, f"/jobs/{number}/timeline", most=None)


@app.command("approve", cls=Calling)
def approve(context: typer.Context, job: Job, reason: Reason = "", yes: Yes = False) -> None:
    """Approve the plan of a job that somebody else has asked for, as it is shown."""
    from onward.cli.deciding import decide

    decide(context, job, "approve", reason=reason, yes=yes)


@app.command("reject", cls=Calling)
def reject(context: typer.Context, job: Job, reason: Reason = "", yes: Yes = False) -> None:
    """Reject the plan of a job that somebody else has asked for, as it is shown."""
    from onward.cli.deciding import decide

    decide(context, job, "reject", reason=reason, yes=yes)


@app.command("pause", cls=Calling)
def pause(context: typer.Context, job: Job) -> None:
    """Begin nothing more of a job until it is resumed; what runs goes on."""
    from onward.cli.deciding import hold_back

    hold_back(context, job, "pause")


@app.command("resume", cls=Calling)
def resume(context: typer.Context, job: Job) -> None:
    """Let a job go on."""
    from onward.cli.deciding import hold_back

    hold_back(context, job, "resume")


@app.command("cancel", cls=Calling)
def cancel(context: typer.Context, job: Job, reason: Reason = "", yes: Yes = False) -> None:
    """Cancel what has not begun, and ask what runs to stop. Any of that may finish first."""
    from onward.cli import deciding

    deciding.cancel(context, job, reason=reason, yes=yes)


@app.command(
    "edit",
    cls=Calling,
    epilog="""
    onward jobs edit 17 --param service=caddy
    onward jobs edit 17 --max-concurrency 0     # no limit any more
    """,
)
def edit(
    context: typer.Context,
    job: Job,
    param: Params = None,
    params_file: ParamsFile = None,
    max_concurrency: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="At most so many at once; 0 for any number."),
    ] = None,
) -> None:
    """Change a plan while it waits for approval; parameters that are not named stay.

    Whoever changes a plan cannot approve it.
    """
    from onward.cli.asking import params_of
    from onward.cli.deciding import edit as change

    change(context, job, params_of(param, params_file), max_concurrency=max_concurrency)


@app.command("retry-failed", cls=Reading)
def retry_failed(
    context: typer.Context,
    job: Job,
    *,
    status: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="Others than those that failed, such as BLOCKED."),
    ] = None,
    external_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Your own id for the new job.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over.")] = False,
    timeout: Timeout = None,
    yes: Yes = False,
) -> None:
    """Make a new job of what failed, and leave alone what turned out to have succeeded."""
    from onward.cli.client import service
    from onward.cli.deciding import retry
    from onward.cli.run import follow
    from onward.cli.terminal import reader

    given = given_of(context)
    with service(context) as found:
        made: Answer = retry(context, found, job, statuses=status, external_id=external_id, yes=yes)
        number = int(str(made.body["job_id"]))
        if wait:
            raise typer.Exit(follow(found, given, number, timeout_s=timeout, approval=True))
        if given.quiet or given.form != "table":
            from onward.cli.output import show_one

            show_one(given, JOB, found.get(f"/jobs/{number}"))
        else:
            reader(given).print(str(number))
