"""`onward agents`: the agents of hosts, and whether they are connected."""

from __future__ import annotations

import typer

from onward.cli.finding import Everything, Limit
from onward.cli.shapes import AGENT
from onward.cli.tree import Reading, noun

app = noun("The agents of hosts, and who is connected.")


@app.command("list", cls=Reading)
def list_agents(context: typer.Context, limit: Limit = 100, everything: Everything = False) -> None:
    """List the agents that have ever been connected, and whether they are."""
    from onward.cli.finding import show_list

    show_list(context, AGENT, "/agents", most=None if everything else limit)
