/** Tables of a few rows, which on a narrow page become one paragraph each. */

import { h } from "../../view.js";

/** `columns`: `[{label, number?, cell(item)}]`. */
export function rows({ label, columns, items, key }) {
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
