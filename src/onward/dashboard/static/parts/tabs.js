/** Tabs: one of several panels is open, and the arrow keys lead from each tab to the next. */

import { h } from "../view.js";

/** The row of tabs. `among`: `[[name, label], …]`; `onturn(name)` opens one; the panel's id is `tab-panel`. */
export function tabs({ label, among, current, onturn }) {
  const keyed = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = among.findIndex(([name]) => event.target.id === `tab-${name}`);
    const [next] = among[(at + step + among.length) % among.length];
    onturn(next);
    document.getElementById(`tab-${next}`).focus();
  };
  return h(
    "div",
    { class: "tabs", role: "tablist", "aria-label": label, key: "tabs", onkeydown: keyed },
    among.map(([name, text]) =>
      h("button", { type: "button", class: "tab", role: "tab", key: name, id: `tab-${name}`, "aria-selected": name === current ? "true" : "false", "aria-controls": "tab-panel", tabindex: name === current ? "0" : "-1", onclick: () => onturn(name) }, text),
    ),
  );
}
