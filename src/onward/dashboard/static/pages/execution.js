/** An execution: where it is and why, what was said about it, and what its host prints. */

import { get } from "../api.js";
import { between, many, words } from "../format.js";
import { Again, settled } from "../parts/again.js";
import { allLifecycles, diagram } from "../parts/diagram.js";
import { icon } from "../parts/icons.js";
import { lateNote, lateResult } from "../parts/late.js";
import { Log } from "../parts/log.js";
import { cause, tell } from "../parts/sentences.js";
import { tone } from "../parts/status.js";
import { when } from "../parts/time.js";
import { Told, timeline } from "../parts/timeline.js";
import { pairs } from "../parts/value.js";
import { href } from "../router.js";
import { h } from "../view.js";
import { whyView } from "./execution-why.js";

const PRINTED_MS = 1_000; // how often a host that runs is asked what it has printed
const LOOK_MS = 5_000; // what moves nothing is not heard of: what was ignored, or no longer holds it up

export default function execution(app, { params }) {
  return new ExecutionPage(app, Number(params.id));
}

class ExecutionPage {
  constructor(app, id) {
    this.app = app;
    this.id = id;
    this.execution = null;
    this.why = null;
    this.job = null;
    this.lifecycle = null;
    this.problem = null;
    this.groups = []; // what was said, told attempt by attempt
    this.told = new Told(`/executions/${id}/timeline`);
    this.timeline = { redraw: app.redraw };
    this.log = new Log(id, { redraw: app.redraw, attemptOf: (epoch) => this.attemptOf(epoch) });
    this.again = new Again(() => this.load());
    this.looks = [
      setInterval(() => { if (this.running) this.log.more(); }, PRINTED_MS),
      setInterval(() => { if (!settled(this.problem) && !document.hidden) this.again.soon(); }, LOOK_MS),
    ];
    this.again.now();
  }

  title() {
    return this.execution ? `Execution ${this.id} on ${this.execution.host ?? "a host that is gone"}` : `Execution ${this.id}`;
  }

  get running() {
    return this.execution?.status === "RUNNING";
  }

  get open() {
    return this.execution !== null && this.execution.finished_at === null;
  }

  async load() {
    try {
      const path = `/executions/${this.id}`;
      const [execution, why, lifecycles] = await Promise.all([get(path), get(`${path}/why`), allLifecycles(), this.told.read()]);
      const first = this.execution === null;
      this.execution = execution;
      this.why = why;
      this.lifecycle = lifecycles.get("execution");
      this.groups = tell(this.told.items, { lifecycle: this.lifecycle, record: execution });
      this.problem = null;
      if (first) this.log.follow = this.running;
      this.job ??= await get(`/jobs/${execution.job_id}`);
    } catch (problem) {
      this.problem = problem;
    }
    this.app.redraw();
    this.log.more();
  }

  heard({ type, changes }) {
    if (type === "reset") this.again.soon();
    if (type !== "changes") return;
    const { id, why } = this;
    // Also what holds its host, or its job, has an end.
    const about = (change) => change[2] === id || (this.open && (change[2] === why?.facts.execution_id || (change[0] === "job" && change[1] === this.execution.job_id)));
    if (changes.some(about)) this.again.soon();
  }

  close() {
    this.again.close();
    this.looks.forEach(clearInterval);
  }

  attemptOf(epoch) {
    return this.groups.find((group) => group.epoch === epoch)?.attempt ?? null;
  }

  view() {
    if (!this.execution) {
      return h("div", { class: "stack" }, h("h1", null, `Execution ${this.id}`), this.problem ? h("p", { class: "refusal", role: "alert" }, this.problem.message) : h("p", { class: "footing" }, "Reading…"));
    }
    return h(
      "div",
      { class: "stack" },
      this.head(),
      this.problem && h("p", { class: "refusal", role: "alert" }, this.problem.message),
      whyView(this.why, this.execution),
      lateResult(this.execution, this.lifecycle),
      h("section", { class: "card", "aria-labelledby": "lifecycle-title" }, h("h2", { id: "lifecycle-title" }, "Lifecycle"), diagram(this.lifecycle, { status: this.execution.status, events: this.told.items })),
      h("div", { class: "columns" }, h("div", { class: "stack" }, this.log.view({ running: this.running, open: this.open }), timeline(this.told, { groups: this.groups, record: this.execution, state: this.timeline })), h("div", { class: "stack" }, this.facts(), this.attempts(), this.command())),
    );
  }

  head() {
    const { execution, job } = this;
    return h(
      "div",
      { class: "head" },
      h(
        "div",
        { class: "grow" },
        h("nav", { class: "crumbs", "aria-label": "Where this is" }, h("a", { href: href(["jobs"]) }, "Jobs"), icon("right"), h("a", { href: href(["jobs", execution.job_id]) }, `Job ${execution.job_id}${job ? `: ${job.command_type}` : ""}`), icon("right"), h("span", null, `Execution ${this.id}`)),
        h("h1", null, job ? `${job.command_type} on ` : "On ", execution.host ? h("a", { href: href(["hosts", execution.host_id]) }, h("bdi", null, execution.host)) : "a host that is gone"),
      ),
      h("div", { class: "standing" }, h("span", { class: `status status-huge tone-${tone(execution.status)}` }, icon(tone(execution.status), { size: 20 }), h("span", null, words(execution.status))), lateNote(execution, this.lifecycle)),
    );
  }

  facts() {
    const { execution: each, job } = this;
    const rows = [
      ["host", each.host ? h("a", { href: href(["hosts", each.host_id]) }, h("bdi", null, each.host)) : "gone"],
      ["job", h("a", { href: href(["jobs", each.job_id]) }, `${each.job_id}`)],
      ["attempt", each.attempt === 0 ? "none yet" : `${each.attempt}`],
      ["retries", job ? `${each.retries} of ${job.max_retries}` : `${each.retries}`],
      ["epoch", h("code", null, each.epoch)],
      ["exit code", each.exit_code !== null && h("code", null, each.exit_code)],
      ["cause", each.cause && cause({ cause: each.cause })],
      // After a success it is what a former attempt said.
      [each.cause ? "error" : "former error", each.error && h("span", { class: each.cause ? "tone-bad error-text" : "soft" }, h("bdi", null, each.error))],
      ["worker", each.worker_id],
      ["not before", each.due_at && this.open && when(each.due_at)],
      ["deadline", each.deadline_at && when(each.deadline_at)],
      ["made", when(each.created_at)],
      ["last change", when(each.updated_at)],
      ["ended", each.finished_at && when(each.finished_at)],
      ["took", each.finished_at && between(each.created_at, each.finished_at)],
    ];
    return card("Facts", definitions(rows));
  }

  attempts() {
    const groups = this.groups.filter(({ attempt }) => attempt !== null);
    if (!groups.length) return null;
    return card(
      "Attempts",
      h(
        "table",
        { class: "plain" },
        h("thead", null, h("tr", null, ["", "epoch", "took", "what came of it"].map((name, i) => h("th", { scope: "col", key: i }, name || h("span", { class: "visually-hidden" }, "attempt"))))),
        h("tbody", null, groups.map((group, i) => h("tr", { key: i }, h("th", { scope: "row" }, `${group.attempt}`), h("td", null, h("code", null, group.epoch ?? "–")), h("td", { class: "nowrap" }, between(group.begun, group.ended)), h("td", null, outcome(group))))),
      ),
      h("p", { class: "hint" }, `${many(this.execution.attempt, "attempt")} counted. Each has an epoch of its own, so that what a former one still says is told apart.`),
    );
  }

  command() {
    const { job } = this;
    if (!job) return null;
    return card("Command", h("p", null, h("strong", null, job.command_type), job.read_only && h("span", { class: "soft" }, ", which only reads")), pairs(job.params, { none: "no parameters" }));
  }
}

/** What came of an attempt, from the event that ended it. */
function outcome({ entries, retried, ended }) {
  const last = retried ?? entries.map(({ event }) => event).find((event) => event.verdict === "OK" && event.at === ended && event.event !== "claim");
  if (!last) return "under way";
  const why = cause(last.detail ?? {});
  return `${retried ? "tried again" : words(last.to_status)}${why && `: ${why}`}`;
}

const card = (title, ...inside) => h("section", { class: "card", "aria-label": title }, h("h2", null, title), inside);

/** A list of names and values, without those that are not there. */
const definitions = (rows) =>
  h("dl", { class: "pairs" }, rows.filter(([, value]) => value !== null && value !== undefined && value !== false && value !== "").map(([name, value]) => [h("dt", { key: `t-${name}` }, name), h("dd", { key: `d-${name}` }, value)]));
