/** Lists: read page by page as somebody goes on, and shown only as far as they can be seen. */

import { get } from "../api.js";
import { go } from "../router.js";
import { h } from "../view.js";

/** A list of the service, as far as it has been read. */
export class Listing {
  constructor(path, query, changed, { limit = 100 } = {}) {
    this.path = path;
    this.query = query;
    this.changed = changed;
    this.limit = limit;
    this.items = [];
    this.count = null; // how many there are in all, where the service was asked
    this.problem = null;
    this.loading = false;
    this.whole = false;
    this.cursor = null;
    this.asked = 0;
  }

  /** Read from the beginning; what is shown stays until the answer is there. */
  async reload(query = this.query) {
    this.query = query;
    await this.read(null);
  }

  /** Look whether it is still so: what is shown stays, and nobody is told before there is an answer. */
  async refresh() {
    // So much is read at once; of a longer list, the rest would be gone under whoever reads it.
    if (!this.loading && this.items.length <= 1_000) await this.read(null, { quiet: this.asked > 0 });
  }

  /** Read on, unless that is being done or there is nothing more. */
  async more() {
    // What was refused is not asked for again and again: whoever chooses otherwise asks anew.
    if (this.loading || this.whole || this.problem) return;
    await this.read(this.cursor);
  }

  async read(cursor, { quiet = false } = {}) {
    const asked = (this.asked += 1);
    if (!quiet) {
      this.loading = true;
      this.changed();
    }
    try {
      const limit = cursor === null ? Math.min(1_000, Math.max(this.limit, this.items.length)) : this.limit;
      const page = await get(this.path, { limit, ...this.query, cursor });
      if (asked !== this.asked) return;
      this.items = cursor === null ? page.items : [...this.items, ...page.items];
      if (page.count !== undefined && page.count !== null) this.count = page.count;
      this.cursor = page.next_cursor;
      this.whole = page.next_cursor === null;
      this.problem = null;
    } catch (problem) {
      if (asked === this.asked) this.problem = problem;
    } finally {
      if (asked === this.asked) {
        this.loading = false;
        this.changed();
      }
    }
  }
}

/**
 * A table of which only the rows in sight are there, however many it has.
 *
 * `columns`: `[{name, label, class?, cell(item)}]`; `link(item)` is where a row leads; `key(item)`.
 * `state` is an object that is kept between drawings: `{top: 0}`; whoever sets its `top` moves the table.
 */
export function table({ state, columns, items, key, link, onend, empty, label, redraw, rowHeight = 40, rows = 15, selected }) {
  // As high as it can become: before anything is read, it has no height of its own.
  const height = rows * rowHeight;
  const top = Math.min(state.top ?? 0, Math.max(0, items.length * rowHeight - height));
  const first = Math.max(0, Math.floor(top / rowHeight) - 8);
  const last = Math.min(items.length, Math.ceil((top + height) / rowHeight) + 8);
  if (onend && last >= items.length - 20) queueMicrotask(onend);
  // Moved by whoever set its `top`, and not by the reader, who may be scrolling on at this moment.
  if (state.element && state.top !== state.seen) state.element.scrollTop = state.seen = state.top;
  const scrolled = (event) => {
    state.top = state.seen = event.target.scrollTop;
    redraw();
  };
  return h(
    "div",
    // Another table in its place is another element, which begins where it was left itself.
    { class: "table", role: "table", key: label, "aria-label": label, "aria-rowcount": items.length + 1 },
    h(
      "div",
      { class: "table-head", role: "rowgroup" },
      h("div", { class: "row", role: "row" }, columns.map((column) => h("div", { class: `cell ${column.class ?? ""}`, role: "columnheader", key: column.name }, column.label))),
    ),
    items.length === 0 && empty && h("div", { class: "empty" }, empty),
    h(
      "div",
      {
        class: "table-body",
        role: "rowgroup",
        tabindex: items.length ? "0" : null,
        "aria-label": label,
        style: { "max-height": `${rows * rowHeight}px` },
        onscroll: scrolled,
        ref: (element) => {
          state.element = element;
          element.scrollTop = state.seen = state.top;
          return () => { state.element = null; };
        },
      },
      h("div", { class: "spacer", "aria-hidden": "true", key: "before", style: { height: `${first * rowHeight}px` } }),
      items.slice(first, last).map((item, index) =>
        h(
          "div",
          {
            class: `row ${link ? "row-leads" : ""} ${selected?.(item) ? "row-selected" : ""}`,
            role: "row",
            "aria-rowindex": first + index + 2,
            key: key(item),
            onclick: link ? (event) => follow(event, link(item)) : null,
            style: { height: `${rowHeight}px` },
          },
          columns.map((column, at) => h("div", { class: `cell ${column.class ?? ""}`, role: "cell", key: column.name }, link && at === 0 ? h("a", { class: "row-way", href: link(item) }, column.cell(item)) : column.cell(item))),
        ),
      ),
      h("div", { class: "spacer", "aria-hidden": "true", key: "after", style: { height: `${(items.length - last) * rowHeight}px` } }),
    ),
  );
}

/** A click anywhere in a row goes where its link leads; what is a link or a button itself is left to it. */
function follow(event, address) {
  if (event.defaultPrevented || event.button !== 0 || event.target.closest("a, button, input") || String(getSelection())) return;
  go(address);
}

/** What a list says below itself: whether there is more, and what went wrong. */
export function footing(listing, what) {
  if (listing.problem) return h("p", { class: "footing tone-bad", role: "alert" }, listing.problem.message);
  if (listing.loading && !listing.items.length) return h("p", { class: "footing" }, "Reading…");
  const shown = listing.items.length.toLocaleString("en");
  const all = listing.count !== null ? ` of ${listing.count.toLocaleString("en")}` : listing.whole ? "" : ", and more";
  const one = listing.items.length === 1 && (listing.whole || listing.count === 1);
  return h("p", { class: "footing" }, `${shown}${all} ${one ? what.replace(/s$/, "") : what}`);
}
