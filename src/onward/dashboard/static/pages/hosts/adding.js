/** Bringing hosts in: one by one, or an inventory, of which first is shown what it would change. */

import { ask, post } from "../../api.js";
import { count, many } from "../../format.js";
import { note } from "../../parts/dialog.js";
import { callout, openForm, STAY } from "../../parts/form.js";
import { h } from "../../view.js";
import { labelRows, labelsOf } from "./labels.js";

export const CHANNELS = ["simulated", "ssh", "mqtt", "platform", "agent"];
const FORMS = [
  ["csv", "CSV: name, address, channel, and a column for each label"],
  ["json", "JSON: a list of objects"],
  ["ini", "Ansible's INI"],
  ["yaml", "Ansible's YAML"],
  ["ssh_config", "OpenSSH's configuration"],
];
const EXAMPLES = {
  csv: "name,address,channel,role\nweb1,10.0.0.1,ssh,web",
  json: '[{"name": "web1", "address": "10.0.0.1", "labels": {"role": "web"}}]',
  ini: "[web]\nweb[01:20] rack=7",
  yaml: "web:\n  hosts:\n    web[01:20]:\n  vars: {zone: eu}",
  ssh_config: "Host web1\n    HostName 10.0.0.1",
};
const ENDINGS = { csv: "csv", json: "json", ini: "ini", cfg: "ini", yaml: "yaml", yml: "yaml" };

/** What a host is asked through, and where that finds it. */
export const channelFields = () => [
  { name: "channel", label: "Channel", options: CHANNELS.map((name) => [name, name]), hint: "How it is reached." },
  { name: "address", label: "Address", mono: true, placeholder: "10.0.0.7:22", hint: "Where its channel finds it; may be empty." },
];

/** Make one host. */
export async function addHost() {
  const values = { name: "", channel: "simulated", address: "" };
  const rows = [["", ""]];
  const made = await openForm({
    title: "Add a host",
    values,
    fields: [{ name: "name", label: "Name", required: true, placeholder: "web-07.example.com" }, ...channelFields()],
    body: (form) => labelRows(rows, form),
    action: "Add it",
    deed: async () => (await post("/hosts", { ...values, labels: labelsOf(rows) })).data,
  });
  if (made) note(`${made.name} is there.`);
  return made;
}

/** Import an inventory: whole or not at all, and first what it would change. */
export async function importHosts() {
  const values = { format: "csv", channel: "simulated", text: "" };
  let would = null;
  const send = async (dryRun) => (await ask("POST", "/hosts/import", { query: { format: values.format, channel: values.channel, dry_run: dryRun }, text: values.text })).data;
  const done = await openForm({
    title: "Import an inventory",
    wide: true,
    values,
    lead: h("p", { class: "soft" }, "Hosts are known by their names: who is not there is made, who differs is changed, who is not named is left alone. If anything is wrong with it, nothing is imported."),
    fields: () => [
      { name: "format", label: "Format", options: FORMS },
      { name: "channel", label: "Channel of hosts that name none", options: CHANNELS.map((name) => [name, name]) },
      { name: "text", label: "The inventory", type: "textarea", rows: 8, required: true, placeholder: EXAMPLES[values.format] },
    ],
    body: (form) => [filePicker(form), would && wouldChange(would)],
    changed: () => { would = null; },
    action: () => (would ? `Import: ${count(would.created)} new, ${count(would.changed)} changed` : "See what would change"),
    deed: async () => {
      if (would) return send(false);
      would = await send(true);
      return STAY;
    },
  });
  if (done) note(`Imported: ${many(done.created, "host")} made, ${count(done.changed)} changed, ${count(done.unchanged)} as they were.`);
  return done;
}

function filePicker(form) {
  const read = async (event) => {
    const file = event.target.files[0];
    if (!file) return;
    form.set("text", await file.text());
    form.set("format", ENDINGS[file.name.split(".").pop().toLowerCase()] ?? (/config$/.test(file.name) ? "ssh_config" : form.values.format));
  };
  return h("div", { class: "field", key: "file" }, h("label", { for: "form-file" }, "or a file"), h("input", { id: "form-file", type: "file", onchange: read }));
}

function wouldChange(found) {
  const names = (label, listed, n) => listed?.length > 0 && h("p", { key: label }, h("strong", null, `${label}: `), listed.slice(0, 20).join(", "), n > 20 && ` and ${count(n - 20)} more`);
  return callout(
    found.created + found.changed ? "going" : "good",
    h("p", null, h("strong", null, `${count(found.created)} would be made, ${count(found.changed)} changed, ${count(found.unchanged)} left as they are.`)),
    names("New", found.created_names, found.created),
    names("Changed", found.changed_names, found.changed),
  );
}
