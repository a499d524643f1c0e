"""What waits for an approval, decided about in place: also by two at once, and after a change."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import accessible, looked_at
from tests.browser.ground import NASTY, Ground

numbers = iter(range(1, 1_000))


@pytest.fixture
def waiting(ground: Ground) -> int:
    """A job of Ann's that waits, for three hosts of its own."""
    return make_waiting(ground)


def make_waiting(ground: Ground, *, by: str = "ann", **asked: object) -> int:
    tag = f"w{next(numbers)}"
    ground.command_type("DEPLOY", needs_approval=True)
    ground.hosts(*(f"{tag}-{n}" for n in range(1, 4)), of=tag)
    return ground.job("DEPLOY", f"of={tag}", by=by, params={"release": "1.0"}, **asked)


def card(page: Page, job_id: int):
    return page.get_by_role("article", name=re.compile(rf"^Job {job_id}:"))


def begin(page: Page, job_id: int, deed: str) -> None:
    """Open the question about a job, with its plan as it stands now."""
    card(page, job_id).get_by_role("button", name=deed).click()
    expect(page.get_by_role("dialog")).to_be_visible()


def edit(ground: Ground, job_id: int, *, by: str = "ann", **changes: object) -> None:
    """Change a plan, while somebody looks at it."""
    _, etag = ground.seen(f"/jobs/{job_id}")
    with ground.calling(by) as client:
        client.patch(f"/jobs/{job_id}", json=changes, headers={"If-Match": etag}).raise_for_status()


def decided(ground: Ground, job_id: int) -> tuple[str, str, str]:
    job, _ = ground.seen(f"/jobs/{job_id}")
    return job["approval_state"], job["decided_by"], job["decision_reason"]


def test_what_waits_is_approved_with_its_plan_in_sight(open_page: OpenPage, ground, waiting):
    page = open_page("bob", "approvals")
    expect(card(page, waiting)).to_contain_text("3 hosts would run.")
    begin(page, waiting, "Approve")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("release")
    expect(dialog).to_contain_text("1.0")
    accessible(page)
    dialog.get_by_label("Reason").fill("seen in staging")
    dialog.get_by_role("button", name="Approve").click()
    expect(page.get_by_text(f"Job {waiting} is approved.")).to_be_visible()
    expect(card(page, waiting)).to_have_count(0)
    assert decided(ground, waiting) == ("APPROVED", "bob", "seen in staging")


def test_a_rejection_says_why(open_page: OpenPage, ground, waiting):
    page = open_page("bob", "approvals")
    begin(page, waiting, "Reject")
    page.get_by_label("Reason").fill("not on a Friday")
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(card(page, waiting)).to_have_count(0)
    assert decided(ground, waiting) == ("REJECTED", "bob", "not on a Friday")


def test_of_two_approvers_the_second_is_told_who_was_first(open_page: OpenPage, ground, waiting):
    """Both have the question open: the one who presses later changes nothing and sees no error."""
    bob, eve = open_page("bob", "approvals"), open_page("eve", "approvals")
    for page in (bob, eve):
        begin(page, waiting, "Approve")
    # No page is told on its own that it is late: each learns it when it asks.
    eve.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(eve.get_by_role("dialog")).to_have_count(0)
    bob.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(bob.get_by_role("dialog")).to_contain_text("It changed under you")
    expect(bob.get_by_role("dialog")).to_contain_text("eve has approved it")
    expect(bob.get_by_role("dialog").get_by_role("button", name="Approve")).to_have_count(0)
    accessible(bob)
    bob.get_by_role("button", name="Close").click()
    expect(card(bob, waiting)).to_have_count(0)
    assert decided(ground, waiting)[:2] == ("APPROVED", "eve")


def test_a_rejection_that_an_approval_was_faster_than_is_told_so(
    open_page: OpenPage, ground, waiting
):
    """Rejecting does not look first: the refusal comes from the service itself."""
    page = open_page("bob", "approvals")
    begin(page, waiting, "Reject")
    _, etag = ground.seen(f"/jobs/{waiting}")
    with ground.calling("eve") as eve:
        path = f"/jobs/{waiting}/approve"
        eve.post(path, json={}, headers={"If-Match": etag}).raise_for_status()
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(page.get_by_role("dialog")).to_contain_text("eve has approved it")
    assert decided(ground, waiting)[:2] == ("APPROVED", "eve")


@pytest.mark.parametrize("deed", ["Approve", "Reject"])
def test_a_plan_that_changed_is_shown_with_its_difference_and_decided_again(
    open_page: OpenPage, ground, waiting, deed
):
    page = open_page("bob", "approvals")
    begin(page, waiting, deed)
    edit(ground, waiting, params={"release": "2.0", "force": True}, max_concurrency=2)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=deed).click()
    expect(dialog).to_contain_text("It changed under you")
    for what, before, after in (
        ("parameter release", "1.0", "2.0"),
        ("parameter force", "\N{EN DASH}", "true"),
        ("at once", "no limit", "at most 2"),
    ):
        row = dialog.get_by_role("row", name=what)
        expect(row.locator("del")).to_have_text(before)
        expect(row.locator("ins")).to_have_text(after)
    assert decided(ground, waiting)[0] == "WAIT_APPROVAL"
    looked_at(page, f"approval-changed-{deed.lower()}")
    dialog.get_by_role("button", name=f"{deed} what it is now").click()
    expect(card(page, waiting)).to_have_count(0)
    assert decided(ground, waiting)[1] == "bob"


def test_a_change_between_the_look_and_the_word_is_refused_by_its_version(
    open_page: OpenPage, ground, waiting
):
    """The plan is looked at once more before it is approved: this change comes after that."""
    page = open_page("bob", "approvals")
    begin(page, waiting, "Approve")
    late = iter([True])

    def after_the_look(route):
        if next(late, False):
            edit(ground, waiting, params={"release": "3.0"})
        route.continue_()

    page.route(f"**/jobs/{waiting}/approve", after_the_look)
    dialog = page.get_by_role("dialog")
    with page.expect_response(re.compile(r"/approve$")) as answer:
        dialog.get_by_role("button", name="Approve").click()
    assert answer.value.status == 412
    expect(dialog.get_by_role("row", name="parameter release").locator("ins")).to_have_text("3.0")
    assert decided(ground, waiting)[0] == "WAIT_APPROVAL"
    dialog.get_by_role("button", name="Approve what it is now").click()
    expect(page.get_by_text(f"Job {waiting} is approved.")).to_be_visible()


def test_a_decision_that_is_on_its_way_is_not_left(open_page: OpenPage, ground, waiting):
    page = open_page("bob", "approvals")
    begin(page, waiting, "Reject")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(f"**/jobs/{waiting}/reject", hold)
    with page.expect_request(re.compile(r"/reject$")):
        page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(page.get_by_role("button", name="Leave it")).to_be_disabled()
    expect(page.get_by_role("dialog").get_by_role("button", name="Reject")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_visible()
    held[0].continue_()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert decided(ground, waiting)[:2] == ("REJECTED", "bob")


def test_a_question_goes_with_the_page_that_asked_it(open_page: OpenPage, waiting):
    page = open_page("bob", "approvals")
    begin(page, waiting, "Approve")
    page.evaluate("location.hash = '#/jobs'")
    expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_rule_that_came_meanwhile_is_a_difference(open_page: OpenPage, ground, waiting):
    """It gives the job no other version, and still it is not what was seen."""
    page = open_page("bob", "approvals")
    begin(page, waiting, "Approve")
    host = ground.seen(f"/jobs/{waiting}/plan")[0]["hosts"][0]
    ground.sql(
        "INSERT INTO host_command_blocks (host_id, command_type, reason, owner) "
        "VALUES ($1, 'DEPLOY', 'disk is full', 'eve')",
        host["host_id"],
    )
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Approve").click()
    row = dialog.get_by_role("row", name="blocked by a rule")
    expect(row.locator("del")).to_have_text("none")
    expect(row.locator("ins")).to_have_text(host["name"])
    expect(dialog).to_contain_text("disk is full")
    assert decided(ground, waiting)[0] == "WAIT_APPROVAL"


def test_nobody_is_offered_to_approve_their_own(open_page: OpenPage, ground):
    own = make_waiting(ground, by="root")
    page = open_page("root", "approvals")
    expect(card(page, own)).to_contain_text("You asked for it: somebody else has to decide.")
    expect(card(page, own).get_by_role("button", name="Approve")).to_have_count(0)


def test_who_gets_a_hand_in_it_meanwhile_is_told_why_they_cannot(open_page: OpenPage, ground):
    """Root changes the plan from elsewhere while the question is open on root's own page."""
    waiting = make_waiting(ground)
    page = open_page("root", "approvals")
    begin(page, waiting, "Reject")
    edit(ground, waiting, by="root", params={"release": "1.1"})
    page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    expect(page.get_by_role("dialog")).to_contain_text("Somebody else has to decide")


@pytest.mark.parametrize("person", ["vic", "ann"])
def test_who_may_not_approve_sees_what_waits_and_no_button(open_page: OpenPage, waiting, person):
    page = open_page(person, "approvals")
    expect(card(page, waiting)).to_contain_text("3 hosts would run.")
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    expect(page.get_by_role("button", name="Reject")).to_have_count(0)


def test_what_begins_to_wait_appears_by_itself_the_oldest_first(open_page: OpenPage, ground):
    first = make_waiting(ground)
    page = open_page("bob", "approvals")
    expect(card(page, first)).to_be_visible()
    second = make_waiting(ground)
    expect(card(page, second)).to_contain_text("3 hosts would run.")
    names = page.get_by_role("article").get_by_role("heading").all_inner_texts()
    order = [int(re.sub(r"\D*(\d+).*", r"\1", name)) for name in names]
    assert order == sorted(order)


def test_bad_words_stay_words(open_page: OpenPage, ground):
    ground.command_type("DEPLOY", needs_approval=True)
    tag = f"n{next(numbers)}"
    ground.hosts(f"{tag}-1", of=tag)
    nasty = {f"p{n}": word for n, word in enumerate(NASTY)}
    waiting = ground.job("DEPLOY", f"of={tag}", params=nasty)
    page = open_page("bob", "approvals")
    for word in NASTY:
        expect(card(page, waiting)).to_contain_text(word)
    begin(page, waiting, "Approve")
    edit(ground, waiting, params={name: word[::-1] for name, word in nasty.items()})
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("dialog")).to_contain_text("It changed under you")
    page.get_by_role("button", name="Leave it").click()
    looked_at(page, "approvals")
