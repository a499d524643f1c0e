/** Secrets that the service shows once: here they are looked at, copied, and then gone. */

import { h } from "../view.js";
import { show } from "./dialog.js";
import { callout } from "./form.js";
import { copy } from "./value.js";

/** Show a secret. `lines` say what it is for; `command` is what is typed with it, if anything is. */
export function showOnce({ title, secret, lines = [], command }) {
  let told = null; // said in the dialog: outside of it, nobody hears it before it is closed
  const copied = async (text, what) => {
    told = await copy(text).then(() => ["good", `${what} copied.`], ({ message }) => ["bad", message]);
    shown.redraw();
  };
  const row = (text, what) =>
    h(
      "div",
      { class: "secret", key: what },
      h("code", { class: "secret-text", "data-secret": what, tabindex: "0" }, text),
      h("button", { type: "button", class: "button button-small", onclick: () => copied(text, what) }, `Copy ${what.toLowerCase()}`),
    );
  const shown = show({
    title,
    body: () => [
      callout("late", h("p", null, h("strong", null, "It is shown this once."), " The service never shows it again, to nobody: put it where it belongs before you close this.")),
      row(secret, "Secret"),
      command && row(command, "Command"),
      told && callout(told[0], h("p", null, told[1])),
      lines.map((line, i) => h("p", { class: "soft", key: i }, line)),
    ],
  });
  return shown;
}
