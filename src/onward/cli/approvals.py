"""`onward approvals`: what waits for somebody to decide, and deciding it."""

from __future__ import annotations

import typer

from onward.cli.finding import Everything, Job, Limit, Reason, Yes
from onward.cli.shapes import JOB
from onward.cli.tree import Calling, Reading, noun

app = noun("What waits for somebody to decide.")


@app.command("list", cls=Reading)
def list_approvals(
    context: typer.Context, limit: Limit = 50, everything: Everything = False
) -> None:
    """List the jobs that wait for approval, the newest first."""
    from onward.cli.finding import show_list

    most = None if everything else limit
    # Whoever cancels a job decides nothing about it, so it is also to be open.
    show_list(context, JOB, "/jobs", most=most, approval_state="WAIT_APPROVAL", open="true")


@app.command("show", cls=Reading)
def show(context: typer.Context, job: Job) -> None:
    """Show the plan that would be approved: what would run, what a rule blocks, who is busy."""
    from onward.cli.jobs import plan

    plan(context, job)


@app.command(
    "approve",
    cls=Calling,
    epilog="""
    onward approvals
    onward approvals approve 17 --reason 'seen in staging'
    """,
)
def approve(context: typer.Context, job: Job, reason: Reason = "", yes: Yes = False) -> None:
    """Show the plan of a job, ask, and approve just that.

    If it changes under you, you are shown how, and asked again. Nobody approves their own.
    """
    from onward.cli.deciding import decide

    decide(context, job, "approve", reason=reason, yes=yes)


@app.command("reject", cls=Calling)
def reject(context: typer.Context, job: Job, reason: Reason = "", yes: Yes = False) -> None:
    """Show the plan of a job, ask, and reject it; nothing of it is run."""
    from onward.cli.deciding import decide

    decide(context, job, "reject", reason=reason, yes=yes)
