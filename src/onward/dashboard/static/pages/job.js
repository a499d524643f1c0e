/** A job: how it gets on, host by host, what came of it, and what may be done with it. */

import { get, getWithVersion, patch, post } from "../api.js";
import { between, count, json, lasted, many, selector, words } from "../format.js";
import { bar, chips } from "../parts/bar.js";
import { Cells } from "../parts/cells.js";
import { decide } from "../parts/decision.js";
import { askFor, note } from "../parts/dialog.js";
import { callout, openForm, STAY } from "../parts/form.js";
import { Grid } from "../parts/grid.js";
import { icon } from "../parts/icons.js";
import { difference, differenceView } from "../parts/plan.js";
import { parsed } from "../parts/run.js";
import { status, tone } from "../parts/status.js";
import { when } from "../parts/time.js";
import { pairs } from "../parts/value.js";
import { choose, go, href } from "../router.js";
import { h } from "../view.js";
import { JobDetails } from "./job-details.js";
import { Pace } from "./job-pace.js";

const RELOAD_MS = 250;
const NOTED_MS = 2_000; // within which the service notes when the last of a job ended

export default function job(app, { params, query }) {
  return new JobPage(app, Number(params.id), query);
}

class JobPage {
  constructor(app, id, query) {
    this.app = app;
    this.id = id;
    this.job = null;
    this.etag = null;
    this.plan = null; // of a job that waits for approval
    this.cells = null;
    this.early = []; // what was heard while the picture was asked for
    this.loads = 0; // how many pictures are asked for
    this.problem = null;
    this.busy = false; // whether a word of ours is on its way
    this.pace = new Pace();
    this.chosen = new Set(query.getAll("status"));
    this.hosts = new Map(); // what is known of those under the pointer, by index
    this.grid = new Grid({ changed: () => this.pointed(), open: (index) => go(href(["executions", this.cells.execution(index)])) });
    this.grid.choose(this.chosen);
    this.details = new JobDetails(app, id, query, (chosen) => this.filter(chosen));
    this.load();
  }

  title() {
    return this.job ? `Job ${this.id}: ${this.job.command_type}` : `Job ${this.id}`;
  }

  async load() {
    this.loads += 1;
    try {
      const drawing = get(`/jobs/${this.id}/grid`);
      // What is refused is told once, by whichever is waited for first.
      drawing.catch(() => {});
      this.know(await getWithVersion(`/jobs/${this.id}`));
      this.app.redraw();
      const answer = await drawing;
      this.cells = new Cells(answer);
      for (const changes of this.early) this.cells.take(changes, this.id);
      this.pace.note(this.cells.ended);
      this.grid.load(this.cells);
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
    this.loads -= 1;
    if (!this.loads) this.early = [];
    this.app.redraw();
    this.details.load();
    this.awaitEnd();
    if (this.job?.allowed.includes("approve")) this.loadPlan().catch((problem) => { this.problem = problem; this.app.redraw(); });
  }

  know({ data, etag }) {
    // Answers may overtake each other.
    if (data.version < this.job?.version) return;
    this.job = data;
    this.etag = etag;
  }

  async loadPlan() {
    const { data, etag } = await getWithVersion(`/jobs/${this.id}/plan`);
    this.plan = { data, etag };
    this.know({ data: data.job, etag });
    this.app.redraw();
  }

  heard(message) {
    if (message.type === "reset") this.load();
    if (message.type !== "changes") return;
    const mine = message.changes.filter((change) => change[1] === this.id);
    if (!mine.length) return;
    if (mine.some((change) => change[0] === "job")) this.reloadSoon();
    // A picture that is on its way may have been taken before this.
    if (this.loads) this.early.push(mine);
    if (!this.cells?.take(mine, this.id)) return;
    this.grid.refresh();
    this.pace.note(this.cells.ended);
    this.details.changed(this.cells);
    this.redrawSoon();
    // What may be done with a job depends on whether anything of it is open.
    if (this.over()) this.reloadSoon();
  }

  /** Numbers that change a thousand times a second are read four times a second. */
  redrawSoon() {
    this.drawing ??= setTimeout(() => {
      this.drawing = null;
      this.app.redraw();
    }, 250);
  }

  reloadSoon(after = RELOAD_MS) {
    this.reloading ??= setTimeout(() => {
      this.reloading = null;
      this.look();
    }, after);
  }

  /** Look at the job again, and at what no change tells of. */
  async look() {
    if (this.closed) return;
    if (!this.cells && !this.loads) return void this.load();
    try {
      this.know(await getWithVersion(`/jobs/${this.id}`));
      if (this.job.allowed.includes("approve")) await this.loadPlan();
      await this.lookForLate();
      this.problem = null;
    } catch {
      // The next change, or the next look, asks again.
    }
    this.details.reloadTimeline();
    this.awaitEnd();
    this.app.redraw();
  }

  /** Who spoke after it was given up: that moves nothing, so nobody is told of it. */
  async lookForLate() {
    const { late } = await get(`/jobs/${this.id}/grid`);
    if (!this.cells) return;
    this.cells.late = new Set(late);
    this.grid.drawAll();
  }

  /** When the last of it ended is noted a moment later, and nothing tells that either. */
  awaitEnd() {
    if (!this.closed && this.over() && !this.job.finished_at && this.state() !== "WAITING_FOR_APPROVAL") this.reloadSoon(NOTED_MS);
  }

  close() {
    this.closed = true;
    this.details.close();
    clearTimeout(this.drawing);
    clearTimeout(this.reloading);
  }

  filter(chosen = this.chosen) {
    this.chosen = chosen;
    choose({ status: [...this.chosen], ...this.details.chosen() });
    this.grid.choose(this.chosen);
    this.details.filtered(this.chosen);
    this.app.redraw();
  }

  view() {
    if (this.problem && !this.job) return h("div", { class: "empty", role: "alert" }, h("h1", null, `Job ${this.id}`), h("p", null, this.problem.message));
    if (!this.job) return h("div", { class: "stack" }, h("h1", null, `Job ${this.id}`), h("p", { class: "footing" }, "Reading…"));
    return h("div", { class: "stack" }, this.head(), this.problem && h("p", { class: "footing tone-bad", key: "problem", role: "alert" }, this.problem.message), this.notice(), this.cells && [this.progress(), this.picture(), this.details.view(this.job, this.cells, this.chosen)]);
  }

  head() {
    const { job } = this;
    return h(
      "div",
      { class: "head job-head", key: "head" },
      h(
        "div",
        { class: "grow" },
        h("nav", { class: "crumbs", "aria-label": "Where this is" }, h("a", { href: href(["jobs"]) }, "Jobs"), icon("right"), h("span", null, job.external_id)),
        h("h1", { elementtiming: "onward-job" }, `Job ${job.job_id}: ${job.command_type}`),
        h("p", { class: "lead" }, "on ", h("code", null, selector(job.selector)), ` · ${many(job.total, "host")} · asked for by ${job.requested_by} `, when(job.created_at), job.retry_of && [" · again after ", h("a", { href: href(["jobs", job.retry_of]) }, `job ${job.retry_of}`)]),
      ),
      h("div", { class: "buttons" }, h("span", { class: `status-large tone-${tone(this.state())}` }, status(this.state())), this.deeds()),
    );
  }

  /** Whether we have seen all of it end. */
  over() {
    return this.cells !== null && this.cells.ended === this.cells.total;
  }

  /** The job's own word, unless we have already seen all of it end. */
  state() {
    return this.over() && this.job.state === "UNDER_WAY" ? "FINISHED" : this.job.state;
  }

  deeds() {
    const { app, job } = this;
    const offered = {
      approve: ["approve", "Approve", "good", () => this.decide("approve")],
      reject: ["approve", "Reject", "bad", () => this.decide("reject")],
      edit: ["run", "Change", "plain", () => this.edit()],
      pause: ["run", "Pause", "plain", () => this.hold("pause")],
      resume: ["run", "Resume", "main", () => this.hold("resume")],
      cancel: ["run", "Cancel", "bad", () => this.cancel()],
      retry: ["run", "Retry failed", "main", () => this.retry()],
    };
    return job.allowed
      .filter((deed) => deed in offered && app.may(offered[deed][0]))
      .map((deed) => h("button", { key: deed, type: "button", class: `button button-${offered[deed][2]}`, onclick: offered[deed][3] }, offered[deed][1]));
  }

  /** The plan as it is shown here, or nothing if it cannot be read. */
  async planned() {
    if (!this.plan) await this.app.attempt(() => this.loadPlan());
    return this.plan;
  }

  async decide(what) {
    const seen = await this.planned();
    if (!seen) return;
    await decide(this.app, seen.data.job, seen.data, seen.etag, what);
    await this.look();
  }

  async hold(what) {
    if (this.busy) return;
    this.busy = true;
    try {
      const { data, etag } = await post(`/jobs/${this.id}/${what}`, undefined, { ifMatch: this.etag });
      this.know({ data, etag });
      note(what === "pause" ? "Paused: what runs goes on, nothing more begins." : "Resumed.");
    } catch (problem) {
      if (!problem.stale) note(problem.message, "bad");
      else note("It changed under you: look at it as it is now, and decide again.", "bad");
      await this.app.attempt(async () => this.know(await getWithVersion(`/jobs/${this.id}`)));
    }
    this.busy = false;
    this.app.redraw();
  }

  async cancel() {
    const { NEW = 0, QUEUED = 0, RUNNING = 0 } = this.cells?.byStatus() ?? this.job.counts;
    const waiting = NEW + QUEUED;
    const answer = await askFor({
      title: `Cancel job ${this.id}?`,
      body: h("p", null, `${many(waiting, "execution")} ${waiting === 1 ? "has" : "have"} not begun and will not. ${count(RUNNING)} running will be asked to stop; any of them may finish first.`),
      fields: [{ name: "reason", label: "Reason" }],
      action: "Cancel the job",
      tone: "bad",
    });
    if (!answer) return;
    await this.app.attempt(async () => this.know(await post(`/jobs/${this.id}/cancel`, { reason: answer.reason })), "Cancelled.");
    this.app.redraw();
  }

  async retry() {
    const answer = await askFor({
      title: "Run again what failed?",
      body: h("p", null, "A new job is made of what failed, timed out or was blocked. What turned out to have succeeded is left alone."),
      action: "Retry",
      tone: "main",
    });
    if (!answer) return;
    await this.app.attempt(async () => {
      const { data } = await post(`/jobs/${this.id}/retry`, {});
      go(href(["jobs", data.job_id]));
    });
  }

  async edit() {
    let seen = await this.planned();
    if (!seen) return;
    let rows = null; // in what it differs from the plan that was seen, once it does
    const { params, max_concurrency: limit } = seen.data.job;
    const values = { params: json(params, 2), max_concurrency: limit ?? "" };
    const change = async () => {
      const body = { params: parsed(values.params, "params"), max_concurrency: values.max_concurrency === "" ? null : Number(values.max_concurrency) };
      try {
        return await patch(`/jobs/${this.id}`, body, { ifMatch: seen.etag });
      } catch (problem) {
        if (!problem.stale) throw problem;
        const now = await getWithVersion(`/jobs/${this.id}/plan`);
        rows = difference(seen.data, now.data);
        seen = now;
        return STAY;
      }
    };
    const changed = await openForm({
      title: "Change the plan",
      lead: h("p", null, "Whoever changes a plan cannot approve it."),
      values,
      fields: [
        { name: "params", label: "Parameters", type: "textarea", rows: 5 },
        { name: "max_concurrency", label: "At most so many at once", type: "number", min: 1, hint: "Empty: no limit." },
      ],
      body: () => rows && callout("late", h("p", null, h("strong", null, "It changed under you."), " Nothing of yours was written: it stands above as you wrote it, and would replace what the plan is now."), rows.length > 0 && differenceView(rows)),
      action: () => (rows ? "Change what it is now" : "Change"),
      deed: change,
    });
    if (!changed) return;
    this.know(changed);
    note("Changed: whoever approves sees the new plan.");
    await this.look();
  }

  notice() {
    const { job, plan } = this;
    if (job.state === "WAITING_FOR_APPROVAL") return this.waiting(plan?.data);
    if (job.state === "TURNED_DOWN") return notice("bad", `${job.decided_by} has rejected it`, job.decision_reason);
    if (job.state === "PAUSED") return notice("held", "Paused", "What runs goes on, and nothing more begins until it is resumed.");
    if (job.cancelled_at) return notice("gone", `Cancelled by ${job.cancelled_by}`, null);
    return null;
  }

  waiting(plan) {
    const told = plan
      ? `${many(plan.runs, "host")} would run${plan.blocked ? `, ${count(plan.blocked)} are blocked by a rule` : ""}${plan.busy ? `, ${count(plan.busy)} are busy now` : ""}.`
      : "Reading the plan…";
    return h(
      "div",
      { class: "callout tone-late" },
      icon("approvals"),
      h("div", { class: "callout-body" }, h("strong", null, "Waits for somebody's approval"), h("p", null, told, " Nothing runs before that, and what is approved is this plan and no other."), Object.keys(this.job.params).length > 0 && pairs(this.job.params)),
    );
  }

  progress() {
    const { cells, pace } = this;
    const counts = cells.byStatus();
    const left = cells.total - cells.ended;
    const rate = pace.rate();
    return h(
      "section",
      { class: "card progress", key: "progress", "aria-label": "Progress" },
      bar(counts, { label: "Progress" }),
      chips(counts, { chosen: this.chosen, statuses: cells.order, onchoose: (name) => this.toggle(name) }),
      h(
        "p",
        { class: "progress-line" },
        h("span", null, h("strong", null, count(cells.ended)), ` of ${count(cells.total)} ended`),
        h("span", null, this.job.finished_at ? `took ${between(this.job.created_at, this.job.finished_at)}` : left > 0 && `for ${between(this.job.created_at)}`),
        left > 0 && rate > 0 && h("span", null, `${rate < 10 ? rate.toFixed(1) : count(Math.round(rate))} a second, about ${lasted(left / rate)} left`),
        cells.late.size > 0 && h("span", null, `${count(cells.late.size)} spoke after they were given up`),
        this.job.max_concurrency && h("span", null, `at most ${count(this.job.max_concurrency)} at once`),
      ),
    );
  }

  toggle(name) {
    const chosen = new Set(this.chosen);
    if (!chosen.delete(name)) chosen.add(name);
    this.filter(chosen);
  }

  picture() {
    return h(
      "section",
      { class: "card grid-card", key: "picture", "aria-label": "Every host" },
      h(
        "div",
        { class: "grid-tools" },
        h("h2", null, "Every host"),
        h("span", { class: "grow" }),
        h("label", { class: "zoom" }, "Size", h("input", { type: "range", min: 0, max: Grid.levels - 1, value: String(this.grid.level), oninput: (event) => this.grid.zoomTo(Number(event.target.value)) })),
        this.grid.zoom !== null && h("button", { type: "button", class: "button button-small", onclick: () => this.grid.zoomTo(null) }, "Fit"),
      ),
      this.grid.view(`${count(this.cells.total)} hosts by status`),
      h("p", { class: "grid-line", id: "grid-line", "aria-live": "polite" }, this.line()),
      this.tip(),
    );
  }

  /** What is under the pointer, or else under the cursor, in words. */
  line() {
    const index = this.grid.under?.index ?? (this.grid.cursor >= 0 ? this.grid.cursor : null);
    if (index === null) return "Point at a host, or go there with the arrow keys.";
    const known = this.hosts.get(index);
    const name = known?.host ?? `host ${this.cells.host(index)}`;
    const told = known?.error ? `: ${known.error}` : "";
    return `${name} · ${words(this.cells.status(index))}${known?.attempt > 1 ? ` · attempt ${known.attempt}` : ""}${told}`;
  }

  tip() {
    const { under } = this.grid;
    if (!under) return null;
    const known = this.hosts.get(under.index);
    const left = Math.min(under.x + 14, under.wide - 260);
    return h(
      "div",
      { class: "grid-tip", "aria-hidden": "true", style: { left: `${Math.max(8, left)}px`, top: `${under.y + 66}px` } },
      h("strong", null, known?.host ?? `host ${this.cells.host(under.index)}`),
      status(this.cells.status(under.index)),
      known?.cause && h("span", { class: "faint" }, words(known.cause)),
      this.cells.late.has(under.index) && h("span", { class: "faint" }, "spoke after it was given up"),
    );
  }

  /** Ask who it is, once somebody stays there for a moment. */
  pointed() {
    const index = this.grid.under?.index ?? this.grid.cursor;
    clearTimeout(this.asking);
    this.app.redraw();
    if (index < 0 || index === undefined || (this.hosts.get(index)?.of === this.cells.digits[index])) return;
    this.asking = setTimeout(async () => {
      try {
        const found = await get(`/executions/${this.cells.execution(index)}`);
        if (this.hosts.size > 2_000) this.hosts.clear();
        this.hosts.set(index, { ...found, of: this.cells.digits[index] });
        this.app.redraw();
      } catch {
        // Its number has to do.
      }
    }, 60);
  }
}

const notice = (tone, title, text) =>
  h("div", { class: `callout tone-${tone}` }, icon(tone), h("div", { class: "callout-body" }, h("strong", null, title), text && h("p", null, text)));
