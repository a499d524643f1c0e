/** Showing one's key: once, and the browser keeps something else in its place. */

import { post } from "../api.js";
import { h } from "../view.js";

export default function login(app) {
  let problem = "";
  let busy = false;

  async function enter(event) {
    event.preventDefault();
    const key = new FormData(event.target).get("key").trim();
    busy = true;
    problem = "";
    app.redraw();
    try {
      await post("/session", { key });
      await app.login();
    } catch (error) {
      problem = error.message;
      busy = false;
      app.redraw();
      document.getElementById("key")?.select();
    }
  }

  return {
    title: () => "Log in",
    view: () =>
      h(
        "form",
        { class: "login", onsubmit: enter },
        h("img", { src: new URL("../icon.svg", import.meta.url).pathname, alt: "", width: 56, height: 56 }),
        h("h1", null, "Onward"),
        h("p", { class: "lead" }, "Commands on fleets: forward only, ended exactly once, always able to say why."),
        h("label", { for: "key" }, "Your key"),
        h("input", { id: "key", name: "key", type: "password", required: true, autocomplete: "current-password", spellcheck: "false", placeholder: "onw_…", "aria-describedby": "key-hint", "aria-invalid": problem ? "true" : null, ref: (element) => element.focus() }),
        h("p", { class: "hint", id: "key-hint" }, "The first start of ", h("code", null, "onward up"), " says which file holds the key of an admin; an admin makes keys for others."),
        problem && h("p", { class: "refusal", role: "alert" }, problem),
        h("button", { class: "button button-main", type: "submit", disabled: busy }, busy ? "Looking…" : "Log in"),
      ),
  };
}
