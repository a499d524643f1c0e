/** How much of something is in which status, as one bar, and as numbers that can be chosen. */

import { compact, count, percent, words } from "../format.js";
import { h } from "../view.js";
import { icon } from "./icons.js";
import { tone } from "./status.js";

/** The order in which statuses stand in a bar: what is well first, what has not begun last. */
const ORDER = ["good", "bad", "late", "held", "gone", "going", "waiting", "fresh"];
const place = (status) => ORDER.indexOf(tone(status));

const sorted = (counts) =>
  Object.entries(counts).filter(([, n]) => n > 0).sort(([a], [b]) => place(a) - place(b));

/** One bar; `counts` by status. */
export function bar(counts, { label, thin = false } = {}) {
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  const told = sorted(counts).map(([status, n]) => `${count(n)} ${words(status)}`).join(", ");
  return h(
    "div",
    { class: thin ? "bar bar-thin" : "bar", role: "img", "aria-label": `${label ?? "Progress"}: ${told || "nothing"}` },
    sorted(counts).map(([status, n]) =>
      h("span", { class: `bar-part tone-${tone(status)}`, key: status, style: { "flex-grow": n / all }, title: `${count(n)} ${words(status)}` }),
    ),
  );
}

/** The numbers behind a bar, each a filter that says what it counts. */
export function chips(counts, { chosen = new Set(), onchoose, statuses } = {}) {
  const shown = statuses ? statuses.map((status) => [status, counts[status] ?? 0]) : sorted(counts);
  const all = Object.values(counts).reduce((sum, n) => sum + n, 0);
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": "Filter by status" },
    shown.map(([status, n]) =>
      h(
        "button",
        {
          type: "button",
          key: status,
          class: `chip tone-${tone(status)} ${n ? "" : "chip-none"}`,
          "aria-pressed": chosen.has(status) ? "true" : "false",
          title: `${count(n)} of ${count(all)} (${percent(n, all)})`,
          onclick: () => onchoose(status),
        },
        icon(tone(status)),
        h("span", { class: "chip-name" }, words(status)),
        h("strong", null, n >= 1_000_000 ? compact(n) : count(n)),
      ),
    ),
  );
}
