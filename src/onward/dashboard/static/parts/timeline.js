/** Everything that was said about something, with its verdict: also what was ignored, and why. */

import { get } from "../api.js";
import { between, exactly, many } from "../format.js";
import { h } from "../view.js";
import { icon } from "./icons.js";
import { tone, verdict } from "./status.js";
import { clock } from "./time.js";
import { block } from "./value.js";

const PAGE = 1_000;

/** A timeline of the service, as far as it has been read: it is only ever added to. */
export class Told {
  constructor(path) {
    this.path = path;
    this.items = [];
    this.cursor = null; // of the last page, which is read again: more may have come to it
    this.settled = 0; // how many are on the pages before it
    this.problem = null;
    this.reading = null;
  }

  /** Read what was said since; whoever asks meanwhile gets the same answer. */
  read() {
    this.reading ??= this.readOn().finally(() => { this.reading = null; });
    return this.reading;
  }

  async readOn() {
    try {
      for (let more = true; more;) {
        const page = await get(this.path, { limit: PAGE, cursor: this.cursor });
        this.items = [...this.items.slice(0, this.settled), ...page.items];
        more = page.next_cursor !== null;
        if (!more) break;
        this.settled = this.items.length;
        this.cursor = page.next_cursor;
      }
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
    }
  }
}

const AT_FIRST = 200; // events that are shown until somebody wants all

/**
 * Draw a timeline; `groups` are its events as `sentences.tell` tells them.
 *
 * `state` is kept between drawings: `{redraw, moved?, all?}`, whether only what moved it is shown, and
 * whether all of it is.
 */
export function timeline(told, { groups, record, state }) {
  const ignored = told.items.filter((event) => event.verdict !== "OK").length;
  const [shown, left] = chosen(groups, state);
  return h(
    "section",
    { class: "card", "aria-labelledby": "timeline-title" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "timeline-title" }, "What was said"),
      h("span", { class: "faint" }, `${many(told.items.length, "event")}${ignored ? `, ${ignored} of them ignored` : ""}`),
      ignored > 0 && toggle("Only what moved it", "moved", state),
    ),
    told.problem && h("p", { class: "refusal", role: "alert" }, told.problem.message),
    !told.items.length && !told.problem && h("p", { class: "soft" }, "Nothing has been said about it yet."),
    left > 0 && h("p", null, toggle(`Show the ${many(left, "earlier event")} as well`, "all", state)),
    h("ol", { class: "groups" }, shown.map((group, i) => groupView(group, i, record))),
  );
}

function toggle(name, what, state) {
  const turn = () => {
    state[what] = !state[what];
    state.redraw();
  };
  return h("button", { type: "button", class: "button button-small toggle", "aria-pressed": state[what] ? "true" : "false", onclick: turn }, name);
}

/** What is to be shown of the groups, the newest first to be kept, and how many events are left out. */
function chosen(groups, { moved, all }) {
  let room = all ? Infinity : AT_FIRST;
  let left = 0;
  const shown = [];
  for (const group of [...groups].reverse()) {
    const wanted = moved ? group.entries.filter(({ event }) => event.verdict === "OK") : group.entries;
    const entries = room > 0 ? wanted.slice(-room) : [];
    left += wanted.length - entries.length;
    room -= entries.length;
    if (entries.length) shown.unshift({ ...group, entries });
  }
  return [shown, left];
}

function groupView(group, i, record) {
  return h("li", { class: "group", key: i }, group.attempt !== null && groupHead(group, record), h("ol", { class: "said" }, group.entries.map((entry, n) => entryView(entry, n))));
}

function groupHead({ attempt, epoch, begun, ended, retried }, record) {
  const present = epoch !== null && epoch === record?.epoch && !ended;
  return h(
    "h3",
    { class: "group-head" },
    `Attempt ${attempt}`,
    epoch !== null && h("span", { class: "epoch" }, `epoch ${epoch}`),
    h("span", { class: "faint" }, present ? `for ${between(begun, null)}` : ended ? `took ${between(begun, ended)}` : ""),
    retried && h("span", { class: "faint" }, "and was tried again"),
  );
}

const SIGNS = { OK: null, TERMINAL: "gone", STALE: "gone", DUPLICATE: "gone", STALE_EPOCH: "late", INVALID_STATE: "bad", UNKNOWN_COMMAND: "bad", CONFLICT: "bad" };

function entryView({ event, text, kept, draws }, n) {
  const moved = event.verdict === "OK";
  const look = moved ? tone(event.to_status) : kept ? "late" : SIGNS[event.verdict] ?? "gone";
  return h(
    "li",
    { class: `entry tone-${look} ${moved ? "" : "entry-ignored"} ${kept ? "entry-kept" : ""}`, key: n },
    h("span", { class: "entry-sign" }, icon(look)),
    h(
      "div",
      { class: "entry-body" },
      h("p", { class: "entry-text" }, text[0].toUpperCase() + text.slice(1)),
      h(
        "p",
        { class: "entry-facts" },
        clock(event.at),
        h("span", null, "event ", h("code", null, event.event)),
        event.source && h("span", { class: "entry-source" }, "by ", h("bdi", null, event.source)),
        event.epoch !== null && h("span", { class: "entry-epoch" }, `epoch ${event.epoch}${draws ? ` → ${draws}` : ""}`),
        verdict(event.verdict),
      ),
      event.detail && Object.keys(event.detail).length > 0 && h("details", { class: "entry-detail" }, h("summary", { "aria-label": `Details of ${event.event} at ${exactly(event.at)}` }, "details"), block(event.detail)),
    ),
  );
}
