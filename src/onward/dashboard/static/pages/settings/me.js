/** Who I am here, and what I may do. */

import { icon } from "../../parts/icons.js";
import { h } from "../../view.js";

/** What the roles are for, as far as somebody has to know who gives one. */
export const ROLES = {
  viewer: "Sees everything, and changes nothing.",
  operator: "Runs jobs and looks after hosts; what needs an approval is approved by somebody else.",
  approver: "Approves and rejects what others have asked for, and runs nothing.",
  trader: "Trades on their own account, and sees nothing of the fleet.",
  admin: "Everything, also making keys and command types.",
};
const PERMISSIONS = [
  ["read", "Look at jobs, hosts, blocks and who did what"],
  ["run", "Run jobs, pause, cancel and retry them"],
  ["approve", "Approve and reject what others have asked for"],
  ["manage", "Add, change, block and disable hosts"],
  ["report", "Report what became of commands"],
  ["trade", "Place orders and see the own account"],
  ["admin", "Make and revoke keys, write command types, enrol agents"],
];

export default function me(app) {
  const line = ([name, what]) => {
    const may = app.may(name);
    return [h("dt", { key: `t-${name}` }, h("span", { class: `status tone-${may ? "good" : "gone"}` }, icon(may ? "good" : "gone"), h("span", null, name), h("span", { class: "visually-hidden" }, may ? "allowed" : "not allowed"))), h("dd", { key: `d-${name}`, class: may ? "" : "faint" }, what)];
  };
  return {
    view: () =>
      h(
        "section",
        { class: "card", "aria-labelledby": "me-title" },
        h("h2", { id: "me-title" }, "What I may do"),
        h("p", null, "You are ", h("strong", null, h("bdi", null, app.me.person)), ", with the key ", h("strong", null, h("bdi", null, app.me.name)), `, whose role is ${app.me.role}. `, ROLES[app.me.role]),
        h("dl", { class: "may" }, PERMISSIONS.map(line)),
      ),
  };
}
