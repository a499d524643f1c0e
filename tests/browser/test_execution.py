"""An execution: where it is and why, what was said about it, and what its host prints."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import DESKTOP, PHONE, accessible, looked_at
from tests.browser.ground import NASTY, Ground
from tests.cli.running import until

LINES = 10_000
SOON_MS = 20_000  # what moves nothing is not heard of, but looked for
numbers = iter(range(1, 1_000))


@pytest.fixture(scope="module", autouse=True)
def _types(ground: Ground) -> None:
    """The kinds of commands that these tests send."""
    ground.command_type("WRITE", timeout_s=3_600, max_retries=2)
    ground.command_type("RELEASE", needs_approval=True)


def send(ground: Ground, *, host: str = "", by: str = "ann", **params: object) -> int:
    """Run something on a host, a new one if none is named; returns its execution."""
    name = host or f"e{next(numbers)}"
    if not host:
        ground.hosts(name)
    return execution_of(ground, ground.job("WRITE", f"name={name}", by=by, params=params))


def execution_of(ground: Ground, job_id: int) -> int:
    found, _ = ground.seen(f"/jobs/{job_id}/executions")
    return int(found["items"][0]["execution_id"])


def until_status(ground: Ground, execution_id: int, *statuses: str) -> dict[str, Any]:
    path = f"/executions/{execution_id}"
    until(lambda: ground.seen(path)[0]["status"] in statuses)
    return ground.seen(path)[0]


def say(ground: Ground, execution_id: int, event: str, **told: object) -> str:
    """Let something be said about an execution, by whichever attempt and whenever; its verdict."""
    epoch, after_s = told.pop("epoch", None), told.pop("after_s", 0.0)
    when = datetime.now(UTC) + timedelta(seconds=float(str(after_s)))
    (answer,) = ground.sql(
        "SELECT verdict FROM record_executions_v1(ARRAY[$1::bigint], ARRAY[$2::text], "
        "ARRAY[$3::bigint], ARRAY['worker'], ARRAY[$4::jsonb], ARRAY[1], $5)",
        execution_id,
        event,
        epoch,
        json.dumps(told),
        when,
    )
    return str(answer["verdict"])


def held_elsewhere(ground: Ground) -> tuple[int, int, int]:
    """An execution whose second attempt is with a worker that nobody hears of, and both epochs."""
    host = f"e{next(numbers)}"
    ground.hosts(host)
    job = ground.job("RELEASE", f"name={host}")
    ground.sql("UPDATE jobs SET paused_at = now() WHERE id = $1", job)
    (worker,) = ground.sql(
        "INSERT INTO workers (name, beat_at) VALUES ('far', now() + interval '1 hour') RETURNING id"
    )
    execution = execution_of(ground, job)
    begin = {"worker_id": worker["id"], "grace_s": 3_600}
    assert say(ground, execution, "plan") == "OK"
    assert say(ground, execution, "claim", **begin) == "OK"
    first = ground.seen(f"/executions/{execution}")[0]["epoch"]
    assert say(ground, execution, "retry", epoch=first, cause="WORKER_LOST") == "OK"
    assert say(ground, execution, "claim", **begin) == "OK"
    return execution, first, ground.seen(f"/executions/{execution}")[0]["epoch"]


def said(page: Page) -> Locator:
    return page.get_by_role("region", name="What was said")


def log(page: Page) -> Locator:
    return page.get_by_role("log", name="Output")


def standing(page: Page) -> Locator:
    return page.locator(".standing")


def test_an_execution_shows_its_way_its_attempts_and_its_output(open_page: OpenPage, ground):
    execution = send(ground, fail_times=1, lines=4)
    until_status(ground, execution, "SUCCESS")
    page = open_page("vic", f"executions/{execution}")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"WRITE on e\d+"))
    expect(standing(page)).to_have_text("success")
    expect(page.get_by_role("region", name="How it ended")).to_contain_text(
        "It ended as SUCCESS after 2 attempts."
    )
    expect(page.get_by_role("img", name=re.compile("^Lifecycle execution"))).to_have_attribute(
        "aria-label", re.compile("has been new, queued, running, success, and is success now")
    )
    # Gone twice, and back once.
    expect(page.locator(".way-name-gone")).to_have_text(
        ["plan", "claim ×2", "retry", "succeed"], use_inner_text=False
    )
    expect(page.get_by_role("region", name="Attempts").get_by_role("row")).to_have_count(3)
    for title in ("Attempt 1", "Attempt 2"):
        expect(said(page).get_by_role("heading", name=re.compile(title))).to_be_visible()
    expect(said(page)).to_contain_text("The command failed, exit code 1: QUEUED again")
    expect(log(page)).to_contain_text("Attempt 2 (epoch ")
    looked_at(page, "execution")


def test_why_it_is_not_moving_leads_to_what_holds_it_and_goes_on_by_itself(
    open_page: OpenPage, ground
):
    host = f"e{next(numbers)}"
    ground.hosts(host)
    holder = send(ground, host=host, sleep_s=3_000)
    until_status(ground, holder, "RUNNING")
    waiting = send(ground, host=host)
    until_status(ground, waiting, "QUEUED")
    page = open_page("ann", f"executions/{waiting}")
    why = page.get_by_role("region", name="Why it is not moving")
    expect(why).to_contain_text(f"{host} is held by execution {holder} of job")
    expect(log(page)).to_have_count(0)
    # How long it has been so goes on, and is not read out every second.
    expect(why.locator("[aria-live]")).to_have_text(re.compile(r"is held by execution \d+ of job"))
    expect(why.locator("[aria-live]")).not_to_contain_text(re.compile(r"for \d"))
    assert why.get_attribute("aria-live") is None
    looked_at(page, "execution-waiting")
    why.get_by_role("link", name=f"execution {holder}").click()
    expect(page).to_have_title(f"Execution {holder} on {host} · Onward")
    expect(page.get_by_role("region", name="It moves")).to_contain_text("deadline in")
    page.go_back()
    expect(standing(page)).to_have_text("queued")
    job = ground.seen(f"/executions/{holder}")[0]["job_id"]
    _, etag = ground.seen(f"/jobs/{job}")
    with ground.calling("ann") as client:
        client.post(f"/jobs/{job}/cancel", headers={"If-Match": etag}).raise_for_status()
    expect(standing(page)).to_have_text("success")
    expect(said(page)).to_contain_text("It succeeded")


def test_what_waits_for_an_approval_leads_to_its_plan(open_page: OpenPage, ground):
    (host,) = (f"e{next(numbers)}",)
    ground.hosts(host)
    job = ground.job("RELEASE", f"name={host}")
    page = open_page("bob", f"executions/{execution_of(ground, job)}")
    why = page.get_by_role("region", name="Why it is not moving")
    expect(why).to_contain_text("Its job waits for somebody's approval.")
    expect(why.get_by_role("link")).to_have_attribute("href", f"#/jobs/{job}")


def test_what_came_too_late_is_told_in_sentences_and_beside_the_status(open_page: OpenPage, ground):
    execution, first, second = held_elsewhere(ground)
    page = open_page("vic", f"executions/{execution}")
    expect(page.get_by_role("region", name="It moves")).to_be_visible()
    # All of this is said while somebody looks.
    assert say(ground, execution, "succeed", epoch=first) == "STALE_EPOCH"
    assert say(ground, execution, "timeout", epoch=second, cause="TIMED_OUT") == "OK"
    assert say(ground, execution, "succeed", epoch=second, exit_code=0, after_s=125) == "TERMINAL"
    assert say(ground, execution, "fail", epoch=second, after_s=180) == "TERMINAL"
    expect(standing(page)).to_have_text(
        re.compile(r"timeout.*in truth success, 2 min [456] s later"), timeout=SOON_MS
    )
    expect(page.get_by_text(re.compile("^In truth success, 2 min"))).to_be_visible()
    for told in (
        f"Attempt 1, a former one (epoch {first}), reported SUCCESS: ignored",
        "SUCCESS, 2 min",
        "kept as what really happened",
    ):
        expect(said(page)).to_contain_text(told, timeout=SOON_MS)
    expect(said(page)).to_contain_text(
        re.compile(r"FAILED, 3 min.* late: ignored, already TIMEOUT")
    )
    looked_at(page, "execution-late")
    page.set_viewport_size(PHONE)
    expect(page.locator(".state-lit")).to_be_in_viewport(ratio=1)
    page.set_viewport_size(DESKTOP)
    said(page).get_by_role("button", name="Only what moved it").click()
    expect(said(page)).not_to_contain_text("ignored, already")


def test_details_of_an_event_can_be_opened_and_stay_so(open_page: OpenPage, ground):
    execution = send(ground, exit_code=3)
    until_status(ground, execution, "FAILED")
    page = open_page("vic", f"executions/{execution}")
    page.get_by_label(re.compile("^Details of fail at")).click()
    detail = said(page).locator("pre").filter(has_text='"exit_code": 3').last
    expect(detail).to_be_visible()
    assert say(ground, execution, "succeed") == "TERMINAL"
    expect(said(page)).to_contain_text("already FAILED", timeout=SOON_MS)
    expect(detail).to_be_visible()
    accessible(page)


# The log


def test_the_log_goes_on_while_it_runs_and_follows(open_page: OpenPage, ground):
    execution = send(ground, sleep_s=8, lines=80)
    until_status(ground, execution, "RUNNING")
    page = open_page("vic", f"executions/{execution}")
    follow = page.get_by_role("button", name="Follow")
    expect(follow).to_have_attribute("aria-pressed", "true")
    expect(log(page)).to_contain_text("line 1 of 80")
    expect(log(page)).not_to_contain_text("line 80 of 80")
    last = log(page).get_by_text("line 80 of 80")
    expect(last).to_be_attached(timeout=SOON_MS)
    log(page).evaluate("(element) => element.scrollIntoView({block: 'end'})")
    expect(last).to_be_in_viewport()
    # Whoever goes up stays there.
    log(page).evaluate("(element) => { element.scrollTop = 0; }")
    expect(follow).to_have_attribute("aria-pressed", "false")
    expect(log(page).get_by_text("line 1 of 80", exact=True)).to_be_visible()


def test_a_long_log_is_there_only_as_far_as_it_is_seen_and_can_be_searched(
    open_page: OpenPage, ground
):
    execution = send(ground, lines=LINES)
    until_status(ground, execution, "SUCCESS")
    page = open_page("vic", f"executions/{execution}")
    expect(page.get_by_text(f"{LINES:,} lines")).to_be_visible()
    drawn = log(page).locator(".log-line")
    assert drawn.count() < 200
    expect(log(page)).to_contain_text("err")
    page.get_by_label("Search in the output").fill(f"line 9{LINES - 9_010} of")
    expect(page.get_by_text("1 of 1", exact=True)).to_be_visible()
    expect(log(page).locator("mark")).to_be_in_viewport()
    assert drawn.count() < 200
    page.get_by_label("Search in the output").fill("LINE 100")
    found = page.locator(".log-found")
    expect(found).to_have_text("1 of 12")
    page.get_by_label("Search in the output").press("Enter")
    expect(found).to_have_text("2 of 12")
    page.get_by_label("Search in the output").press("Shift+Enter")
    expect(found).to_have_text("1 of 12")
    page.get_by_label("Search in the output").fill("no such words")
    expect(found).to_have_text("not found")
    page.get_by_label("Search in the output").fill("")
    page.get_by_role("button", name="Follow").click()
    log(page).evaluate("(element) => element.scrollIntoView({block: 'end'})")
    expect(log(page).get_by_text(f"line {LINES} of {LINES}")).to_be_in_viewport()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    path = download.value.path()
    assert download.value.suggested_filename == f"execution-{execution}.log"
    written = Path(path).read_text("utf-8").splitlines()
    assert len(written) == LINES + 1
    assert written[0].startswith("# Attempt 1 (epoch ")
    assert re.fullmatch(rf"\S+ stderr line {LINES} of {LINES}", written[-1])


def test_long_lines_are_wrapped_or_not_as_somebody_likes(open_page: OpenPage, ground):
    execution = send(ground, lines=50, text="w" * 2_000)
    until_status(ground, execution, "SUCCESS")
    page = open_page("vic", f"executions/{execution}")
    tall = "(element) => [element.scrollHeight, element.scrollWidth > element.clientWidth]"
    expect(log(page)).to_contain_text("wwww")
    wrapped, sideways = log(page).evaluate(tall)
    assert not sideways
    page.get_by_role("button", name="Wrap").click()
    expect(page.get_by_role("button", name="Wrap")).to_have_attribute("aria-pressed", "false")
    expect(log(page)).not_to_have_class(re.compile("log-wrap"))
    flat, sideways = log(page).evaluate(tall)
    assert sideways
    assert flat < wrapped / 4
    looked_at(page, "execution-wide")


@pytest.mark.parametrize("nasty", NASTY)
def test_whatever_a_host_prints_stays_text(open_page: OpenPage, ground, nasty: str):
    execution = send(ground, lines=2, text=nasty, note={"deep": nasty}, **{nasty[:60]: nasty})
    until_status(ground, execution, "SUCCESS")
    page = open_page("vic", f"executions/{execution}")
    printed = nasty.replace("\u202e", "\\u202e").replace("\u202c", "\\u202c")
    expect(log(page).get_by_text(printed, exact=True).first).to_be_visible()
    expect(page.get_by_text(nasty, exact=True).last).to_be_visible()
    expect(page.locator("main script, main img")).to_have_count(0)
    page.set_viewport_size({"width": 360, "height": 740})
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0


def test_a_first_look_that_failed_is_followed_by_another(open_page: OpenPage, ground, watches):
    path = f"executions/{send(ground)}"
    page = open_page("vic")
    watches(page).allowed.add("answer 500")
    page.route(f"**/{path}", lambda route: route.fulfill(status=500, json={}), times=1)
    page.goto(f"/#/{path}")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(standing(page)).to_be_visible()


def test_an_execution_that_is_not_there_is_said_so(open_page: OpenPage):
    page = open_page("vic", "executions/999999999")
    expect(page.get_by_role("alert")).to_have_text("There is no such execution")
