/**
 * Asks the service, as any other program does. What it refuses is a `Problem`, with the words that
 * it gave for it.
 */

import { json } from "./format.js";

/** Other sites cannot make a browser send this header: with it, the cookie says who we are. */
export const PAGE = Object.freeze({ "X-Onward-Page": "1" });

/** A refusal of the service, or the lack of an answer (`status` 0). */
export class Problem extends Error {
  constructor(status, body, etag) {
    super(body.detail || body.title || `The service answered ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.title = body.title ?? "";
    this.detail = body.detail ?? "";
    this.errors = Array.isArray(body.errors) ? body.errors : [];
    this.requestId = body.request_id ?? "";
    this.body = body;
    this.etag = etag;
  }

  /** Whether what was asked for has changed since it was looked at. */
  get stale() {
    return this.status === 412;
  }
}

/** For how long an answer is waited for. */
const PATIENCE_MS = 30_000;
/** What says that the service, or what it needs, is away for a while. */
const AWAY = new Set([0, 502, 503, 504]);

let onLoggedOut = () => {};
let onAway = () => {};

/** Say what is to be done when the service no longer knows who we are. */
export function whenLoggedOut(handler) {
  onLoggedOut = handler;
}

/** Say what is to be done when a question was not answered, because the service is away. */
export function whenAway(handler) {
  onAway = handler;
}

/**
 * Make a request; returns what was answered, with its `etag` beside it where it has one.
 *
 * `query` leaves out what is `null`; a list becomes one parameter for each of its values. `text` is a body
 * that goes out as it is, in place of JSON. With `key`, a repeat gets the answer of the first.
 */
export async function ask(method, path, { query, body, text, ifMatch, key, signal } = {}) {
  const headers = { ...PAGE, Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (text !== undefined) headers["Content-Type"] = "text/plain; charset=utf-8";
  if (ifMatch) headers["If-Match"] = ifMatch;
  if (key) headers["Idempotency-Key"] = key;
  const limit = AbortSignal.timeout(PATIENCE_MS);
  let answer;
  let found;
  try {
    answer = await fetch(address(path, query), {
      method,
      headers,
      body: body === undefined ? text : json(body),
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      credentials: "same-origin",
      cache: "no-store",
    });
    found = await read(answer);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (method === "GET") onAway();
    throw new Problem(0, { title: "The service does not answer", detail: unanswered(method) });
  }
  const etag = strong(answer.headers.get("ETag"));
  if (answer.ok) return { data: found, etag, status: answer.status };
  if (answer.status === 401 && path !== "/session") onLoggedOut();
  if (method === "GET" && AWAY.has(answer.status)) onAway();
  throw new Problem(answer.status, found && typeof found === "object" ? found : {}, etag);
}

const unanswered = (method) =>
  method === "GET" ? "The service does not answer. It is tried again." : "The service did not answer, so it is not known whether that was done.";

/** The version as the service gave it: proxies that compress an answer call it a weak one. */
const strong = (etag) => etag?.replace(/^W\//, "") ?? null;

/** Return what there is at an address. */
export const get = async (path, query, options) => (await ask("GET", path, { query, ...options })).data;

/** Who is there: that was asked before any of this was loaded, and is asked again if it got no answer. */
export async function whoIsThere() {
  const early = window.onwardMe;
  window.onwardMe = null;
  try {
    const answer = await early;
    if (answer?.ok) return await read(answer);
  } catch {
    // The service was away, or the answer was cut off.
  }
  return get("/me");
}

/** Return what there is, and its version: `{data, etag}`. */
export const getWithVersion = (path, query, options) => ask("GET", path, { query, ...options });

export const post = (path, body, options) => ask("POST", path, { body, ...options });
export const put = (path, body, options) => ask("PUT", path, { body, ...options });
export const patch = (path, body, options) => ask("PATCH", path, { body, ...options });
export const del = (path, options) => ask("DELETE", path, options);

function address(path, query) {
  // Relative to the page: it works below any prefix that a proxy puts before it.
  const url = new URL(`.${path}`, document.baseURI.split("#")[0]);
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") url.searchParams.append(name, each);
    }
  }
  return url;
}

async function read(answer) {
  const text = await answer.text();
  if (!text) return null;
  try {
    return JSON.parse(text, exact);
  } catch {
    return null;
  }
}

/** Numbers beyond what a double holds are kept as they were written. */
export function exact(_key, value, context) {
  if (typeof value !== "number" || !context || Number.isSafeInteger(value)) return value;
  return Number.isInteger(value) && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value;
}
