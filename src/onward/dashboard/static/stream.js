/** The page's end of the stream: who wants to hear, and whether there is anything to be heard. */

import { PAGE } from "./api.js";
import { Feed } from "./feed.js";

const listeners = new Set();
let state = "lost";
let since = Date.now();
let heard = Date.now();
let wanted = null; // what is listened to
let worker = null; // whom the pages of this browser share
let lonely = !("SharedWorker" in window);
let send = () => {};

/** Whether changes come: `live`, `lost` (since when), or `out`: nobody is logged in; and the time of the last word. */
export const connection = () => ({ state, since, heard });

/**
 * Hear of every change, and of everything else that the stream tells; returns how to stop.
 *
 * Whoever hears first and looks afterwards has missed nothing.
 */
export function hear(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Begin to listen, once somebody is logged in; again after a log-in, it goes on as that person. */
export function listen() {
  const url = new URL("./events?batch=true", document.baseURI.split("#")[0]).href;
  wanted = { type: "hello", url, headers: { ...PAGE } };
  send({ type: "bye" });
  if (lonely) alone();
  else if (!worker) share();
  send(wanted);
}

/** Listen no more, as after a log-out. */
export function leave() {
  wanted = null;
  send({ type: "bye" });
}

/** Tell the other pages of this browser that somebody has logged out. */
export function announceLeaving() {
  send({ type: "out" });
}

function share() {
  worker = new SharedWorker(script(), { type: "module", name: "onward" });
  worker.port.onmessage = ({ data }) => take(data);
  send = (message) => worker.port.postMessage(message);
  // Its script did not come, because the service was away just then: without it nobody would try again.
  worker.addEventListener("error", () => {
    lonely = true;
    send = () => {};
    if (wanted) listen();
  });
}

function alone() {
  const feed = new Feed(wanted.url, wanted.headers, take);
  send = ({ type }) => {
    if (type === "hello") feed.start();
    else if (type === "hurry") feed.hurry();
    else feed.stop();
  };
}

addEventListener("online", () => send({ type: "hurry" }));
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) send({ type: "hurry" });
});
// A page that is put aside need not be told; one that is taken out again asks anew.
addEventListener("pagehide", () => send({ type: "bye" }));
addEventListener("pageshow", ({ persisted }) => {
  if (!persisted || !wanted) return;
  send(wanted);
  take({ type: "reset" });
});

/** The address of the worker; the policy of the page lets no other script become one. */
function script() {
  const address = new URL("./stream-worker.js", import.meta.url).href;
  if (!window.trustedTypes) return address;
  return trustedTypes
    .createPolicy("onward", { createScriptURL: (wanted) => (wanted === address ? wanted : "") })
    .createScriptURL(address);
}

function take(message) {
  if (message.type === "state") ({ state, since, heard } = message);
  for (const listener of [...listeners]) listener(message);
}
