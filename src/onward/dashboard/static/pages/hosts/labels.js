/** Labels: to be chosen as a filter, and to be written. */

import { h } from "../../view.js";

/** The labels of a host, each of which narrows down the list to those that have it. */
export const labelFilters = (labels, onchoose) =>
  h(
    "span",
    { class: "labels" },
    Object.entries(labels).map(([name, value]) =>
      h("button", { type: "button", class: "label label-choice", key: name, title: `Only hosts with ${name}=${value}`, "aria-label": `${name}=${value}`, onclick: () => onchoose(name, value) }, h("span", { class: "label-name" }, name), h("bdi", null, value)),
    ),
  );

/** Fields for labels: `rows` are pairs of a name and a value, and are written to. */
export function labelRows(rows, form) {
  const set = (row, at, value) => {
    row[at] = value;
    form.redraw();
  };
  const drop = (row) => {
    rows.splice(rows.indexOf(row), 1);
    form.redraw();
  };
  const add = () => {
    rows.push(["", ""]);
    form.redraw();
  };
  return h(
    "fieldset",
    { class: "label-rows", key: "labels" },
    h("legend", null, "Labels"),
    rows.map((row, i) =>
      h(
        "div",
        { class: "label-row", key: i },
        h("input", { type: "text", value: row[0], placeholder: "role", "aria-label": `Name of label ${i + 1}`, oninput: (event) => set(row, 0, event.target.value) }),
        h("span", { "aria-hidden": "true" }, "="),
        h("input", { type: "text", value: row[1], placeholder: "web", "aria-label": `Value of label ${i + 1}`, oninput: (event) => set(row, 1, event.target.value) }),
        h("button", { type: "button", class: "quiet", "aria-label": `Take label ${row[0] || i + 1} away`, onclick: () => drop(row) }, "×"),
      ),
    ),
    h("button", { type: "button", class: "button button-small", onclick: add }, "One more label"),
  );
}

/** What was written, without rows that were left empty. */
export const labelsOf = (rows) => Object.fromEntries(rows.filter(([name]) => name.trim()).map(([name, value]) => [name.trim(), value]));
