/** Why an execution is not moving: the service's one sentence, and where each fact of it leads. */

import { between, many, words } from "../format.js";
import { icon } from "../parts/icons.js";
import { tone } from "../parts/status.js";
import { when } from "../parts/time.js";
import { href } from "../router.js";
import { h } from "../view.js";

const TONES = {
  CANCELLING: "gone",
  WAITING_FOR_APPROVAL: "late",
  TURNED_DOWN: "gone",
  PAUSED: "held",
  HOST_OFFLINE: "held",
  NEXT_RETRY: "late",
  NO_WORKER: "bad",
  BLOCKED_BY_RULE: "held",
  HOST_DISABLED: "held",
  HOST_HELD: "held",
  WORKER_LOST: "bad",
  OVERDUE: "late",
  UNDER_WAY: "going",
};
const MOVING = new Set(["UNDER_WAY", "TO_BE_PLANNED", "TO_BE_CLAIMED"]);

export function whyView(why, execution) {
  const { reason, text, facts } = why;
  const look = reason === "ENDED" ? tone(why.status) : TONES[reason] ?? "waiting";
  const title = reason === "ENDED" ? "How it ended" : MOVING.has(reason) ? "It moves" : "Why it is not moving";
  return h(
    "section",
    { class: `callout why tone-${look}`, "aria-label": title },
    icon(look, { size: 20 }),
    h(
      "div",
      { class: "callout-body" },
      // Only the sentence: how long it has been so goes on, and is not read out every second.
      h("p", { class: "why-text", "aria-live": "polite" }, linked(text, facts)),
      h("ul", { class: "why-facts" }, details(why, execution).map((detail, i) => h("li", { key: i }, detail))),
    ),
  );
}

/** The sentence, in which the executions and jobs that the facts name lead to them. */
function linked(text, { execution_id: execution, job_id: job }) {
  return text.split(/(\b[Ee]xecution \d+|\bjob \d+)/).map((part) => {
    const [kind, number] = part.toLowerCase().split(" ");
    if (kind === "execution" && number === String(execution)) return h("a", { href: href(["executions", number]) }, part);
    if (kind === "job" && number === String(job)) return h("a", { href: href(["jobs", number]) }, part);
    return h("bdi", null, part);
  });
}

function details({ reason, facts, status }, { host_id: host, job_id: job, retries }) {
  const shown = [facts.since && (reason === "ENDED" ? when(facts.since) : `for ${between(facts.since)}`)];
  if (reason === "NEXT_RETRY") shown.push(["next attempt ", when(facts.until), `, after ${many(retries, "retry", "retries")}`]);
  else if (reason === "BLOCKED_BY_RULE") shown.push(...blocked(facts, host));
  else if (facts.until) shown.push(["deadline ", when(facts.until)]);
  if (facts.worker) shown.push(["worker ", h("code", null, facts.worker)]);
  if (reason === "WAITING_FOR_APPROVAL") shown.push(h("a", { href: href(["jobs", job]) }, "look at the plan and decide"));
  if (reason === "PAUSED" || reason === "CONCURRENCY_LIMIT" || reason === "CANCELLING") shown.push(h("a", { href: href(["jobs", job]) }, `job ${job}`));
  if (reason === "HOST_DISABLED" || reason === "HOST_OFFLINE") shown.push(h("a", { href: href(["hosts", host]) }, "look at the host"));
  if (status === "QUEUED" || status === "NEW") shown.push(h("span", { class: "faint" }, words(reason)));
  return shown.filter(Boolean);
}

const blocked = (facts, host) => [
  ["by ", h("bdi", null, facts.owner || "somebody")],
  facts.until ? ["expires ", when(facts.until)] : "never expires by itself",
  h("a", { href: href(["hosts", host]) }, "blocks of the host"),
];
