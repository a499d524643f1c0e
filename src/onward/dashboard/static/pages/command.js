/** A command: where it is on its lifecycle, what was said about it, and what may be said now. */

import { getWithVersion, post } from "../api.js";
import { ago, between, lasted, words } from "../format.js";
import { Again, settled } from "../parts/again.js";
import { allLifecycles, diagram } from "../parts/diagram.js";
import { askFor, note } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";
import { lateNote, lateResult } from "../parts/late.js";
import { spokenOf, tell } from "../parts/sentences.js";
import { tone } from "../parts/status.js";
import { when } from "../parts/time.js";
import { Told, timeline } from "../parts/timeline.js";
import { block, copy, pairs } from "../parts/value.js";
import { href } from "../router.js";
import { h } from "../view.js";

const LOOK_MS = 5_000; // what is ignored moves nothing, and so is not heard of

export default function command(app, { params }) {
  return new CommandPage(app, params.id);
}

class CommandPage {
  constructor(app, id) {
    this.app = app;
    this.id = id.toLowerCase();
    this.command = null;
    this.lifecycle = null;
    this.problem = null;
    this.groups = [];
    this.refusal = null; // what the last word that was said here was answered with
    this.told = new Told(`/commands/${encodeURIComponent(this.id)}/timeline`);
    this.timeline = { redraw: app.redraw };
    this.again = new Again(() => this.load());
    this.look = setInterval(() => { if (!settled(this.problem) && !document.hidden) this.again.soon(); }, LOOK_MS);
    this.again.now();
  }

  title() {
    return this.command ? `${this.command.type || "Command"} on ${this.command.node || "nothing"}` : "Command";
  }

  async load() {
    try {
      const [{ data }, lifecycles] = await Promise.all([getWithVersion(`/commands/${encodeURIComponent(this.id)}`), allLifecycles(), this.told.read()]);
      this.command = data;
      this.lifecycle = lifecycles.get(data.lifecycle);
      this.groups = tell(this.told.items, { lifecycle: this.lifecycle, record: data });
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
    this.app.redraw();
  }

  heard({ type, changes }) {
    if (type === "reset" || (type === "changes" && changes.some((change) => change[4] === this.id))) this.again.soon();
  }

  close() {
    clearInterval(this.look);
    this.again.close();
  }

  view() {
    if (!this.command) {
      return h("div", { class: "stack" }, this.crumbs(), h("h1", null, "Command"), h("p", { class: "id" }, this.id), this.problem ? h("p", { class: "refusal", role: "alert" }, this.problem.message) : h("p", { class: "footing" }, "Reading…"));
    }
    return h(
      "div",
      { class: "stack" },
      this.head(),
      this.problem && h("p", { class: "refusal", role: "alert" }, this.problem.message),
      this.why(),
      lateResult(this.command, this.lifecycle),
      h("section", { class: "card", "aria-labelledby": "lifecycle-title" }, h("div", { class: "card-head" }, h("h2", { id: "lifecycle-title" }, "Lifecycle"), h("a", { href: href(["commands"], { lifecycle: this.command.lifecycle }) }, words(this.command.lifecycle))), diagram(this.lifecycle, { status: this.command.status, events: this.told.items })),
      h("div", { class: "columns" }, h("div", { class: "stack" }, this.say(), timeline(this.told, { groups: this.groups, record: this.command, state: this.timeline })), h("div", { class: "stack" }, this.facts(), this.values())),
    );
  }

  crumbs() {
    return h("nav", { class: "crumbs", "aria-label": "Where this is" }, h("a", { href: href(["commands"]) }, "Commands"), icon("right"), h("span", null, this.command?.type || "command"));
  }

  head() {
    const { command } = this;
    const look = tone(command.status);
    return h(
      "div",
      { class: "head" },
      h(
        "div",
        { class: "grow" },
        this.crumbs(),
        h("h1", null, h("bdi", null, command.type || "Command"), command.node && [" on ", h("a", { href: href(["commands"], { node: command.node }) }, h("bdi", null, command.node))]),
        h("p", { class: "id" }, this.id, " ", h("button", { type: "button", class: "button button-small", onclick: () => this.app.attempt(() => copy(this.id), "The id is copied.") }, "Copy")),
      ),
      h("div", { class: "standing" }, h("span", { class: `status status-huge tone-${look}` }, icon(look, { size: 20 }), h("span", null, words(command.status))), lateNote(command, this.lifecycle)),
    );
  }

  /** What it waits for, as its clocks tell it. */
  why() {
    const { command } = this;
    const [look, title, text, at] = standing(command);
    // How long it takes goes on, and is not read out every second.
    return h("section", { class: `callout why tone-${look}`, "aria-label": title }, icon(look, { size: 20 }), h("div", { class: "callout-body" }, h("p", { class: "why-text" }, h("span", { "aria-live": "polite" }, text), at && ` ${ago(at)}`, ".")));
  }

  say() {
    const { command } = this;
    if (!this.app.may("report") || !command.allowed.length) return null;
    return h(
      "section",
      { class: "card", "aria-labelledby": "say-title" },
      h("div", { class: "card-head" }, h("h2", { id: "say-title" }, "Say what became of it"), h("span", { class: "faint" }, "in place of whoever should have")),
      h("div", { class: "buttons" }, command.allowed.map((event) => this.word(event))),
      this.refusal && h("p", { class: "refusal", role: "alert" }, this.refusal),
    );
  }

  word(event) {
    const look = tone(spokenOf(this.lifecycle, event));
    return h("button", { type: "button", class: `button word tone-${look}`, key: event, onclick: () => this.report(event), "aria-label": `Say ${words(event)}` }, icon(look), words(event));
  }

  async report(event) {
    const { command, lifecycle } = this;
    const to = spokenOf(lifecycle, event);
    const end = lifecycle.states.find(({ name }) => name === to)?.terminal;
    const answer = await askFor({
      title: `Say ${words(event)}?`,
      body: () => [
        h("p", null, `It goes from ${command.status} to ${to}${end ? ", and that is its end: nothing can be said against it afterwards" : ", and never back"}.`),
        executionOf(command.cmd_id) !== null && h("p", null, "It is an attempt of an execution, whose worker hears of this too."),
      ],
      fields: [
        { name: "error_message", label: "What is to be known about it", hint: "Kept with the command, for whoever asks why." },
      ],
      action: `Say ${words(event)}`,
      tone: tone(to) === "bad" || tone(to) === "late" ? "bad" : "main",
    });
    if (answer) await this.send(event, answer.error_message.trim());
  }

  /** Said for the attempt that was looked at: should there be another by now, it is refused. */
  async send(event, message) {
    this.refusal = null;
    try {
      const body = { event, epoch: this.command.epoch, ...(message && { error_message: message }) };
      const { data } = await post(`/commands/${this.id}/events`, body);
      if (data.changed) note(`It is ${data.status} now.`);
      else this.refusal = `Nothing changed: it is ${data.status}. ${data.meaning}`;
    } catch (problem) {
      this.refusal = problem.message;
    }
    await this.again.now();
  }

  facts() {
    const { command: each } = this;
    const execution = executionOf(each.cmd_id);
    const rows = [
      ["execution", execution !== null && h("a", { href: href(["executions", execution]) }, `${execution}`)],
      ["node", each.node && h("a", { href: href(["commands"], { node: each.node }) }, h("bdi", null, each.node))],
      ["lifecycle", words(each.lifecycle)],
      ["task", each.task_id && h("code", null, each.task_id)],
      ["epoch", h("code", null, each.epoch)],
      ["result code", each.result_code && h("code", null, each.result_code)],
      ["error code", each.error_code && h("code", null, each.error_code)],
      ["message", each.error_message && h("bdi", null, each.error_message)],
      ["timeout", lasted(each.timeout_s)],
      ["times out", each.deadline_at && when(each.deadline_at)],
      ["to be looked at", each.due_at && when(each.due_at)],
      ["made", when(each.created_at)],
      ["last change", when(each.updated_at)],
      ["ended", each.finished_at && when(each.finished_at)],
      ["took", each.finished_at && between(each.created_at, each.finished_at)],
      ["took, as it says", each.duration_ms !== null && lasted(each.duration_ms / 1_000)],
    ];
    return h("section", { class: "card", "aria-label": "Facts" }, h("h2", null, "Facts"), h("dl", { class: "pairs" }, rows.filter(([, value]) => value).map(([name, value]) => [h("dt", { key: `t-${name}` }, name), h("dd", { key: `d-${name}` }, value)])));
  }

  values() {
    const { params, result } = this.command;
    return [
      h("section", { class: "card", key: "params", "aria-label": "Parameters" }, h("h2", null, "Parameters"), pairs(params, { none: "no parameters" })),
      result !== null && h("section", { class: "card", key: "result", "aria-label": "Result" }, h("h2", null, "Result"), block(result)),
    ];
  }
}

/** What a command waits for: a tone, a title, one sentence, and the time with which it ends. */
function standing({ status, finished_at: finished, created_at: created, deadline_at: deadline, due_at: due, allowed }) {
  if (finished) return [tone(status), "How it ended", `It ended as ${status} ${between(created, finished)} after it was made,`, finished];
  const next = `It waits to hear ${allowed.map(words).join(", ").replace(/, ([^,]*)$/, " or $1")}`;
  if (deadline) return ["going", "What it waits for", `${next}; without a word it times out`, deadline];
  const over = due && new Date(due) < new Date();
  if (over) return ["bad", "Why it is not moving", `${next}; no timeout ends it, and somebody should have looked at it`, due];
  return ["waiting", "What it waits for", `${next}; no timeout ends it${due ? ", so somebody should look at it" : ""}`, due];
}

/** The execution whose attempt has this id: such ids are UUIDs of version 8, made of its number. */
function executionOf(id) {
  const hex = id.replaceAll("-", "");
  if (hex[12] !== "8") return null;
  return (BigInt(`0x${hex.slice(0, 12)}`) << 12n) | BigInt(`0x${hex.slice(13, 16)}`);
}
