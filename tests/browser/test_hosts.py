"""Hosts and blocks: found, brought in, changed, blocked; and the form that runs something there."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.eyes import looked_at
from tests.browser.ground import NASTY, Ground
from tests.cli.running import until

RULES = {"needs_approval": False, "read_only": False, "timeout_s": 600, "max_retries": 0}


@pytest.fixture(scope="module", autouse=True)
def types(ground: Ground) -> None:
    ground.command_type("WORK", **RULES)
    ground.command_type("RESTART", **RULES, argv=["systemctl", "restart", "{service}"])


def button(page: Page, name: str):
    return page.get_by_role("button", name=name, exact=True)


def dialog(page: Page):
    return page.get_by_role("dialog")


def rows(page: Page):
    return page.get_by_role("table").locator(".table-body").get_by_role("row")


def open_host(page: Page, host_id: int, name: str) -> None:
    page.goto(f"/#/hosts/{host_id}")
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def test_hosts_are_found_by_name_by_selector_and_by_a_click_on_a_label(ground, open_page):
    ground.hosts("find-a", "find-b", role="found", zone="eu")
    ground.hosts("find-c", role="found", zone="us")
    page = open_page("vic", "hosts")
    page.get_by_label("Part of the name").fill("FIND-")
    expect(page.get_by_text("3 hosts match", exact=True)).to_be_visible()
    page.get_by_role("button", name="zone=eu").first.click()
    expect(page.get_by_text("2 hosts match", exact=True)).to_be_visible()
    expect(rows(page)).to_have_count(2)
    expect(page.get_by_label("Selector")).to_have_value("zone=eu")
    # The address has it all, so that somebody else sees the same.
    assert "search=FIND-" in page.url
    assert "selector=zone%3Deu" in page.url
    page.reload()
    expect(page.get_by_text("2 hosts match", exact=True)).to_be_visible()
    page.get_by_role("button", name="role=found").first.click()
    expect(page.get_by_label("Selector")).to_have_value("zone=eu and role=found")
    button(page, "Clear").click()
    expect(page.get_by_label("Selector")).to_have_value("")


def test_a_label_narrows_down_a_selector_that_has_it_on_one_side_only(ground, open_page):
    ground.hosts("side-a", side="one")
    ground.hosts("side-b", side="two")
    page = open_page("vic", "hosts?selector=name%3Dside-a+or+name%3Dside-b+and+side%3Dtwo")
    expect(rows(page)).to_have_count(2)
    page.get_by_role("button", name="side=two").click()
    expect(rows(page)).to_have_count(1)
    field = page.get_by_label("Selector")
    narrowed = "(name=side-a or name=side-b and side=two) and side=two"
    expect(field).to_have_value(narrowed)
    page.get_by_role("button", name="side=two").click()
    expect(field).to_have_value(narrowed)


def test_what_others_do_with_hosts_and_blocks_comes_by_itself(ground, open_page):
    """Of that nothing is told; it is looked for."""
    page = open_page("vic", "hosts?search=by-itself")
    expect(page.get_by_text("No host matches.")).to_be_visible()
    blocked = open_page("vic", "blocks")
    expect(blocked.get_by_role("heading", level=1)).to_have_text("Blocks")
    (host_id,) = ground.hosts("by-itself")
    one = open_page("vic", f"hosts/{host_id}")
    expect(one.get_by_text("Nothing: everything may run here.")).to_be_visible()
    ground.client.post(
        "/blocks", json={"selector": ["by-itself"], "command_type": "WORK", "reason": "just so"}
    ).raise_for_status()
    expect(page.get_by_text("1 host matches", exact=True)).to_be_visible()
    expect(blocked.get_by_text("just so")).to_be_visible()
    expect(one.get_by_text("just so")).to_be_visible()


def test_what_is_wrong_with_a_selector_is_said_at_its_field(open_page):
    page = open_page("vic", "hosts")
    field = page.get_by_label("Selector")
    field.fill("role=")
    field.press("Enter")
    wrong = page.get_by_text("expected a value after '=' at position 6")
    expect(wrong).to_be_visible()
    expect(field).to_have_attribute("aria-invalid", "true")
    looked_at(page, "hosts-wrong-selector")
    field.fill("role=nobody")
    field.press("Enter")
    expect(wrong).to_have_count(0)
    expect(page.get_by_text("No host matches.")).to_be_visible()


def test_ten_thousand_hosts_are_a_few_rows_and_read_on_as_somebody_scrolls(ground, open_page):
    listed = "\n".join(f"many-{n:05},10.0.0.1,many" for n in range(10_000))
    answer = ground.client.post(
        "/hosts/import",
        params={"format": "csv"},
        content=f"name,address,role\n{listed}",
        headers={"Content-Type": "text/csv"},
    )
    assert answer.is_success, answer.text
    page = open_page("ann", "hosts?selector=role%3Dmany")
    expect(page.get_by_text("10,000 hosts match", exact=True)).to_be_visible()
    expect(page.get_by_text("many-00000")).to_be_visible()
    body = page.locator(".table-body")
    for reach in (200, 400, 600):
        expect(page.get_by_text(f"{reach} of 10,000 hosts")).to_be_visible()
        body.evaluate("each => each.scrollTo(0, each.scrollHeight)")
        expect(page.get_by_text(f"many-{reach - 1:05}")).to_be_visible()
        assert rows(page).count() < 60
    looked_at(page, "hosts")


def test_whoever_may_only_look_is_offered_nothing_else(ground, open_page):
    (host_id,) = ground.hosts("looked-at-1")
    page = open_page("vic", "hosts")
    expect(page.get_by_role("heading", level=1)).to_have_text("Hosts")
    for name in ("Run something here", "Add a host", "Import", "Block"):
        expect(button(page, name)).to_have_count(0)
    open_host(page, host_id, "looked-at-1")
    for name in ("Run something here", "Change", "Disable", "Delete", "Block a command type"):
        expect(button(page, name)).to_have_count(0)


def test_a_host_is_added_and_a_refusal_costs_nothing_that_was_typed(ground, open_page):
    ground.hosts("taken-1")
    page = open_page("ann", "hosts")
    button(page, "Add a host").click()
    page.get_by_label("Name", exact=True).fill("taken-1")
    page.get_by_label("Name of label 1").fill("role")
    page.get_by_label("Value of label 1").fill(NASTY[0])
    button(page, "Add it").click()
    expect(dialog(page).get_by_text("change that one, or choose another name")).to_be_visible()
    looked_at(page, "hosts-add")
    page.get_by_label("Name", exact=True).fill("-bad")
    button(page, "Add it").click()
    expect(page.get_by_text("is not a host name: begin with a letter")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("added-1")
    button(page, "Add it").click()
    expect(dialog(page)).to_have_count(0)
    page.get_by_label("Part of the name").fill("added-1")
    expect(page.get_by_role("button", name=f"role={NASTY[0]}")).to_be_visible()


def test_an_inventory_shows_its_mistakes_and_what_it_would_change_first(ground, open_page):
    page = open_page("ann", "hosts")
    button(page, "Import").click()
    page.get_by_label("The inventory").fill("name,role\nwould-1,a\nwould-1,b\n")
    button(page, "See what would change").click()
    expect(dialog(page).get_by_text("Line 3:")).to_be_visible()
    expect(dialog(page).get_by_text("is also in line 2")).to_be_visible()
    looked_at(page, "hosts-import-mistakes")
    page.get_by_label("or a file").set_input_files(
        {"name": "hosts.json", "mimeType": "x/y", "buffer": b'[{"name": "would-1"}]'}
    )
    expect(page.get_by_label("Format")).to_have_value("json")
    button(page, "See what would change").click()
    expect(dialog(page).get_by_text("1 would be made, 0 changed")).to_be_visible()
    assert not ground.seen("/hosts?selector=name%3Dwould-1")[0]["items"]
    # What is changed after the dry run is another inventory: it is shown anew.
    page.get_by_label("The inventory").fill('[{"name": "would-1"}, {"name": "would-2"}]')
    expect(button(page, "See what would change")).to_be_visible()
    button(page, "See what would change").click()
    expect(dialog(page).get_by_text("would-1, would-2")).to_be_visible()
    looked_at(page, "hosts-import")
    button(page, "Import: 2 new, 0 changed").click()
    expect(page.get_by_text("Imported: 2 hosts made")).to_be_visible()
    assert ground.seen("/hosts?selector=name%3Dwould-2")[0]["items"]


def test_a_block_of_many_says_how_many_and_waits_for_their_number(ground, open_page):
    ground.hosts(*(f"wide-{n}" for n in range(101)), role="wide")
    page = open_page("ann", "hosts?selector=role%3Dwide")
    button(page, "Block").click()
    page.get_by_label("Command type", exact=True).select_option("WORK")
    page.get_by_label("Why").fill(NASTY[1])
    button(page, "How many are these?").click()
    expect(dialog(page).get_by_text("101 hosts would be kept from running WORK")).to_be_visible()
    expect(button(page, "Block on 101 hosts")).to_be_disabled()
    page.get_by_label("Type 101 to go on").fill("100")
    expect(button(page, "Block on 101 hosts")).to_be_disabled()
    looked_at(page, "hosts-block")
    page.get_by_label("Type 101 to go on").fill("101")
    button(page, "Block on 101 hosts").click()
    expect(page.get_by_text("WORK is blocked on 101 hosts.")).to_be_visible()
    page.goto("/#/blocks")
    expect(page.get_by_text("wide-0", exact=True)).to_be_visible()
    expect(page.get_by_text(NASTY[1]).first).to_be_visible()
    looked_at(page, "blocks")
    page.get_by_role("button", name="Lift WORK on wide-0", exact=True).click()
    expect(dialog(page).get_by_text("has forbidden it on wide-0")).to_be_visible()
    button(page, "Lift it").click()
    expect(page.get_by_text("wide-0", exact=True)).to_have_count(0)
    button(page, "Lift by selector").click()
    page.get_by_label("On which hosts").fill("role=wide")
    page.get_by_label("Command type", exact=True).select_option("WORK")
    button(page, "How many are these?").click()
    page.get_by_label("Type 101 to go on").fill("101")
    button(page, "Lift on 101 hosts").click()
    expect(page.get_by_text("Lifted from 100 of 101 hosts.")).to_be_visible()


def test_an_expired_block_is_marked(ground, open_page):
    (host_id,) = ground.hosts("expired-1")
    ground.client.post(
        "/blocks", json={"selector": ["expired-1"], "command_type": "WORK", "reason": "long ago"}
    ).raise_for_status()
    ground.sql(
        "UPDATE host_command_blocks SET created_at = now() - interval '2 days', "
        "expires_at = now() - interval '1 day' WHERE host_id = $1",
        host_id,
    )
    page = open_page("vic", "blocks")
    row = rows(page).filter(has_text="expired-1")
    expect(row.get_by_text("expired", exact=False).last).to_be_visible()
    expect(page.get_by_role("button", name="Lift WORK on expired-1")).to_have_count(0)
    open_host(page, host_id, "expired-1")
    expect(page.get_by_text("ended 1 d ago")).to_be_visible()


def test_a_change_of_a_host_that_changed_meanwhile_shows_what_differs(ground, open_page):
    (host_id,) = ground.hosts("changed-1", role="web")
    page = open_page("ann", f"hosts/{host_id}")
    button(page, "Change").click()
    page.get_by_label("Value of label 1").fill("mine")
    change = {"labels": {"role": "theirs", "note": NASTY[6]}}
    ground.client.patch(
        f"/hosts/{host_id}", json=change, headers={"If-Match": '"1"'}
    ).raise_for_status()
    button(page, "Change it").click()
    expect(dialog(page).get_by_text("It changed under you.")).to_be_visible()
    expect(dialog(page).get_by_role("row", name="label role web theirs")).to_be_visible()
    looked_at(page, "host-changed-under-you")
    button(page, "Begin anew with what it is now").click()
    expect(page.get_by_label("Value of label 2")).to_have_value("theirs")
    page.get_by_label("Value of label 2").fill("mine")
    page.get_by_role("button", name="Take label note away").click()
    button(page, "Change it").click()
    expect(page.get_by_text("changed-1 is changed.")).to_be_visible()
    assert ground.seen(f"/hosts/{host_id}")[0]["labels"] == {"role": "mine"}
    expect(page.get_by_role("button", name="role=mine")).to_be_visible()


def test_a_host_is_disabled_enabled_and_deleted(ground, open_page):
    (host_id,) = ground.hosts("turned-1")
    page = open_page("ann", f"hosts/{host_id}")
    button(page, "Disable").click()
    dialog(page).get_by_role("button", name="Disable").click()
    expect(page.get_by_text("disabled", exact=True)).to_be_visible()
    assert ground.seen(f"/hosts/{host_id}")[0]["state"] == "DISABLED"
    button(page, "Enable").click()
    dialog(page).get_by_role("button", name="Enable").click()
    expect(page.get_by_text("active", exact=True)).to_be_visible()
    button(page, "Delete").click()
    expect(button(page, "Delete it")).to_be_disabled()
    page.get_by_label("Type turned-1 to go on").fill("turned-1")
    button(page, "Delete it").click()
    expect(page).to_have_url(re.compile("#/hosts$"))
    page.goto(f"/#/hosts/{host_id}")
    expect(page.get_by_text("There is no such host")).to_be_visible()


def test_a_host_that_changed_meanwhile_is_deleted_as_it_is_now(ground, open_page):
    (host_id,) = ground.hosts("stale-1")
    page = open_page("ann", f"hosts/{host_id}")
    button(page, "Delete").click()
    change = {"labels": {"role": "theirs"}}
    ground.client.patch(
        f"/hosts/{host_id}", json=change, headers={"If-Match": '"1"'}
    ).raise_for_status()
    page.get_by_label("Type stale-1 to go on").fill("stale-1")
    button(page, "Delete it").click()
    expect(dialog(page).get_by_text("It changed under you.")).to_be_visible()
    expect(dialog(page).get_by_role("row", name=re.compile("label role .* theirs"))).to_be_visible()
    page.get_by_label("Type stale-1 to go on").fill("stale-1")
    button(page, "Delete it as it is now").click()
    expect(page).to_have_url(re.compile("#/hosts$"))
    assert ground.client.get(f"/hosts/{host_id}").status_code == 404


def test_a_host_that_is_gone_is_said_to_be_so(ground, open_page):
    (host_id,) = ground.hosts("vanishing-1")
    page = open_page("ann", f"hosts/{host_id}")
    button(page, "Change").click()
    ground.client.delete(f"/hosts/{host_id}", headers={"If-Match": '"1"'}).raise_for_status()
    button(page, "Leave it").click()
    expect(page.get_by_role("alert").first).to_contain_text("There is no such host")


def test_what_a_job_runs_is_asked_for_again_if_nobody_said_it(ground, open_page, watches):
    (host_id,) = ground.hosts("untold-1")
    job = ground.job("WORK", ["untold-1"])
    page = open_page("ann")
    watches(page).allowed.add("answer 500")
    page.route(f"**/jobs/{job}", lambda route: route.fulfill(status=500, json={}), times=1)
    open_host(page, host_id, "untold-1")
    expect(rows(page).first).to_contain_text("…")
    button(page, "Change").click()
    button(page, "Leave it").click()
    expect(rows(page).first).to_contain_text("WORK")


def test_a_host_shows_who_holds_it_what_waits_and_what_ran_and_goes_on_by_itself(ground, open_page):
    (host_id,) = ground.hosts("held-1")
    ran = ground.job("WORK", ["held-1"], params={"exit_code": 1})
    until(lambda: ground.seen(f"/jobs/{ran}")[0]["counts"].get("FAILED") == 1)
    page = open_page("ann", f"hosts/{host_id}")
    expect(page.get_by_text("Nobody: nothing runs here.")).to_be_visible()
    ground.until_listeners(1)
    held = ground.job("WORK", ["held-1"], params={"sleep_s": 300})
    expect(page.get_by_role("link", name=f"job {held}")).to_be_visible()
    expect(page.get_by_text("it began")).to_be_visible()
    waits = ground.job("WORK", ["held-1"])
    expect(page.get_by_text("held-1 is held by execution")).to_be_visible()
    expect(page.get_by_role("link", name=f"job {waits}")).to_be_visible()
    expect(rows(page)).to_have_count(3)
    looked_at(page, "host")
    page.get_by_role("button", name="failed").click()
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text("WORK")
    assert "status=FAILED" in page.url
    ground.client.post(f"/jobs/{held}/cancel", json={"reason": "over"}).raise_for_status()
    expect(page.get_by_text("Nobody: nothing runs here.")).to_be_visible()


def test_a_block_on_a_host_names_owner_reason_and_end(ground, open_page):
    (host_id,) = ground.hosts("ruled-1")
    page = open_page("ann", f"hosts/{host_id}")
    button(page, "Block a command type").click()
    page.get_by_label("Command type", exact=True).select_option("RESTART")
    page.get_by_label("Why").fill(NASTY[2])
    page.get_by_label("Until").fill("2001-01-01T00:00")
    button(page, "Block").last.click()
    expect(dialog(page).get_by_role("alert").first).to_be_visible()
    page.get_by_label("Until").fill("2031-01-01T00:00")
    button(page, "Block").last.click()
    expect(page.get_by_text("RESTART is blocked on ruled-1.")).to_be_visible()
    expect(page.get_by_text(NASTY[2])).to_be_visible()
    expect(page.get_by_text("(ann,")).to_be_visible()
    page.get_by_role("button", name="Lift the block of RESTART").click()
    button(page, "Lift it").click()
    expect(page.get_by_text("Nothing: everything may run here.")).to_be_visible()


def test_a_token_and_a_key_are_shown_once_and_only_to_an_admin(ground, open_page):
    ids = [
        ground.client.post("/hosts", json={"name": name, "channel": channel}).json()["host_id"]
        for name, channel in (("edge-1", "agent"), ("node-1", "mqtt"))
    ]
    page = open_page("ann", f"hosts/{ids[0]}")
    expect(page.get_by_text("never connected")).to_be_visible()
    expect(button(page, "Enrol an agent")).to_have_count(0)
    page = open_page("root", f"hosts/{ids[0]}")
    button(page, "Enrol an agent").click()
    button(page, "Make a token").click()
    expect(page.get_by_text("It is shown this once.")).to_be_visible()
    secret = page.locator("[data-secret=Secret]")
    expect(secret).to_have_text(re.compile("^oat_"))
    token = secret.text_content()
    expect(page.locator("[data-secret=Command]")).to_contain_text(f"ONWARD_AGENT_TOKEN={token}")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button(page, "Copy secret").click()
    expect(page.get_by_text("Secret copied.")).to_be_visible()
    assert page.evaluate("() => navigator.clipboard.readText()") == token
    button(page, "Close").click()
    expect(page.locator("dialog")).to_have_count(0)
    assert token not in page.content()
    open_host(page, ids[1], "node-1")
    button(page, "Make a key for the node").click()
    button(page, "Make a key").click()
    expect(page.locator("[data-secret=Secret]")).to_have_text(re.compile("^[0-9a-f]{64}$"))


def test_running_shows_the_plan_and_a_fleet_that_changed_is_planned_anew(ground, open_page):
    ground.hosts("run-1", "run-2", role="run")
    ground.client.post(
        "/blocks", json={"selector": ["run-2"], "command_type": "RESTART", "reason": NASTY[0]}
    ).raise_for_status()
    page = open_page("ann", "hosts?selector=role%3Drun")
    button(page, "Run something here").click()
    page.get_by_label("Command type", exact=True).select_option("RESTART")
    button(page, "Show the plan").click()
    expect(dialog(page).get_by_text("service")).not_to_have_count(0)
    expect(dialog(page).get_by_role("alert")).to_be_visible()
    page.get_by_label("service").fill("nginx")
    button(page, "Show the plan").click()
    plan = page.get_by_role("region", name="The plan")
    expect(plan).to_contain_text("1 would run")
    expect(plan).to_contain_text("1 blocked")
    expect(plan).to_contain_text(NASTY[0])
    looked_at(page, "run")
    ground.hosts("run-3", role="run")
    button(page, "Run on 1 host").click()
    expect(dialog(page).get_by_text("The fleet changed since.")).to_be_visible()
    expect(dialog(page).get_by_role("row", name="would run 1 2")).to_be_visible()
    assert not ground.seen("/jobs?command_type=RESTART")[0]["items"]
    button(page, "Run on 2 hosts").click()
    expect(page).to_have_url(re.compile(r"#/jobs/\d+$"))
    (job,) = ground.seen("/jobs?command_type=RESTART")[0]["items"]
    assert (job["params"], job["total"], job["requested_by"]) == ({"service": "nginx"}, 3, "ann")


def test_running_on_many_waits_for_their_number_and_a_form_is_sent_once(ground, open_page, watches):
    ground.hosts(*(f"blast-{n}" for n in range(101)), role="blast")
    page = open_page("ann", "hosts")
    button(page, "Run something here").click()
    page.get_by_label("Command type", exact=True).select_option("WORK")
    page.get_by_label("On which hosts").fill("role=blast")
    page.get_by_label("Parameters").fill("{nonsense")
    button(page, "Show the plan").click()
    expect(dialog(page).get_by_text("is not JSON: ")).to_be_visible()
    page.get_by_label("Parameters").fill('{"lines": 1}')
    button(page, "Show the plan").click()
    expect(button(page, "Run on 101 hosts")).to_be_disabled()
    # The answer is lost on its way, once: the same form, sent again, is the same job.
    lost = []

    def lose(route):
        lost.append(route.fetch().status)
        route.abort()

    watches(page).allowed.add("net::")
    page.route("**/webhook/jobs", lose, times=1)
    page.get_by_label("Type 101 to go on").fill("101")
    button(page, "Run on 101 hosts").click()
    expect(dialog(page).get_by_text("The service did not answer")).to_be_visible()
    assert lost == [202]
    button(page, "Run on 101 hosts").click()
    expect(page).to_have_url(re.compile(r"#/jobs/\d+$"))
    items = ground.seen("/jobs?command_type=WORK&limit=1000")[0]["items"]
    assert len([job for job in items if job["total"] == 101]) == 1


@pytest.mark.parametrize("text", NASTY[:4] + NASTY[5:])
def test_no_text_of_anybody_becomes_markup_or_breaks_the_page(ground, open_page, text):
    (host_id,) = ground.hosts(f"nasty-{abs(hash(text))}", note=text[:255])
    ground.client.post(
        "/blocks",
        json={"selector": {"labels": {"note": text}}, "command_type": "WORK", "reason": text},
    ).raise_for_status()
    page = open_page("ann", f"hosts/{host_id}")
    expect(page.get_by_text(text, exact=False).first).to_be_visible()
    expect(page.locator("main img, main script, main svg[onload]")).to_have_count(0)
    page.set_viewport_size({"width": 360, "height": 740})
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 360
    page.get_by_role("button", name=f"note={text}").click()
    expect(page.get_by_text("1 host matches", exact=True)).to_be_visible()
