/**
 * Deciding about a job: the plan that is decided about, and nothing but that plan.
 *
 * If it changed under whoever decides, the difference is shown, and they decide again about what it
 * is now; if somebody else was first, it says so.
 */

import { getWithVersion, post } from "../api.js";
import { ago, words } from "../format.js";
import { h, mount } from "../view.js";
import { note } from "./dialog.js";
import { icon } from "./icons.js";
import { difference, differenceView, planView } from "./plan.js";

const DEEDS = {
  approve: { verb: "Approve", done: "approved", tone: "good" },
  reject: { verb: "Reject", done: "rejected", tone: "bad" },
};

/**
 * Ask whether a job is to be approved or rejected, and do it; `plan` and `etag` are of
 * `/jobs/{id}/plan`, as they were shown. Returns `{data, etag}` of the job, or `null` if this person
 * has not decided.
 */
export function decide(app, job, plan, etag, what) {
  return new Promise((resolve) => {
    new Decision(app, { seen: { ...plan, job }, etag, what }, resolve).open();
  });
}

/** Why this person cannot decide about a job, whatever their role: they have had a hand in it. */
export function involved(app, { requested_by, edited_by }) {
  if (requested_by === app.me.person) return "You asked for it: somebody else has to decide.";
  if (edited_by.includes(app.me.person)) return "You changed it: somebody else has to decide.";
  return "";
}

class Decision {
  constructor(app, { seen, etag, what }, over) {
    this.app = app;
    this.seen = seen;
    this.etag = etag;
    this.what = what;
    this.deed = DEEDS[what];
    this.over = over;
    this.rows = null; // in what the plan differs from the one before, once it does
    this.refusal = null; // {title, text, final}
    this.reason = "";
    this.busy = false;
    this.decided = null;
    if (this.own()) this.refusal = { ...FOUR_EYES, text: this.own() };
  }

  get path() {
    return `/jobs/${this.seen.job.job_id}`;
  }

  open() {
    this.holder = document.createElement("div");
    document.body.append(this.holder);
    this.redraw = mount(this.holder, () => this.view());
  }

  close() {
    this.holder.querySelector("dialog")?.close();
  }

  closed() {
    this.redraw.end();
    this.holder.remove();
    this.over(this.decided);
  }

  /** Why somebody else has to decide, if that can be told beforehand. */
  own() {
    return involved(this.app, this.seen.job);
  }

  async submit(event) {
    event.preventDefault();
    if (this.busy || this.refusal?.final) return;
    this.busy = true;
    this.refusal = null;
    this.redraw();
    try {
      if (this.what === "reject" || !(await this.changed())) await this.say();
    } catch (problem) {
      await this.refused(problem);
    }
    this.busy = false;
    this.redraw();
  }

  async say() {
    this.decided = await post(`${this.path}/${this.what}`, { reason: this.reason }, { ifMatch: this.etag });
    note(`Job ${this.seen.job.job_id} is ${this.deed.done}.`);
    this.close();
  }

  /** Look again: rules that block hosts come and go without the job's having another version. */
  async changed() {
    const { data, etag } = await getWithVersion(`${this.path}/plan`);
    if (data.job.state !== "WAITING_FOR_APPROVAL") return this.late(data.job);
    const rows = difference(this.seen, data);
    this.seen = data;
    this.etag = etag;
    this.rows = rows.length ? rows : null;
    if (this.own()) this.refusal = { ...FOUR_EYES, text: this.own() };
    return rows.length > 0;
  }

  async refused(problem) {
    try {
      if (problem.stale && (await this.changed())) return;
    } catch (another) {
      this.refusal = { title: "It cannot be looked at again", text: another.message };
      return;
    }
    if (problem.code === "four-eyes") this.refusal = { ...FOUR_EYES, text: problem.message };
    else if (problem.code === "job-stands-otherwise") this.late(problem.body);
    else if (problem.stale) this.refusal = { title: "It changed under you", text: "The plan is the same, but it has another version: try again." };
    else this.refusal = { title: problem.title || "It was refused", text: problem.message };
  }

  /** Somebody else was first: nothing is left to be decided. */
  late(job) {
    const by = job.decided_by ?? job.cancelled_by;
    const how = job.decided_by ? words(job.approval_state) : "cancelled";
    const at = job.decided_at ?? job.cancelled_at;
    const text = by ? `${by} has ${how} it${at ? ` ${ago(at)}` : ""}${job.decision_reason ? `: ${job.decision_reason}` : "."}` : `It is ${words(job.state)}.`;
    this.refusal = { title: "It changed under you", text, final: true };
    return true;
  }

  view() {
    const { deed, refusal, seen } = this;
    const final = Boolean(refusal?.final);
    return h(
      "dialog",
      { class: "dialog dialog-wide", "aria-labelledby": "decision-title", oncancel: (event) => { if (this.busy) event.preventDefault(); }, onclose: () => this.closed(), ref: (element) => element.showModal() },
      h(
        "form",
        { method: "dialog", onsubmit: (event) => this.submit(event) },
        h("h2", { id: "decision-title" }, `${deed.verb} job ${seen.job.job_id}: ${seen.job.command_type}?`),
        h("div", { "aria-live": "assertive", class: "stack" }, refusal && told(refusal), this.rows && !final && this.changes()),
        h("div", { class: "dialog-body" }, planView(seen)),
        !final && this.field(),
        h(
          "div",
          { class: "buttons" },
          h("button", { type: "button", class: "button", disabled: this.busy, onclick: () => this.close() }, final ? "Close" : "Leave it"),
          !final && h("button", { type: "submit", class: `button button-${deed.tone}`, "aria-disabled": this.busy ? "true" : null }, this.rows ? `${deed.verb} what it is now` : deed.verb),
        ),
      ),
    );
  }

  changes() {
    return h(
      "div",
      { class: "callout tone-late" },
      icon("warning"),
      h("div", { class: "callout-body" }, h("strong", null, "It changed under you"), h("p", null, "Nothing was decided. This differs from what you saw; the plan below is as it is now."), differenceView(this.rows)),
    );
  }

  field() {
    const reject = this.what === "reject";
    return h(
      "div",
      { class: "field" },
      h("label", { for: "decision-reason" }, "Reason"),
      h("input", { id: "decision-reason", value: this.reason, maxlength: 255, autocomplete: "off", "aria-describedby": "decision-hint", oninput: (event) => { this.reason = event.target.value; } }),
      h("p", { class: "hint", id: "decision-hint" }, reject ? "What has not begun is cancelled; whoever asked for it reads why." : "It is kept with the decision."),
    );
  }
}

const FOUR_EYES = { title: "Somebody else has to decide", final: true };

const told = ({ title, text, final }) =>
  h("div", { class: `callout tone-${final ? "held" : "late"}` }, icon("warning"), h("div", { class: "callout-body" }, h("strong", null, title), h("p", null, text)));
