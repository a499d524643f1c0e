/** The form that makes a command. Sending it twice makes one command: its id is drawn here. */

import { exact, post } from "../api.js";
import { words } from "../format.js";
import { h } from "../view.js";
import { note } from "./dialog.js";

const OTHERS = new Set(["execution", "agent", "order"]); // lifecycles of something else

export class CommandForm {
  constructor(app, { closed, made }) {
    this.app = app;
    this.closed = closed;
    this.made = made;
    this.values = { type: "", node: "", lifecycle: "node", params: "{}", timeout_s: "", task_id: "" };
    this.refusal = null;
    this.busy = false;
    this.id = newId();
  }

  view(lifecycles) {
    const names = [...lifecycles.keys()].filter((name) => !OTHERS.has(name));
    return h(
      "form",
      { class: "card form", "aria-labelledby": "form-title", onsubmit: (event) => this.send(event) },
      h("h2", { id: "form-title" }, "New command"),
      h(
        "div",
        { class: "form-fields" },
        this.field("type", "Type", "What is to be done, such as set_relay.", { required: true, ref: (element) => element.focus() }),
        this.field("node", "Node", "What it is for, such as greenhouse-7."),
        h("div", { class: "field" }, h("label", { for: "new-lifecycle" }, "Lifecycle"), h("select", { id: "new-lifecycle", value: this.values.lifecycle, onchange: (event) => this.set("lifecycle", event.target.value) }, (names.length ? names : ["node"]).map((name) => h("option", { value: name, key: name }, words(name))))),
        this.field("timeout_s", "Timeout in seconds", "Without it, as the service is set.", { type: "number", min: "0", step: "any" }),
        this.field("task_id", "Task of the platform", "The name that a platform calls back with, if it has one."),
      ),
      h("div", { class: "field" }, h("label", { for: "new-params" }, "Parameters"), h("textarea", { id: "new-params", rows: 4, spellcheck: "false", value: this.values.params, oninput: (event) => this.set("params", event.target.value), "aria-describedby": "new-params-hint" }), h("p", { class: "hint", id: "new-params-hint" }, "A JSON object.")),
      this.refusal && h("div", { role: "alert" }, h("p", { class: "refusal" }, this.refusal.message), this.refusal.errors?.map((error, i) => h("p", { key: i, class: "soft" }, h("code", null, error.pointer || "/"), ` ${error.detail}`))),
      h("div", { class: "buttons" }, h("button", { type: "submit", class: "button button-main", "aria-disabled": this.busy ? "true" : null }, this.busy ? "Making it…" : "Make it"), h("button", { type: "button", class: "button", onclick: this.closed }, "Leave it")),
    );
  }

  field(name, label, hint, more = {}) {
    const id = `new-${name}`;
    return h("div", { class: "field" }, h("label", { for: id }, label), h("input", { id, type: "text", autocomplete: "off", value: this.values[name], "aria-describedby": `${id}-hint`, oninput: (event) => this.set(name, event.target.value), ...more }), h("p", { class: "hint", id: `${id}-hint` }, hint));
  }

  set(name, value) {
    this.values[name] = value;
    this.refusal = null;
    this.app.redraw();
  }

  async send(event) {
    event.preventDefault();
    if (this.busy) return;
    const body = this.body();
    if (!body) return this.app.redraw();
    this.busy = true;
    this.app.redraw();
    try {
      const { data } = await post("/commands", body);
      note(`Made: ${body.type} is ${data.status}.`);
      this.made(body.cmd_id);
    } catch (problem) {
      this.refusal = problem;
      // It was refused as a whole; where that is not known, the same id is sent again.
      if (problem.status >= 400 && problem.status < 500) this.id = newId();
    }
    this.busy = false;
    this.app.redraw();
  }

  body() {
    const { type, node, lifecycle, params, timeout_s: timeout, task_id: task } = this.values;
    let parsed;
    try {
      parsed = JSON.parse(params || "{}", exact);
    } catch (error) {
      this.refusal = { message: `The parameters are not JSON: ${error.message}` };
      return null;
    }
    return { cmd_id: this.id, type: type.trim(), node: node.trim(), lifecycle, params: parsed, ...(timeout !== "" && { timeout_s: Number(timeout) }), ...(task.trim() && { task_id: task.trim() }) };
  }
}

/** A UUID of version 7: lists are in the order of the ids. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  let now = Date.now();
  for (let i = 5; i >= 0; i -= 1, now = Math.floor(now / 256)) bytes[i] = now % 256;
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
