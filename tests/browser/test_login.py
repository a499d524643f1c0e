"""Logging in and out: what the browser keeps, who sees what, and how a session ends."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import Watch, accessible, looked_at
from tests.browser.ground import NASTY, PEOPLE, Ground, log_in
from tests.cli.running import until

COOKIE = "onward_session"
SHUT = json.dumps({"title": "Unavailable", "detail": "The database is away."})
PLACES = {
    "viewer": "Overview Jobs Approvals Hosts Blocks Commands Audit Settings",
    "operator": "Overview Jobs Approvals Hosts Blocks Commands Audit Settings",
    "approver": "Overview Jobs Approvals Hosts Blocks Commands Audit Settings",
    "trader": "Trading",
    "admin": "Overview Jobs Approvals Hosts Blocks Commands Trading Audit Settings",
}


def at_the_door(page: Page) -> None:
    """Nobody is logged in, and nothing else is shown."""
    expect(page.get_by_label("Your key")).to_be_visible()
    expect(page.get_by_role("navigation")).to_have_count(0)


def cookie(page: Page) -> dict[str, object] | None:
    found = [each for each in page.context.cookies() if each.get("name") == COOKIE]
    return dict(found[0]) if found else None


def test_a_key_that_nobody_has_is_refused_in_place(open_page: OpenPage):
    page = open_page()
    expect(page.get_by_label("Your key")).to_be_focused()
    looked_at(page, "login")
    for key, told in (("onw_" + "x" * 43, "not known"), ("short", "errors")):
        page.get_by_label("Your key").fill(key)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text(told)
    at_the_door(page)
    accessible(page)
    assert cookie(page) is None


def test_a_key_opens_the_page_and_is_kept_nowhere(open_page: OpenPage, ground):
    page = open_page("vic", "approvals")
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    kept = cookie(page)
    assert kept is not None
    assert (kept["httpOnly"], kept["sameSite"], kept["path"]) == (True, "Strict", "/")
    assert kept["value"] not in ground.keys["vic"]
    seen = page.evaluate(
        "() => [document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), "
        "document.documentElement.textContent, location.href]"
    )
    assert seen[0] == ""
    assert not any(ground.keys["vic"] in each or str(kept["value"]) in each for each in seen)
    page.reload()
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()


def test_logging_out_leaves_nothing_behind(open_page: OpenPage, ground: Ground):
    ground.until_listeners(0)
    page = open_page("vic", "jobs")
    page.get_by_role("link", name="Approvals").click()
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    kept = cookie(page)
    assert kept is not None
    ground.until_listeners(1)
    page.get_by_role("button", name="Log out").click()
    at_the_door(page)
    assert cookie(page) is None
    ground.until_listeners(0)
    page.go_back()
    at_the_door(page)
    page.goto("about:blank")
    page.go_back()
    at_the_door(page)
    # What was in the cookie is worth nothing any more.
    page.context.add_cookies([{**kept, "expires": -1}])  # type: ignore[typeddict-item]  # as it came
    page.goto("/#/jobs")
    page.reload()
    at_the_door(page)


def test_logging_out_in_one_tab_logs_out_the_other(open_page: OpenPage):
    page = open_page("vic", "approvals")
    other = page.context.new_page()
    other.goto("/#/approvals")
    expect(other.get_by_role("heading", name="Approvals")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    at_the_door(page)
    at_the_door(other)


@pytest.mark.parametrize("how", ["session ended", "key revoked"])
def test_a_session_that_ends_under_an_open_page_leads_to_the_door(
    open_page: OpenPage, ground: Ground, how
):
    ground.command_type("noop")
    ground.hosts(f"h{how[:3]}")
    made = ground.key("zoe", "viewer")
    page = open_page()
    log_in(page, made["key"], "approvals")
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    if how == "key revoked":
        ground.client.delete(f"/keys/{made['id']}").raise_for_status()
    else:
        ground.sql("DELETE FROM sessions WHERE key_id = $1", made["id"])

    def at_its_end() -> bool:
        ground.job("noop", "all")  # before each word of the stream, it is asked who listens
        return page.get_by_label("Your key").is_visible()

    until(at_its_end)
    at_the_door(page)
    expect(page.get_by_text("You have been logged out: the session has ended.")).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    log_in(page, ground.keys["vic"], "approvals")
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    ground.until_listeners(1)
    assert asked.count("/me") == 1, "who is there was found out once"


@pytest.mark.parametrize("path", ["settings", "settings?tab=keys", "jobs/%", "commands?new"])
def test_a_page_that_is_opened_anew_is_there_for_whoever_is_logged_in(open_page: OpenPage, path):
    page = open_page("root", path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    first = page.get_by_role("heading", level=1).inner_text()
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text(first)
    assert first != "This cannot be shown"


def test_a_service_that_cannot_say_who_is_there_is_asked_again(open_page: OpenPage):
    page = open_page("vic", "approvals")
    Watch.of(page).allowed.add("answer 503")
    page.route("**/me", lambda route: route.fulfill(status=503, body=SHUT), times=2)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("The database is away.")
    expect(page.get_by_label("Your key")).to_have_count(0)
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()


def test_who_could_not_log_out_is_told_so(open_page: OpenPage):
    page = open_page("vic", "approvals")
    Watch.of(page).allowed.add("answer 503")
    page.route("**/session", lambda route: route.fulfill(status=503, body=SHUT), times=1)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("You are still logged in. The database is away.")).to_be_visible()
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    at_the_door(page)


def test_what_could_not_be_looked_at_is_looked_at_again(open_page: OpenPage):
    """The stream has not broken, so nothing else would say that it is worth it."""
    page = open_page("vic", "approvals")
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    Watch.of(page).allowed.add("answer 503")
    page.route("**/hosts?*", lambda route: route.fulfill(status=503, body=SHUT), times=1)
    page.get_by_role("link", name="Hosts").click()
    expect(page.get_by_text("The database is away.")).to_be_visible()
    expect(page.get_by_text("The database is away.")).to_have_count(0)


@pytest.mark.parametrize(("person", "role"), PEOPLE.items())
def test_each_role_is_shown_the_places_that_it_may_see(open_page: OpenPage, person, role):
    page = open_page(person, "trading" if role == "trader" else "approvals")
    places = page.get_by_role("navigation", name="Pages").get_by_role("link")
    found = [re.sub(r"\d+", "", name).strip() for name in places.all_inner_texts()]
    assert found == PLACES[role].split()


def test_whoever_only_trades_begins_there_and_is_told_what_is_not_theirs(open_page: OpenPage):
    page = open_page("tom")
    expect(page.get_by_role("heading", level=1, name="Trading")).to_be_visible()
    page.goto("/#/jobs")
    expect(page.get_by_role("alert")).to_contain_text("takes the permission read")


def test_bad_words_as_names_of_people_and_keys_stay_words(open_page: OpenPage, ground: Ground):
    for word in NASTY:
        if not word.isprintable():
            continue  # which no name may be
        page = open_page()
        log_in(page, ground.key(word, "viewer", name=word)["key"], "approvals")
        expect(page.locator(".who")).to_have_text(word)
        expect(page.get_by_title(f"{word}, viewer", exact=True)).to_be_visible()
        accessible(page)


def test_another_site_cannot_use_the_cookie(open_page: OpenPage, ground: Ground):
    """Neither without the header of the page, nor with it, which would have to be allowed first."""
    page = open_page("vic", "approvals")
    expect(page.get_by_role("heading", name="Approvals")).to_be_visible()
    Watch.of(page).allowed |= {"elsewhere", "CORS", "net::"}
    assert page.evaluate("async () => (await fetch('/me')).status") == 401
    # The same machine by another name is another site.
    elsewhere = ground.address.replace("127.0.0.1", "localhost")
    stranger = page.context.new_page()
    stranger.route(f"{elsewhere}/", lambda route: route.fulfill(body="<!DOCTYPE html>"))
    stranger.goto(elsewhere)
    answers: list[int] = []
    stranger.on("response", lambda answer: answers.append(answer.status))
    for headers in ({}, {"X-Onward-Page": "1"}):
        got = stranger.evaluate(
            "async ([url, headers]) => { try {"
            "  return (await fetch(url, {credentials: 'include', headers})).status;"
            "} catch (error) { return error.name; } }",
            [f"{ground.address}/me", headers],
        )
        assert got == "TypeError"
    assert 200 not in answers
