/** Settings: what can be run, who has a key, who does the work, which agents are there, and what I may do. */

import { tabs } from "../parts/tabs.js";
import { choose } from "../router.js";
import { h } from "../view.js";
import agents from "./settings/agents.js";
import keys from "./settings/keys.js";
import me from "./settings/me.js";
import types from "./settings/types.js";
import workers from "./settings/workers.js";

/** Tabs: their name in the address, what they are called, what they take, and what makes them. */
const TABS = [
  ["types", "Command types", "read", types],
  ["keys", "Keys", "admin", keys],
  ["workers", "Workers", "read", workers],
  ["agents", "Agents", "read", agents],
  ["me", "What I may do", "read", me],
];

export default function settings(app, { query }) {
  const among = TABS.filter(([, , permission]) => app.may(permission));
  let current = null;
  let shown = null;

  function open(name) {
    const [found = null, , , make] = among.find(([each]) => each === name) ?? among[0] ?? [];
    if (found === current) return;
    shown?.close?.();
    current = found;
    shown = make(app);
    app.redraw();
  }
  const turn = (name) => {
    open(name);
    choose({ tab: name });
  };
  open(query.get("tab"));

  return {
    title: () => "Settings",
    view: () => [
      h("div", { class: "head", key: "head" }, h("div", { class: "grow" }, h("h1", null, "Settings"))),
      tabs({ label: "Settings", among, current, onturn: turn }),
      shown && h("div", { class: "stack", role: "tabpanel", id: "tab-panel", key: `panel-${current}`, "aria-labelledby": `tab-${current}` }, shown.view()),
    ],
    heard: (message) => { if (message.type === "reset") shown?.look?.(); },
    close: () => shown?.close?.(),
  };
}
