/** Hosts: found by name and by selector, brought in, blocked, disabled; and the way to run something there. */

import { many } from "../format.js";
import { settled } from "../parts/again.js";
import { footing, Listing, table } from "../parts/listing.js";
import { runForm } from "../parts/run.js";
import { hasLabel, nameHas, narrowed } from "../parts/selectors.js";
import { status } from "../parts/status.js";
import { choose, href } from "../router.js";
import { h } from "../view.js";
import { turnHost } from "./host/changing.js";
import { addHost, importHosts } from "./hosts/adding.js";
import { blockMany } from "./hosts/blocking.js";
import { labelFilters } from "./hosts/labels.js";

const TYPING_MS = 250; // while somebody types, nobody is asked
const LOOK_MS = 10_000; // hosts change, and nobody hears of it
const narrow = matchMedia("(max-width: 760px)");

export default function hosts(app, { query }) {
  const chosen = { search: query.get("search") ?? "", selector: query.get("selector") ?? "" };
  let draft = chosen.selector; // what is being written, and not yet asked for
  const scroll = { top: 0 };
  let typing = null;
  const asked = () => ({ search: chosen.search, selector: chosen.selector, count: true });
  const list = new Listing("/hosts", asked(), app.redraw, { limit: 200 });
  list.reload();
  const ticking = setInterval(() => { if (!document.hidden && !typing && draft === chosen.selector && !settled(list.problem)) list.refresh(); }, LOOK_MS);

  function look() {
    clearTimeout(typing);
    typing = null;
    choose(chosen);
    // Another list begins at its top.
    scroll.top = 0;
    list.reload(asked());
  }
  const typed = (event) => {
    chosen.search = event.target.value;
    clearTimeout(typing);
    typing = setTimeout(look, TYPING_MS);
  };
  const selected = (selector) => {
    draft = selector.trim();
    if (draft === chosen.selector && !list.problem) return;
    chosen.selector = draft;
    look();
  };
  const label = (name, value) => selected(narrowed(chosen.selector, hasLabel(name, value)));
  const clear = () => {
    chosen.search = chosen.selector = draft = "";
    look();
  };
  /** All that was chosen, as one selector; nothing chosen is nobody, never everybody. */
  const reach = () => (chosen.search ? narrowed(chosen.selector, nameHas(chosen.search)) : chosen.selector);
  const after = async (deed) => { if (await deed) list.reload(); };

  const deeds = () =>
    h(
      "div",
      { class: "buttons" },
      app.may("run") && h("button", { class: "button button-main", key: "run", onclick: () => runForm(app, { selector: reach() }) }, "Run something here"),
      app.may("manage") && [
        h("button", { class: "button", key: "add", onclick: () => after(addHost()) }, "Add a host"),
        h("button", { class: "button", key: "import", onclick: () => after(importHosts()) }, "Import"),
        h("button", { class: "button", key: "block", onclick: () => blockMany(app, reach()) }, "Block"),
      ],
    );

  const columns = [
    { name: "name", label: "Name", class: "cell-2 host-name", cell: (host) => h("a", { href: href(["hosts", String(host.host_id)]) }, h("bdi", null, host.name)) },
    { name: "labels", label: "Labels", class: "cell-3 host-labels", cell: (host) => labelFilters(host.labels, label) },
    { name: "channel", label: "Channel", class: "wide cell-channel", cell: (host) => host.channel },
    { name: "address", label: "Address", class: "wide", cell: (host) => h("bdi", { class: "soft", title: host.address }, host.address || "–") },
    { name: "state", label: "State", class: "cell-status", cell: (host) => status(host.state) },
  ];
  const deed = { name: "deed", label: h("span", { class: "visually-hidden" }, "What can be done"), class: "wide cell-turn", cell: (host) => h("button", { class: "button button-small", "aria-label": `${host.state === "ACTIVE" ? "Disable" : "Enable"} ${host.name}`, onclick: () => after(turnHost(host)) }, host.state === "ACTIVE" ? "Disable" : "Enable") };

  /** What is wrong with the selector is said at its field, and not below the list as well. */
  const wrong = () => (chosen.selector ? list.problem?.errors.find(({ pointer }) => pointer === "/selector")?.detail : null);

  function filters() {
    const problem = wrong();
    const submit = (event) => {
      event.preventDefault();
      selected(event.target.elements.selector.value);
    };
    return h(
      "form",
      { class: "host-filters", role: "search", onsubmit: submit },
      h("div", { class: "field" }, h("label", { for: "host-search" }, "Part of the name"), h("input", { id: "host-search", type: "search", "data-search": true, value: chosen.search, oninput: typed, placeholder: "web-0" })),
      h(
        "div",
        { class: "field grow" },
        h("label", { for: "host-selector" }, "Selector"),
        h("input", { id: "host-selector", name: "selector", type: "text", class: "mono", spellcheck: "false", autocomplete: "off", placeholder: "role=web and zone!=eu", value: draft, oninput: (event) => { draft = event.target.value; }, "aria-invalid": problem ? "true" : null, "aria-describedby": problem ? "selector-wrong" : null, onchange: (event) => selected(event.target.value) }),
        problem && h("p", { class: "refusal mono", id: "selector-wrong", role: "alert" }, problem),
      ),
      (chosen.search || chosen.selector) && h("button", { type: "button", class: "button", onclick: clear }, "Clear"),
    );
  }

  const nothing = () => {
    if (list.loading || list.problem) return null;
    if (chosen.search || chosen.selector) return h("p", null, "No host matches.");
    return [h("p", null, "There are no hosts yet. Bring in the inventory that you have:"), h("code", null, "onward hosts import inventory.csv")];
  };
  const told = () => (list.problem || list.count === null ? "…" : chosen.search || chosen.selector ? `${many(list.count, "host")} ${list.count === 1 ? "matches" : "match"}` : many(list.count, "host"));

  return {
    title: () => "Hosts",
    view: () => [
      h("div", { class: "head", key: "head" }, h("div", { class: "grow" }, h("h1", null, "Hosts"), h("p", { class: "lead", role: "status" }, told())), deeds()),
      filters(),
      h(
        "section",
        { class: "card card-flush hosts", key: "list", "aria-label": "Hosts" },
        table({ state: scroll, columns: app.may("manage") ? [...columns, deed] : columns, items: list.items, key: (host) => host.host_id, onend: () => list.more(), empty: nothing(), label: "Hosts", redraw: app.redraw, rowHeight: narrow.matches ? 68 : 42, rows: narrow.matches ? 9 : 16 }),
        wrong() ? null : footing(list, "hosts"),
      ),
    ],
    heard: (message) => { if (message.type === "reset") list.reload(); },
    close: () => {
      clearTimeout(typing);
      clearInterval(ticking);
    },
  };
}
