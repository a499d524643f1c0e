/** What really happened, when its word came too late to change the status. */

import { lasted, words } from "../format.js";
import { h } from "../view.js";
import { icon } from "./icons.js";
import { cause, spokenOf } from "./sentences.js";
import { tone } from "./status.js";
import { when } from "./time.js";
import { block } from "./value.js";

/** A late result in one sentence, with all of it for whoever wants to know. */
export function lateResult(record, lifecycle) {
  const late = record.late_result;
  if (!late) return null;
  const spoken = spokenOf(lifecycle, late.event);
  const { event: _event, at: _at, ...rest } = late;
  const why = cause(rest);
  return h(
    "div",
    { class: `callout tone-${tone(spoken)}`, key: "late" },
    icon("late", { size: 20 }),
    h(
      "div",
      { class: "callout-body" },
      h("p", null, h("strong", null, `In truth ${words(spoken)}${after(record, late)}`), ` it was given up as ${record.status}${why && `: ${why}`}.`),
      h("p", { class: "soft" }, "The word came too late to change the status, so it is kept beside it, ", when(late.at), "."),
      Object.keys(rest).length > 0 && h("details", null, h("summary", null, "what it said"), block(rest)),
    ),
  );
}

function after(record, late) {
  const seconds = (new Date(late.at) - new Date(record.finished_at ?? record.updated_at)) / 1_000;
  return seconds < 0.001 ? ", after" : `, ${lasted(seconds)} after`;
}

/** The same beside a status, in few words. */
export const lateNote = (record, lifecycle) =>
  record.late_result && h("span", { class: `late-note tone-${tone(spokenOf(lifecycle, record.late_result.event))}` }, icon("late"), `in truth ${words(spokenOf(lifecycle, record.late_result.event))}${after(record, record.late_result).replace(", after", "").replace(/ after$/, " later")}`);
