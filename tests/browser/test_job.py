"""The page of a job: every host in one picture, what came of them, and what may be done with it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import Watch, fits, looked_at
from tests.browser.ground import NASTY, Ground
from tests.cli.running import until

numbers = iter(range(1, 1_000))


def fleet_of(ground: Ground, size: int) -> str:
    """Make hosts that no other test has; returns the selector that finds them."""
    tag = f"j{next(numbers)}"
    rows = [{"name": f"{tag}-{n:04}", "labels": {"of": tag}} for n in range(size)]
    ground.client.post("/hosts/import", json=rows).raise_for_status()
    return f"of={tag}"


def finished(ground: Ground, job_id: int) -> None:
    until(lambda: ground.seen(f"/jobs/{job_id}")[0]["finished_at"] is not None)


def chip(page: Page, status: str):
    """The number of one status, which is also a filter."""
    return page.get_by_role("group", name="Filter by status").get_by_role(
        "button", name=re.compile(rf"^{status}\b")
    )


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()


@pytest.fixture(scope="module")
def mixed(ground: Ground) -> int:
    """A job of which some succeeded, some failed and some were blocked."""
    ground.command_type("SHUFFLE", max_retries=0)
    which = fleet_of(ground, 40)
    blocked = {"selector": f"{which} and name=*3", "command_type": "SHUFFLE", "reason": "a rule"}
    ground.client.post("/blocks", json=blocked).raise_for_status()
    job_id = ground.job("SHUFFLE", which, params={"lines": 2, "text": "all is well"})
    finished(ground, job_id)
    return job_id


def test_every_host_is_a_cell_and_every_number_a_filter(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Job {mixed}: SHUFFLE")
    expect(chip(page, "success")).to_contain_text("36")
    expect(chip(page, "blocked")).to_contain_text("4")
    chip(page, "blocked").click()
    expect(page.get_by_text("4 of 40: blocked")).to_be_visible()
    expect(page).to_have_url(re.compile(r"status=BLOCKED"))
    rows = page.get_by_role("table", name="Executions").get_by_role("row")
    expect(rows).to_have_count(5)  # and the heads of the columns
    page.reload()
    expect(chip(page, "blocked")).to_have_attribute("aria-pressed", "true")
    expect(rows).to_have_count(5)


def test_the_picture_says_who_is_under_the_pointer_and_leads_there(
    open_page: OpenPage, ground: Ground, mixed: int
):
    page = open_page("vic", f"jobs/{mixed}")
    grid = page.get_by_role("application")
    grid.hover(position={"x": 6, "y": 6})
    first = ground.seen(f"/jobs/{mixed}/executions?limit=1")[0]["items"][0]
    expect(page.locator("#grid-line")).to_contain_text(first["host"])
    grid.click(position={"x": 6, "y": 6})
    expect(page).to_have_url(re.compile(rf"executions/{first['execution_id']}$"))


def test_the_picture_is_gone_over_by_keys(open_page: OpenPage, ground: Ground, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    grid = page.get_by_role("application")
    grid.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    third = ground.seen(f"/jobs/{mixed}/executions?limit=3")[0]["items"][2]
    expect(page.locator("#grid-line")).to_contain_text(third["host"])
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(rf"executions/{third['execution_id']}$"))


def test_equal_outputs_are_one_group(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    tab(page, "Outputs")
    expect(page.get_by_text("Of 40 that ended: 36 same, 4 silent.")).to_be_visible()
    group = page.locator(".output-group").first
    expect(group).to_contain_text("36 hosts")
    expect(group).to_contain_text("all is well")
    group.get_by_role("button", name="Show these").click()
    expect(page.get_by_text("36 of 40")).to_be_visible()
    expect(page).to_have_url(re.compile(r"status=SUCCESS.*exit_code=0"))


def test_a_group_that_printed_nothing_is_shown_and_nothing_else(open_page: OpenPage, mixed: int):
    """Whatever was chosen before: it is these that somebody asked for."""
    page = open_page("vic", f"jobs/{mixed}?status=SUCCESS&tab=outputs")
    group = page.locator(".output-group").nth(1)
    expect(group).to_contain_text("printed nothing")
    group.get_by_role("button", name="Show these").click()
    expect(page.get_by_text("4 of 40: blocked")).to_be_visible()
    expect(page.get_by_role("button", name="that printed nothing")).to_be_visible()
    expect(page.get_by_role("table", name="Executions").get_by_role("row")).to_have_count(5)


def test_from_tab_to_tab_by_keys(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    page.get_by_role("tab", name="Executions").focus()
    for name in ("Outputs", "Failures"):
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=name)).to_be_focused()
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")


def test_the_cursor_is_there_only_while_the_keys_move_it(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    grid = page.get_by_role("application")
    drawn = "(element) => element.querySelector('canvas').toDataURL()"
    grid.focus()
    before = grid.evaluate(drawn)
    page.keyboard.press("ArrowRight")
    assert grid.evaluate(drawn) != before
    grid.evaluate("(element) => element.blur()")
    assert grid.evaluate(drawn) == before


def test_what_cannot_be_read_is_said_in_its_place(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    Watch.of(page).allowed.add("answer 500")
    page.route(
        "**/outputs", lambda route: route.fulfill(status=500, json={"title": "Out of order"})
    )
    tab(page, "Outputs")
    expect(page.get_by_role("tabpanel")).to_have_text("Out of order")


def test_failures_are_told_by_their_cause(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    tab(page, "Failures")
    row = page.get_by_role("table", name="Failures by cause").get_by_role("row").nth(1)
    expect(row).to_contain_text("blocked")
    expect(row).to_contain_text("4")
    row.click()
    expect(page.get_by_text("4 of 40: blocked")).to_be_visible()


def test_a_part_of_a_name_finds_a_host(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    page.get_by_label("Part of a host's name").fill("-0007")
    expect(page.get_by_text("1 of 40")).to_be_visible()


def test_who_did_what_is_told(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    tab(page, "Timeline")
    expect(page.locator(".trail")).to_contain_text("ann submit")


def test_whoever_only_looks_is_offered_nothing_to_do(open_page: OpenPage, mixed: int):
    page = open_page("vic", f"jobs/{mixed}")
    expect(page.get_by_role("tab", name="Executions")).to_be_visible()
    expect(page.get_by_role("button", name="Retry failed")).to_have_count(0)


def test_what_moves_is_seen_to_move(open_page: OpenPage, ground: Ground):
    """The page is open before anything runs; it ends as the tables do, without a reload."""
    ground.command_type("SLOW", max_retries=0)
    which = fleet_of(ground, 300)
    job_id = ground.job("SLOW", which, params={"sleep_s": 0.2}, max_concurrency=60)
    page = open_page("ann", f"jobs/{job_id}")
    expect(page.get_by_text("finished").first).to_be_visible(timeout=60_000)
    expect(chip(page, "success")).to_contain_text("300")
    expect(chip(page, "running")).to_contain_text("0")
    expect(page.get_by_text(re.compile(r"^took "))).to_be_visible()


def test_who_spoke_too_late_is_seen_when_the_job_is_looked_at_again(
    open_page: OpenPage, ground: Ground
):
    ground.command_type("SLEEP", max_retries=0)
    job_id = ground.job("SLEEP", fleet_of(ground, 3), params={"sleep_s": 60}, max_concurrency=1)
    page = open_page("ann", f"jobs/{job_id}")
    expect(chip(page, "running")).to_contain_text("1")
    late = '{"event": "succeed"}'
    ground.sql("UPDATE executions SET late_result = $2 WHERE job_id = $1", job_id, late)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("3 spoke after they were given up")).to_be_visible()
    ground.client.post(f"/jobs/{job_id}/cancel").raise_for_status()


def test_two_presses_are_one_word(open_page: OpenPage, ground: Ground):
    ground.command_type("SLEEP", max_retries=0)
    job_id = ground.job("SLEEP", fleet_of(ground, 3), params={"sleep_s": 60}, max_concurrency=1)
    page = open_page("ann", f"jobs/{job_id}")
    said = []
    page.on(
        "request", lambda request: said.append(request.url) if "/pause" in request.url else None
    )
    page.get_by_role("button", name="Pause").evaluate("(it) => { it.click(); it.click(); }")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert len(said) == 1
    ground.client.post(f"/jobs/{job_id}/cancel").raise_for_status()


def test_a_job_is_paused_resumed_and_cancelled_in_place(open_page: OpenPage, ground: Ground):
    ground.command_type("SLEEP", max_retries=0)
    which = fleet_of(ground, 20)
    job_id = ground.job("SLEEP", which, params={"sleep_s": 60}, max_concurrency=2)
    page = open_page("ann", f"jobs/{job_id}")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("nothing more begins until")).to_be_visible()
    assert ground.seen(f"/jobs/{job_id}")[0]["state"] == "PAUSED"
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_label("Reason").fill("enough")
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.get_by_text("Cancelled by ann")).to_be_visible()
    expect(chip(page, "cancelled")).to_contain_text(re.compile(r"(18|19|20)"))
    until(lambda: ground.seen(f"/jobs/{job_id}")[0]["state"] == "STOPPED")


def test_what_changed_under_somebody_is_said_so(open_page: OpenPage, ground: Ground):
    """Somebody else pauses it, and the page cannot look: no error, but that it changed."""
    ground.command_type("SLEEP", max_retries=0)
    job_id = ground.job("SLEEP", fleet_of(ground, 3), params={"sleep_s": 60})
    page = open_page("ann", f"jobs/{job_id}")
    Watch.of(page).allowed.add("net::")
    pause = page.get_by_role("button", name="Pause")
    expect(pause).to_be_visible()
    page.route(re.compile(rf"/jobs/{job_id}$"), lambda route: route.abort())
    _, etag = ground.seen(f"/jobs/{job_id}")
    ground.client.post(f"/jobs/{job_id}/pause", headers={"If-Match": etag}).raise_for_status()
    pause.click()
    expect(page.get_by_text("It changed under you")).to_be_visible()
    page.unroute_all()
    ground.client.post(f"/jobs/{job_id}/cancel").raise_for_status()
    expect(page.get_by_text("Cancelled by admin")).to_be_visible()


def test_what_failed_is_run_again_as_another_job(open_page: OpenPage, ground: Ground):
    ground.command_type("FAIL", max_retries=0)
    job_id = ground.job("FAIL", fleet_of(ground, 5), params={"exit_code": 3})
    finished(ground, job_id)
    page = open_page("ann", f"jobs/{job_id}")
    page.get_by_role("button", name="Retry failed").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    expect(page.get_by_text(f"again after job {job_id}")).to_be_visible()
    expect(page).not_to_have_url(re.compile(rf"jobs/{job_id}$"))


def test_a_plan_is_approved_where_it_is_looked_at(open_page: OpenPage, ground: Ground):
    ground.command_type("DEPLOY", needs_approval=True)
    job_id = ground.job("DEPLOY", fleet_of(ground, 3), params={"release": "2.0"})
    page = open_page("bob", f"jobs/{job_id}")
    expect(page.get_by_text("3 hosts would run.")).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_text(f"Job {job_id} is approved.")).to_be_visible()
    expect(page.get_by_text("finished").first).to_be_visible(timeout=60_000)


def test_what_there_is_of_a_job_is_shown_with_what_is_missing(open_page: OpenPage, ground: Ground):
    """Its picture cannot be read: that is said, and what may be done with it can be done."""
    ground.command_type("DEPLOY", needs_approval=True)
    job_id = ground.job("DEPLOY", fleet_of(ground, 3))
    page = open_page("ann")
    Watch.of(page).allowed.add("answer 500")
    page.route("**/grid", lambda route: route.fulfill(status=500, json={"title": "Out of order"}))
    page.evaluate(f"location.hash = '#/jobs/{job_id}'")
    expect(page.get_by_role("alert")).to_contain_text("Out of order")
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("3 executions have not begun")
    page.unroute_all()
    page.get_by_role("button", name="Cancel the job").click()
    expect(chip(page, "cancelled")).to_contain_text("3")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_whoever_leaves_a_question_still_sees_the_plan(open_page: OpenPage, ground: Ground):
    ground.command_type("DEPLOY", needs_approval=True)
    job_id = ground.job("DEPLOY", fleet_of(ground, 3))
    page = open_page("bob", f"jobs/{job_id}")
    page.get_by_role("button", name="Approve").click()
    with page.expect_response(re.compile(r"/plan$")):
        page.get_by_role("button", name="Leave it").click()
    expect(page.get_by_text("3 hosts would run.")).to_be_visible()


def test_what_somebody_writes_into_a_plan_is_kept_until_it_is_taken(
    open_page: OpenPage, ground: Ground
):
    """A mistake and somebody who was faster are said in place, and no number is rounded."""
    ground.command_type("DEPLOY", needs_approval=True)
    asked = {"serial": 9007199254740993, "release": "2.0"}
    job_id = ground.job("DEPLOY", fleet_of(ground, 3), params=asked)
    page = open_page("ann", f"jobs/{job_id}")
    page.get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog")
    params = dialog.get_by_label("Parameters")
    expect(params).to_have_value(re.compile("9007199254740993"))
    params.fill('{"serial": 9007199254740995, ')
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_contain_text("is not JSON")
    params.fill('{"serial": 9007199254740995}')
    _, etag = ground.seen(f"/jobs/{job_id}")
    faster = {"params": {**asked, "release": "2.1"}}
    ground.client.patch(
        f"/jobs/{job_id}", json=faster, headers={"If-Match": etag}
    ).raise_for_status()
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_contain_text("It changed under you")
    expect(dialog.get_by_role("row", name="parameter release").locator("ins")).to_have_text("2.1")
    expect(params).to_have_value('{"serial": 9007199254740995}')
    dialog.get_by_role("button", name="Change what it is now").click()
    expect(dialog).to_have_count(0)
    assert ground.seen(f"/jobs/{job_id}")[0]["params"] == {"serial": 9007199254740995}


def test_a_plan_that_changed_while_it_was_looked_at_is_not_approved(
    open_page: OpenPage, ground: Ground
):
    """The 412 is no error: it shows what changed, and asks again."""
    ground.command_type("DEPLOY", needs_approval=True)
    job_id = ground.job("DEPLOY", fleet_of(ground, 3), params={"release": "2.0"})
    page = open_page("bob", f"jobs/{job_id}")
    expect(page.get_by_text("3 hosts would run.")).to_be_visible()
    page.get_by_role("button", name="Approve").click()
    _, etag = ground.seen(f"/jobs/{job_id}")
    with ground.calling("ann") as ann:
        body = {"params": {"release": "2.1"}}
        ann.patch(f"/jobs/{job_id}", json=body, headers={"If-Match": etag}).raise_for_status()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Approve").click()
    expect(dialog.get_by_text("It changed under you")).to_be_visible()
    expect(dialog).to_contain_text("2.1")
    assert ground.seen(f"/jobs/{job_id}")[0]["approval_state"] == "WAIT_APPROVAL"
    dialog.get_by_role("button", name="Approve what it is now").click()
    expect(page.get_by_text(f"Job {job_id} is approved.")).to_be_visible()


def test_what_hosts_and_people_write_stays_text(open_page: OpenPage, ground: Ground):
    """The API refuses such names of hosts; the page must not rely on that."""
    tag = f"n{next(numbers)}"
    names = [f"{nasty[:240]}{tag}" for nasty in NASTY]
    hosts = ground.hosts(*(f"{tag}-{n}" for n in range(len(NASTY))), of=tag)
    for host_id, name in zip(hosts, names, strict=True):
        ground.sql(
            "UPDATE hosts SET name = $2, labels = labels || jsonb_build_object('nasty', $2::text)"
            " WHERE id = $1",
            host_id,
            name,
        )
    ground.command_type("SAY", max_retries=0)
    said = "\n".join(NASTY)
    job_id = ground.job("SAY", f"of={tag}", params={"lines": 1, "text": said, "note": said})
    finished(ground, job_id)
    page = open_page("vic", f"jobs/{job_id}")
    for name in names:
        expect(page.get_by_role("table", name="Executions")).to_contain_text(name)
    page.get_by_role("application").hover(position={"x": 6, "y": 6})
    expect(page.locator("#grid-line")).to_contain_text(names[0])
    tab(page, "Outputs")
    expect(page.locator(".output-lines")).to_contain_text(NASTY[0])
    fits(page)
    tab(page, "Details")
    expect(page.locator("#tab-panel")).to_contain_text(NASTY[1])
    fits(page)
    assert page.evaluate("() => document.querySelectorAll('main img, main script').length") == 0


def test_ten_thousand_hosts_are_all_there(open_page: OpenPage, ground: Ground):
    ground.command_type("WAIT", needs_approval=True)
    job_id = ground.job("WAIT", fleet_of(ground, 10_000))
    page = open_page("vic", f"jobs/{job_id}")
    expect(chip(page, "new")).to_contain_text("10,000")
    # However many there are, the page itself stays small.
    assert page.evaluate("() => document.querySelectorAll('*').length") < 2_000
    table = page.get_by_role("table", name="Executions")
    table.get_by_role("rowgroup").nth(1).evaluate("(body) => { body.scrollTop = 1e6; }")
    expect(page.get_by_text("of 10,000 executions")).to_be_visible()


def test_a_job_that_is_not_there_is_said_not_to_be(open_page: OpenPage):
    page = open_page("vic", "jobs/999999")
    expect(page.get_by_role("alert")).to_contain_text("There is no such job")


def test_it_looks_as_it_should(open_page: OpenPage, mixed: int):
    page = open_page("ann", f"jobs/{mixed}")
    expect(chip(page, "success")).to_contain_text("36")
    looked_at(page, "job")
    tab(page, "Outputs")
    expect(page.locator(".output-group").first).to_be_visible()
    looked_at(page, "job-outputs")
