"""Everything that the API can do, a person can do: each route has its command, or a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import typer.main
from typer.core import TyperGroup

from onward import cli
from tests.cli.crew import Crew

METHODS = ("get", "put", "post", "patch", "delete")
BILLING, TRADING = "/api/v1/billing", "/api/v1/trading"

# By route: the command that a person would use for it.
COMMANDS: Mapping[str, str] = {
    "POST /webhook/jobs": "run",
    "POST /jobs/plan": "run",
    "GET /jobs": "jobs list",
    "GET /jobs/{job_id}": "jobs show",
    "PATCH /jobs/{job_id}": "jobs edit",
    "GET /jobs/{job_id}/plan": "jobs plan",
    "GET /jobs/{job_id}/timeline": "jobs timeline",
    "GET /jobs/{job_id}/executions": "executions list",
    "GET /jobs/{job_id}/outputs": "jobs outputs",
    "GET /jobs/{job_id}/causes": "jobs causes",
    "POST /jobs/{job_id}/approve": "approvals approve",
    "POST /jobs/{job_id}/reject": "approvals reject",
    "POST /jobs/{job_id}/cancel": "jobs cancel",
    "POST /jobs/{job_id}/pause": "jobs pause",
    "POST /jobs/{job_id}/resume": "jobs resume",
    "POST /jobs/{job_id}/retry": "jobs retry-failed",
    "GET /executions/{execution_id}": "executions show",
    "GET /executions/{execution_id}/why": "executions why",
    "GET /executions/{execution_id}/timeline": "executions timeline",
    "GET /executions/{execution_id}/logs": "executions logs",
    "POST /hosts": "hosts add",
    "GET /hosts": "hosts list",
    "GET /hosts/{host_id}": "hosts show",
    "PATCH /hosts/{host_id}": "hosts change",
    "DELETE /hosts/{host_id}": "hosts delete",
    "GET /hosts/{host_id}/executions": "executions list",
    "POST /hosts/import": "hosts import",
    "PUT /hosts/{host_id}/blocks/{command_type}": "blocks add",
    "DELETE /hosts/{host_id}/blocks/{command_type}": "blocks lift",
    "GET /hosts/{host_id}/blocks": "blocks show",
    "POST /hosts/{host_id}/enrolment": "hosts enrol",
    "POST /hosts/{host_id}/key": "hosts key",
    "DELETE /hosts/{host_id}/key": "hosts take-key",
    "GET /blocks": "blocks list",
    "POST /blocks": "blocks add",
    "POST /blocks/lift": "blocks lift",
    "GET /agents": "agents list",
    "GET /command-types": "types list",
    "GET /command-types/{name}": "types show",
    "PUT /command-types/{name}": "types put",
    "DELETE /command-types/{name}": "types delete",
    "POST /commands": "commands make",
    "GET /commands": "commands list",
    "GET /commands/{cmd_id}": "commands show",
    "GET /commands/{cmd_id}/timeline": "commands timeline",
    "POST /commands/events": "commands events",
    "POST /commands/{cmd_id}/events": "commands event",
    "GET /events": "events",
    "GET /events/page": "events",
    f"GET {BILLING}/account": "trade account",
    f"GET {BILLING}/operations": "trade ledger",
    f"GET {BILLING}/operations/{{operation_id}}": "trade ledger",
    f"POST {BILLING}/deposit": "trade deposit",
    f"POST {BILLING}/withdraw": "trade withdraw",
    f"GET {TRADING}/purchase-orders": "trade orders",
    f"POST {TRADING}/purchase-orders": "trade buy",
    f"GET {TRADING}/purchase-orders/{{order_id}}": "trade orders",
    f"POST {TRADING}/purchase-orders/{{order_id}}/cancel": "trade cancel",
    f"GET {TRADING}/sell-orders": "trade orders",
    f"POST {TRADING}/sell-orders": "trade sell",
    f"GET {TRADING}/sell-orders/{{order_id}}": "trade orders",
    f"POST {TRADING}/sell-orders/{{order_id}}/cancel": "trade cancel",
    f"GET {TRADING}/book": "trade book",
    f"GET {TRADING}/deals": "trade deals",
    f"GET {TRADING}/items": "trade items",
    f"POST {TRADING}/items": "trade issue",
    "GET /overview": "overview",
    "GET /lifecycles": "lifecycles",
    "GET /workers": "workers list",
    "POST /keys": "keys make",
    "GET /keys": "keys list",
    "DELETE /keys/{key_id}": "keys revoke",
    "GET /me": "whoami",
    "GET /audit": "audit list",
}

# By route: why nobody needs a command for it.
NOBODY: Mapping[str, str] = {
    "GET /jobs/{job_id}/grid": "It draws a picture; `executions list` has the same as rows.",
    "POST /agents/enrol": "The agent of a host calls it with its token: `onward agent`.",
    "POST /callbacks/platform": "Platforms call it; `commands event` is for people.",
    "POST /callbacks/platform/{platform}": "Platforms call it, in words of their own.",
    "GET /health/live": "Whatever restarts the process asks; it needs no key.",
    "GET /health/ready": "Whatever sends traffic asks; `overview` says more.",
    "GET /metrics": "Prometheus reads it, in a form of its own.",
    "POST /session": "A browser logs in with it; a command sends its key.",
    "DELETE /session": "A browser logs out with it.",
}


@pytest.fixture(scope="module")
def routes(crew: Crew) -> set[str]:
    """Every route that the service describes."""
    with crew.up.client() as http:
        paths = http.get("/openapi.json").raise_for_status().json()["paths"]
    return {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method in methods
        if method in METHODS
    }


def commands() -> Iterator[str]:
    root = typer.main.get_command(cli.app)
    assert isinstance(root, TyperGroup)
    for name in root.commands:
        command = root.commands[name]
        if isinstance(command, TyperGroup):
            yield from (f"{name} {verb}" for verb in command.commands)
        else:
            yield name


def test_every_route_has_its_command_or_a_reason(routes: set[str]):
    assert routes - COMMANDS.keys() - NOBODY.keys() == set(), "name a command, or say why not"


def test_no_row_is_about_a_route_that_is_not_there(routes: set[str]):
    assert COMMANDS.keys() | NOBODY.keys() == routes
    assert COMMANDS.keys() & NOBODY.keys() == set()


def test_every_command_of_the_table_is_there():
    assert set(COMMANDS.values()) - set(commands()) == set()


def test_every_exception_gives_its_reason():
    assert all(reason.endswith(".") for reason in NOBODY.values())
