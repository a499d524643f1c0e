"""What changes, as it changes: over breaks, in several tabs, and after a position is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from onward.dashboard import site
from tests.browser.conftest import OpenPage
from tests.browser.eyes import Watch, accessible
from tests.browser.ground import Ground
from tests.browser.wire import Wire, wired
from tests.cli.running import settled, until

HOSTS = 40
# What the page hears, from the module that all of it listens to.
HEAR = """async () => {
  const files = performance.getEntriesByType("resource").map((entry) => entry.name);
  const { connection, hear } = await import(files.find((name) => name.endsWith("/stream.js")));
  window.heard = [];
  hear((message) => window.heard.push(message));
  window.live = () => connection().state === "live";
}"""


@pytest.fixture
def wire(ground: Ground) -> Iterator[Wire]:
    """A way to the service that can be cut."""
    with wired(ground.address) as found:
        yield found


@pytest.fixture(scope="module")
def fleet(ground: Ground) -> str:
    """Hosts for jobs that take a while, because only a few run at once."""
    ground.command_type("noop")
    ground.command_type("DEPLOY", needs_approval=True)
    ground.hosts(*(f"h{n}" for n in range(HOSTS)), of="fleet")
    return "of=fleet"


@pytest.fixture
def listening(open_page: OpenPage, wire: Wire) -> Page:
    """A page that listens over the wire, and notes what it hears."""
    page = open_page("vic", "approvals", address=wire.address)
    Watch.of(page).allowed |= {"net::", "Failed to fetch"}
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    page.evaluate(HEAR)
    page.wait_for_function("() => window.live()")
    return page


def banner(page: Page) -> Any:
    return page.get_by_text("Connection lost")


def cut_and_noticed(page: Page, wire: Wire) -> None:
    """Cut the line; the page has noticed once it says so."""
    wire.cut()
    page.wait_for_function("() => window.heard.some((m) => m.state === 'lost' && !m.seen)")


def mended_and_noticed(page: Page, wire: Wire) -> None:
    page.evaluate("() => window.heard.forEach((m) => { m.seen = true; })")
    wire.mend()
    page.wait_for_function("() => window.heard.some((m) => m.state === 'live' && !m.seen)")
    page.evaluate("() => window.heard.forEach((m) => { m.seen = true; })")


def heard(page: Page, job_id: int) -> list[tuple[Any, ...]]:
    """Every change of a job that the page was told, in order."""
    told = page.evaluate("() => window.heard.filter((m) => m.type === 'changes')")
    return [tuple(c) for message in told for c in message["changes"] if c[1] == job_id]


def told(ground: Ground, after: str, job_id: int) -> list[tuple[Any, ...]]:
    """Every change of a job since a position, as the service lists them."""
    names = ("kind", "job_id", "execution_id", "host_id", "cmd_id", "event", "status", "seq")
    found: list[tuple[Any, ...]] = []
    while True:
        query: dict[str, str | int] = {"after": after, "job_id": job_id, "limit": 1_000}
        page = ground.client.get("/events/page", params=query).json()
        if not page["items"]:
            return found
        found += [tuple(item[name] for name in names) for item in page["items"]]
        after = page["next_cursor"]


def ended_of(ground: Ground, job_id: int, number: int) -> bool:
    return settled(ground.client, job_id) >= number


def here(ground: Ground) -> str:
    return str(ground.client.get("/events/page").json()["next_cursor"])


def test_over_breaks_nothing_is_missed_and_nothing_heard_twice(
    listening: Page, wire: Wire, ground: Ground, fleet
):
    page, start = listening, here(ground)
    job = ground.job("noop", fleet, max_concurrency=2)
    for ended in (HOSTS // 4, HOSTS // 2):
        cut_and_noticed(page, wire)
        until(partial(ended_of, ground, job, ended))
        mended_and_noticed(page, wire)
    until(lambda: settled(ground.client, job) == HOSTS)
    expected = told(ground, start, job)
    page.wait_for_function(
        "([job, n]) => window.heard.flatMap((m) => m.changes ?? []).filter((c) => c[1] === job)"
        ".length >= n",
        arg=[job, len(expected)],
    )
    assert [change[:8] for change in heard(page, job)] == expected
    assert not [m for m in page.evaluate("() => window.heard") if m["type"] == "reset"]


def test_a_lost_connection_is_said_and_what_changed_meanwhile_is_shown_after_it(
    listening: Page, wire: Wire, ground: Ground, fleet
):
    page = listening
    expect(banner(page)).to_have_count(0)
    wire.cut()
    expect(banner(page)).to_be_visible()
    accessible(page)
    job = ground.job("DEPLOY", fleet)
    wire.mend()
    expect(banner(page)).to_have_count(0)
    expect(page.get_by_role("link", name=f"Job {job}: DEPLOY")).to_be_visible()


def test_what_changes_before_the_stream_begins_is_not_missed(
    open_page: OpenPage, wire: Wire, ground: Ground, fleet
):
    """The page has looked, and is not told yet: the stream begins after the change."""
    held = wire.hold("GET /events")
    job = ground.job("DEPLOY", fleet)
    try:
        page = open_page("vic", f"jobs/{job}", address=wire.address)
        chips = page.get_by_role("group", name="Filter by status")
        expect(chips.get_by_role("button", name="new")).to_contain_text(str(HOSTS))
        ground.client.post(f"/jobs/{job}/cancel").raise_for_status()
    finally:
        held.may_go.set()
    expect(chips.get_by_role("button", name="cancelled")).to_contain_text(str(HOSTS))
    expect(page.get_by_text("Cancelled by")).to_be_visible()


def test_a_page_that_is_turned_to_while_the_service_is_away_comes_by_itself(
    open_page: OpenPage, wire: Wire
):
    page = open_page("vic", "approvals", address=wire.address)
    Watch.of(page).allowed |= {"net::", "Failed to fetch"}
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    wire.cut()
    expect(banner(page)).to_be_visible()
    places = page.get_by_role("navigation", name="Pages")
    places.get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("heading", name="This cannot be shown")).to_be_visible()
    wire.mend()
    expect(banner(page)).to_have_count(0)
    expect(page.get_by_role("heading", level=1, name="Jobs")).to_be_visible()


def test_a_page_listens_also_if_the_line_broke_before_all_of_it_was_there(
    open_page: OpenPage, wire: Wire, ground: Ground, fleet
):
    """What is lost is the script of the worker that pages share; nobody asks for it again."""
    held = wire.hold(f"GET /dashboard/{site().digest}/stream-worker.js")
    page = open_page("vic", "approvals", address=wire.address)
    Watch.of(page).allowed |= {"net::", "Failed to fetch"}
    assert held.came.wait(30.0)
    wire.cut()
    held.may_go.set()
    expect(banner(page)).to_be_visible()
    wire.mend()
    expect(banner(page)).to_have_count(0)
    job = ground.job("DEPLOY", fleet)
    expect(page.get_by_role("link", name=f"Job {job}: DEPLOY")).to_be_visible()


def test_tabs_of_one_browser_share_one_stream(open_page: OpenPage, ground: Ground, fleet):
    ground.until_listeners(0)
    page = open_page("vic", "approvals")
    ground.until_listeners(1)
    tabs = [page, *(page.context.new_page() for _ in range(3))]
    for tab in tabs[1:]:
        tab.goto("/#/approvals")
        expect(tab.get_by_role("heading", name="Approvals")).to_be_visible()
    job = ground.job("DEPLOY", fleet)
    for tab in tabs:
        expect(tab.get_by_role("link", name=f"Job {job}: DEPLOY")).to_be_visible()
    assert ground.listeners() == 1
    # Who opened it may go: the others go on listening.
    page.close()
    another = ground.job("DEPLOY", fleet)
    for tab in tabs[1:]:
        expect(tab.get_by_role("link", name=f"Job {another}: DEPLOY")).to_be_visible()
    assert ground.listeners() == 1
    for tab in tabs[1:]:
        tab.close()
    ground.until_listeners(0)


def test_after_a_position_is_gone_the_page_looks_at_everything_anew(
    listening: Page, wire: Wire, ground: Ground, fleet
):
    """The month of the position is put away while the line is cut, and what happened with it."""
    page = listening
    cut_and_noticed(page, wire)
    job = ground.job("DEPLOY", fleet)
    months = ground.sql(
        "SELECT relname, pg_get_expr(relpartbound, oid) AS bound FROM pg_class WHERE oid IN "
        "(SELECT inhrelid FROM pg_inherits WHERE inhparent = 'execution_timeline'::regclass) "
        "AND relname ~ '_[0-9]{6}$' ORDER BY relname"
    )
    now = ground.sql("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMM') AS month")[0]["month"]
    gone = [each for each in months if each["relname"][-6:] <= now]
    for each in gone:
        ground.sql(f"ALTER TABLE execution_timeline DETACH PARTITION {each['relname']}")
    try:
        mended_and_noticed(page, wire)
        page.wait_for_function("() => window.heard.some((m) => m.type === 'reset')")
        expect(page.get_by_role("link", name=f"Job {job}: DEPLOY")).to_be_visible()
    finally:
        for each in gone:
            ground.sql(
                f"ALTER TABLE execution_timeline ATTACH PARTITION {each['relname']} {each['bound']}"
            )
    # And it goes on hearing from there.
    another = ground.job("DEPLOY", fleet)
    expect(page.get_by_role("link", name=f"Job {another}: DEPLOY")).to_be_visible()


def test_what_comes_over_the_wire_is_small_and_whole(ground: Ground, listening: Page, fleet):
    """Many changes come as few messages, and each change is an array."""
    page = listening
    job = ground.job("noop", fleet)
    until(lambda: settled(ground.client, job) == HOSTS)
    page.wait_for_function(
        "([job, n]) => window.heard.flatMap((m) => m.changes ?? [])"
        ".filter((c) => c[1] === job && c[6] === 'SUCCESS').length === n",
        arg=[job, HOSTS],
    )
    told_ = heard(page, job)
    assert json.loads(json.dumps(told_))
    assert all(len(change) == 9 for change in told_)
