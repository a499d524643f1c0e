/** Numbers, times and names, as people read them. */

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const percentage = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

export const count = (n) => whole.format(n);
export const compact = (n) => short.format(n);
export const percent = (part, all) => (all ? percentage.format(part / all) : "0%");

/** `1 host`, `2 hosts`. */
export const many = (n, one, more = `${one}s`) => `${count(n)} ${Number(n) === 1 ? one : more}`;

/** The whole of a time, for whoever wants to know exactly. */
export function exactly(at) {
  const time = new Date(at);
  const named = zone.formatToParts(time).find((part) => part.type === "timeZoneName")?.value ?? "";
  return `${day.format(time)}, ${clock.format(time)} ${named}`;
}

/** The time of a day, with the day if it is another one. */
export function timeOf(at, now = Date.now()) {
  const time = new Date(at);
  const today = day.format(time) === day.format(new Date(now));
  return today ? clock.format(time) : `${day.format(time)}, ${clock.format(time)}`;
}

/** How long ago, or how long until. */
export function ago(at, now = Date.now()) {
  const seconds = (now - new Date(at).getTime()) / 1_000;
  if (Math.abs(seconds) < 1.5) return "now";
  return seconds > 0 ? `${lasted(seconds)} ago` : `in ${lasted(-seconds)}`;
}

/** A length of time in its two largest units. */
export function lasted(seconds) {
  if (seconds < 0) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1_000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1).replace(/\.0$/, "")} s`;
  const parts = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const from = parts.findIndex(([size]) => seconds >= size);
  const [size, unit] = parts[from];
  const large = Math.floor(seconds / size);
  if (from === parts.length - 1) return `${Math.round(seconds)} s`;
  const [smaller, name] = parts[from + 1];
  const rest = Math.floor((seconds - large * size) / smaller);
  return rest ? `${large} ${unit} ${rest} ${name}` : `${large} ${unit}`;
}

/** Between two times, the second of which may not have come yet. */
export const between = (from, to, now = Date.now()) =>
  lasted(Math.max(0, ((to ? new Date(to).getTime() : now) - new Date(from).getTime()) / 1_000));

/** `WAITING_FOR_APPROVAL` as words. */
export const words = (name) => String(name).replaceAll("_", " ").toLowerCase();

/** A value in one line, as it would be written in JSON; text without quotes. */
export function inline(value) {
  if (typeof value === "string") return value;
  return json(value);
}

/** JSON in which numbers are exact, also those that no double holds. */
export function json(value, indent) {
  const written = JSON.stringify(
    value,
    (_key, each) => (typeof each === "bigint" ? `\u0000${each}\u0000` : each),
    indent,
  );
  return (written ?? "null").replaceAll(/"\\u0000(-?\d+)\\u0000"/g, "$1");
}

/** Whom a job is for, in its own words. */
export function selector(value) {
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.join(", ");
  if (value?.expression) return value.expression;
  if (value?.hostnames) return value.hostnames.join(", ");
  if (value?.labels) return Object.entries(value.labels).map(([k, v]) => `${k}=${v}`).join(" and ");
  return value?.all ? "all" : json(value);
}
