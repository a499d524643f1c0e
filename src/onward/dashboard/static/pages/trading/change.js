/**
 * A change of an account or of one's orders: it names the version that was seen, and has a key of its
 * own, so that it is done once, however often it is sent, and never about something else than was seen.
 *
 * If that has changed, the change is not made: what is now is shown beside what was seen, and one press
 * makes it all the same.
 */

import { icon } from "../../parts/icons.js";
import { h } from "../../view.js";

/** A key that nobody else takes; also where there is no secure context. */
function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export class Change {
  /**
   * `send(version, key)` asks for it; `look()` reads what it is about anew; `seen()` is what of that is
   * shown, `{version, shown: {name: words}}`; `done(answer)` hears of the end.
   */
  constructor({ what, send, look, seen, done, redraw }) {
    this.what = what;
    this.send = send;
    this.look = look;
    this.seen = seen;
    this.done = done;
    this.redraw = redraw;
    this.key = newKey();
    this.about = seen();
    this.busy = false;
    this.over = false;
    this.trouble = null; // {title, text, rows?, again?}
  }

  async go() {
    if (this.busy || this.over) return;
    this.busy = true;
    this.trouble = null;
    this.redraw();
    try {
      const answer = await this.send(this.about.version, this.key);
      this.over = true;
      await this.done(answer);
    } catch (problem) {
      if (problem.status === undefined) throw problem;
      await this.refused(problem);
    } finally {
      this.busy = false;
      this.redraw();
    }
  }

  async refused(problem) {
    if (problem.status === 0 || problem.status === 503) this.trouble = { ...UNKNOWN, again: "Say it again" };
    else if (problem.code === "idempotency-key-running") this.trouble = { title: "It is under way", text: problem.message, again: "Say it again" };
    else if (problem.stale || problem.code === "locked") await this.changed(problem);
    else this.trouble = { title: problem.title || "It was refused", text: words(problem) };
  }

  /** Nothing was done: what was seen is not what is. */
  async changed(problem) {
    const before = this.about;
    try {
      await this.look();
    } catch (another) {
      this.trouble = { title: "It changed under you", text: another.message, again: "Try again" };
      return;
    }
    this.about = this.seen();
    const text = problem.stale ? "Nothing was done." : "Another request of yours is changing it at this moment; nothing was done.";
    this.trouble = { title: "It changed under you", text, rows: rows(before.shown, this.about.shown), again: `${this.what} all the same` };
  }

  view(leave) {
    if (!this.trouble) return null;
    const { title, text, rows: differing, again } = this.trouble;
    return h(
      "div",
      { class: `callout tone-${again ? "late" : "bad"}`, role: "alert" },
      icon("warning"),
      h(
        "div",
        { class: "callout-body" },
        h("strong", null, title),
        h("p", null, text),
        differing?.length > 0 && difference(differing),
        h("div", { class: "buttons" }, again && h("button", { type: "button", class: "button button-small", disabled: this.busy, onclick: () => this.go() }, again), h("button", { type: "button", class: "button button-small", onclick: leave }, again ? "Leave it" : "Put away")),
      ),
    );
  }
}

const UNKNOWN = { title: "No answer came", text: "Nobody knows whether it was done. Said again, it is done once." };

const words = (problem) => (problem.errors.length ? problem.errors.map(({ pointer = "", detail }) => `${pointer.slice(1)} ${detail}`.trim()).join("; ") : problem.message);

const rows = (before, after) => Object.keys(after).filter((name) => before[name] !== after[name]).map((name) => [name, before[name] ?? "–", after[name]]);

const difference = (differing) =>
  h(
    "table",
    { class: "diff" },
    h("caption", { class: "visually-hidden" }, "What has changed since you looked"),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "What")), h("th", { scope: "col" }, "You saw"), h("th", { scope: "col" }, "Now it is"))),
    h("tbody", null, differing.map(([name, before, after]) => h("tr", { key: name }, h("th", { scope: "row" }, name), h("td", null, h("del", null, before)), h("td", null, h("ins", null, after))))),
  );
