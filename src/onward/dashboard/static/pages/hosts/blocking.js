/** Forbidding a command type: on one host or on everything that a selector matches; and allowing it again. */

import { del, get, getWithVersion, post, put } from "../../api.js";
import { count, exactly, many } from "../../format.js";
import { note } from "../../parts/dialog.js";
import { callout, openForm, STAY, typedFor } from "../../parts/form.js";
import { h } from "../../view.js";

const typeNames = async () => (await get("/command-types", { limit: 1_000 })).items.map(({ name }) => [name, name]);

const ruleFields = (person) => [
  { name: "reason", label: "Why", required: true, placeholder: "its disk is being replaced" },
  { name: "owner", label: "Whom to ask", placeholder: person, hint: "You, if nobody is named." },
  { name: "expires_at", label: "Until", type: "datetime-local", hint: "It ends by itself then. Without a time it stays until somebody lifts it." },
];

function ruleOf(values) {
  const rule = { reason: values.reason };
  if (values.owner?.trim()) rule.owner = values.owner.trim();
  if (values.expires_at) rule.expires_at = new Date(values.expires_at).toISOString();
  return rule;
}

async function loadedTypes(app) {
  let types = null;
  await app.attempt(async () => { types = await typeNames(); });
  if (types && !types.length) note("There is no command type yet: an admin makes one under Settings.", "bad");
  return types?.length ? types : null;
}

/** How many hosts a selector matches, disabled ones too. */
const matching = async (selector) => (await get("/hosts", { selector, limit: 1, count: true })).count;

/** Forbid a command type on everything that a selector matches: how many that is comes first. */
export async function blockMany(app, selector) {
  const types = await loadedTypes(app);
  if (!types) return null;
  const values = { selector, command_type: types[0][0], reason: "", owner: "", expires_at: "" };
  let matched = null;
  const done = await openForm({
    title: "Block a command type",
    values,
    fields: [{ name: "selector", label: "On which hosts", required: true, mono: true, placeholder: "role=db and zone=eu", hint: "A selector, or all. Disabled hosts too." }, { name: "command_type", label: "Command type", options: types }, ...ruleFields(app.me.person)],
    body: () => matched !== null && reach(matched, `would be kept from running ${values.command_type}. What runs already goes on.`),
    typed: () => typedFor(matched ?? 0),
    changed: (name) => { if (name === "selector") matched = null; },
    action: () => (matched ? `Block on ${many(matched, "host")}` : "How many are these?"),
    deed: async () => {
      if (!matched) {
        matched = await matching(values.selector);
        return STAY;
      }
      return (await post("/blocks", { selector: values.selector, command_type: values.command_type, ...ruleOf(values) })).data;
    },
  });
  if (done) note(`${done.command_type} is blocked on ${many(done.blocked, "host")}.`);
  return done;
}

const reach = (n, what) => callout(n ? "held" : "late", h("p", null, h("strong", null, many(n, "host")), n ? ` ${what}` : " match: there would be nothing to do."));

/** Allow a command type again on everything that a selector matches. */
export async function liftMany(app, selector = "") {
  const types = await loadedTypes(app);
  if (!types) return null;
  const values = { selector, command_type: types[0][0] };
  let matched = null;
  const done = await openForm({
    title: "Lift blocks",
    values,
    fields: [{ name: "selector", label: "On which hosts", required: true, mono: true, placeholder: "role=db and zone=eu", hint: "A selector, or all." }, { name: "command_type", label: "Command type", options: types }],
    body: () => matched !== null && reach(matched, `would be allowed to run ${values.command_type} again, as far as somebody has forbidden it.`),
    typed: () => typedFor(matched ?? 0),
    changed: (name) => { if (name === "selector") matched = null; },
    action: () => (matched ? `Lift on ${many(matched, "host")}` : "How many are these?"),
    deed: async () => {
      if (!matched) {
        matched = await matching(values.selector);
        return STAY;
      }
      return (await post("/blocks/lift", values)).data;
    },
  });
  if (done) note(`Lifted from ${count(done.lifted)} of ${many(done.matched, "host")}.`);
  return done;
}

/** Forbid a command type on one host. */
export async function blockHost(app, host) {
  const types = await loadedTypes(app);
  if (!types) return null;
  const values = { command_type: types[0][0], reason: "", owner: "", expires_at: "" };
  const done = await openForm({
    title: `Block a command type on ${host.name}`,
    values,
    fields: [{ name: "command_type", label: "Command type", options: types, hint: "In place of any former block of it. What runs already goes on." }, ...ruleFields(app.me.person)],
    action: "Block",
    deed: async () => (await put(`/hosts/${host.host_id}/blocks/${encodeURIComponent(values.command_type)}`, ruleOf(values), { ifMatch: `"${host.version}"` })).data,
  });
  if (done) note(`${done.command_type} is blocked on ${host.name}.`);
  return done;
}

/** Allow it again on the one host of a block, as it was when the question was asked. */
export async function liftBlock(app, block) {
  let seen = null;
  await app.attempt(async () => { seen = await getWithVersion(`/hosts/${block.host_id}`); });
  if (!seen) return null;
  const done = await openForm({
    title: `Lift the block of ${block.command_type}?`,
    lead: () => h("p", null, `${block.owner} has forbidden it on ${block.host_name}: “${block.reason}”. `, block.expires_at ? `It ${block.in_force ? "ends" : "ended"} by itself on ${exactly(block.expires_at)}.` : "It has no end of its own.", " What waits for it may run at once."),
    action: "Lift it",
    tone: "bad",
    deed: async () => {
      await del(`/hosts/${block.host_id}/blocks/${encodeURIComponent(block.command_type)}`, { ifMatch: seen.etag });
      return true;
    },
  });
  if (done) note(`${block.command_type} may run on ${block.host_name} again.`);
  return done;
}
