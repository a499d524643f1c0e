/** Values as they were sent: parameters, results, details. Only ever text. */

import { inline, json } from "../format.js";
import { h } from "../view.js";

const isObject = (value) => value !== null && typeof value === "object";

/** An object as a list of names and values; what is deep can be opened. */
export function pairs(object, { none = "none" } = {}) {
  const entries = Object.entries(object ?? {});
  if (!entries.length) return h("span", { class: "faint" }, none);
  return h(
    "dl",
    { class: "pairs" },
    entries.map(([name, value]) => [
      h("dt", { key: `t-${name}` }, name),
      h("dd", { key: `d-${name}` }, isObject(value) && Object.keys(value).length ? block(value) : h("code", null, inline(value))),
    ]),
  );
}

/** A value as JSON, over several lines. */
export const block = (value) => h("pre", { class: "json", tabindex: "0" }, json(value, 2));

/** Labels of a host. */
export const labels = (object) =>
  h("span", { class: "labels" }, Object.entries(object ?? {}).map(([name, value]) => h("span", { class: "label", key: name }, h("span", { class: "label-name" }, name), value)));

/** Put a text where somebody can paste it from, also where there is no secure context; throws if it is not there. */
export async function copy(text) {
  if (await navigator.clipboard?.writeText(text).then(() => true, () => false)) return;
  const area = document.createElement("textarea");
  area.value = text;
  // Under an open dialog nothing else can be selected.
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error("The browser does not let the page copy: select it and copy it yourself.");
}
