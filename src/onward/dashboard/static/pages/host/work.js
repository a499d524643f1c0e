/** What runs on a host now, what waits for it, and what ran there. */

import { get } from "../../api.js";
import { between, many, words } from "../../format.js";
import { icon } from "../../parts/icons.js";
import { footing, Listing, table } from "../../parts/listing.js";
import { status, tone } from "../../parts/status.js";
import { when } from "../../parts/time.js";
import { href } from "../../router.js";
import { h } from "../../view.js";

export const STATUSES = ["NEW", "QUEUED", "RUNNING", "SUCCESS", "FAILED", "TIMEOUT", "BLOCKED", "CANCELLED"];
const EXPLAINED = 3; // of each kind; the rest is in the list below

/** The work of one host: `held` runs, `waiting` does not yet, `past` is everything, newest first. */
export class Work {
  constructor(hostId, statuses, changed) {
    this.hostId = hostId;
    this.path = `/hosts/${hostId}/executions`;
    this.changed = changed;
    this.held = null;
    this.waiting = null;
    this.more = false;
    this.reasons = new Map(); // by execution: why it is where it is
    this.types = new Map(); // by job: what it runs; null while it is asked for
    this.past = new Listing(this.path, { status: statuses }, changed);
  }

  /** Look at what is there now; whoever is refused is told where the list is. */
  async look() {
    this.past.refresh();
    // What was asked for in vain is asked for once more.
    for (const [jobId, name] of this.types) if (name === null) this.types.delete(jobId);
    try {
      const [held, waiting] = await Promise.all([get(this.path, { status: "RUNNING", limit: 100 }), get(this.path, { status: ["QUEUED", "NEW"], limit: 100 })]);
      this.held = held.items;
      this.waiting = waiting.items.reverse();
      this.more = waiting.next_cursor !== null;
      const asked = [...this.held.slice(0, EXPLAINED), ...this.waiting.slice(0, EXPLAINED)];
      const told = await Promise.all(asked.map(({ execution_id: id }) => get(`/executions/${id}/why`)));
      this.reasons = new Map(told.map((each) => [each.execution_id, each]));
    } catch (problem) {
      this.past.problem ??= problem;
    }
    this.changed();
  }

  /** What a job runs, as soon as it is known. */
  typeOf(jobId) {
    if (!this.types.has(jobId)) {
      this.types.set(jobId, null);
      get(`/jobs/${jobId}`).then(({ command_type: name }) => {
        this.types.set(jobId, name);
        this.changed();
      }, () => {});
    }
    return this.types.get(jobId) ?? "…";
  }
}

const jobLink = (jobId) => h("a", { href: href(["jobs", String(jobId)]) }, `job ${jobId}`);
const executionLink = (id) => h("a", { href: href(["executions", String(id)]) }, `execution ${id}`);

/** Who holds it now, and what waits for it. */
export function nowView(work) {
  return h(
    "section",
    { class: "card", "aria-labelledby": "now-title" },
    h("h2", { id: "now-title" }, "Who holds it now"),
    work.held === null && h("p", { class: "faint" }, "Reading…"),
    work.held?.length === 0 && h("p", { class: "soft" }, "Nobody: nothing runs here."),
    work.held?.length > 0 && h("ul", { class: "holders" }, work.held.map((each) => holder(work, each))),
    work.waiting?.length > 0 && [h("h2", { key: "title" }, "What waits for it"), h("ul", { class: "holders", key: "waiting" }, work.waiting.slice(0, EXPLAINED).map((each) => waiter(work, each))), h("p", { key: "all" }, h("a", { href: href(["hosts", work.hostId], { status: ["NEW", "QUEUED"] }) }, `${many(work.waiting.length, "execution")}${work.more ? " or more" : ""} in all`))],
  );
}

function holder(work, execution) {
  const since = work.reasons.get(execution.execution_id)?.facts.since ?? execution.updated_at;
  return h(
    "li",
    { key: execution.execution_id },
    h("div", null, status(execution.status), " ", h("strong", null, work.typeOf(execution.job_id)), " ", executionLink(execution.execution_id), " of ", jobLink(execution.job_id)),
    h("div", { class: "soft" }, "it began ", when(since), execution.deadline_at && [", and has to end ", when(execution.deadline_at)]),
  );
}

const waiter = (work, execution) =>
  h(
    "li",
    { key: execution.execution_id },
    h("div", null, status(execution.status), " ", h("strong", null, work.typeOf(execution.job_id)), " ", executionLink(execution.execution_id), " of ", jobLink(execution.job_id)),
    h("div", { class: "soft" }, work.reasons.get(execution.execution_id)?.text ?? ["since ", when(execution.created_at)]),
  );

/** What ran here, or is to run, the newest first; `chosen` are the statuses that are shown. */
export function pastView(work, { scroll, chosen, onchoose, redraw, narrow }) {
  const columns = [
    { name: "status", label: "Status", class: "cell-status", cell: (each) => status(each.status) },
    { name: "type", label: "What", class: "cell-2", cell: (each) => work.typeOf(each.job_id) },
    { name: "job", label: "Job", class: "cell-id", cell: (each) => each.job_id },
    { name: "cause", label: "Why", class: "cell-2 wide", cell: (each) => [each.late_result && h("span", { class: "status tone-late", title: "The host spoke up when it was too late" }, icon("late"), " late "), h("span", { class: "soft", title: each.error }, each.error ?? (each.cause ? words(each.cause) : "")), each.exit_code !== null && !each.error ? ` exit ${each.exit_code}` : ""] },
    { name: "attempt", label: "Attempts", class: "cell-number wide", cell: (each) => each.attempt },
    { name: "took", label: "Took", class: "cell-number wide", cell: (each) => (each.finished_at ? between(each.created_at, each.finished_at) : "–") },
    { name: "when", label: "When", class: "cell-when", cell: (each) => when(each.finished_at ?? each.updated_at) },
  ];
  const empty = work.past.loading || work.past.problem ? null : h("p", null, chosen.size ? "Nothing in these statuses." : "Nothing has run here yet.");
  return h(
    "section",
    { class: "card card-flush", "aria-labelledby": "past-title" },
    h("div", { class: "card-head" }, h("h2", { id: "past-title" }, "What ran here"), statusFilter(chosen, onchoose)),
    table({ state: scroll, columns, items: work.past.items, key: (each) => each.execution_id, link: (each) => href(["executions", String(each.execution_id)]), onend: () => work.past.more(), empty, label: "What ran here", redraw, rows: narrow ? 8 : 12 }),
    footing(work.past, "executions"),
  );
}

const statusFilter = (chosen, onchoose) =>
  h(
    "div",
    { class: "chips", role: "group", "aria-label": "Filter by status" },
    STATUSES.map((name) => h("button", { type: "button", key: name, class: `chip tone-${tone(name)}`, "aria-pressed": chosen.has(name) ? "true" : "false", onclick: () => onchoose(name) }, icon(tone(name)), h("span", { class: "chip-name" }, words(name)))),
  );
