"""Who did what: found by person, kind and subject, opened, followed, and told as it happens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import accessible, looked_at
from tests.browser.ground import NASTY, Ground
from tests.cli.running import until

MANY = 500


@pytest.fixture(scope="module", autouse=True)
def done(ground: Ground) -> None:
    """A job of Ann's, and hosts: more deeds than a page of the list has."""
    ground.command_type("noop")
    ground.hosts(*(f"a{n}" for n in range(5)))
    ground.job("noop", "all", by="ann")
    ground.sql(
        "INSERT INTO audit (at, by, deed, kind, subject, detail) "
        "SELECT now() - n * interval '1 m', 'max', 'change', 'host', n::text, "
        """'{"state": "DISABLED"}' FROM generate_series(1, $1) n""",
        MANY,
    )


def deeds(page: Page) -> Any:
    """The rows, without the heading."""
    return page.get_by_role("table", name="What was done").locator(".table-body").get_by_role("row")


def audit(open_page: OpenPage, query: str = "", person: str = "vic") -> Page:
    page = open_page(person, f"audit{query}")
    expect(deeds(page).first).to_be_visible()
    return page


def test_what_was_done_is_listed_the_newest_first_and_only_what_is_in_sight(open_page: OpenPage):
    page = audit(open_page)
    expect(page.get_by_role("table", name="What was done")).to_contain_text("ann")
    assert deeds(page).count() < 60
    looked_at(page, "audit")
    body = page.locator(".table-body")
    rows = page.get_by_role("table", name="What was done")
    until(lambda: scrolled(page) and int(rows.get_attribute("aria-rowcount") or 0) > MANY)
    body.evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
    expect(deeds(page).last).to_contain_text("max")
    assert deeds(page).count() < 60


def scrolled(page: Page) -> bool:
    """Go on to the end of what has been read."""
    page.locator(".table-body").evaluate("(element) => element.scrollTo(0, element.scrollHeight)")
    return True


def test_filters_are_in_the_address_and_lead_back(open_page: OpenPage):
    page = audit(open_page)
    page.get_by_label("Who").fill("ann")
    expect(page).to_have_url(re.compile("by=ann"))
    expect(page.get_by_text("max", exact=True)).to_have_count(0)
    page.get_by_role("button", name="host", exact=True).click()
    expect(page.get_by_text("Nobody has done that.")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Who")).to_have_value("ann")
    expect(page.get_by_role("button", name="host", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    page.get_by_role("button", name="Show everything").click()
    expect(deeds(page).first).to_be_visible()
    linked = audit(open_page, "?by=max&subject=17")
    expect(deeds(linked)).to_have_count(1)
    expect(deeds(linked)).to_contain_text("17")


def test_another_filter_begins_at_the_top(open_page: OpenPage):
    page = audit(open_page)
    expect(page.get_by_placeholder("written in full")).to_have_count(2)
    rows = page.get_by_role("table", name="What was done")
    until(lambda: scrolled(page) and int(rows.get_attribute("aria-rowcount") or 0) > MANY)
    page.get_by_label("Who").fill("max")
    expect(page).to_have_url(re.compile("by=max"))
    expect(page.locator('[aria-rowindex="2"]')).to_be_in_viewport()


def test_a_deed_is_opened_and_leads_to_what_it_is_about(open_page: OpenPage, ground):
    job = ground.job("noop", "all", by="ann")
    page = audit(open_page, f"?kind=job&subject={job}")
    row = deeds(page).filter(has_text="ann").first
    row.get_by_role("button", name="Details").click()
    expect(page.get_by_role("dialog")).to_contain_text("ann")
    accessible(page)
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    row.get_by_role("link", name=str(job)).click()
    expect(page.get_by_role("heading", level=1, name=f"Job {job}")).to_be_visible()


def test_what_is_done_now_comes_in_at_the_top(open_page: OpenPage, ground):
    page = audit(open_page)
    host = ground.hosts("just-now")[0]
    made = deeds(page).first
    expect(made).to_contain_text("just-now")
    made.get_by_role("link", name="just-now").click()
    expect(page).to_have_url(re.compile(f"/hosts/{host}$"))


def test_for_whoever_reads_further_down_it_is_announced(open_page: OpenPage, ground):
    page = audit(open_page)
    page.locator(".table-body").evaluate("(element) => element.scrollTo(0, 600)")
    row = page.locator('[aria-rowindex="20"]')
    place = row.inner_text()
    ground.hosts("while-you-read")
    announced = page.get_by_role("button", name="Show 1 new deed")
    expect(announced).to_be_visible()
    assert page.locator(".table-body").evaluate("(element) => element.scrollTop") == 600
    # Its time goes on; nothing else of it has changed.
    assert row.inner_text().split("\n")[1:] == place.split("\n")[1:]
    announced.click()
    expect(deeds(page).first).to_contain_text("while-you-read")
    expect(announced).to_have_count(0)


def test_bad_words_stay_words(open_page: OpenPage, ground):
    for n, word in enumerate(NASTY):
        ground.sql(
            "INSERT INTO audit (by, deed, kind, subject, detail) VALUES "
            "($1, 'change', 'command_type', $1, jsonb_build_object('name', $1::text, $1, $1))",
            word[:255] if n else word,
        )
    page = audit(open_page, "?kind=command_type")
    for word in NASTY:
        expect(deeds(page).filter(has_text=word).first).to_be_visible()
    looked_at(page, "audit-bad-words")
    deeds(page).filter(has_text=NASTY[0]).get_by_role("button", name="Details").click()
    expect(page.get_by_role("dialog")).to_contain_text(NASTY[0])
    accessible(page)


def test_no_secret_is_told(open_page: OpenPage, ground: Ground):
    """Keys are made and shown at doors, and neither stands here."""
    page = audit(open_page, "?kind=key&kind=session", person="root")
    expect(deeds(page).filter(has_text="log in").first).to_be_visible()
    answers = [ground.client.get("/audit", params={"limit": 1_000}).text]
    assert not any(key in text for key in ground.keys.values() for text in answers)
