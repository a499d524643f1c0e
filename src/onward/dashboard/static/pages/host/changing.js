/** Changing a host as it was seen; if it has changed meanwhile, what differs is shown instead. */

import { del, getWithVersion, patch } from "../../api.js";
import { note } from "../../parts/dialog.js";
import { callout, openForm, STAY } from "../../parts/form.js";
import { differenceView } from "../../parts/plan.js";
import { go, href } from "../../router.js";
import { h } from "../../view.js";
import { channelFields } from "../hosts/adding.js";
import { labelRows, labelsOf } from "../hosts/labels.js";

const written = (host) => ({ channel: host.channel, address: host.address });
const rowsOf = (host) => (Object.keys(host.labels).length ? Object.entries(host.labels).map(([name, value]) => [name, value]) : [["", ""]]);

/** Change labels, channel and address. */
export async function changeHost(host) {
  let seen = host;
  let now = null; // as it is, if that is no longer what was seen
  const values = written(seen);
  const rows = rowsOf(seen);
  const again = () => {
    Object.assign(values, written(now));
    rows.splice(0, rows.length, ...rowsOf(now));
    seen = now;
    now = null;
    return STAY;
  };
  const change = async () => {
    try {
      return (await patch(`/hosts/${host.host_id}`, { ...values, labels: labelsOf(rows) }, { ifMatch: `"${seen.version}"` })).data;
    } catch (problem) {
      now = await asItIs(host, problem);
      return STAY;
    }
  };
  const done = await openForm({
    title: `Change ${host.name}`,
    values,
    fields: channelFields,
    body: (form) => [labelRows(rows, form), now && changedUnderYou(seen, now)],
    action: () => (now ? "Begin anew with what it is now" : "Change it"),
    deed: () => (now ? again() : change()),
  });
  if (done) note(`${host.name} is changed.`);
  return done;
}

/** The host, if it was refused because it is another version by now; every other refusal goes on. */
async function asItIs(host, problem) {
  if (!problem.stale) throw problem;
  return (await getWithVersion(`/hosts/${host.host_id}`)).data;
}

/** What somebody else has made of it meanwhile. */
function changedUnderYou(seen, now) {
  const rows = differences(seen, now);
  return callout(
    "late",
    h("p", null, h("strong", null, "It changed under you."), ` You saw version ${seen.version}; it has version ${now.version} now, and nothing of yours was written.`),
    rows.length > 0 ? differenceView(rows) : h("p", null, "What differs is in its blocks."),
  );
}

function differences(seen, now) {
  const flat = (host) => ({ state: host.state, channel: host.channel, address: host.address, ...Object.fromEntries(Object.entries(host.labels).map(([name, value]) => [`label ${name}`, value])) });
  const before = flat(seen);
  const after = flat(now);
  return [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => before[name] !== after[name]).map((what) => ({ what, before: before[what] ?? "–", after: after[what] ?? "–" }));
}

/** Take it out of new jobs, or put it back. */
export async function turnHost(host) {
  const off = host.state === "ACTIVE";
  const verb = off ? "Disable" : "Enable";
  let now = null;
  const done = await openForm({
    title: `${verb} ${host.name}?`,
    lead: h("p", null, off ? "A disabled host is in no new job, and what waits for it is not begun. What runs there goes on." : "It is in new jobs again, and what waits for it may begin."),
    body: () => now && changedUnderYou(host, now),
    action: () => (now ? `${verb} it as it is now` : verb),
    tone: off ? "bad" : "good",
    deed: async () => {
      try {
        return (await patch(`/hosts/${host.host_id}`, { state: off ? "DISABLED" : "ACTIVE" }, { ifMatch: `"${(now ?? host).version}"` })).data;
      } catch (problem) {
        now = await asItIs(host, problem);
        return STAY;
      }
    },
  });
  if (done) note(`${host.name} is ${off ? "disabled" : "enabled"}.`);
  return done;
}

/** Delete a host that nothing has ever been run on. */
export async function deleteHost(host) {
  let now = null;
  const done = await openForm({
    title: `Delete ${host.name}?`,
    lead: h("p", null, "It goes with its blocks. A host that something was run on has a past, and can only be disabled."),
    body: () => now && changedUnderYou(host, now),
    typed: () => host.name,
    action: () => (now ? "Delete it as it is now" : "Delete it"),
    tone: "bad",
    deed: async () => {
      try {
        await del(`/hosts/${host.host_id}`, { ifMatch: `"${(now ?? host).version}"` });
        return true;
      } catch (problem) {
        now = await asItIs(host, problem);
        return STAY;
      }
    },
  });
  if (done) {
    note(`${host.name} is gone.`);
    go(href(["hosts"]));
  }
  return done;
}
