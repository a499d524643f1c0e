/**
 * Running something: what, where, first the plan of it, and then exactly that plan or none.
 *
 * The plan's tag goes with the job. If the fleet has changed meanwhile, nothing is run, and the new
 * plan is shown beside the one that was seen.
 */

import { exact, get, post, Problem } from "../api.js";
import { count, many } from "../format.js";
import { go, href } from "../router.js";
import { h } from "../view.js";
import { note } from "./dialog.js";
import { callout, openForm, STAY, typedFor } from "./form.js";
import { differenceView } from "./plan.js";
import { when } from "./time.js";

/** Ask what is to be run, show the plan, send it, and go to the job. */
export async function runForm(app, { selector = "", commandType = "" } = {}) {
  const state = { plan: null, before: null, type: null, externalId: newId() };
  const types = await typesToRun(app);
  if (!types) return null;
  const values = { command_type: commandType || types[0].name, selector, max_concurrency: "", params: "" };
  const choose = () => { state.type = types.find(({ name }) => name === values.command_type) ?? types[0]; };
  choose();
  const made = await openForm({
    title: "Run something",
    wide: true,
    values,
    fields: () => [...fieldsOf(types, state.type)],
    body: () => [state.before && changedSince(state), state.plan ? planView(state) : h("p", { class: "soft" }, "First you see the plan: who would run it, who may not, and who is busy. Nothing is run yet.")],
    typed: () => (state.plan ? typedFor(state.plan.runs) : null),
    action: () => (state.plan ? `Run on ${many(state.plan.runs, "host")}` : "Show the plan"),
    changed: (name) => {
      state.plan = state.before = null;
      if (name === "command_type") choose();
    },
    deed: () => (state.plan ? send(values, state) : plan(values, state)),
  });
  if (made) go(href(["jobs", String(made.job_id)]));
  return made;
}

async function typesToRun(app) {
  let types = null;
  const read = await app.attempt(async () => { types = (await get("/command-types", { limit: 1_000 })).items; });
  if (read && !types.length) note("There is no command type yet: an admin makes one under Settings.", "bad");
  return types?.length ? types : null;
}

/** The sender's own id makes a repeat of the message harmless: made once, whatever becomes of the first try. */
function newId() {
  const chance = crypto.getRandomValues(new Uint8Array(8));
  return `dashboard-${[...chance].map((each) => each.toString(16).padStart(2, "0")).join("")}`;
}

function fieldsOf(types, type) {
  const noted = (each) => `${each.name}${each.needs_approval ? " (needs an approval)" : ""}`;
  return [
    { name: "command_type", label: "Command type", options: types.map((each) => [each.name, noted(each)]) },
    ...paramFields(type),
    { name: "selector", label: "On which hosts", required: true, mono: true, placeholder: "role=web and zone!=eu", hint: "A selector, or all." },
    { name: "max_concurrency", label: "At most at once", type: "number", min: 1, max: 1_000_000, placeholder: "no limit" },
  ];
}

function paramFields(type) {
  const masked = type.masked.map((name) => ({ name: `param:${name}`, label: name, type: "password", hint: `Masked: nobody is shown it, and the program finds it as ONWARD_${name.toUpperCase()}.` }));
  if (type.argv === null) {
    const hint = "JSON. Real hosts want \"argv\", a list, or \"shell\", a script for sh.";
    return [{ name: "params", label: "Parameters", type: "textarea", rows: 3, placeholder: '{"argv": ["uptime", "-p"]}', hint }, ...masked];
  }
  return [...placeholders(type.argv).map((name) => ({ name: `param:${name}`, label: name, hint: `In ${type.argv.join(" ")}` })), ...masked];
}

/** The names that stand in braces; doubled braces are braces. */
export function placeholders(argv) {
  const names = argv.flatMap((argument) => [...argument.matchAll(/\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}/g)].map(([, name]) => name).filter(Boolean));
  return [...new Set(names)];
}

function wanted(values, { type }) {
  const body = { command_type: type.name, params: paramsOf(values, type), selector: selectorOf(values.selector) };
  if (values.max_concurrency) body.max_concurrency = Number(values.max_concurrency);
  return body;
}

/** Names in a list are a list: `["a", "b"]`. Everything else is read by the service itself. */
function selectorOf(text) {
  if (!/^\s*[[{]/.test(text)) return text.trim();
  return parsed(text, "selector");
}

function paramsOf(values, type) {
  const params = type.argv === null && values.params.trim() ? parsed(values.params, "params") : {};
  const alone = new Set((type.argv ?? []).map((argument) => /^\{(\w+)\}$/.exec(argument)?.[1]));
  for (const name of [...placeholders(type.argv ?? []), ...type.masked]) {
    const value = values[`param:${name}`];
    if (value) params[name] = alone.has(name) ? listOrText(value) : value;
  }
  return params;
}

/** An argument that is nothing but a parameter becomes several, if the parameter is a list. */
function listOrText(value) {
  if (!value.startsWith("[")) return value;
  try {
    return JSON.parse(value, exact);
  } catch {
    return value;
  }
}

/** Read JSON that somebody has written; what is none is a refusal of that field. */
export function parsed(text, field) {
  try {
    return JSON.parse(text, exact);
  } catch (error) {
    throw new Problem(422, { title: "This is not JSON", detail: "", errors: [{ pointer: `/${field}`, detail: `is not JSON: ${error.message}` }] });
  }
}

async function plan(values, state) {
  state.plan = (await post("/jobs/plan", wanted(values, state), { query: { named: 10 } })).data;
  return STAY;
}

async function send(values, state) {
  try {
    const body = { ...wanted(values, state), external_id: state.externalId };
    return (await post("/webhook/jobs", body, { ifMatch: state.plan.etag })).data;
  } catch (problem) {
    if (!problem.stale) throw problem;
    state.before = state.plan;
    return plan(values, state);
  }
}

function changedSince({ before, plan: now }) {
  const counted = [["hosts", "total"], ["would run", "runs"], ["blocked", "blocked"]];
  const rows = counted.filter(([, name]) => before[name] !== now[name]).map(([what, name]) => ({ what, before: count(before[name]), after: count(now[name]) }));
  return callout(
    "late",
    h("p", null, h("strong", null, "The fleet changed since."), " Nothing was run. This is the plan as it is now; look at it and decide again."),
    rows.length > 0 && differenceView(rows),
  );
}

function planView({ plan: found, externalId }) {
  return h(
    "section",
    { class: "run-plan", "aria-label": "The plan" },
    h("div", { class: "run-line" }, part("good", found.runs, "would run"), part("held", found.blocked, "blocked"), part("waiting", found.busy, "busy, and wait for their turn"), h("span", { class: "faint" }, `of ${many(found.total, "host")}: ${found.selector}`)),
    found.needs_approval && callout("held", h("p", null, "It waits until somebody else has approved it.")),
    named("Would run", found.hosts, found.runs, (host) => hostLink(host)),
    named("Blocked", found.blocked_hosts, found.blocked, (host) => [hostLink(host), h("span", { class: "soft" }, ` by ${host.owner}: ${host.reason}`), host.expires_at && [", ends ", when(host.expires_at)]], true),
    named("Busy", found.busy_hosts, found.busy, (host) => [hostLink(host), " with ", aside(["executions", String(host.execution_id)], `execution ${host.execution_id}`)], true),
    h("p", { class: "hint" }, "Sent as ", h("code", null, externalId), ": sent twice, it still runs once."),
  );
}

/** Beside the form, which would be lost if it were left. */
const aside = (path, text) => h("a", { href: href(path), target: "_blank", rel: "noopener" }, text);
const hostLink = (host) => aside(["hosts", String(host.host_id)], host.name);
const part = (tone, n, what) => h("span", { class: `run-part tone-${n ? tone : "fresh"}` }, h("strong", null, count(n)), ` ${what}`);

function named(label, hosts, all, view, lines = false) {
  if (!hosts.length) return null;
  const more = all > hosts.length && h("li", { key: "more", class: "faint" }, `and ${count(all - hosts.length)} more`);
  return h("div", { class: "run-hosts", key: label }, h("h3", null, label), h("ul", { class: lines ? "run-list" : "run-names" }, hosts.map((host) => h("li", { key: host.host_id }, view(host))), more));
}
