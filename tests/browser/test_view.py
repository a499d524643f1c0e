"""What every page stands on: only what differs is touched, and what is told is taken once."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import OpenPage


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
