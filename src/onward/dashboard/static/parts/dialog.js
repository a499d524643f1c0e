/** Questions that have to be answered before something is done, and short notes of what was. */

import { h, mount } from "../view.js";

/** Leave whatever is asked or shown: it belongs to a page that is no longer there. */
export function closeAll() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
}

addEventListener("hashchange", closeAll);

/**
 * Ask, and return what was answered: `null` if nothing is to be done, else the form's values.
 *
 * `fields`: `[{name, label, type?, value?, hint?, required?, options?}]`. With `typed`, the button
 * waits until that word is written: for what cannot be undone, or reaches very many.
 */
export function askFor({ title, body, fields = [], typed, action = "OK", tone = "plain" }) {
  return new Promise((resolve) => {
    const values = Object.fromEntries(fields.map((field) => [field.name, field.value ?? ""]));
    let written = "";
    let answer = null;
    const holder = document.createElement("div");
    document.body.append(holder);
    const close = () => holder.querySelector("dialog").close();
    const confirm = (event) => {
      event.preventDefault();
      if (typed && written !== typed) return;
      answer = values;
      close();
    };
    const over = () => {
      redraw.end();
      holder.remove();
      resolve(answer);
    };
    const view = () =>
      h(
        "dialog",
        { class: "dialog", "aria-labelledby": "dialog-title", onclose: over, ref: (element) => element.showModal() },
        h(
          "form",
          { method: "dialog", onsubmit: confirm },
          h("h2", { id: "dialog-title" }, title),
          body && h("div", { class: "dialog-body" }, typeof body === "function" ? body() : body),
          fields.map((field) => fieldView(field, values, redraw)),
          typed && fieldView({ name: "typed", label: `Type ${typed} to go on` }, { typed: written }, redraw, (value) => { written = value; }),
          h(
            "div",
            { class: "buttons" },
            h("button", { type: "button", class: "button", onclick: close }, "Leave it"),
            h("button", { type: "submit", class: `button button-${tone}`, disabled: Boolean(typed && written !== typed) }, action),
          ),
        ),
      );
    let redraw = () => {};
    redraw = mount(holder, view);
  });
}

function fieldView(field, values, redraw, set = (value) => { values[field.name] = value; }) {
  const id = `field-${field.name}`;
  const common = {
    id,
    name: field.name,
    required: field.required,
    placeholder: field.placeholder,
    "aria-describedby": field.hint ? `${id}-hint` : null,
    oninput: (event) => {
      set(field.type === "checkbox" ? event.target.checked : event.target.value);
      redraw();
    },
  };
  const value = values[field.name];
  let control;
  if (field.options) {
    control = h("select", { ...common, value }, field.options.map(([key, label]) => h("option", { value: key, key }, label)));
  } else if (field.type === "textarea") {
    control = h("textarea", { ...common, rows: 5, value, spellcheck: "false" });
  } else if (field.type === "checkbox") {
    control = h("input", { ...common, type: "checkbox", checked: Boolean(value) });
  } else {
    control = h("input", { ...common, type: field.type ?? "text", value, autocomplete: "off" });
  }
  return h(
    "div",
    { class: field.type === "checkbox" ? "field field-row" : "field", key: field.name },
    h("label", { for: id }, field.label),
    control,
    field.hint && h("p", { class: "hint", id: `${id}-hint` }, field.hint),
  );
}

/** Show something that is to be looked at and put away again. `body` is drawn anew with `redraw`. */
export function show({ title, body, wide = false }) {
  const holder = document.createElement("div");
  document.body.append(holder);
  const view = () =>
    h(
      "dialog",
      {
        class: wide ? "dialog dialog-wide" : "dialog",
        "aria-labelledby": "dialog-title",
        onclose: () => { redraw.end(); holder.remove(); },
        ref: (element) => element.showModal(),
      },
      h("h2", { id: "dialog-title" }, title),
      h("div", { class: "dialog-body" }, body()),
      h("form", { method: "dialog", class: "buttons" }, h("button", { class: "button" }, "Close")),
    );
  const redraw = mount(holder, view);
  return { redraw, close: () => holder.querySelector("dialog")?.close() };
}

const NOTE_MS = 6_000;
let notes = [];
let redrawNotes = null;
let number = 0;

/** Tell briefly what became of something; bad news stays until it is put away. */
export function note(text, tone = "good") {
  redrawNotes ??= mount(document.getElementById("notes"), () =>
    notes.map((each) =>
      h(
        "div",
        { class: `toast tone-${each.tone}`, key: each.id, role: each.tone === "bad" ? "alert" : "status" },
        h("span", null, each.text),
        h("button", { class: "quiet", "aria-label": "Put away", onclick: () => drop(each.id) }, "×"),
      ),
    ),
  );
  const id = (number += 1);
  notes = [...notes.slice(-4), { id, text, tone }];
  redrawNotes();
  if (tone !== "bad") setTimeout(() => drop(id), NOTE_MS);
}

function drop(id) {
  notes = notes.filter((each) => each.id !== id);
  redrawNotes();
}
