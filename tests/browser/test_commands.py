"""Commands: found in a list, made, looked at on their lifecycles, and what is said about them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import accessible, looked_at
from tests.browser.ground import NASTY, Ground

SOON_MS = 20_000  # what moves nothing is not heard of, but looked for
numbers = iter(range(1, 1_000))


def make(ground: Ground, **asked: object) -> str:
    """Make a command; returns its id."""
    body = {"type": "dose", "node": f"pump{next(numbers)}", "timeout_s": 3_600, **asked}
    answer = ground.client.post("/commands", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["cmd_id"])


def say(ground: Ground, command: str, *events: str, **told: object) -> str:
    """Say something about a command, as a gateway does; returns the last verdict."""
    verdict = ""
    for event in events:
        body = {"event": event, "source": "gateway-2", **told}
        answer = ground.client.post(f"/commands/{command}/events", json=body).raise_for_status()
        verdict = answer.json()["verdict"]
    return verdict


def say_later(ground: Ground, command: str, event: str, *, after_s: float, **told: object) -> str:
    """Let something be said that much later than now."""
    (answer,) = ground.sql(
        "SELECT verdict FROM record_events_v1(ARRAY[$1::uuid], ARRAY[$2::text], NULL, "
        "ARRAY['gateway-2'], ARRAY[$3::jsonb], ARRAY[1], $4)",
        command,
        event,
        json.dumps(told),
        datetime.now(UTC) + timedelta(seconds=after_s),
    )
    return str(answer["verdict"])


def seen(ground: Ground, command: str) -> dict[str, Any]:
    return ground.seen(f"/commands/{command}")[0]


def standing(page: Page) -> Locator:
    return page.locator(".standing")


def said(page: Page) -> Locator:
    return page.get_by_role("region", name="What was said")


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Commands").locator(".table-body .row")


# The list


def test_commands_are_listed_and_filtered_by_the_address(open_page: OpenPage, ground):
    node = make(ground, node="north", lifecycle="node")
    platform = make(ground, node="north", lifecycle="platform")
    make(ground, node="south")
    page = open_page("vic", "commands?node=north")
    expect(rows(page)).to_have_count(2)
    page.get_by_label("Lifecycle").select_option("platform")
    expect(rows(page)).to_have_count(1)
    expect(page).to_have_url(re.compile(r"lifecycle=platform&node=north"))
    expect(page.locator(f'.table-body a[href="#/commands/{platform}"]')).to_have_count(1)
    page.get_by_label("Lifecycle").select_option("")
    page.get_by_label("Only for this node").fill("nowhere")
    expect(page.get_by_text("No command is like that.")).to_be_visible()
    page.get_by_role("link", name="All commands").click()
    expect(rows(page).first).to_be_visible()
    looked_at(page, "commands")
    page.get_by_label("Id of a command").fill("17")
    page.get_by_role("button", name="Go to it").click()
    expect(page.get_by_role("alert")).to_contain_text("an id is a UUID")
    page.get_by_label("Id of a command").fill(f" {node.upper()} ")
    page.get_by_label("Id of a command").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("dose on north")


def test_the_list_moves_with_what_is_said(open_page: OpenPage, ground):
    command = make(ground, node="moving")
    page = open_page("vic", "commands?node=moving")
    expect(rows(page)).to_contain_text("queued")
    ground.until_listeners(1)
    say(ground, command, "ack")
    expect(rows(page)).to_contain_text("ack")
    make(ground, node="moving")
    expect(rows(page)).to_have_count(2)


def test_what_leaves_a_status_leaves_the_list_of_it(open_page: OpenPage, ground):
    command, other = make(ground, node="leaving"), make(ground, node="leaving")
    say(ground, other, "ack")
    page = open_page("vic", "commands?node=leaving")
    expect(rows(page)).to_have_count(2)
    ground.until_listeners(1)
    page.get_by_label("Status").select_option("QUEUED")
    expect(rows(page)).to_have_count(1)
    expect(page).to_have_url(re.compile("status=QUEUED&node=leaving"))
    say(ground, command, "ack")
    expect(page.get_by_text("No command is like that.")).to_be_visible()


def test_a_list_that_nobody_waits_for_any_more_does_not_stop_the_page(open_page: OpenPage, ground):
    """Another filter is chosen while the first list is still on its way."""
    make(ground, node="slow")
    page = open_page("vic", "commands")
    expect(rows(page).first).to_be_visible()
    page.goto("/#/jobs")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(r"/commands\?"), hold)
    with page.expect_request(re.compile(r"/commands\?")):
        page.goto("/#/commands")
    with page.expect_request(re.compile(r"/commands\?.*node=slow")):
        page.get_by_label("Only for this node").fill("slow")
    with page.expect_response(re.compile(r"/commands\?")):
        held[0].continue_()
    held[1].continue_()
    expect(rows(page)).to_have_count(1)


def test_what_is_told_the_other_way_round_does_not_go_back(open_page: OpenPage, ground):
    command = make(ground, node="reversed")
    page = open_page("vic", "commands")
    shown = page.evaluate(
        """async (id) => {
          const base = document.querySelector('script[type=module]').src.replace('main.js', '');
          const {default: commands} = await import(base + 'pages/commands.js');
          const app = {redraw() {}, may: () => false};
          const page = commands(app, {query: new URLSearchParams({node: 'reversed'})});
          const told = (seq, now) => page.heard({type: 'changes', changes: [
            ['command', null, null, null, id, '', now, seq, '2026-01-01T00:00:00Z']]});
          const read = () => page.listing.items.map(({status}) => status).join();
          // The list is on its way, and was read before this.
          told(2, 'DONE');
          while (page.listing.loading) await new Promise((resolve) => setTimeout(resolve, 20));
          const first = read();
          told(1, 'ACK');
          page.close();
          return [first, read()];
        }""",
        command,
    )
    assert shown == ["DONE", "DONE"]


# Making one


def test_a_command_is_made_and_a_refusal_keeps_what_was_typed(open_page: OpenPage, ground):
    page = open_page("ann", "commands")
    page.get_by_role("button", name="New command").click()
    page.get_by_label("Type").fill("set_relay")
    page.get_by_label("Node", exact=True).fill("greenhouse-7")
    page.get_by_label("Parameters").fill('{"relay": 3,')
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("alert")).to_contain_text("The parameters are not JSON")
    page.get_by_label("Parameters").fill('["relay"]')
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("alert")).to_contain_text("/params")
    expect(page.get_by_label("Type")).to_have_value("set_relay")
    accessible(page)
    page.get_by_label("Parameters").fill('{"relay": 3}')
    page.get_by_role("button", name="Make it").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("set_relay on greenhouse-7")
    command = page.url.rpartition("/")[2]
    assert seen(ground, command)["params"] == {"relay": 3}


def test_who_may_not_run_is_not_offered_to(open_page: OpenPage, ground):
    command = make(ground)
    page = open_page("vic", "commands?new=1")
    expect(rows(page).first).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("New command|Make it"))).to_have_count(0)
    page.goto(f"/#/commands/{command}")
    expect(standing(page)).to_have_text("queued")
    expect(page.get_by_role("button", name=re.compile("^Say "))).to_have_count(0)


# One of them


def test_a_late_word_is_ignored_and_the_page_says_why(open_page: OpenPage, ground):
    command = make(ground, lifecycle="platform")
    say(ground, command, "save", "send", "deliver", "complete", result={"ml": 5})
    assert say_later(ground, command, "deliver", after_s=120) == "TERMINAL"
    page = open_page("vic", f"commands/{command}")
    expect(standing(page)).to_have_text("completed")
    expect(said(page)).to_contain_text(
        re.compile(r"DELIVERED, 2 min.* late: ignored, already COMPLETED")
    )
    expect(said(page)).to_contain_text("1 of them ignored")
    expect(page.get_by_role("region", name="Result")).to_contain_text('"ml": 5')
    expect(page.locator(".way-name-gone")).to_have_text(["save", "send", "deliver", "complete"])
    looked_at(page, "command-platform")


def test_a_time_that_goes_on_is_not_read_out(open_page: OpenPage, ground):
    page = open_page("vic", f"commands/{make(ground)}")
    why = page.get_by_role("region", name="What it waits for")
    expect(why).to_contain_text(re.compile(r"without a word it times out in \d+ min \d+ s\.$"))
    expect(why.locator("[aria-live]")).to_have_text(re.compile("without a word it times out$"))
    expect(page.locator("[aria-live]").filter(has=why)).to_have_count(0)
    assert why.get_attribute("aria-live") is None


def test_a_first_look_that_failed_is_followed_by_another(open_page: OpenPage, ground, watches):
    path = f"commands/{make(ground)}"
    page = open_page("vic")
    watches(page).allowed.add("answer 500")
    page.route(f"**/{path}", lambda route: route.fulfill(status=500, json={}), times=1)
    page.goto(f"/#/{path}")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(standing(page)).to_have_text("queued")


def test_what_really_happened_stands_beside_the_status(open_page: OpenPage, ground):
    command = make(ground)
    page = open_page("vic", f"commands/{command}")
    expect(page.get_by_role("region", name="What it waits for")).to_contain_text(
        "without a word it times out in"
    )
    assert say(ground, command, "send", "timeout") == "OK"
    expect(standing(page)).to_have_text("timeout")
    assert say_later(ground, command, "done", after_s=120, duration_ms=7) == "TERMINAL"
    expect(standing(page)).to_contain_text(re.compile("in truth done, [12] min"), timeout=SOON_MS)
    expect(said(page)).to_contain_text("kept as what really happened")
    looked_at(page, "command-late")


@pytest.mark.parametrize("lifecycle", ["node", "platform", "platform_lenient"])
def test_every_lifecycle_is_drawn_whole(open_page: OpenPage, ground, lifecycle: str):
    found, _ = ground.seen("/lifecycles")
    law = next(each for each in found["items"] if each["name"] == lifecycle)
    page = open_page("vic", f"commands/{make(ground, lifecycle=lifecycle)}")
    expect(page.locator(".state")).to_have_count(len(law["states"]))
    names = page.locator(".state-name").all_text_contents()
    assert sorted(names) == sorted(
        state["name"].replace("_", " ").lower() for state in law["states"]
    )
    ways = {(source, move["to"]) for move in law["moves"] for source in move["from"]}
    drawn = page.locator(".way title").all_text_contents()
    assert {tuple(re.findall(r"from (\w+) to (\w+)", told)[0]) for told in drawn} == ways
    assert overlaps(page) == []
    expect(page.locator(".state-lit")).to_have_count(1)


def overlaps(page: Page) -> list[str]:
    """The states that stand on each other."""
    found: list[str] = page.evaluate(
        """() => {
          const boxes = [...document.querySelectorAll(".state")].map((state) => [
            state.querySelector(".state-name").textContent,
            state.querySelector(".state-box").getBoundingClientRect(),
          ]);
          return boxes.flatMap(([name, a], i) => boxes.slice(i + 1).filter(([, b]) =>
            a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom,
          ).map(([other]) => `${name} on ${other}`));
        }"""
    )
    return found


# Saying something


def test_somebody_says_what_became_of_it(open_page: OpenPage, ground):
    command = make(ground)
    page = open_page("ann", f"commands/{command}")
    page.get_by_role("button", name="Say done").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It goes from QUEUED to DONE, and that is its end")
    accessible(page)
    dialog.get_by_role("button", name="Leave it").click()
    assert seen(ground, command)["status"] == "QUEUED"
    page.get_by_role("button", name="Say done").click()
    dialog.get_by_label("What is to be known about it").fill("seen with my own eyes")
    dialog.get_by_role("button", name="Say done").click()
    expect(standing(page)).to_have_text("done")
    assert seen(ground, command)["error_message"] == "seen with my own eyes"
    expect(page.get_by_role("button", name=re.compile("^Say "))).to_have_count(0)


def test_who_speaks_second_is_told_how_it_stands(open_page: OpenPage, ground):
    command = make(ground)
    page = open_page("ann", f"commands/{command}")
    page.get_by_role("button", name="Say send", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert say(ground, command, "ack") == "OK"
    dialog.get_by_role("button", name="Say send").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing changed: it is ACK.")
    expect(said(page)).to_contain_text("SENT, ")
    expect(said(page)).to_contain_text("late: ignored, already ACK")


@pytest.mark.parametrize("nasty", NASTY)
def test_whatever_a_command_is_called_stays_text(open_page: OpenPage, ground, nasty: str):
    command = make(ground, type="odd", params={nasty[:60]: nasty, "deep": {"er": nasty}})
    say(ground, command, "fail", error_message=nasty, result={"said": nasty})
    page = open_page("vic", f"commands/{command}")
    expect(page.get_by_text(nasty, exact=True).first).to_be_visible()
    expect(page.get_by_role("region", name="Result")).to_contain_text("said")
    expect(page.locator("main script, main img")).to_have_count(0)
    page.set_viewport_size({"width": 360, "height": 740})
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0


def test_a_command_that_is_not_there_is_said_so(open_page: OpenPage):
    page = open_page("vic", "commands/019a9433-7c3e-7d61-8b5e-3f1f3f0c2aff")
    expect(page.get_by_role("alert")).to_contain_text("There is no command with this id.")
