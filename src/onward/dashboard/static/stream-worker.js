/** One stream for all pages of this browser: they share the worker, and so its connection. */

import { Feed } from "./feed.js";

const pages = new Set();
let feed = null;

function tell(message) {
  for (const port of pages) port.postMessage(message);
}

function begin({ url, headers }) {
  feed ??= new Feed(url, headers, tell);
  feed.start();
}

self.addEventListener("connect", ({ ports: [port] }) => {
  port.addEventListener("message", ({ data }) => {
    if (data.type === "hello") {
      pages.add(port);
      begin(data);
      port.postMessage(feed.told());
    } else if (data.type === "bye") {
      pages.delete(port);
      // Nobody looks: the service need not tell anybody.
      if (pages.size === 0) feed?.stop();
    } else if (data.type === "out") {
      // The session was that of all of them.
      feed?.stop();
      tell({ type: "state", state: "out", since: Date.now(), heard: Date.now() });
    } else if (data.type === "hurry") {
      feed?.hurry();
    }
  });
  port.start();
});
