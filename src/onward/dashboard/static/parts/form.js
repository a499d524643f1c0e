/**
 * Forms that stay open until what they ask for has been done: what the service refuses is said in
 * place, and nothing that was typed is lost.
 */

import { h, mount } from "../view.js";
import { note } from "./dialog.js";
import { icon } from "./icons.js";

/** What a deed returns that leads to another step instead of the end. */
export const STAY = Symbol("stay");

/** For so long after a step nothing can be sent: whoever clicks twice has not looked. */
const LOOK_MS = 600;

/** Above this, a deed waits until somebody has typed how many it reaches. */
export const BLAST_RADIUS = 100;

/** What has to be typed for a deed that reaches `n` hosts, or nothing. */
export const typedFor = (n) => (n > BLAST_RADIUS ? String(n) : null);

/**
 * Open a form; returns what its deed returned, or `null` if it was left.
 *
 * `fields()`: `[{name, label, type?, hint?, required?, options?, rows?, …}]`, drawn from `values`, which the
 * form writes to; `body(form)` stands below them. `typed()` is a word that the button waits for. `changed(name)`
 * hears of every change. `deed(values, form)` throws what was refused, or returns `STAY` to go on.
 * What may differ from one drawing to the next is a function, and may be a plain value. What `body` itself
 * writes into a field goes through `form.set`.
 */
export function openForm(asked) {
  return new Promise((resolve) => {
    const holder = document.createElement("div");
    document.body.append(holder);
    const form = { values: asked.values ?? {}, problem: null, busy: false, looking: false, left: false, written: "", changed: new Set(), redraw: () => {}, result: null };
    form.close = () => holder.querySelector("dialog")?.close();
    form.tell = () => resolve(form.result);
    form.set = (name, value) => {
      form.values[name] = value;
      form.problem = null;
      form.changed.add(name);
      asked.changed?.(name, form);
      form.redraw();
    };
    const over = () => {
      form.redraw.end();
      holder.remove();
      form.left = true;
      if (!form.busy) form.tell();
    };
    const cancel = (event) => {
      if (form.busy) event.preventDefault();
    };
    const submit = (event) => {
      event.preventDefault();
      attempt(form, asked);
    };
    form.redraw = mount(holder, () =>
      h(
        "dialog",
        { class: asked.wide ? "dialog dialog-wide" : "dialog", "aria-labelledby": "form-title", oncancel: cancel, onclose: over, ref: (element) => element.showModal() },
        h("form", { method: "dialog", onsubmit: submit, novalidate: asked.lenient ?? null }, drawn(form, asked)),
      ),
    );
  });
}

async function attempt(form, asked) {
  const word = asked.typed?.();
  if (form.busy || form.looking || (word && form.written !== word)) return;
  form.busy = true;
  form.problem = null;
  form.changed.clear();
  form.redraw();
  try {
    const result = await asked.deed(form.values, form);
    if (result !== STAY) {
      form.result = result ?? true;
      form.close();
      return;
    }
    // What was found out is not about what has been written meanwhile.
    for (const name of form.changed) asked.changed?.(name, form);
    form.written = "";
    form.looking = true;
    setTimeout(() => {
      form.looking = false;
      form.redraw();
    }, LOOK_MS);
  } catch (problem) {
    if (problem.status === undefined) throw problem;
    form.problem = problem;
    if (form.left) note(problem.message, "bad");
  } finally {
    form.busy = false;
    // Whoever has left meanwhile is still told what it did.
    if (form.left) form.tell();
    form.redraw();
  }
}

function drawn(form, asked) {
  const fields = said(asked.fields) ?? [];
  const word = asked.typed?.();
  const waits = form.busy || form.looking || Boolean(word && form.written !== word);
  return [
    h("h2", { id: "form-title", key: "title" }, said(asked.title)),
    asked.lead && h("div", { class: "dialog-body", key: "lead" }, said(asked.lead)),
    fields.map((field) => fieldView(field, form)),
    asked.body && h("div", { class: "dialog-body", key: "body" }, asked.body(form)),
    form.problem && refusal(form.problem, fields),
    word && confirmation(word, form),
    h(
      "div",
      { class: "buttons form-buttons", key: "buttons" },
      h("button", { type: "button", class: "button", disabled: form.busy, onclick: form.close }, "Leave it"),
      h("button", { type: "submit", class: `button button-${said(asked.tone) ?? "main"}`, "aria-disabled": waits ? "true" : null }, form.busy ? "A moment…" : said(asked.action)),
    ),
  ];
}

const said = (value) => (typeof value === "function" ? value() : value);

function confirmation(word, form) {
  const typing = (event) => {
    form.written = event.target.value.trim();
    form.redraw();
  };
  return h(
    "div",
    { class: "field", key: "typed" },
    h("label", { for: "form-typed" }, `Type ${word} to go on`),
    h("input", { id: "form-typed", type: "text", inputmode: "text", autocomplete: "off", value: form.written, oninput: typing }),
  );
}

/** What of a refusal is about a field: its pointer begins with the field's name. */
const aboutField = (problem, name) => problem?.errors.filter(({ pointer = "" }) => pointer.split("/")[1] === name) ?? [];

function fieldView(field, form) {
  const id = `form-${field.name}`;
  const wrong = aboutField(form.problem, field.name);
  const common = {
    id,
    name: field.name,
    required: field.required,
    placeholder: field.placeholder,
    "aria-invalid": wrong.length ? "true" : null,
    "aria-describedby": [field.hint && `${id}-hint`, wrong.length && `${id}-wrong`].filter(Boolean).join(" ") || null,
    oninput: (event) => form.set(field.name, field.type === "checkbox" ? event.target.checked : event.target.value),
  };
  return h(
    "div",
    { class: field.type === "checkbox" ? "field field-row" : "field", key: `field-${field.name}` },
    h("label", { for: id }, field.label),
    control(field, form.values[field.name], common),
    field.hint && h("p", { class: "hint", id: `${id}-hint` }, field.hint),
    wrong.length > 0 && h("p", { class: "refusal", id: `${id}-wrong`, role: "alert" }, wrong.map(({ detail }) => detail).join("; ")),
  );
}

function control(field, value, common) {
  if (field.options) return h("select", { ...common, value: value ?? "" }, field.options.map(([key, label]) => h("option", { value: key, key }, label)));
  if (field.type === "textarea") return h("textarea", { ...common, rows: field.rows ?? 4, value: value ?? "", spellcheck: "false" });
  if (field.type === "checkbox") return h("input", { ...common, type: "checkbox", checked: Boolean(value) });
  return h("input", { ...common, type: field.type ?? "text", class: field.mono ? "mono" : null, min: field.min, max: field.max, step: field.step, value: value ?? "", autocomplete: field.type === "password" ? "new-password" : "off", spellcheck: "false" });
}

const ERRORS_SHOWN = 20;

/** A refusal in the words of the service; what is said at a field is not said twice. */
export function refusal(problem, fields = []) {
  const placed = fields.flatMap(({ name }) => aboutField(problem, name));
  const others = problem.errors.filter((each) => !placed.includes(each));
  const words = placed.length && !others.length ? problem.title : problem.message;
  const listed = others.length > 1 || others.some(({ line }) => line) ? others : [];
  return h(
    "div",
    { class: "callout tone-bad", role: "alert", key: "refusal" },
    icon("warning"),
    h(
      "div",
      { class: "callout-body" },
      h("p", null, words),
      listed.length > 0 && h("ul", { class: "mistakes" }, listed.slice(0, ERRORS_SHOWN).map((each, i) => h("li", { key: i }, each.line ? h("strong", null, `Line ${each.line}: `) : null, each.detail))),
      listed.length > ERRORS_SHOWN && h("p", { class: "hint" }, `and ${listed.length - ERRORS_SHOWN} more`),
    ),
  );
}

/** Something that is to be noticed, with a tone and its shape. */
export const callout = (tone, ...children) =>
  h("div", { class: `callout tone-${tone}`, role: tone === "bad" ? "alert" : "status" }, icon(tone === "bad" || tone === "late" ? "warning" : tone), h("div", { class: "callout-body" }, ...children));
