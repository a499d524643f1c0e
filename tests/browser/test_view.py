"""What every page stands on: only what differs is touched, and what is told is taken once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.eyes import Watch


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """A page with nobody logged in: its modules are there all the same."""
    return open_page()


def run(page: Page, module: str, script: str) -> Any:
    """Run a script with a module of the page's in its hands."""
    return page.evaluate(
        "async (name) => {"
        " const base = document.querySelector('script[type=module]').src.replace('main.js', '');"
        " const found = await import(base + name);"
        " const holder = document.createElement('div'); document.body.append(holder);"
        " return (" + script + ")(found, holder);"
        "}",
        module,
    )


def test_what_is_found_again_by_its_key_is_moved_and_not_made_anew(page: Page):
    assert run(
        page,
        "view.js",
        """({h, mount}, holder) => {
          let keys = [1, 2, 3, 4, 5];
          const redraw = mount(holder, () => keys.map((key) => h("p", {key}, key)));
          const before = Object.fromEntries([...holder.children].map((e) => [e.textContent, e]));
          keys = [5, 3, 6, 1];
          redraw.now();
          const after = [...holder.children];
          return [after.map((e) => e.textContent).join(""),
                  after.filter((e) => before[e.textContent] === e).length];
        }""",
    ) == ["5361", 3]


def test_the_focus_and_what_was_typed_stay_where_they_are(page: Page):
    assert run(
        page,
        "view.js",
        """({h, mount}, holder) => {
          let n = 0;
          const redraw = mount(holder, () => h("div", null,
            n > 0 && h("p", {key: "new"}, "appeared"), h("input", {id: "typed", key: "typed"})));
          const field = holder.querySelector("input");
          field.focus();
          field.value = "half a word";
          n = 1;
          redraw.now();
          return [document.activeElement.id, holder.querySelector("input").value,
                  holder.querySelector("p").textContent];
        }""",
    ) == ["typed", "half a word", "appeared"]


def test_what_goes_before_an_element_does_not_make_it_another(page: Page):
    """What was done to an element by hand stays with it, and with nothing else."""
    assert run(
        page,
        "view.js",
        """({h, mount}, holder) => {
          let shown = true;
          const redraw = mount(holder, () => h("div", null,
            shown && h("div", {class: "notice"}), h("div", {class: "picture", ref: () => {}}),
            h("div", {class: "table"})));
          holder.querySelector(".picture").style.setProperty("height", "0px");
          const [picture, table] = [".picture", ".table"].map((e) => holder.querySelector(e));
          shown = false;
          redraw.now();
          return [picture === holder.querySelector(".picture"),
                  table === holder.querySelector(".table"), table.style.height,
                  holder.firstChild.children.length];
        }""",
    ) == [True, True, "", 2]


def test_what_comes_and_goes_is_told_so_once(page: Page):
    assert run(
        page,
        "view.js",
        """({h, mount}, holder) => {
          const told = [];
          let shown = true;
          const ref = () => { told.push("there"); return () => told.push("gone"); };
          const redraw = mount(holder, () => h("div", null, shown && h("p", {key: "p", ref})));
          redraw.now(); redraw.now();
          shown = false;
          redraw.now(); redraw.now();
          return told;
        }""",
    ) == ["there", "gone"]


def test_text_is_only_ever_text(page: Page):
    assert run(
        page,
        "view.js",
        """({h, mount}, holder) => {
          mount(holder, () => h("p", {title: "\\"><b>"}, "<img src=x onerror=alert(1)>"));
          return [holder.querySelectorAll("img, b").length, holder.textContent];
        }""",
    ) == [0, "<img src=x onerror=alert(1)>"]


def test_an_attribute_that_is_no_longer_said_is_taken_away(page: Page):
    assert run(
        page,
        "view.js",
        """({h, mount}, holder) => {
          let props = {title: "a", style: {color: "red"}, "aria-current": "page"};
          const redraw = mount(holder, () => h("p", props));
          props = {style: {}};
          redraw.now();
          const p = holder.firstChild;
          return [p.hasAttribute("title"), p.hasAttribute("aria-current"), p.style.color];
        }""",
    ) == [False, False, ""]


CELLS = (
    '{order: ["NEW", "QUEUED", "RUNNING", "SUCCESS", "FAILED"], statuses: "01123",'
    " hosts: [[7, 2], [20, 3]], executions: [[100, 3], [50, 2]], late: [4]}"
)


def test_cells_are_found_by_their_execution(page: Page):
    assert run(
        page,
        "parts/cells.js",
        f"""({{Cells}}) => {{
          const cells = new Cells({CELLS});
          return [[0, 1, 2, 3, 4].map((i) => cells.execution(i)),
                  [100, 102, 50, 51, 103, 49].map((e) => cells.indexOf(e)),
                  [0, 1, 2, 4].map((i) => cells.host(i)), cells.ended];
        }}""",
    ) == [[100, 101, 102, 50, 51], [0, 2, 3, 4, -1, -1], [7, 8, 20, 22], 1]


def test_what_is_told_late_or_twice_changes_nothing(page: Page):
    """Of two changes the one with the higher number is the later, and what has ended stays so."""
    assert run(
        page,
        "parts/cells.js",
        f"""({{Cells}}) => {{
          const cells = new Cells({CELLS});
          const told = (execution, status, seq, job = 1) =>
            cells.take([["execution", job, execution, 0, null, "x", status, seq, ""]], 1);
          told(101, "RUNNING", 10);
          told(101, "SUCCESS", 12);
          told(101, "RUNNING", 11);          // told after it
          told(101, "QUEUED", 13);           // no law lets it go back
          told(51, "RUNNING", 1);            // ended before we looked
          told(100, "RUNNING", 5, 2);        // of another job
          told(999, "RUNNING", 5);           // of nobody
          return [[0, 1, 2, 3, 4].map((i) => cells.status(i)), cells.byStatus()];
        }}""",
    ) == [
        ["NEW", "SUCCESS", "QUEUED", "RUNNING", "SUCCESS"],
        {"NEW": 1, "QUEUED": 1, "RUNNING": 1, "SUCCESS": 2, "FAILED": 0},
    ]


def test_whether_something_moved_does_not_depend_on_its_being_drawn(page: Page):
    """A page that nobody sees draws nothing, and still has to know that all has ended."""
    assert run(
        page,
        "parts/cells.js",
        f"""({{Cells}}) => {{
          const cells = new Cells({CELLS});
          const told = (status, seq) =>
            cells.take([["execution", 1, 101, 0, null, "x", status, seq, ""]], 1);
          return [told("RUNNING", 10), told("SUCCESS", 11), told("SUCCESS", 12)];
        }}""",
    ) == [True, True, False]


def test_an_answer_that_was_overtaken_is_not_believed(page: Page):
    assert run(
        page,
        "pages/job.js",
        """({default: job}) => {
          const shown = job({redraw() {}}, {params: {id: "1"}, query: new URLSearchParams()});
          for (const version of [1, 3, 2]) shown.know({data: {version}, etag: `"${version}"`});
          shown.close();
          return [shown.job.version, shown.etag];
        }""",
    ) == [3, '"3"']


def test_whoever_reads_far_down_is_left_there_until_they_are_back(page: Page):
    assert run(
        page,
        "pages/job-details.js",
        """async ({JobDetails}) => {
          const details = new JobDetails({redraw() {}}, 1, new URLSearchParams(), () => {});
          const passed = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
          let loads = 0;
          details.load = () => { loads += 1; };
          details.scroll.top = 2_000;
          details.changed({ended: 3, total: 3});
          await passed(700);
          const away = loads;
          details.scroll.top = 0;
          await passed(700);
          details.close();
          return [away, loads];
        }""",
    ) == [0, 1]


def test_what_is_over_is_looked_at_until_it_is_no_longer_among_the_open(page: Page):
    """When it ended is noted a moment after it has, and no change tells that."""
    over = iter([[{"job_id": 1, "state": "FINISHED"}]])
    page.route(
        "**/jobs?*",
        lambda route: route.fulfill(json={"items": next(over, []), "next_cursor": None}),
    )
    with page.expect_request("**/jobs?*"):
        run(
            page,
            "pages/jobs.js",
            """({default: jobs}) => {
              globalThis.shown = jobs({redraw() {}}, {query: new URLSearchParams("open=true")});
            }""",
        )
    with page.expect_request("**/jobs?*"):
        pass  # it comes by itself
    page.evaluate("shown.close()")


FORM = """({openForm, STAY}) => {
  globalThis.told = "nothing";
  const steps = [];
  openForm({
    title: "A form",
    values: {which: "these"},
    fields: [{name: "which", label: "Which"}],
    body: () => steps.join(" "),
    changed: () => { steps.length = 0; },
    action: "Do it",
    deed: ({which}) => new Promise((resolve, refuse) => {
      globalThis.finish = resolve;
      globalThis.refuse = refuse;
      globalThis.find = () => { steps.push(`found ${which}`); resolve(STAY); };
    }),
  }).then((result) => { globalThis.told = result; });
}"""


@pytest.fixture
def form(page: Page) -> Page:
    """A form of which the deed has begun, and is done when the test says so."""
    run(page, "parts/form.js", FORM)
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("button", name="A moment")).to_be_visible()
    return page


def test_a_form_that_is_at_it_stays_until_it_is_done(form: Page):
    expect(form.get_by_role("button", name="A moment")).to_be_focused()
    expect(form.get_by_role("button", name="Leave it")).to_be_disabled()
    form.keyboard.press("Escape")
    expect(form.get_by_role("dialog")).to_be_visible()
    form.evaluate("finish('it is done')")
    expect(form.get_by_role("dialog")).to_have_count(0)
    assert form.evaluate("told") == "it is done"


def test_whoever_goes_elsewhere_meanwhile_is_still_told_what_a_form_did(form: Page):
    form.evaluate("location.hash = '#/jobs'")
    expect(form.get_by_role("dialog")).to_have_count(0)
    assert form.evaluate("told") == "nothing"
    form.evaluate("finish('it is done')")
    form.wait_for_function("told === 'it is done'")


def test_whoever_goes_elsewhere_meanwhile_is_told_why_a_form_was_refused(form: Page):
    form.evaluate("location.hash = '#/jobs'")
    expect(form.get_by_role("dialog")).to_have_count(0)
    form.evaluate("refuse(Object.assign(new Error('not today'), {status: 409, errors: []}))")
    expect(form.get_by_role("alert")).to_contain_text("not today")
    form.wait_for_function("told === null")


def test_what_was_found_out_is_not_shown_beside_what_was_written_meanwhile(form: Page):
    form.get_by_label("Which").fill("those")
    form.evaluate("find()")
    expect(form.get_by_role("button", name="Do it")).to_be_enabled()
    expect(form.get_by_role("dialog")).not_to_contain_text("found")
    form.get_by_role("button", name="Do it").click()
    form.evaluate("find()")
    expect(form.get_by_role("dialog")).to_contain_text("found those")


@pytest.mark.parametrize("leave", ["location.hash = '#/jobs'", "closeAll()"])
def test_what_is_asked_or_shown_goes_with_its_page(page: Page, leave: str):
    run(
        page,
        "parts/dialog.js",
        """({askFor, show, closeAll}) => {
          globalThis.closeAll = closeAll;
          globalThis.answer = "nothing";
          show({title: "Something", body: () => "to be looked at"});
          askFor({title: "Sure?"}).then((answer) => { globalThis.answer = answer; });
        }""",
    )
    expect(page.locator("dialog[open]")).to_have_count(2)
    page.evaluate(leave)
    expect(page.locator("dialog")).to_have_count(0)
    assert page.evaluate("answer") is None


def test_a_command_keeps_its_id_until_it_is_known_to_be_refused(page: Page):
    """Otherwise one that was made, and whose answer was lost, would be made a second time."""
    Watch.of(page).allowed.add("answer 503")
    sent = []

    def answer(route):
        sent.append(route.request.post_data)
        route.fulfill(status=422 if len(sent) == 2 else 503, json={"title": "no"})

    page.route("**/commands", answer)
    run(
        page,
        "parts/command-form.js",
        """async ({CommandForm}) => {
          const form = new CommandForm({redraw() {}}, {});
          form.values.type = "set_relay";
          form.values.params = '{"serial": 9007199254740993}';
          for (let i = 0; i < 3; i += 1) await form.send({preventDefault() {}});
        }""",
    )
    first, second, third = (json.loads(each) for each in sent)
    assert first == second
    assert first["params"]["serial"] == 9007199254740993
    assert third["cmd_id"] != first["cmd_id"]


def test_numbers_and_times_are_written_as_people_read_them(page: Page):
    assert run(
        page,
        "format.js",
        """({lasted, many, json, words, ago}) => [
          lasted(0.25), lasted(3.2), lasted(59), lasted(61), lasted(3_600), lasted(90_061),
          many(1, "host"), many(2_000, "host"), json({a: 2n ** 63n, b: "x"}),
          words("WAITING_FOR_APPROVAL"), ago(Date.now() - 120_000), ago(Date.now() + 30_500)]""",
    ) == [
        *("250 ms", "3.2 s", "59 s", "1 min 1 s", "1 h", "1 d 1 h"),
        *("1 host", "2,000 hosts", '{"a":9223372036854775808,"b":"x"}'),
        *("waiting for approval", "2 min ago", "in 31 s"),
    ]
