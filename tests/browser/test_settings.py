"""Settings: command types, keys, workers, agents, and what somebody may do."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.eyes import looked_at
from tests.browser.ground import NASTY

RULES = {"needs_approval": False, "read_only": False, "timeout_s": 60, "max_retries": 0}


def button(page: Page, name: str):
    return page.get_by_role("button", name=name, exact=True)


def dialog(page: Page):
    return page.get_by_role("dialog")


def test_a_command_type_is_added_changed_and_deleted(ground, open_page):
    page = open_page("root", "settings")
    button(page, "Add one").click()
    page.get_by_label("Name", exact=True).fill("MADE_HERE")
    page.get_by_label("Seconds that an attempt may take").fill("90")
    page.get_by_label("Program and arguments, one a line").fill("login\n--token\n{token}")
    page.get_by_label("Masked parameters").fill("token")
    button(page, "Add it").click()
    # A secret among the arguments would be seen by everybody on the host.
    expect(dialog(page).get_by_text("everybody on the host can read arguments")).to_be_visible()
    page.get_by_label("Program and arguments, one a line").fill('["login", "--as", "{user}", ""]')
    looked_at(page, "settings-type")
    button(page, "Add it").click()
    expect(page.get_by_text("MADE_HERE is there.")).to_be_visible()
    made, _ = ground.seen("/command-types/MADE_HERE")
    assert made["argv"] == ["login", "--as", "{user}", ""]
    assert (made["timeout_s"], made["masked"], made["needs_approval"]) == (90, ["token"], True)
    button(page, "Edit MADE_HERE").click()
    page.get_by_label("Its jobs wait until somebody else has approved them").uncheck()
    button(page, "Change it").click()
    expect(page.get_by_text("MADE_HERE is changed.")).to_be_visible()
    changed, _ = ground.seen("/command-types/MADE_HERE")
    assert changed == made | {"needs_approval": False}
    button(page, "Delete MADE_HERE").click()
    page.get_by_label("Type MADE_HERE to go on").fill("MADE_HERE")
    button(page, "Delete it").click()
    expect(page.get_by_text("MADE_HERE", exact=True)).to_have_count(0)
    assert ground.client.get("/command-types/MADE_HERE").status_code == 404


def test_adding_a_command_type_replaces_none(ground, open_page):
    page = open_page("root", "settings")
    expect(button(page, "Add one")).to_be_visible()
    ground.command_type("GUARDED", **RULES | {"needs_approval": True})
    button(page, "Add one").click()
    page.get_by_label("Name", exact=True).fill("GUARDED")
    page.get_by_label("Its jobs wait until somebody else has approved them").uncheck()
    button(page, "Add it").click()
    expect(dialog(page).get_by_text("GUARDED is there already")).to_be_visible()
    assert ground.seen("/command-types/GUARDED")[0]["needs_approval"] is True
    page.get_by_label("Name", exact=True).fill("GUARDED_TOO")
    button(page, "Add it").click()
    expect(page.get_by_text("GUARDED_TOO is there.")).to_be_visible()


def test_a_secret_is_said_to_be_copied_only_if_it_was(open_page):
    """Over plain HTTP a page has no clipboard, and the dialog keeps it from selecting elsewhere."""
    page = open_page("root", "settings?tab=keys")
    page.evaluate(
        """() => {
          Object.defineProperty(navigator, 'clipboard', {value: undefined});
          addEventListener('copy', () => { window.taken = document.activeElement.value; });
        }"""
    )
    button(page, "Make a key").click()
    page.get_by_label("What it is for").fill("copying")
    page.get_by_label("Whose it is").fill("cleo")
    button(page, "Make it").click()
    secret = page.locator("[data-secret=Secret]")
    button(page, "Copy secret").click()
    expect(dialog(page).get_by_text("Secret copied.")).to_be_visible()
    assert page.evaluate("window.taken") == secret.text_content()
    page.evaluate("() => { document.execCommand = () => false; }")
    button(page, "Copy secret").click()
    told = dialog(page).get_by_role("alert")
    expect(told).to_contain_text("The browser does not let the page copy")
    expect(dialog(page).get_by_text("Secret copied.")).to_have_count(0)


def test_a_list_of_keys_that_is_longer_can_be_read_on(open_page):
    def answer(route):
        first = "cursor" not in route.request.url
        key = {"id": 1 if first else 2, "name": "old", "person": "zoe" if first else "yan"}
        rest = {"role": "viewer", "created_at": "2026-01-01T00:00:00Z", "created_by": "root"}
        page_of_keys = {"items": [{**key, **rest}], "next_cursor": "on" if first else None}
        route.fulfill(json=page_of_keys)

    page = open_page("root", "settings")
    page.route(re.compile(r"/keys\?"), answer)
    page.get_by_role("tab", name="Keys").click()
    expect(page.get_by_role("row").filter(has_text="zoe")).to_be_visible()
    button(page, "Read on").click()
    expect(page.get_by_role("row").filter(has_text="yan")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="zoe")).to_be_visible()
    expect(button(page, "Read on")).to_have_count(0)


def test_a_key_is_shown_once_is_good_and_can_be_revoked(ground, open_page):
    page = open_page("root", "settings?tab=keys")
    button(page, "Make a key").click()
    page.get_by_label("What it is for").fill(NASTY[0])
    page.get_by_label("Whose it is").fill("zoe")
    page.get_by_label("Role").select_option("operator")
    expect(page.get_by_text("Runs jobs and looks after hosts")).to_be_visible()
    button(page, "Make it").click()
    expect(page.get_by_text("It is shown this once.")).to_be_visible()
    key = page.locator("[data-secret=Secret]").text_content()
    looked = {"Authorization": f"Bearer {key}"}
    assert ground.client.get("/me", headers=looked).json()["person"] == "zoe"
    button(page, "Close").click()
    expect(page.locator("dialog")).to_have_count(0)
    assert key not in page.content()
    row = page.get_by_role("row").filter(has_text="zoe")
    expect(row).to_contain_text("good")
    looked_at(page, "settings-keys")
    button(page, f"Revoke {NASTY[0]} of zoe").click()
    page.get_by_label(f"Type {NASTY[0]} to go on").fill(NASTY[0])
    button(page, "Revoke it").click()
    expect(row).to_contain_text("revoked")
    assert ground.client.get("/me", headers=looked).status_code == 401


def test_the_last_key_of_an_admin_is_kept_and_the_words_for_it_are_shown(ground, open_page):
    page = open_page("root", "settings?tab=keys")
    ground.sql(
        "UPDATE api_keys SET revoked_at = now(), revoked_by = 'x' "
        "WHERE role = 'admin' AND person <> 'root' AND revoked_at IS NULL"
    )
    try:
        button(page, "Revoke of a test of root").click()
        expect(page.get_by_text("It is the one that you are logged in with.")).to_be_visible()
        page.get_by_label("Type of a test to go on").fill("of a test")
        button(page, "Revoke it").click()
        expect(dialog(page).get_by_text("make another one first")).to_be_visible()
    finally:
        ground.sql(
            "UPDATE api_keys SET revoked_at = NULL, revoked_by = NULL WHERE revoked_by = 'x'"
        )


def test_workers_are_alive_lost_or_stopped(ground, open_page):
    ground.sql(
        "INSERT INTO workers (name, started_at, beat_at, progress_at, stopped_at, refused) VALUES "
        "($1, now() - interval '1 hour', now() - interval '9 min', now(), NULL, 3), "
        "('gone:1', now() - interval '1 hour', now(), now(), now() - interval '5 min', 0)",
        NASTY[0],
    )
    page = open_page("vic", "settings?tab=workers")
    expect(page.get_by_role("row").filter(has_text="alive")).to_have_count(1)
    expect(page.get_by_role("row").filter(has_text=NASTY[0])).to_contain_text(
        re.compile("lost, last heard .* ago")
    )
    expect(page.get_by_role("row").filter(has_text="gone:1")).to_contain_text("stopped 5 min")
    looked_at(page, "settings-workers")


def test_agents_are_connected_or_away(ground, open_page):
    made = ground.client.post("/hosts", json={"name": "agent-1", "channel": "agent"})
    host_id = made.raise_for_status().json()["host_id"]
    ground.sql(
        "INSERT INTO agents (host_id, hub_id, session, version, remote, left_at) "
        "VALUES ($1, NULL, 1, '1.2', '10.0.0.9', now())",
        host_id,
    )
    page = open_page("vic", "settings?tab=agents")
    row = page.get_by_role("table").get_by_role("row").filter(has_text="agent-1")
    expect(row).to_contain_text("away")
    expect(row).to_contain_text("1.2")
    looked_at(page, "settings-agents")
    row.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("agent-1")
    expect(page.get_by_text("version 1.2, from 10.0.0.9")).to_be_visible()


def test_whoever_may_see_nothing_of_it_is_shown_nothing(open_page):
    page = open_page()
    assert page.evaluate(
        """async () => {
          const base = document.querySelector('script[type=module]').src.replace('main.js', '');
          const {default: settings} = await import(base + 'pages/settings.js');
          const app = {redraw() {}, may: () => false};
          const page = settings(app, {query: new URLSearchParams()});
          page.heard({type: 'reset'});
          return page.view().filter(Boolean).length;
        }"""
    )


def test_everybody_sees_what_they_may_do_and_is_offered_no_more(open_page):
    page = open_page("ann", "settings")
    expect(page.get_by_role("tab", name="Keys")).to_have_count(0)
    expect(button(page, "Add one")).to_have_count(0)
    page.get_by_role("tab", name="Command types").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="What I may do")).to_be_focused()
    expect(page.get_by_role("tab", name="What I may do")).to_have_attribute("aria-selected", "true")
    assert "tab=me" in page.url
    for name, may in (
        ("run", "allowed"),
        ("manage", "allowed"),
        ("approve", "not allowed"),
        ("admin", "not allowed"),
    ):
        expect(page.locator(".may dt").filter(has_text=name)).to_have_text(f"{name}{may}")
    looked_at(page, "settings-me")
