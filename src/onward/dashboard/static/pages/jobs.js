/** All jobs, the newest first. */

import { count, selector } from "../format.js";
import { bar } from "../parts/bar.js";
import { footing, Listing, table } from "../parts/listing.js";
import { runForm } from "../parts/run.js";
import { status } from "../parts/status.js";
import { when } from "../parts/time.js";
import { choose, href } from "../router.js";
import { h } from "../view.js";

const RELOAD_MS = 1_500;
const FAR_DOWN = 400; // pixels
const OVER = new Set(["FINISHED", "STOPPED", "TURNED_DOWN"]);

export default function jobs(app, { query }) {
  const filters = {
    open: query.get("open") ?? "",
    command_type: query.get("command_type") ?? "",
    requested_by: query.get("requested_by") ?? "",
    external_id: query.get("external_id") ?? "",
  };
  const scroll = { top: 0 };
  const listing = new Listing("/jobs", filters, () => app.redraw());
  let soon = null;
  let typing = null;
  let closed = false;
  read();

  async function read() {
    await listing.reload();
    // What is over is noted as no longer open a moment later, and nothing tells that.
    if (filters.open === "true" && listing.items.some(({ state }) => OVER.has(state))) readSoon();
  }

  /** Somebody who has gone far down is not thrown back to the beginning. */
  function readSoon() {
    if (closed || scroll.top >= FAR_DOWN) return;
    soon ??= setTimeout(() => { soon = null; read(); }, RELOAD_MS);
  }

  function set(name, value) {
    filters[name] = value;
    clearTimeout(typing);
    typing = setTimeout(() => {
      choose(filters);
      scroll.top = 0;
      read();
    }, 250);
    app.redraw();
  }

  const field = (name, label) =>
    h("input", { type: "search", placeholder: label, "aria-label": label, value: filters[name], "data-search": name === "external_id", oninput: (event) => set(name, event.target.value) });

  return {
    title: () => "Jobs",
    heard({ type, changes }) {
      const mine = type === "reset" || (type === "changes" && changes.some((change) => change[1] !== null));
      if (mine) readSoon();
    },
    close() {
      closed = true;
      clearTimeout(soon);
      clearTimeout(typing);
    },
    view: () =>
      h(
        "div",
        { class: "stack" },
        h("div", { class: "head" }, h("h1", { class: "grow" }, "Jobs"), app.may("run") && h("button", { class: "button button-main", type: "button", onclick: () => runForm(app, {}) }, "Run something")),
        h(
          "section",
          { class: "card card-flush", "aria-label": "Jobs" },
          h(
            "div",
            { class: "filters card-head" },
            h("div", { class: "chips", role: "group", "aria-label": "Which jobs" }, choice("All", !filters.open, () => set("open", "")), choice("Open", filters.open === "true", () => set("open", "true"))),
            field("external_id", "External id"),
            field("command_type", "Command type"),
            field("requested_by", "Asked for by"),
          ),
          table({ state: scroll, label: "Jobs", items: listing.items, key: (job) => job.job_id, link: (job) => href(["jobs", job.job_id]), onend: () => listing.more(), redraw: app.redraw, rowHeight: 46, columns: COLUMNS, empty: listing.loading ? "Reading…" : nothing(filters) }),
          footing(listing, "jobs"),
        ),
      ),
  };
}

const choice = (label, chosen, onclick) => h("button", { type: "button", key: label, class: "chip", "aria-pressed": chosen ? "true" : "false", onclick }, label);

const nothing = (filters) =>
  Object.values(filters).some(Boolean) ? "No job is like that." : [h("span", { key: "none" }, "There is no job yet. To make one:"), h("code", { key: "how" }, "onward run --on all -- uptime")];

const COLUMNS = [
  { name: "id", label: "Job", class: "cell-id", cell: (job) => job.job_id },
  { name: "type", label: "What", class: "cell-2", cell: (job) => h("strong", null, job.command_type) },
  { name: "on", label: "On", class: "cell-2 wide", cell: (job) => h("span", { class: "soft" }, selector(job.selector)) },
  { name: "state", label: "State", class: "cell-job-state", cell: (job) => status(job.state) },
  { name: "progress", label: "Progress", class: "cell-2 wide", cell: (job) => bar(job.counts, { label: `Progress of job ${job.job_id}`, thin: true }) },
  { name: "total", label: "Hosts", class: "cell-number", cell: (job) => count(job.total) },
  { name: "by", label: "Asked for by", class: "wide", cell: (job) => job.requested_by },
  { name: "when", label: "When", class: "cell-when", cell: (job) => when(job.created_at) },
];
