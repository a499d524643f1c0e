/** What was said about something, and what became of it, in sentences that people understand. */

import { lasted, words } from "../format.js";

/**
 * Tell a timeline: the events in groups, one for each attempt, each with its sentence.
 *
 * Returns `[{attempt, epoch, begun, ended, retried, entries: [{event, text, kept, draws}]}]`; an
 * attempt of `null` is what came before the first one, or all of it where there are none.
 */
export function tell(events, { lifecycle, record }) {
  const groups = grouped(events, record);
  const attempts = new Map(groups.filter(({ epoch }) => epoch !== null).map(({ epoch, attempt }) => [epoch, attempt]));
  let reached = null; // the last event that moved it
  for (const group of groups) {
    for (const entry of group.entries) {
      const { event } = entry;
      entry.kept = keptLate(event, record);
      if (event.verdict === "OK" && event.event === BEGINS) entry.draws = group.epoch;
      entry.text = sentence(event, { lifecycle, reached, attempts, kept: entry.kept, attempt: group.attempt });
      if (event.verdict === "OK") reached = event;
    }
  }
  return groups;
}

const BEGINS = "claim"; // the move that begins an attempt; it still carries the epoch before
const AGAIN = "retry";

function grouped(events, record) {
  const groups = [];
  let counted = 0;
  const begin = (attempt, begun) => groups.push({ attempt, begun, epoch: null, ended: null, retried: null, entries: [] });
  for (const event of events) {
    if (event.verdict === "OK" && event.event === BEGINS) begin((counted += 1), event.at);
    else if (!groups.length) begin(null, event.at);
    const group = groups.at(-1);
    group.entries.push({ event });
    if (event.verdict !== "OK" || group.attempt === null || event.event === BEGINS) continue;
    group.epoch ??= event.epoch;
    if (event.event === AGAIN) group.retried = event;
    // An attempt that never reached its host is not counted.
    if (event.event === AGAIN && event.detail?.uncounted) counted -= event.detail.uncounted;
    group.ended ??= event.at;
  }
  const last = groups.at(-1);
  // Of the attempt that is under way, nothing has been said under its epoch yet.
  if (last?.attempt && last.epoch === null && record) last.epoch = record.epoch;
  return groups;
}

const keptLate = (event, record) =>
  event.verdict !== "OK" && record?.late_result?.event === event.event && sameTime(record.late_result.at, event.at);

const sameTime = (a, b) => new Date(a).getTime() === new Date(b).getTime();

/** The status that an event speaks of, or else its own name. */
export function spokenOf(lifecycle, event) {
  return lifecycle?.moves.find((move) => move.event === event)?.to ?? event.toUpperCase();
}

function sentence(event, context) {
  const told = SENTENCES[event.verdict];
  return told ? told(event, context) : `${event.event}: ${words(event.verdict)}`;
}

const SENTENCES = {
  OK: moved,
  TERMINAL: (event, context) => late(event, context),
  STALE: (event, context) => late(event, context),
  DUPLICATE: (event, { lifecycle, reached }) =>
    `${spokenOf(lifecycle, event.event)} once more${since(event, reached, " after ")}: ignored, said before`,
  INVALID_STATE: (event, { lifecycle }) =>
    `${spokenOf(lifecycle, event.event)} does not follow ${event.from_status}: ignored, still ${event.from_status}`,
  STALE_EPOCH: (event, { lifecycle, attempts }) => {
    const attempt = attempts.get(event.epoch);
    const who = attempt ? `attempt ${attempt}, a former one (epoch ${event.epoch}),` : `a former attempt (epoch ${event.epoch})`;
    return `${who} reported ${spokenOf(lifecycle, event.event)}: ignored, another has taken its place`;
  },
  UNKNOWN_COMMAND: (event) => `${event.event} of something that nobody has made: ignored`,
  CONFLICT: (event) => `${event.event} with another content under the same id: refused`,
};

function late(event, { lifecycle, reached, kept }) {
  const spoken = spokenOf(lifecycle, event.event);
  const after = since(event, reached, ", ", " late");
  if (kept) return `${spoken}${after}: kept as what really happened, but it had already been given up as ${event.from_status}`;
  if (spoken === event.from_status) return `${spoken} once more${since(event, reached, " after ")}: ignored, already ${event.from_status}`;
  return `${spoken}${after}: ignored, already ${event.from_status}`;
}

/** How long after the last move; nothing if that was at the same moment. */
function since(event, reached, before, after = "") {
  if (!reached) return "";
  const seconds = (new Date(event.at) - new Date(reached.at)) / 1_000;
  return seconds < 0.001 ? "" : `${before}${lasted(seconds)}${after}`;
}

function moved(event, { attempt }) {
  const detail = event.detail ?? {};
  const told = MOVES[event.event];
  if (event.from_status === null) return `made, and ${event.to_status}`;
  if (attempt !== null && told) return told(detail, attempt);
  if (event.event === "plan") return "its turn has come: QUEUED";
  const why = cause(detail);
  return `${event.from_status} → ${event.to_status}${why && `: ${why}`}`;
}

const MOVES = {
  claim: ({ worker_id: worker }, attempt) => `attempt ${attempt} begins${worker ? `, on worker ${worker}` : ""}: RUNNING`,
  retry: (detail) => `${cause(detail) || "the attempt is over"}: QUEUED again${detail.delay_s ? `, to be tried in ${lasted(detail.delay_s)}` : ""}${cost(detail)}`,
  succeed: (detail) => `it succeeded${cause(detail) && ` (${cause(detail)})`}: SUCCESS`,
  fail: (detail) => `${cause(detail) || "it failed"}: FAILED`,
  timeout: (detail) => `${cause(detail) || "its time was over"}: given up as TIMEOUT`,
  cancel: (detail) => `it was cancelled${cause(detail) && ` (${cause(detail)})`}: CANCELLED`,
};

const cost = ({ costs, uncounted }) => (costs ? ", which costs a retry" : uncounted ? ", and this attempt is not counted" : ", which costs no retry");

const CAUSES = {
  UNREACHABLE: "the host could not be reached",
  REFUSED: "the host refused",
  TIMED_OUT: "the time limit had passed",
  FAILED: "the command failed",
  DELIVERY_UNKNOWN: "nobody knows whether the host got it",
  WORKER_LOST: "the worker was lost",
  BUSY: "the host was busy",
  OFFLINE: "the host was not connected",
  BLOCKED: "a rule forbids it",
  HANDED_BACK: "it was handed back before it began",
};

/** Why, in words: a cause, and what the host said of it. */
export function cause({ cause: named, error, exit_code: code, error_message: message }) {
  const said = [...new Set([error, message, code !== undefined && code !== null && `exit code ${code}`].filter(Boolean))];
  return [named && (CAUSES[named] ?? words(named)), ...said].filter(Boolean).join(", ");
}
