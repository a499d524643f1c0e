/** The live log of an execution: only what can be seen is there, however much was printed. */

import { count, many, timeOf } from "../format.js";
import { h } from "../view.js";
import { Heights, Lines, titleOf } from "./lines.js";

const LINE = 20; // pixels of one row of letters, as in the style sheet
const AROUND = 20; // rows that are drawn above and below what can be seen
const STREAMS = { stdout: ["out", "standard output"], stderr: ["err", "standard error"], onward: ["note", "Onward itself"] };

export class Log {
  /** `attemptOf(epoch)` says which attempt an epoch was of, as far as that is known. */
  constructor(execution, { redraw, attemptOf }) {
    this.execution = execution;
    this.redraw = redraw;
    this.attemptOf = attemptOf;
    this.lines = new Lines(`/executions/${execution}/logs`, () => this.grown());
    this.heights = new Heights();
    this.follow = false;
    this.wrap = true;
    this.wanted = "";
    this.found = [];
    this.at = -1; // which of those that were found is shown
    this.top = 0;
    this.tall = 560; // pixels that can be seen, until they have been measured
    this.element = null;
    this.letter = 7.8; // pixels of one letter, until it has been measured
  }

  /** Read what has been printed since. */
  more() {
    return this.lines.more();
  }

  grown() {
    if (this.wanted) this.found = this.lines.find(this.wanted);
    this.redraw();
  }

  /** How many letters fit into a row. */
  columns() {
    if (!this.wrap) return Infinity;
    return Math.max(10, Math.floor((this.width ?? 600) / this.letter));
  }

  view({ running, open = running }) {
    return h(
      "section",
      { class: "card card-flush log-card", "aria-labelledby": "log-title" },
      h("div", { class: "card-head" }, h("h2", { id: "log-title" }, "Output"), h("span", { class: "faint" }, this.summary(running))),
      this.tools(running),
      this.lines.problem && h("p", { class: "footing tone-bad", role: "alert" }, this.lines.problem.message),
      this.lines.count > 0 ? this.body() : this.lines.read && h("p", { class: "footing" }, open ? "Nothing has been printed so far." : "Nothing was printed."),
    );
  }

  summary(running) {
    if (!this.lines.read && !this.lines.count) return "Reading…";
    const attempts = this.lines.rows.filter((row) => row.section !== undefined).length;
    return `${many(this.lines.count, "line")}${attempts > 1 ? ` of ${attempts} attempts` : ""}${running ? ", and it goes on" : ""}`;
  }

  tools(running) {
    if (!this.lines.count && !running) return null;
    return h(
      "div",
      { class: "log-tools", role: "toolbar", "aria-label": "Output" },
      h("input", { type: "search", class: "search", "aria-label": "Search in the output", placeholder: "Search in the output", "data-search": true, value: this.wanted, oninput: (event) => this.search(event.target.value), onkeydown: (event) => this.key(event) }),
      this.wanted && h("span", { class: "log-found", role: "status" }, this.found.length ? `${count(this.at + 1)} of ${count(this.found.length)}` : "not found"),
      this.found.length > 1 && [this.button("Previous", () => this.step(-1)), this.button("Next", () => this.step(1))],
      h("span", { class: "grow" }),
      this.toggle("Follow", this.follow, () => this.setFollow(!this.follow), "Stay at the newest line"),
      this.toggle("Wrap", this.wrap, () => { this.wrap = !this.wrap; this.redraw(); }, "Break long lines"),
      this.button("Download", () => this.download()),
    );
  }

  button(name, onclick) {
    return h("button", { type: "button", class: "button button-small", key: name, onclick }, name);
  }

  toggle(name, pressed, onclick, title) {
    return h("button", { type: "button", class: "button button-small toggle", key: name, "aria-pressed": pressed ? "true" : "false", title, onclick }, name);
  }

  body() {
    const { rows } = this.lines;
    const tops = this.heights.fit(rows, this.columns());
    const all = tops.at(-1) * LINE;
    const top = this.follow ? Math.max(0, all - this.tall) : Math.min(this.top, Math.max(0, all - this.tall));
    const first = Math.max(0, this.heights.at(top / LINE) - AROUND);
    const last = Math.min(rows.length, this.heights.at((top + this.tall) / LINE) + AROUND);
    // Once it is drawn, the newest line comes into sight.
    if (this.follow) queueMicrotask(() => this.toEnd());
    return h(
      "div",
      { class: this.wrap ? "log log-wrap" : "log", role: "log", "aria-live": "off", tabindex: "0", "aria-labelledby": "log-title", onscroll: () => this.scrolled(), ref: (element) => this.shown(element) },
      h("div", { class: "spacer", key: "before", style: { height: `${tops[first] * LINE}px` } }),
      rows.slice(first, last).map((row, i) => (row.section === undefined ? this.line(row, first + i) : this.section(row))),
      h("div", { class: "spacer", key: "after", style: { height: `${(tops.at(-1) - tops[last]) * LINE}px` } }),
    );
  }

  section({ section, at }) {
    return h("div", { class: "log-section", key: `s${section}` }, `${titleOf(section, this.attemptOf)}, from ${timeOf(at)}`);
  }

  line({ epoch, line, at, stream, text }, place) {
    const [short, long] = STREAMS[stream] ?? [stream, stream];
    const current = this.found[this.at] === place;
    return h(
      "div",
      { class: `log-line stream-${stream} ${current ? "log-current" : ""}`, key: `${epoch}-${line}`, title: `${long}, ${timeOf(at)}` },
      h("span", { class: "log-number" }, line),
      h("span", { class: "log-stream" }, short),
      h("span", { class: "log-text" }, this.wanted ? marked(text, this.wanted) : text),
    );
  }

  shown(element) {
    this.element = element;
    const resized = new ResizeObserver(() => this.measure());
    resized.observe(element);
    this.measure();
    return () => {
      resized.disconnect();
      this.element = null;
    };
  }

  measure() {
    const { element } = this;
    if (!element) return;
    this.tall = element.clientHeight;
    const text = element.querySelector(".log-text");
    if (text) {
      const style = getComputedStyle(text);
      const pen = (this.pen ??= document.createElement("canvas").getContext("2d"));
      pen.font = `${style.fontSize} ${style.fontFamily}`;
      this.letter = pen.measureText("0".repeat(100)).width / 100 || this.letter;
      this.width = text.getBoundingClientRect().width;
    }
    this.redraw();
  }

  scrolled() {
    const { element } = this;
    if (!element) return;
    const { scrollTop, clientHeight, scrollHeight } = element;
    // Whoever goes up wants to read; whoever goes to the end wants to see what comes.
    if (scrollTop < this.top - 2 && scrollTop + clientHeight < scrollHeight - LINE) this.follow = false;
    this.top = scrollTop;
    this.tall = clientHeight;
    this.redraw();
  }

  setFollow(follow) {
    this.follow = follow;
    this.redraw();
  }

  toEnd() {
    if (!this.element || !this.follow) return;
    this.element.scrollTop = this.element.scrollHeight;
    this.top = this.element.scrollTop;
  }

  search(text) {
    this.wanted = text;
    this.found = this.lines.find(text);
    this.at = this.found.length ? 0 : -1;
    this.toFound();
  }

  key(event) {
    if (event.key !== "Enter") return;
    event.preventDefault();
    this.step(event.shiftKey ? -1 : 1);
  }

  step(by) {
    if (!this.found.length) return;
    this.at = (this.at + by + this.found.length) % this.found.length;
    this.toFound();
  }

  toFound() {
    const place = this.found[this.at];
    if (place !== undefined && this.element) {
      this.follow = false;
      const tops = this.heights.fit(this.lines.rows, this.columns());
      this.top = Math.max(0, tops[place] * LINE - this.tall / 2);
      // First drawn there, then scrolled there.
      this.redraw.now();
      this.element.scrollTop = this.top;
      this.element.scrollIntoView({ block: "nearest" });
    }
    this.redraw();
  }

  async download() {
    await this.more();
    const file = URL.createObjectURL(new Blob([this.lines.text(this.attemptOf)], { type: "text/plain" }));
    const link = document.createElement("a");
    link.href = file;
    link.download = `execution-${this.execution}.log`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(file), 10_000);
  }
}

/** A text in which what was searched for is marked. */
function marked(text, wanted) {
  const parts = [];
  const low = text.toLowerCase();
  const part = wanted.toLowerCase();
  let from = 0;
  // Where lower case is of another length, places do not fit: then nothing is marked.
  if (low.length !== text.length) return text;
  for (let at = low.indexOf(part); at >= 0; at = low.indexOf(part, from)) {
    parts.push(text.slice(from, at), h("mark", { key: at }, text.slice(at, at + part.length)));
    from = at + part.length;
  }
  return [...parts, text.slice(from)];
}
