/** What waits for an approval: the oldest first, with what each would do. */

import { get, getWithVersion } from "../api.js";
import { between, count, exactly, many, selector } from "../format.js";
import { decide, involved } from "../parts/decision.js";
import { icon } from "../parts/icons.js";
import { summary } from "../parts/plan.js";
import { pairs } from "../parts/value.js";
import { href } from "../router.js";
import { h } from "../view.js";

const RELOAD_MS = 1_000;
const SHOWN = 20;
const PAGES_MAX = 20; // of a thousand jobs each

export default function approvals(app) {
  return new Approvals(app);
}

class Approvals {
  constructor(app) {
    this.app = app;
    this.jobs = null;
    this.plans = new Map(); // by job: {data, etag}, or {problem}
    this.shown = SHOWN;
    this.problem = null;
    this.load();
  }

  title() {
    return this.jobs?.length ? `Approvals (${this.jobs.length})` : "Approvals";
  }

  async load() {
    this.loading = true;
    try {
      const jobs = await waiting();
      this.plans = new Map([...this.plans].filter(([id, plan]) => jobs.some((job) => job.job_id === id && plan.data?.job.version === job.version)));
      this.jobs = jobs;
      this.app.waiting = jobs.length;
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
    this.loading = false;
    this.app.redraw();
    this.loadPlans();
  }

  /** Read the plans of what is shown, a few at a time. */
  async loadPlans() {
    const wanted = (this.jobs ?? []).slice(0, this.shown).filter((job) => !this.plans.has(job.job_id));
    const hand = async () => {
      for (let job = wanted.shift(); job && !this.closed; job = wanted.shift()) {
        this.plans.set(job.job_id, await getWithVersion(`/jobs/${job.job_id}/plan`).catch((problem) => ({ problem })));
        this.app.redraw();
      }
    };
    await Promise.all([hand(), hand(), hand()]);
  }

  heard(message) {
    if (message.type === "reset") this.loadSoon();
    if (message.type === "changes" && message.changes.some((change) => change[0] === "job")) this.loadSoon();
  }

  loadSoon() {
    this.reloading ??= setTimeout(() => {
      this.reloading = null;
      this.load();
    }, RELOAD_MS / 2);
  }

  close() {
    this.closed = true;
    clearTimeout(this.reloading);
  }

  async decide(job, what) {
    const plan = this.plans.get(job.job_id);
    await decide(this.app, plan.data.job, plan.data, plan.etag, what);
    this.plans.delete(job.job_id);
    await this.load();
  }

  view() {
    return h(
      "div",
      { class: "stack" },
      h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", null, "Approvals"), h("p", { class: "lead" }, this.told()))),
      this.problem && h("p", { class: "refusal", role: "alert" }, this.problem.message),
      this.jobs?.length === 0 && nothing(this.app),
      h("ul", { class: "waiting-jobs", "aria-label": "Jobs that wait" }, (this.jobs ?? []).slice(0, this.shown).map((job) => h("li", { key: job.job_id }, this.card(job)))),
      this.jobs?.length > this.shown && h("button", { type: "button", class: "button", onclick: () => this.more() }, `Show more of ${count(this.jobs.length)}`),
    );
  }

  told() {
    if (!this.jobs) return "Reading…";
    if (!this.jobs.length) return "Nothing waits.";
    return `${many(this.jobs.length, "job waits", "jobs wait")} for somebody's approval, the oldest first. Nothing of them runs before that.`;
  }

  more() {
    this.shown += SHOWN;
    this.app.redraw();
    this.loadPlans();
  }

  card(job) {
    const plan = this.plans.get(job.job_id);
    const title = `waiting-${job.job_id}`;
    return h(
      "article",
      { class: "card", "aria-labelledby": title },
      h(
        "div",
        { class: "card-head" },
        h("h2", { id: title }, h("a", { href: href(["jobs", job.job_id]) }, `Job ${job.job_id}: ${job.command_type}`)),
        h("span", { class: "status tone-late", title: exactly(job.created_at) }, icon("late"), h("span", null, `waits for ${between(job.created_at)}`)),
      ),
      h("p", { class: "soft waiting-for" }, "on ", h("code", null, selector(job.selector)), ` · asked for by ${job.requested_by}`, job.edited_by.length > 0 && ` · changed by ${job.edited_by.join(", ")}`),
      h("p", { class: "plan-told" }, plan?.data ? summary(plan.data) : plan?.problem ? plan.problem.message : `${many(job.total, "host")}; reading the plan…`),
      Object.keys(job.params).length > 0 && pairs(job.params),
      h("div", { class: "buttons" }, this.deeds(job, plan), h("a", { class: "button", href: href(["jobs", job.job_id]) }, "Look at it")),
    );
  }

  deeds(job, plan) {
    if (!this.app.may("approve")) return null;
    if (involved(this.app, job)) return h("p", { class: "hint grow" }, involved(this.app, job));
    const ready = Boolean(plan?.data) && job.allowed.includes("approve");
    return [
      h("button", { type: "button", key: "approve", class: "button button-good", disabled: !ready, onclick: () => this.decide(job, "approve") }, "Approve", h("span", { class: "visually-hidden" }, ` job ${job.job_id}`)),
      h("button", { type: "button", key: "reject", class: "button button-bad", disabled: !ready, onclick: () => this.decide(job, "reject") }, "Reject", h("span", { class: "visually-hidden" }, ` job ${job.job_id}`)),
    ];
  }
}

/** All jobs that wait, the oldest first; the service lists the newest first. */
async function waiting() {
  const found = [];
  let cursor = null;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const answer = await get("/jobs", { approval_state: "WAIT_APPROVAL", limit: 1_000, cursor });
    found.push(...answer.items.filter((job) => job.state === "WAITING_FOR_APPROVAL"));
    cursor = answer.next_cursor;
    if (cursor === null) break;
  }
  return found.reverse();
}

const nothing = (app) =>
  h(
    "div",
    { class: "card empty" },
    h("p", null, "Jobs of a command type that needs approval stand here until somebody decides about them."),
    app.may("run") && h("p", null, "See what would need one: ", h("code", null, "onward run --dry-run --on all -- uptime")),
    h("p", null, h("a", { href: href(["jobs"]) }, "All jobs")),
  );
