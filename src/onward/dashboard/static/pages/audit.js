/** Who did what: the newest first, and what comes meanwhile is announced. */

import { get } from "../api.js";
import { exactly, inline, many, words } from "../format.js";
import { Again } from "../parts/again.js";
import { show } from "../parts/dialog.js";
import { icon } from "../parts/icons.js";
import { footing, Listing, table } from "../parts/listing.js";
import { when } from "../parts/time.js";
import { pairs } from "../parts/value.js";
import { choose, href } from "../router.js";
import { h } from "../view.js";

const KINDS = ["job", "host", "block", "command_type", "key", "agent", "session", "item"];
/** Jobs tell in the stream what is done with them; of all else the service is asked. */
const LOOK_MS = 4_000;
const TYPING_MS = 250;
const PAGE = 100;

export default function audit(app, { query }) {
  return new Audit(app, query);
}

class Audit {
  constructor(app, query) {
    this.app = app;
    this.filters = { by: query.get("by") ?? "", subject: query.get("subject") ?? "", kind: query.getAll("kind").filter((kind) => KINDS.includes(kind)) };
    this.scroll = { top: 0 };
    this.fresh = []; // what has come since, and is not in the list yet
    this.list = new Listing("/audit", this.filters, app.redraw, { limit: PAGE });
    this.again = new Again(() => this.look());
    this.list.reload();
    this.timer = setInterval(() => { if (!document.hidden) this.again.soon(); }, LOOK_MS);
  }

  title() {
    return this.fresh.length ? `Audit (${this.fresh.length} new)` : "Audit";
  }

  close() {
    clearInterval(this.timer);
    clearTimeout(this.typing);
    this.again.close();
  }

  heard(message) {
    if (message.type === "reset") this.reload();
    if (message.type === "changes" && message.changes.some((change) => change[0] === "job")) this.again.soon();
  }

  reload() {
    this.fresh = [];
    return this.list.reload({ ...this.filters });
  }

  /** Look at the newest; what is not known yet is put in at once if the top is in sight. */
  async look() {
    if (this.list.loading) return;
    if (this.list.problem) return void (await this.reload());
    const asked = this.list.asked;
    const page = await get("/audit", { limit: PAGE, ...this.filters }).catch(() => null);
    if (!page || asked !== this.list.asked) return;
    const known = new Set(this.list.items.slice(0, 2 * PAGE).map(key));
    const found = page.items.filter((deed) => !known.has(key(deed)));
    // Older ones may come late, from transactions that took long: then all is read again.
    const first = found.every((deed, i) => deed === page.items[i]) && (found.length < page.items.length || !this.list.items.length);
    if (!first) return void (await this.reload());
    this.fresh = found;
    if ((this.scroll.top ?? 0) === 0) this.take();
    this.app.redraw();
  }

  take() {
    this.list.items = [...this.fresh, ...this.list.items];
    this.fresh = [];
    this.scroll.top = 0;
    this.app.redraw();
  }

  filter(chosen) {
    Object.assign(this.filters, chosen);
    this.scroll.top = 0;
    choose(this.filters);
    this.reload();
    this.app.redraw();
  }

  type(name, text) {
    this.filters[name] = text;
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.filter({ [name]: text.trim() }), TYPING_MS);
    this.app.redraw();
  }

  turn(kind) {
    const chosen = new Set(this.filters.kind);
    if (!chosen.delete(kind)) chosen.add(kind);
    this.filter({ kind: KINDS.filter((each) => chosen.has(each)) });
  }

  view() {
    return h(
      "div",
      { class: "stack" },
      h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", null, "Audit"), h("p", { class: "lead" }, "Who did what, the newest first."))),
      this.chosen(),
      h(
        "section",
        { class: "card card-flush", "aria-label": "What was done" },
        h("div", { class: "announced", "aria-live": "polite" }, this.fresh.length > 0 && h("button", { type: "button", class: "button button-small", onclick: () => this.take() }, `Show ${many(this.fresh.length, "new deed")}`)),
        table({
          state: this.scroll,
          label: "What was done",
          items: this.list.items,
          key,
          onend: () => this.list.more(),
          redraw: this.app.redraw,
          empty: this.list.loading || this.list.problem ? null : this.none(),
          columns: this.columns(),
          rowHeight: 44,
          rows: 14,
        }),
        footing(this.list, "deeds"),
      ),
    );
  }

  chosen() {
    const field = (name, label) =>
      h("label", { class: "inline-field" }, label, h("input", { type: "search", class: "audit-field", spellcheck: "false", autocomplete: "off", "data-search": name === "by", maxlength: 255, placeholder: "written in full", value: this.filters[name], oninput: (event) => this.type(name, event.target.value) }));
    return h(
      "div",
      { class: "filters" },
      field("by", "Who"),
      field("subject", "With which one"),
      h(
        "div",
        { class: "chips", role: "group", "aria-label": "Filter by kind" },
        KINDS.map((kind) => h("button", { key: kind, type: "button", class: "chip tone-going", "aria-pressed": this.filters.kind.includes(kind) ? "true" : "false", onclick: () => this.turn(kind) }, words(kind))),
      ),
    );
  }

  none() {
    const chosen = this.filters.by || this.filters.subject || this.filters.kind.length;
    if (!chosen) return "Nobody has done anything yet.";
    return [h("p", null, "Nobody has done that. A person and a subject are to be written whole."), h("button", { type: "button", class: "button button-small", onclick: () => this.filter({ by: "", subject: "", kind: [] }) }, "Show everything")];
  }

  columns() {
    const who = (deed) => h("button", { type: "button", class: "link", title: `Only what ${deed.by} did`, onclick: () => this.filter({ by: deed.by }) }, h("bdi", null, deed.by));
    return [
      { name: "at", label: "When", class: "cell-when", cell: (deed) => when(deed.at) },
      { name: "by", label: "Who", class: "cell", cell: who },
      { name: "deed", label: "What", class: "cell-2", cell: (deed) => [h("strong", null, words(deed.deed)), " ", h("span", { class: "soft" }, `${words(deed.kind)} `), this.subject(deed)] },
      { name: "detail", label: "In short", class: "cell-3 wide", cell: (deed) => h("bdi", { class: "soft" }, brief(deed.detail)) },
      { name: "open", label: h("span", { class: "visually-hidden" }, "Details"), class: "cell-open", cell: (deed) => h("button", { type: "button", class: "button button-small", "aria-label": `Details of ${words(deed.deed)} by ${deed.by}`, onclick: () => this.open(deed) }, h("span", { class: "wide" }, "Details"), icon("right", { size: 12 })) },
    ];
  }

  /** What it was done with, where it can be looked at; or else all that was done with it. */
  subject(deed) {
    if (!deed.subject) return null;
    const place = WHERE[deed.kind]?.(deed.subject, this.app);
    if (place) return h("a", { href: place }, h("bdi", null, named(deed)));
    return h("button", { type: "button", class: "link", onclick: () => this.filter({ subject: deed.subject }) }, h("bdi", null, named(deed)));
  }

  open(deed) {
    const told = { when: exactly(deed.at), by: deed.by, deed: words(deed.deed), of: words(deed.kind), ...(deed.subject ? { subject: deed.subject } : {}), ...(deed.request_id ? { request: deed.request_id } : {}) };
    show({ title: `${words(deed.deed)} by ${deed.by}`, wide: true, body: () => [pairs(told), h("h3", null, "Detail"), pairs(deed.detail, { none: "nothing more" })] });
  }
}

const WHERE = {
  job: (id) => href(["jobs", id]),
  host: (id) => href(["hosts", id]),
  block: (id) => href(["hosts", id]),
  agent: (id) => href(["hosts", id]),
  item: (id, app) => app.may("trade") && href(["trading"], { item: id }),
};

/** A host is known by its name, where the detail tells it. */
const named = ({ detail, subject }) => (typeof detail?.name === "string" && detail.name ? detail.name : subject);

const key = (deed) => `${deed.at} ${deed.kind} ${deed.subject} ${deed.deed} ${deed.by} ${deed.request_id ?? ""}`;

const empty = (value) => value === null || value === "" || (typeof value === "object" && Object.keys(value).length === 0);

/** The detail in one line, without what is said beside it or says nothing. */
const brief = (detail) => Object.entries(detail ?? {}).filter(([name, value]) => name !== "name" && !empty(value)).map(([name, value]) => `${words(name)}: ${inline(value)}`).join(" · ").slice(0, 200);
