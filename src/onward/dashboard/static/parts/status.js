/** How a status looks: a tone, which is a colour and a shape. What it means is the law's business. */

import { words } from "../format.js";
import { h } from "../view.js";
import { icon } from "./icons.js";

const TONES = {
  fresh: ["NEW", "INITIALIZED", "SAVED", "RECEIVED"],
  waiting: ["QUEUED", "OPEN", "WAITING_FOR_APPROVAL", "WAIT_APPROVAL"],
  going: ["RUNNING", "SENT", "ACK", "DELIVERED", "ACCEPTED", "UNDER_WAY", "CANCELLING"],
  good: ["SUCCESS", "DONE", "COMPLETED", "FILLED", "FINISHED", "NO_EFFECT", "EXECUTED", "APPROVED", "ACTIVE"],
  bad: ["FAILED", "ERROR", "INVALID", "SEND_FAILED", "REJECTED", "TURNED_DOWN"],
  late: ["TIMEOUT", "TTL_TIMEOUT"],
  held: ["BLOCKED", "BUSY", "PAUSED", "DISABLED"],
  gone: ["CANCELLED", "STOPPED"],
};
const TONE_OF = new Map(Object.entries(TONES).flatMap(([tone, names]) => names.map((name) => [name, tone])));

/** The tone of a status, whatever lifecycle it is of. */
export const tone = (status) => TONE_OF.get(String(status)) ?? "fresh";

/** A status with its shape. */
export function status(name, { note } = {}) {
  return h("span", { class: `status tone-${tone(name)}` }, icon(tone(name)), h("span", null, words(name)), note && h("span", { class: "note" }, note));
}

const VERDICTS = { OK: "good", DUPLICATE: "gone", STALE: "late", STALE_EPOCH: "late", TERMINAL: "gone", INVALID_STATE: "bad", UNKNOWN_COMMAND: "bad", CONFLICT: "bad" };

/** A verdict with its shape: `OK` moved something, and nothing else did. */
export const verdict = (name) =>
  h("span", { class: `status tone-${VERDICTS[name] ?? "gone"}` }, icon(VERDICTS[name] ?? "gone"), h("span", null, words(name)));
