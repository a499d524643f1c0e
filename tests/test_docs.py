"""What the pages about the fleet and the API show is what happens, and their tables are whole."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families

import onward
from onward.api import callbacks, commands, documents, edge, events, problems, strict_json
from onward.api.app import create_app
from onward.api.command_types import CommandTypeBody
from onward.api.idempotency import KEY_MAX
from onward.api.permissions import GRANTS, Permission, Role
from onward.api.problems import PROBLEMS
from onward.api.resources import RESOURCES
from onward.api.routing import Route
from onward.api.signatures import TOLERANCE_S
from onward.channels.simulated import NETWORKS
from onward.channels.simulated.behaviour import Behaviour, behaviour_of
from onward.core.lifecycles import EXECUTION
from onward.core.retry import Cause
from onward.core.selectors import MAX_LENGTH, MAX_NAMES, parse, to_json
from onward.core.verdicts import TransitionResult
from onward.errors import ChannelError, InvalidLifecycle
from onward.fleet import output
from onward.fleet.attention import Concern
from onward.fleet.hosts import MAX_LABELS
from onward.fleet.inventory import MAX_HOSTS
from onward.fleet.ready import STUCK_AFTER_S
from onward.fleet.standing import JobState
from onward.fleet.why import Reason
from onward.service.serving import services as services_for
from onward.settings import Settings
from onward.store import inputs
from onward.store.ledger import BALANCE_MAX
from onward.store.overview import DUE_MAX, Limits
from onward.trading.money import AMOUNT_MAX
from onward.wiring import Onward
from tests.databases import copied
from tests.present import TESTER
from tests.proof_table import Tried
from tests.reader import missing, page, reading, steps, table


def curl_options() -> str:
    """Everything that curl takes, or nothing where there is no curl."""
    if shutil.which("curl") is None:
        return ""
    return subprocess.run(
        ["curl", "--help", "all"], check=False, capture_output=True, text=True
    ).stdout


FLEET, API, TRADING = page("fleet.md"), page("api.md"), page("trading.md")
PEOPLE = page("cli-guide.md")
SOURCES = Path(onward.__file__).parent


# The examples

needs_curl = pytest.mark.skipif(
    "--json" not in curl_options(),
    reason="not run: needs curl 7.82 or newer, which the examples are written with",
)


@pytest.fixture(scope="module")
def readers(server_url: str, template: str) -> Iterator[Mapping[str, Future[int]]]:
    """Somebody for each page, all at once: each has a service of their own, and mostly waits."""

    def follow_fleet() -> int:
        with copied(server_url, template) as url:
            return followed(FLEET, {"postgresql://onward@db.example.com/onward": url})

    with ThreadPoolExecutor() as crowd:
        yield {
            "fleet": crowd.submit(follow_fleet),
            "API": crowd.submit(followed, API),
            "trading": crowd.submit(followed, TRADING),
            "command line": crowd.submit(followed, PEOPLE),
        }


def followed(text: str, replaced: Mapping[str, str] | None = None) -> int:
    with reading(replaced) as reader:
        return reader.follow(text)


@needs_curl
def test_everything_on_the_page_about_the_fleet_happens_as_shown(
    readers: Mapping[str, Future[int]], tried: Tried
):
    tried("steps of the page about the fleet", readers["fleet"].result(), "all as shown")


@needs_curl
def test_everything_on_the_page_about_the_api_happens_as_shown(
    readers: Mapping[str, Future[int]], tried: Tried
):
    tried("steps of the page about the API", readers["API"].result(), "all as shown")


@needs_curl
def test_everything_on_the_page_about_trading_happens_as_shown(
    readers: Mapping[str, Future[int]], tried: Tried
):
    tried("steps of the page about trading", readers["trading"].result(), "all as shown")


def test_everything_on_the_page_about_the_command_line_happens_as_shown(
    readers: Mapping[str, Future[int]], tried: Tried
):
    done = readers["command line"].result()
    tried("steps of the page about the command line", done, "all as shown")


def test_a_reader_notices_what_is_not_as_shown():
    shown = 'HTTP/1.1 202 Accepted\n…\n{"job_id":1,…"total":3}'
    said = 'HTTP/1.1 202 Accepted\r\ndate: today\r\n\r\n{"job_id":1,"version":1,"total":3}\n'
    assert missing(shown, said) is None
    assert missing(shown, said.replace("202", "200")) == "HTTP/1.1 202 Accepted"
    assert missing(shown, said.replace("3}", "4}")) == '"total":3}'
    assert missing("b…a", "a b") == "a", "the order counts"


def test_a_reader_takes_commands_of_many_lines():
    text = "```console\n$ curl x --json '\n  {\"a\": 1}' \\\n  -i\nHTTP\nmore\n$ cat y\n```\n"
    first, second = steps(text)
    assert first == ("console", "curl x --json '\n  {\"a\": 1}' \\\n  -i", "HTTP\nmore")
    assert second == ("console", "cat y", "")


@pytest.mark.parametrize("text", [FLEET, API, TRADING, PEOPLE])
def test_no_example_is_left_out(text: str):
    """A block of another kind would be shown, and not run."""
    kinds = set(re.findall(r"^```(\w+)", text, re.MULTILINE))
    assert kinds <= {"console", "python", "csv", "ini", "json", "yaml"}
    assert text.count("\n$ ") == sum(step.kind == "console" for step in steps(text))


# The tables of the page about the API


def routes() -> Iterator[Route]:
    for router in (*RESOURCES, documents.documents):
        for route in router.routes:
            assert isinstance(route, Route)
            yield route


def told(route: APIRoute) -> str:
    return (route.endpoint.__doc__ or "").splitlines()[0]


def test_the_page_names_every_route_what_it_asks_for_and_what_it_does():
    expected = [
        f"| `{method} {route.path}` | {route.permission}{' or signed' * route.signed} "
        f"| {told(route)} |"
        for route in routes()
        for method in sorted(route.methods or ())
    ]
    found = API[API.index("| route | permission |") :].strip().splitlines()[2:]
    assert found == expected, "\n".join(["docs/api.md should say", *expected])


def codes() -> Iterator[tuple[int, str]]:
    """Every status and code that the sources of the API make problems of."""
    yield from ((status, code) for status, (code, _) in problems._BY_STATUS.items())
    yield from ((kind.status, kind.code) for kind in PROBLEMS.values())
    for path in SOURCES.joinpath("api").glob("*.py"):
        source = path.read_text("utf-8")
        # How a job stands otherwise is told with a code of the caller's.
        yield from ((409, code) for code in re.findall(r'\bcode(?:: str)? ?= ?"([a-z-]+)"', source))
        for call in ast.walk(ast.parse(source)):
            match call:
                case ast.Call(
                    ast.Name("Problem"), [ast.Constant(int(status)), ast.Constant(str(code)), *_]
                ):
                    yield status, code
                case ast.Call(ast.Name("unauthorized"), [ast.Constant(str(code)), *_]):
                    yield 401, code


def test_the_page_explains_every_code():
    # No route asks a host anything, and none takes a lifecycle.
    nowhere = {
        kind.code
        for error, kind in PROBLEMS.items()
        if issubclass(error, ChannelError | InvalidLifecycle)
    }
    listed = [
        (int(status), code)
        for status, cell, _ in table(API, "status", "code")
        for code in cell.split(", ")
    ]
    assert set(listed) == {each for each in codes() if each[1] not in nowhere}
    assert len(listed) == len(set(listed))
    assert [status for status, _ in listed] == sorted(status for status, _ in listed)


def test_the_page_explains_every_verdict():
    listed = [tuple(row) for row in table(API, "verdict", "meaning")]
    assert listed == [(result.value, result.meaning) for result in TransitionResult]


def test_the_page_says_when_somebody_should_look():
    rows = dict(table(API, "kind", "when"))
    assert sorted(rows) == sorted(Concern)
    limits = Limits()
    assert f"by more than {limits.overdue_s:g} seconds" in rows[Concern.OVERDUE]
    assert f"{STUCK_AFTER_S:g} seconds ago" in rows[Concern.OUTBOX_STUCK]
    assert f"no more than {DUE_MAX:,} " in rows[Concern.DUE]
    assert f"at least {limits.wrong}, and {limits.wrong_share:.0%}" in rows[
        Concern.FAILING
    ].replace(" %", "%")
    assert f"more than {limits.paused_s / 60:g} minutes" in rows[Concern.PAUSED]


def test_the_limits_on_the_page_are_those_of_the_program():
    settings = Settings()
    assert commands._EVENTS_MAX == callbacks._LINES_MAX
    expected = [
        *(settings.body_max_bytes, settings.body_timeout_s),
        *(strict_json.DEPTH_MAX, inputs._MAX_DEPTH),
        settings.payload_max_bytes,
        *(edge._HEADERS_MAX, edge._HEADERS_MAX_BYTES),
        edge._ADDRESS_MAX_BYTES,
        inputs.NAME_MAX,
        *(MAX_NAMES, MAX_LENGTH),
        MAX_LABELS,
        MAX_HOSTS,
        1_000,  # as the description of `limit` has it
        commands._EVENTS_MAX,
        events._STREAMS_MAX,
        TOLERANCE_S,
    ]
    listed = " ".join(cell for _, cell in table(API, "what", "at most"))
    assert re.findall(r"[0-9]+(?:,[0-9]{3})*", listed) == [f"{limit:,.0f}" for limit in expected]


# The tables of the page about trading


def test_the_page_about_trading_explains_the_answers_with_the_codes_of_the_api():
    """Every problem of billing and trading is there, and none that is not told elsewhere."""
    explained = {
        (int(status), code) for status, code, _ in table(TRADING, "status", "code") if code
    }
    assert explained <= set(codes())
    own = {
        each
        for each in codes()
        if each[1].startswith(("insufficient-", "balance-", "idempotency-", "if-match-"))
    }
    assert own <= explained


def test_the_limits_and_rates_on_the_page_about_trading_are_those_of_the_program():
    assert f"at most {AMOUNT_MAX:,} minor units" in TRADING
    assert f"holds at most {BALANCE_MAX:,}." in TRADING
    assert f"of 1 to {KEY_MAX} visible ASCII characters" in TRADING
    assert f": {Settings().commission_bp}, which is " in TRADING


# The tables of the page about the fleet


def test_the_page_says_what_each_role_may():
    header = ["read", "run", "manage", "report", "approve", "trade", "admin"]
    asked = [Permission(word) for word in header]
    assert set(asked) == set(Permission) - {Permission.ANY, Permission.PUBLIC}
    assert table(FLEET, "role", *header) == [
        [role.value, *("yes" if permission in GRANTS[role] else "" for permission in asked)]
        for role in Role
    ]
    assert [row[0] for row in table(FLEET, "permission", "what it allows")] == header


def test_the_page_says_what_to_do_about_every_reason():
    rows = table(FLEET, "reason", "what it means")
    assert sorted(row[0] for row in rows) == sorted(Reason)
    assert all(all(row) for row in rows)


def test_the_page_explains_every_state_and_status():
    assert [row[0] for row in table(FLEET, "state of a job")] == list(JobState)
    assert [row[0] for row in table(FLEET, "status of an execution")] == list(EXECUTION.states)


def test_the_page_says_what_follows_from_every_cause():
    listed = {row[0]: row[2:] for row in table(FLEET, "cause", "what happened")}
    for cause in Cause:
        ends_as = str(EXECUTION.moves[cause.terminal_event].target)
        assert listed.pop(cause) == ["yes" if cause.is_retried else "no", ends_as]
    # What is stored as a cause and is none of an attempt that went wrong.
    texts = "".join(
        path.read_text("utf-8")
        for suffix in ("py", "sql")
        for path in SOURCES.rglob(f"*.{suffix}")
        if path.is_relative_to(SOURCES / "fleet") or path.is_relative_to(SOURCES / "store")
    )
    assert set(listed) == set(re.findall(r"""cause["']?[=:,] ?["']([A-Z_]+)["']""", texts))


async def test_the_page_names_every_metric(opened: Onward):
    services = services_for(opened)
    _, key = await services.keys.make("scrape", person="ann", role="viewer", by=TESTER)
    transport = httpx2.ASGITransport(app=create_app(services))
    async with httpx2.AsyncClient(transport=transport, base_url="http://onward.test") as client:
        answer = await client.get("/metrics", headers={"Authorization": f"Bearer {key}"})
    told = {family.name for family in text_string_to_metric_families(answer.text)}
    listed = {row[0] for row in table(FLEET, "metric", "what it counts")}
    assert listed == {name for name in told if name.startswith("onward_")}


def test_every_selector_on_the_page_is_one():
    listed = [json.loads(row[0]) for row in table(FLEET, "selector", "whom it means")]
    forms = {name for selector in listed for name in to_json(parse(selector))}
    assert forms == {"all", "hostnames", "expression"}


def test_the_page_says_what_a_command_type_takes():
    fields = [row[0] for row in table(FLEET, "field", "what it means")]
    assert fields == list(CommandTypeBody.model_fields)


def test_the_page_says_what_simulated_hosts_do_and_over_which_networks():
    listed = [ast.literal_eval(row[0]) for row in table(FLEET, "parameter")]
    assert {name for params in listed for name in params} == set(Behaviour.__slots__)
    for params in listed:
        assert behaviour_of("PING", params) == Behaviour(**params)
    assert all(f"`{name}`" in FLEET or f"--network {name}`" in FLEET for name in NETWORKS)


def test_the_caps_on_output_are_those_of_the_program():
    assert f"{output.LINE_MAX:,} characters" in FLEET
    assert output.OUTPUT_MAX == 1024 * 1024
    assert "at most a mebibyte" in FLEET
