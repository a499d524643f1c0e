/** Plans: what a job would do, in a few lines, and in what two plans of one job differ. */

import { count, inline, json, lasted, many, selector } from "../format.js";
import { h } from "../view.js";
import { pairs } from "./value.js";

const NAMED = 12; // so many hosts are named at once; the others are a number

/** Who would run and who would not, in one line. */
export function summary(plan) {
  const told = [`${many(plan.runs, "host")} would run`];
  if (plan.blocked) told.push(`${count(plan.blocked)} blocked by a rule`);
  if (plan.busy) told.push(`${count(plan.busy)} busy now and later`);
  return `${told.join(", ")}.`;
}

/** Everything of a plan that somebody decides about. */
export function planView(plan) {
  const { job } = plan;
  const shown = {
    command: job.command_type,
    on: selector(job.selector),
    "asked for by": job.requested_by,
    ...(job.edited_by.length ? { "changed by": job.edited_by.join(", ") } : {}),
    "at once": limit(job),
    "each may take": `${lasted(job.timeout_s)}, ${job.max_retries ? many(job.max_retries, "retry", "retries") : "no retries"}`,
    ...(job.argv ? { runs: job.argv.join(" ") } : {}),
  };
  return h(
    "div",
    { class: "plan" },
    h("p", { class: "plan-told" }, summary(plan)),
    pairs(shown),
    h("h3", null, "Parameters"),
    pairs(job.params),
    plan.blocked > 0 && blockedView(plan),
  );
}

/** The hosts that a rule keeps out, with the rule. */
function blockedView(plan) {
  const shown = plan.blocked_hosts.slice(0, NAMED);
  const more = plan.blocked - shown.length;
  return [
    h("h3", { key: "blocked" }, "Blocked by a rule"),
    h(
      "ul",
      { class: "plan-blocked", key: "hosts" },
      shown.map((host) => h("li", { key: host.host_id }, h("strong", null, host.name), `: ${host.reason || "no reason given"}`, host.owner && h("span", { class: "faint" }, ` (${host.owner})`))),
      more > 0 && h("li", { class: "faint" }, `and ${count(more)} more`),
    ),
  ];
}

/** In what two plans of a job differ: `[{what, before, after}]`, as words; empty if in nothing. */
export function difference(seen, now) {
  const rows = [...paramRows(seen.job.params, now.job.params)];
  const add = (what, before, after) => before !== after && rows.push({ what, before, after });
  add("at once", limit(seen.job), limit(now.job));
  add("changed by", seen.job.edited_by.join(", ") || "nobody", now.job.edited_by.join(", ") || "nobody");
  add("hosts", count(seen.total), count(now.total));
  if (seen.runs !== now.runs || seen.blocked !== now.blocked) add("would run", count(seen.runs), count(now.runs));
  add("blocked by a rule", told(seen), told(now));
  return rows;
}

function paramRows(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  const written = (params, name) => (Object.hasOwn(params, name) ? inline(params[name]) : "–");
  return names
    .filter((name) => Object.hasOwn(before, name) !== Object.hasOwn(after, name) || json(before[name]) !== json(after[name]))
    .map((name) => ({ what: `parameter ${name}`, before: written(before, name), after: written(after, name) }));
}

function told(plan) {
  if (!plan.blocked) return "none";
  const names = plan.blocked_hosts.slice(0, NAMED).map((host) => host.name);
  const more = plan.blocked - names.length;
  return names.join(", ") + (more > 0 ? `${names.length ? " and " : ""}${count(more)} more` : "");
}

const limit = (job) => (job.max_concurrency ? `at most ${count(job.max_concurrency)}` : "no limit");

/** A difference as a table: what it was, and what it is. */
export function differenceView(rows) {
  return h(
    "table",
    { class: "diff" },
    h("caption", { class: "visually-hidden" }, "What has changed since you looked"),
    h("thead", null, h("tr", null, ["", "You saw", "Now it is"].map((label) => h("th", { scope: "col", key: label }, label || h("span", { class: "visually-hidden" }, "What"))))),
    h("tbody", null, rows.map(({ what, before, after }) => h("tr", { key: what }, h("th", { scope: "row" }, what), h("td", null, h("del", null, before)), h("td", null, h("ins", null, after))))),
  );
}
