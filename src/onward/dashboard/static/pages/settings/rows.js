/** Tables of a few rows, which on a narrow page become one paragraph each. */

import { h } from "../../view.js";

/** All of a `Listing` that has been read; what is left is read on demand. `columns`: `[{label, number?, cell(item)}]`. */
export function rows({ label, columns, list, key }) {
  const more = list.items.length > 0 && !list.whole && !list.problem;
  return [
    drawn({ label, columns, items: list.items, key }),
    more && h("p", { class: "footing" }, h("button", { type: "button", class: "button button-small", disabled: list.loading, onclick: () => list.more() }, "Read on")),
  ];
}

function drawn({ label, columns, items, key }) {
  return h(
    "div",
    { class: "settings-scroll", role: "group", "aria-label": label, tabindex: "0" },
    h(
      "table",
      { class: "settings-table", "aria-label": label },
      h("thead", null, h("tr", null, columns.map((column, i) => h("th", { scope: "col", key: i, class: column.number ? "number" : null }, column.label || h("span", { class: "visually-hidden" }, "What can be done"))))),
      h("tbody", null, items.map((item) => h("tr", { key: key(item) }, columns.map((column, i) => h("td", { key: i, "data-label": column.label, class: column.number ? "number" : null }, h("div", null, column.cell(item))))))),
    ),
  );
}
