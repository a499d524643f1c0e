/** Commands that travel by themselves: found by where they are, what they are for, or their id. */

import { allLifecycles } from "../parts/diagram.js";
import { Again } from "../parts/again.js";
import { CommandForm } from "../parts/command-form.js";
import { words } from "../format.js";
import { Listing, footing, table } from "../parts/listing.js";
import { status } from "../parts/status.js";
import { when } from "../parts/time.js";
import { choose, go, href } from "../router.js";
import { h } from "../view.js";

const ID = /^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i;
const TYPING_MS = 300;
const KEPT = 10_000; // commands of which it is known what was told last
const OTHERS = new Set(["execution", "agent", "order"]); // lifecycles of something else

export default function commands(app, { query }) {
  return new CommandsPage(app, query);
}

class CommandsPage {
  constructor(app, query) {
    this.app = app;
    this.chosen = { status: query.get("status") ?? "", lifecycle: query.get("lifecycle") ?? "", node: query.get("node") ?? "" };
    this.lifecycles = new Map();
    this.wanted = "";
    this.refusal = "";
    this.place = { top: 0 };
    this.fresh = 0; // changed since, and not shown
    this.told = new Map(); // by command: the number of the latest change that was told
    this.early = new Map(); // by command: what was told while a list was on its way
    this.form = query.has("new") && app.may("run") ? this.newForm() : null;
    this.listing = new Listing("/commands", this.chosen, () => this.read());
    this.again = new Again(() => this.reload());
    this.again.now();
  }

  title() {
    return "Commands";
  }

  async reload() {
    this.fresh = 0;
    allLifecycles().then((found) => { this.lifecycles = found; this.app.redraw(); }, () => {});
    await this.listing.reload(this.chosen);
    // With a filter a page may be short, or even empty, and more may come after it. What is being read by
    // whoever asked later is left to them.
    while (!this.listing.loading && !this.listing.items.length && !this.listing.whole && !this.listing.problem) await this.listing.more();
  }

  heard({ type, changes }) {
    if (type === "reset") this.again.soon();
    if (type !== "changes") return;
    const known = new Map(this.listing.items.map((item) => [item.cmd_id, item]));
    let elsewhere = 0;
    for (const [kind, , , , id, , now, seq, at] of changes) {
      // Of two changes of one command, the later may be told first.
      if (kind !== "command" || seq <= this.told.get(id)) continue;
      this.told.set(id, seq);
      if (this.told.size > KEPT) this.told.delete(this.told.keys().next().value);
      const change = { status: now, updated_at: at };
      if (this.listing.loading) this.early.set(id, change);
      const item = known.get(id);
      if (item) Object.assign(item, change);
      // What is not shown may belong here by now, and what is shown may not.
      if (!item || (this.chosen.status && this.chosen.status !== now)) elsewhere += 1;
    }
    if (elsewhere) this.another(elsewhere);
    this.app.redraw();
  }

  /** A list that was on its way may have been read before what was told meanwhile. */
  read() {
    if (!this.listing.loading) {
      for (const item of this.listing.items) Object.assign(item, this.early.get(item.cmd_id));
      this.early.clear();
    }
    this.app.redraw();
  }

  /** Whoever reads further down is told, and not moved. */
  another(number) {
    if (this.place.top > 0 || this.listing.items.length > this.listing.limit) this.fresh += number;
    else this.again.soon();
  }

  filter(change) {
    this.chosen = { ...this.chosen, ...change };
    choose(this.chosen);
    this.place.top = 0;
    clearTimeout(this.typing);
    // What is typed is not asked for letter by letter.
    this.typing = setTimeout(() => this.again.now(), "node" in change ? TYPING_MS : 0);
    this.app.redraw();
  }

  close() {
    clearTimeout(this.typing);
    this.again.close();
  }

  find(event) {
    event.preventDefault();
    const wanted = this.wanted.trim();
    if (!wanted) return;
    if (ID.test(wanted)) return go(href(["commands", wanted.toLowerCase()]));
    this.refusal = "That is no id of a command: an id is a UUID, such as 019a9433-7c3e-7d61-8b5e-3f1f3f0c2a77.";
    this.app.redraw();
  }

  newForm() {
    const closed = () => { this.form = null; this.app.redraw(); };
    return new CommandForm(this.app, { closed, made: (id) => go(href(["commands", id])) });
  }

  view() {
    return h(
      "div",
      { class: "stack" },
      h(
        "div",
        { class: "head" },
        h("div", { class: "grow" }, h("h1", null, "Commands"), h("p", { class: "lead" }, "What travels by itself, through gateways and platforms, and is moved only by what is said about it.")),
        this.app.may("run") && !this.form && h("button", { type: "button", class: "button button-main", onclick: () => { this.form = this.newForm(); this.app.redraw(); } }, "New command"),
      ),
      this.form?.view(this.lifecycles),
      this.filters(),
      h(
        "section",
        { class: "card card-flush", "aria-label": "Commands" },
        this.fresh > 0 && h("p", { class: "footing" }, h("button", { type: "button", class: "button button-small", onclick: () => { this.place.top = 0; this.again.now(); } }, "More has changed: read again")),
        this.rows(),
        footing(this.listing, "commands"),
      ),
    );
  }

  filters() {
    const { status: at, lifecycle, node } = this.chosen;
    const own = [...this.lifecycles.values()].filter(({ name }) => !OTHERS.has(name));
    const states = [...new Set(own.filter(({ name }) => !lifecycle || name === lifecycle).flatMap(({ states: all }) => all.map(({ name }) => name)))];
    if (at && !states.includes(at)) states.push(at);
    return h(
      "div",
      { class: "filters" },
      choice("Status", "any status", at, states.map((name) => [name, words(name)]), (value) => this.filter({ status: value })),
      choice("Lifecycle", "any lifecycle", lifecycle, own.map(({ name }) => [name, words(name)]), (value) => this.filter({ lifecycle: value })),
      h("input", { type: "search", class: "search", "aria-label": "Only for this node", placeholder: "Node, written in full", value: node, oninput: (event) => this.filter({ node: event.target.value.trim() }) }),
      h(
        "form",
        { class: "search filters", role: "search", onsubmit: (event) => this.find(event) },
        h("input", { type: "search", class: "grow", "data-search": true, "aria-label": "Id of a command", placeholder: "Id of a command", value: this.wanted, "aria-invalid": this.refusal ? "true" : null, "aria-describedby": this.refusal ? "id-refusal" : null, oninput: (event) => { this.wanted = event.target.value; this.refusal = ""; this.app.redraw(); } }),
        h("button", { type: "submit", class: "button" }, "Go to it"),
      ),
      this.refusal && h("p", { class: "refusal", id: "id-refusal", role: "alert" }, this.refusal),
    );
  }

  rows() {
    return table({
      state: this.place,
      label: "Commands",
      redraw: this.app.redraw,
      items: this.listing.items,
      key: (item) => item.cmd_id,
      link: (item) => href(["commands", item.cmd_id]),
      onend: () => this.listing.more(),
      empty: !this.listing.loading && !this.listing.problem && this.nothing(),
      columns: [
        { name: "status", label: "Status", class: "cell-status", cell: (item) => status(item.status) },
        { name: "type", label: "Type", cell: (item) => h("bdi", null, item.type || "–") },
        { name: "node", label: "Node", cell: (item) => h("bdi", null, item.node || "–") },
        { name: "lifecycle", label: "Lifecycle", class: "wide", cell: (item) => words(item.lifecycle) },
        { name: "id", label: "Id", class: "wide cell-2", cell: (item) => h("code", { class: "faint" }, item.cmd_id) },
        { name: "updated", label: "Changed", class: "cell-when cell-changed", cell: (item) => when(item.updated_at) },
      ],
    });
  }

  nothing() {
    const filtered = Object.values(this.chosen).some(Boolean);
    if (filtered) return [h("p", null, "No command is like that."), h("a", { href: href(["commands"]) }, "All commands")];
    return [h("p", null, "There are no commands yet. A gateway or a platform makes them, or you do:"), h("code", null, "curl $ONWARD/commands -H \"Authorization: Bearer $KEY\" --json '{\"type\": \"dose\", \"node\": \"pump1\", \"params\": {\"ml\": 5}}'")];
  }
}

const choice = (label, any, value, options, onchoose) =>
  h("select", { "aria-label": label, value, onchange: (event) => onchoose(event.target.value) }, h("option", { value: "", key: "" }, any), options.map(([key, name]) => h("option", { value: key, key }, name)));
