/** Keys of the API: made and shown once, listed without their secret, revoked for good. */

import { del, post } from "../../api.js";
import { note } from "../../parts/dialog.js";
import { openForm } from "../../parts/form.js";
import { icon } from "../../parts/icons.js";
import { footing, Listing } from "../../parts/listing.js";
import { showOnce } from "../../parts/secret.js";
import { when } from "../../parts/time.js";
import { h } from "../../view.js";
import { ROLES } from "./me.js";
import { rows } from "./rows.js";

export default function keys(app) {
  const list = new Listing("/keys", {}, app.redraw, { limit: 1_000 });
  const after = async (deed) => { if (await deed) list.reload(); };
  list.reload();

  const columns = [
    { label: "Name", cell: (key) => h("strong", null, h("bdi", null, key.name)) },
    { label: "Person", cell: (key) => h("bdi", null, key.person) },
    { label: "Role", cell: (key) => key.role },
    { label: "Made", cell: (key) => [when(key.created_at), h("span", { class: "soft" }, ` by ${key.created_by}`)] },
    { label: "State", cell: standing },
    { label: "", cell: (key) => !key.revoked_at && h("button", { class: "button button-small button-bad", "aria-label": `Revoke ${key.name} of ${key.person}`, onclick: () => after(revoke(key, app.me)) }, "Revoke") },
  ];

  return {
    look: () => list.reload(),
    view: () =>
      h(
        "section",
        { class: "card card-flush", "aria-labelledby": "keys-title" },
        h("div", { class: "card-head" }, h("h2", { id: "keys-title" }, "Keys"), h("button", { class: "button button-small button-main", onclick: () => after(makeKey()) }, "Make a key")),
        rows({ label: "Keys", columns, list, key: (key) => key.id }),
        footing(list, "keys"),
      ),
  };
}

const standing = (key) =>
  key.revoked_at ? h("span", { class: "status tone-gone" }, icon("gone"), h("span", null, "revoked "), when(key.revoked_at), h("span", { class: "note" }, `by ${key.revoked_by}`)) : h("span", { class: "status tone-good" }, icon("good"), h("span", null, "good"));

async function makeKey() {
  const values = { name: "", person: "", role: "viewer" };
  const made = await openForm({
    title: "Make a key",
    values,
    fields: () => [
      { name: "name", label: "What it is for", required: true, placeholder: "deployments" },
      { name: "person", label: "Whose it is", required: true, placeholder: "ann", hint: "Nobody approves what they have asked for themselves." },
      { name: "role", label: "Role", options: Object.keys(ROLES).map((role) => [role, role]), hint: ROLES[values.role] },
    ],
    action: "Make it",
    deed: async () => (await post("/keys", values)).data,
  });
  if (made) showOnce({ title: `Key of ${made.person}`, secret: made.key, lines: [`${made.person} logs in with it here, and programs send it as a bearer token.`] });
  return made;
}

async function revoke(key, me) {
  const own = key.id === me.key_id;
  const done = await openForm({
    title: `Revoke ${key.name}?`,
    lead: h("p", null, `Whoever uses this key of ${key.person} is refused from now on, and that cannot be undone.`, own && h("strong", null, " It is the one that you are logged in with.")),
    typed: () => key.name,
    action: "Revoke it",
    tone: "bad",
    deed: async () => {
      await del(`/keys/${key.id}`);
      return true;
    },
  });
  if (done) note(`${key.name} is revoked.`);
  return done;
}
