/** What there is to read of a job: its executions, what they printed, why they failed, who did what. */

import { get } from "../api.js";
import { between, count, many, words } from "../format.js";
import { footing, Listing, table } from "../parts/listing.js";
import { status, tone } from "../parts/status.js";
import { tabs } from "../parts/tabs.js";
import { clock, when } from "../parts/time.js";
import { block, pairs } from "../parts/value.js";
import { href } from "../router.js";
import { h } from "../view.js";

const TABS = { executions: "Executions", outputs: "Outputs", causes: "Failures", timeline: "Timeline", details: "Details" };
const RELOAD_MS = 1_500;
const FAR_DOWN = 400; // pixels
const NOTHING = "none"; // the output of what has printed nothing, and the cause of what has none
const UNKNOWN = "unknown"; // the output of what nobody knows
/** What is read as a whole for a tab, and how. */
const READ = { outputs: {}, causes: {}, timeline: { limit: 1_000 } };

export class JobDetails {
  constructor(app, id, query, filtered) {
    this.app = app;
    this.id = id;
    this.whenFiltered = filtered;
    this.tab = query.get("tab") in TABS ? query.get("tab") : "executions";
    this.filters = { host: query.get("host") ?? "", cause: query.get("cause") ?? "", output: query.get("output") ?? "", exit_code: query.get("exit_code") ?? "" };
    this.statuses = query.getAll("status");
    this.scroll = { top: 0 };
    this.scrolledCauses = { top: 0 };
    this.listing = new Listing(`/jobs/${id}/executions`, this.query(), () => app.redraw());
    this.found = {}; // what was read, by its tab
    this.problem = null;
    this.asked = 0;
  }

  /** What of it belongs into the address. */
  chosen() {
    return { ...this.filters, tab: this.tab === "executions" ? null : this.tab };
  }

  query() {
    return { status: this.statuses, ...this.filters, count: true };
  }

  filtered(statuses) {
    this.statuses = [...statuses];
    this.scroll.top = 0;
    this.load();
  }

  filterBy(name, value) {
    this.filters[name] = value;
    this.whenFiltered();
  }

  load() {
    if (this.tab === "executions") this.listing.reload(this.query());
    if (this.tab in READ) this.read(this.tab);
  }

  async read(tab) {
    const asked = (this.asked += 1);
    let problem = null;
    try {
      const found = await get(`/jobs/${this.id}/${tab}`, READ[tab]);
      if (asked === this.asked) this.found[tab] = found;
    } catch (refused) {
      problem = refused;
    }
    if (asked !== this.asked) return;
    this.problem = problem;
    this.app.redraw();
  }

  /** Something of the job has moved: look again, but not all the time. */
  changed(cells) {
    const over = cells.ended === cells.total;
    this.reloading ??= setTimeout(() => {
      this.reloading = null;
      // Somebody who has gone far down is not thrown back to the beginning, and sees it once they are back.
      if (this.tab === "executions" && this.scroll.top >= FAR_DOWN) this.changed(cells);
      else this.load();
    }, over ? 300 : RELOAD_MS);
  }

  reloadTimeline() {
    if (this.tab === "timeline") this.load();
  }

  close() {
    clearTimeout(this.reloading);
    clearTimeout(this.typing);
  }

  turn(tab, statuses) {
    this.tab = tab;
    this.problem = null;
    this.whenFiltered(statuses);
  }

  view(job, cells, chosen) {
    const views = { executions: () => this.executions(cells, chosen), outputs: (found) => this.printed(found), causes: (found) => this.failed(found), timeline: done, details: () => details(job) };
    const found = this.found[this.tab];
    const unread = this.tab in READ && !found;
    return h(
      "section",
      { class: "card card-flush", key: "details", "aria-label": "What there is to read" },
      tabs({ label: "What there is to read", among: Object.entries(TABS), current: this.tab, onturn: (name) => this.turn(name) }),
      h(
        "div",
        { role: "tabpanel", id: "tab-panel", "aria-labelledby": `tab-${this.tab}` },
        this.problem && h("p", { class: "footing tone-bad", key: "problem", role: "alert" }, this.problem.message),
        unread ? !this.problem && h("p", { class: "footing" }, "Reading…") : views[this.tab](found),
      ),
    );
  }

  executions(cells, chosen) {
    const { cause, output, exit_code: code } = this.filters;
    return [
      h(
        "div",
        { class: "filters card-head", key: "filters" },
        h("input", { class: "search", type: "search", "data-search": true, placeholder: "Part of a host's name", "aria-label": "Part of a host's name", value: this.filters.host, oninput: (event) => this.type(event.target.value) }),
        cause && h("button", { type: "button", class: "chip", key: "cause", onclick: () => this.filterBy("cause", "") }, cause === NOTHING ? "without a cause ×" : `because of ${words(cause)} ×`),
        output && h("button", { type: "button", class: "chip", key: "output", onclick: () => this.filterBy("output", "") }, `${OUTPUTS[output] ?? "with one output"} ×`),
        code !== "" && h("button", { type: "button", class: "chip", key: "code", onclick: () => this.filterBy("exit_code", "") }, `with exit code ${code} ×`),
        h("span", { class: "faint" }, this.told(cells, chosen)),
      ),
      table({
        state: this.scroll,
        label: "Executions",
        items: this.listing.items,
        key: (item) => item.execution_id,
        link: (item) => href(["executions", item.execution_id]),
        onend: () => this.listing.more(),
        redraw: this.app.redraw,
        empty: this.listing.loading ? "Reading…" : "Nothing is both: choose less.",
        columns: COLUMNS,
      }),
      footing(this.listing, "executions"),
    ];
  }

  /** What the list counts, in words. */
  told(cells, chosen) {
    if (this.listing.count === null) return "";
    const which = chosen.size ? [...chosen].map(words).join(" or ") : "in any status";
    return `${count(this.listing.count)} of ${count(cells.total)}: ${which}`;
  }

  type(text) {
    this.filters.host = text;
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.whenFiltered(), 250);
    this.app.redraw();
  }

  printed({ groups, others, silent, unknown, ended }) {
    if (!groups.length) return h("div", { class: "empty" }, "Nothing has ended yet.");
    const told = groups.slice(0, 3).filter((group) => group.output).map((group, i) => `${count(group.count)} ${i === 0 ? "same" : "differ this way"}`);
    return h(
      "div",
      { class: "stack card-body" },
      h("p", { class: "lead" }, `Of ${count(ended)} that ended: ${[...told, silent && `${count(silent)} silent`, unknown && `${count(unknown)} of which nobody knows`].filter(Boolean).join(", ")}.`),
      groups.map((group) => this.group(group)),
      others.groups > 0 && h("p", { class: "faint" }, `${many(others.groups, "further group")} with ${many(others.count, "host")} are not shown.`),
    );
  }

  group(group) {
    const more = group.count - group.hosts.length;
    return h(
      "div",
      { class: "output-group", key: `${group.output}-${group.status}-${group.exit_code}-${group.cause}` },
      h(
        "div",
        { class: "output-head" },
        h("strong", null, many(group.count, "host")),
        status(group.status),
        group.exit_code !== null && h("span", { class: "faint" }, `exit code ${group.exit_code}`),
        group.cause && words(group.cause) !== words(group.status) && h("span", { class: "faint" }, words(group.cause)),
        h("span", { class: "grow" }),
        h("button", { type: "button", class: "button button-small", onclick: () => this.only(group) }, "Show these"),
      ),
      group.output ? h("div", { class: "output-lines", tabindex: "0", role: "group", "aria-label": "What they printed" }, group.lines.map((line, i) => h("div", { class: `stream-${line.stream}`, key: i }, line.stream !== "stdout" && h("span", { class: "stream-mark" }, line.stream === "stderr" ? "err" : line.stream), line.text || " ")), group.more && h("div", { class: "faint" }, "…")) : h("p", { class: "output-hosts" }, group.known ? "printed nothing" : "It is not known what they printed: they only repeated how they had ended, or ended before that was noted."),
      h("p", { class: "output-hosts" }, h("a", { href: href(["executions", group.execution_id]) }, group.hosts[0] ?? "one of them"), group.hosts.slice(1).map((name) => `, ${name}`), more > 0 && ` and ${count(more)} more`),
    );
  }

  only({ output, known, status: name, exit_code: code, cause }) {
    this.filters = { host: "", cause: cause ?? NOTHING, output: output ?? (known ? NOTHING : UNKNOWN), exit_code: code ?? "" };
    this.turn("executions", new Set([name]));
  }

  failed({ items }) {
    if (!items.length) return h("div", { class: "empty" }, "Nothing has failed.");
    return table({
      state: this.scrolledCauses,
      label: "Failures by cause",
      items,
      key: (item) => `${item.status}-${item.cause}`,
      link: (item) => href(["jobs", this.id], { status: item.status, cause: item.cause ?? NOTHING }),
      redraw: this.app.redraw,
      rowHeight: 44,
      columns: CAUSES,
    });
  }
}

const OUTPUTS = { [NOTHING]: "that printed nothing", [UNKNOWN]: "of which nobody knows" };

const done = ({ items }) =>
  h(
    "div",
    { class: "trail card-body" },
    items.map((event, i) =>
      h("div", { class: "trail-step", key: i }, clock(event.at), h("span", { class: "trail-dot" }), h("div", null, h("strong", null, event.by || "Onward"), ` ${words(event.event)}`, event.detail && Object.keys(event.detail).length > 0 && [" ", h("span", { class: "soft" }, event.detail.reason || ""), Object.keys(event.detail).some((name) => name !== "reason") && block(event.detail)])),
    ),
  );

const COLUMNS = [
  { name: "host", label: "Host", class: "cell-2", cell: (item) => item.host ?? `host ${item.host_id}` },
  { name: "status", label: "Status", class: "cell-status", cell: (item) => status(item.status) },
  { name: "told", label: "What it says", class: "cell-3 wide", cell: (item) => h("span", { class: "soft", title: item.error }, wrong(item)) },
  { name: "late", label: "Told later", class: "cell-status wide", cell: (item) => (item.late_result ? h("span", { class: "soft" }, item.late_result.event) : "") },
  { name: "attempt", label: "Attempt", class: "cell-number wide", cell: (item) => item.attempt },
  { name: "took", label: "Took", class: "cell-when wide", cell: (item) => (item.finished_at ? between(item.created_at, item.finished_at) : "") },
  { name: "when", label: "Changed", class: "cell-when", cell: (item) => when(item.updated_at) },
];

/** What went wrong, unless it went well in the end. */
function wrong({ status: name, cause, error }) {
  return tone(name) === "good" ? "" : [cause && words(cause), error].filter(Boolean).join(": ");
}

const CAUSES = [
  { name: "status", label: "Ended as", class: "cell-status", cell: (item) => status(item.status) },
  { name: "cause", label: "Because of", class: "cell", cell: (item) => words(item.cause ?? "nothing said") },
  { name: "count", label: "Hosts", class: "cell-number", cell: (item) => count(item.count) },
  { name: "late", label: "Done in truth", class: "cell-number wide", cell: (item) => (item.late ? count(item.late) : "–") },
  { name: "error", label: "For example", class: "cell-3 wide", cell: (item) => h("span", { class: "soft", title: item.error }, item.host ? `${item.host}: ${item.error ?? ""}` : (item.error ?? "")) },
];

function details(job) {
  const shown = {
    external_id: job.external_id,
    command_type: job.command_type,
    params: job.params,
    argv: job.argv,
    selector: job.selector,
    max_concurrency: job.max_concurrency ?? "no limit",
    read_only: job.read_only,
    timeout_s: job.timeout_s,
    max_retries: job.max_retries,
    requested_by: job.requested_by,
    edited_by: job.edited_by.join(", ") || "nobody",
    approval_state: job.approval_state ?? "not needed",
    decided_by: job.decided_by ?? "nobody",
    decision_reason: job.decision_reason ?? "",
    version: job.version,
    request_id: job.request_id ?? "",
  };
  return h("div", { class: "card-body" }, pairs(shown));
}
