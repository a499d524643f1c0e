/** Command types: what can be asked of a host, and how carefully; only an admin writes them. */

import { del, exact, Problem, put } from "../../api.js";
import { lasted } from "../../format.js";
import { note } from "../../parts/dialog.js";
import { openForm } from "../../parts/form.js";
import { icon } from "../../parts/icons.js";
import { footing, Listing } from "../../parts/listing.js";
import { h } from "../../view.js";
import { rows } from "./rows.js";

export default function types(app) {
  const list = new Listing("/command-types", {}, app.redraw, { limit: 1_000 });
  const after = async (deed) => { if (await deed) list.reload(); };
  list.reload();

  const columns = [
    { label: "Name", cell: (type) => h("strong", null, type.name) },
    { label: "Approval", cell: (type) => (type.needs_approval ? h("span", { class: "status tone-held" }, icon("approvals"), "by somebody else") : h("span", { class: "faint" }, "none")) },
    { label: "Shares a host", cell: (type) => (type.read_only ? "with others that only read" : h("span", { class: "faint" }, "no")) },
    { label: "Timeout", number: true, cell: (type) => lasted(type.timeout_s) },
    { label: "Retries", number: true, cell: (type) => type.max_retries },
    { label: "Program", cell: (type) => (type.argv ? h("code", null, type.argv.join(" ")) : h("span", { class: "faint" }, "each job says it")) },
    { label: "Masked", cell: (type) => (type.masked.length ? h("code", null, type.masked.join(", ")) : h("span", { class: "faint" }, "none")) },
  ];
  const deeds = { label: "", cell: (type) => h("div", { class: "buttons" }, h("button", { class: "button button-small", "aria-label": `Edit ${type.name}`, onclick: () => after(writeType(list, type)) }, "Edit"), h("button", { class: "button button-small button-bad", "aria-label": `Delete ${type.name}`, onclick: () => after(deleteType(type)) }, "Delete")) };

  return {
    look: () => list.reload(),
    view: () =>
      h(
        "section",
        { class: "card card-flush", "aria-labelledby": "types-title" },
        h("div", { class: "card-head" }, h("h2", { id: "types-title" }, "Command types"), app.may("admin") && h("button", { class: "button button-small button-main", onclick: () => after(writeType(list)) }, "Add one")),
        list.whole && !list.items.length ? h("p", { class: "empty" }, "There is no command type yet, so nothing can be run. An admin makes one here.") : rows({ label: "Command types", columns: app.may("admin") ? [...columns, deeds] : columns, list, key: (type) => type.name }),
        footing(list, "command types"),
      ),
  };
}

const EMPTY = { name: "", needs_approval: true, read_only: false, timeout_s: 60, max_retries: 3, argv: null, masked: [] };

/** Make one, or change the one that is there. */
async function writeType(list, type) {
  const from = type ?? EMPTY;
  const values = { ...from, argv: argvText(from.argv), masked: from.masked.join(", ") };
  const fields = [
    !type && { name: "name", label: "Name", required: true, placeholder: "RESTART_SERVICE" },
    { name: "needs_approval", label: "Its jobs wait until somebody else has approved them", type: "checkbox" },
    { name: "read_only", label: "It only reads, and may share a host with others that do", type: "checkbox" },
    { name: "timeout_s", label: "Seconds that an attempt may take", type: "number", min: 0.1, step: "any", required: true },
    { name: "max_retries", label: "How often a failed attempt is tried again", type: "number", min: 0, max: 1_000, required: true },
    { name: "argv", label: "Program and arguments, one a line", type: "textarea", placeholder: "systemctl\nrestart\n{service}", hint: "{service} stands for a parameter of the job; a JSON list is taken as well. Empty: each job says itself what is run." },
    { name: "masked", label: "Masked parameters", placeholder: "token, password", hint: "Nobody is shown them; the program finds token as ONWARD_TOKEN." },
  ].filter(Boolean);
  const done = await openForm({
    title: type ? `Change ${type.name}` : "Add a command type",
    lead: type && h("p", { class: "soft" }, "Jobs that are there stay as they are."),
    values,
    fields,
    action: type ? "Change it" : "Add it",
    deed: async () => {
      const name = (type?.name ?? values.name).trim();
      if (!type) await free(list, name);
      return (await put(`/command-types/${encodeURIComponent(name)}`, bodyOf(values))).data;
    },
  });
  if (done) note(`${done.name} is ${type ? "changed" : "there"}.`);
  return done;
}

/** Refuse a name that is taken: whoever adds a type has not seen what it would replace. */
async function free(list, name) {
  await list.reload();
  if (!list.items.some((type) => type.name === name)) return;
  throw new Problem(409, { title: "There is one of this name", errors: [{ pointer: "/name", detail: `${name} is there already: edit that one, or choose another name` }] });
}

const argvText = (argv) => (!argv ? "" : argv.some((each) => /\n|^$|^\s|\s$/.test(each)) || argv[0].startsWith("[") ? JSON.stringify(argv) : argv.join("\n"));

function argvOf(text) {
  if (!text.trim()) return null;
  try {
    const list = JSON.parse(text, exact);
    if (Array.isArray(list)) return list;
  } catch {
    // No JSON: a line for each argument.
  }
  return text.replace(/\n+$/, "").split("\n");
}

const bodyOf = (values) => ({
  needs_approval: values.needs_approval,
  read_only: values.read_only,
  timeout_s: Number(values.timeout_s),
  max_retries: Number(values.max_retries),
  argv: argvOf(values.argv),
  masked: values.masked.split(/[\s,]+/).filter(Boolean),
});

async function deleteType(type) {
  const done = await openForm({
    title: `Delete ${type.name}?`,
    lead: h("p", null, "Its jobs run to their end, and blocks on its name stay. Nothing new can be run with it."),
    typed: () => type.name,
    action: "Delete it",
    tone: "bad",
    deed: async () => {
      await del(`/command-types/${encodeURIComponent(type.name)}`);
      return true;
    },
  });
  if (done) note(`${type.name} is gone.`);
  return done;
}
