"""The overview and the list of jobs: what runs, what waits, how it went, and who does the work."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import looked_at
from tests.browser.ground import Ground
from tests.cli.running import until

numbers = iter(range(1, 1_000))


def some_hosts(ground: Ground, size: int = 4) -> str:
    tag = f"o{next(numbers)}"
    ground.hosts(*(f"{tag}-{n}" for n in range(size)), of=tag)
    return f"of={tag}"


def test_what_runs_waits_and_ended_is_on_one_page(open_page: OpenPage, ground: Ground):
    ground.command_type("QUICK", max_retries=0)
    ground.command_type("LONG", max_retries=0)
    ground.command_type("ASK", needs_approval=True)
    quick = ground.job("QUICK", some_hosts(ground))
    until(lambda: ground.seen(f"/jobs/{quick}")[0]["finished_at"] is not None)
    long = ground.job("LONG", some_hosts(ground), params={"sleep_s": 60})
    asking = ground.job("ASK", some_hosts(ground))
    page = open_page("bob")
    expect(page.get_by_role("link", name=re.compile("^1 ?waiting for approval"))).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("^4 ?running"))).to_be_visible()
    expect(page.get_by_role("region", name="Under way")).to_contain_text(f"{long} · LONG")
    expect(page.get_by_role("region", name="Waits for you")).to_contain_text(f"{asking} · ASK")
    expect(page.get_by_role("region", name="What ended, minute by minute")).to_contain_text(
        re.compile(r"\d+ executions?")
    )
    expect(page.get_by_role("region", name="Workers")).to_contain_text("running")
    looked_at(page, "overview")
    ground.client.post(f"/jobs/{long}/cancel").raise_for_status()


def test_what_waits_for_somebody_else_is_told_apart(open_page: OpenPage, ground: Ground):
    ground.command_type("ASK", needs_approval=True)
    own, of_others = (ground.job("ASK", some_hosts(ground), by=by) for by in ("root", "ann"))
    page = open_page("root")
    region = page.get_by_role("region", name="Waits for you")
    expect(region).to_contain_text(
        re.compile(rf"{of_others} · ASK.*Waits for somebody else.*{own} · ASK")
    )
    asked = open_page("ann").get_by_role("region", name="Waits for approval")
    expect(asked).to_contain_text(f"{of_others} · ASK")
    expect(asked.get_by_role("link", name="Decide")).to_have_count(0)


def test_a_new_job_appears_by_itself(open_page: OpenPage, ground: Ground):
    ground.command_type("LONG", max_retries=0)
    page = open_page("vic")
    expect(page.get_by_role("region", name="Under way")).to_be_visible()
    job_id = ground.job("LONG", some_hosts(ground), params={"sleep_s": 60})
    expect(page.get_by_role("link", name=re.compile(rf"^{job_id} · LONG"))).to_be_visible()
    ground.client.post(f"/jobs/{job_id}/cancel").raise_for_status()


def test_a_number_leads_to_the_list_behind_it(open_page: OpenPage):
    page = open_page("vic")
    page.get_by_role("link", name=re.compile("jobs open")).click()
    expect(page).to_have_url(re.compile(r"#/jobs\?open=true"))
    expect(page.get_by_role("button", name="Open")).to_have_attribute("aria-pressed", "true")


def test_jobs_are_listed_filtered_and_run(open_page: OpenPage, ground: Ground):
    ground.command_type("LISTED", max_retries=0)
    job_id = ground.job("LISTED", some_hosts(ground))
    page = open_page("ann", "jobs")
    rows = page.get_by_role("table", name="Jobs").get_by_role("row")
    expect(rows.filter(has_text="LISTED")).to_have_count(1)
    page.get_by_label("Command type").fill("LISTED")
    expect(rows).to_have_count(2)
    expect(page).to_have_url(re.compile("command_type=LISTED"))
    looked_at(page, "jobs")
    rows.nth(1).click()
    expect(page).to_have_url(re.compile(rf"jobs/{job_id}$"))


def test_there_are_more_jobs_than_one_page_of_them(open_page: OpenPage, ground: Ground):
    which = some_hosts(ground, 1)
    ground.command_type("MANY", max_retries=0)
    for _ in range(130):
        ground.job("MANY", which)
    page = open_page("vic", "jobs?command_type=MANY")
    expect(page.get_by_text("100, and more jobs")).to_be_visible()
    table = page.get_by_role("table", name="Jobs")
    table.get_by_role("rowgroup").nth(1).evaluate("(body) => { body.scrollTop = 1e6; }")
    expect(page.get_by_text("130 jobs")).to_be_visible()
