/** Charts of what happened when: columns of statuses, one for each step of time. */

import { compact, count, timeOf, words } from "../format.js";
import { h } from "../view.js";
import { tone } from "./status.js";

/** Stacked columns: `series` by status, each a list of numbers that begins at `from`. */
export function columns(series, { from, step_s, label }) {
  const names = Object.keys(series);
  const steps = Math.max(1, ...names.map((name) => series[name].length));
  const sums = Array.from({ length: steps }, (_, i) => names.reduce((sum, name) => sum + (series[name][i] ?? 0), 0));
  const top = roundUp(Math.max(2, ...sums));
  const start = new Date(from).getTime();
  const at = (i) => timeOf(new Date(start + i * step_s * 1_000).toISOString());
  const all = sums.reduce((sum, n) => sum + n, 0);
  return h(
    "figure",
    { class: "chart", role: "img", "aria-label": `${label}: ${count(all)} in all, at most ${count(Math.max(...sums))} in one step` },
    h("div", { class: "chart-scale", "aria-hidden": "true" }, [top, top / 2, 0].map((n) => h("span", { key: n }, compact(n)))),
    h(
      "svg",
      { class: "chart-columns", viewBox: `0 0 ${steps} 100`, preserveAspectRatio: "none", "aria-hidden": "true" },
      [0, 50, 100].map((y) => h("line", { class: y === 100 ? "chart-axis" : "chart-line", key: `y${y}`, x1: 0, x2: steps, y1: y, y2: y })),
      sums.map((_, i) => column(series, names, i, { top, told: at(i) })),
    ),
    h("div", { class: "chart-times", "aria-hidden": "true" }, [0, Math.floor((steps - 1) / 2), steps - 1].map((i) => h("span", { key: i }, at(i).slice(-8, -3)))),
  );
}

function column(series, names, i, { top, told }) {
  let y = 100;
  const parts = names.map((name) => {
    const tall = ((series[name][i] ?? 0) / top) * 100;
    if (!tall) return null;
    y -= tall;
    return h("rect", { key: name, class: `fill tone-${tone(name)}`, x: i + 0.08, y, width: 0.84, height: tall });
  });
  const counted = names.filter((name) => series[name][i]).map((name) => `${count(series[name][i])} ${words(name)}`);
  const target = h("rect", { class: "chart-target", x: i, y: 0, width: 1, height: 100 }, h("title", null, `${told}: ${counted.join(", ") || "nothing ended"}`));
  return h("g", { key: i }, parts, target);
}

/** The next round number whose half is a whole one. */
function roundUp(n) {
  const size = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 4, 6, 8, 10].map((each) => each * size).find((each) => each >= n);
}
