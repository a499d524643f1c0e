/** Where it begins: who is there, the frame around every page, and the way from one to the next. */

import { del, get, whenAway, whenLoggedOut, whoIsThere } from "./api.js";
import { timeOf } from "./format.js";
import { closeAll, note, show } from "./parts/dialog.js";
import { icon } from "./parts/icons.js";
import { here, href, whenMoved } from "./router.js";
import { announceLeaving, connection, hear, leave, listen } from "./stream.js";
import { h, mount } from "./view.js";

/** Which page is at which address: its module, and what its parts are called. */
const ROUTES = [
  [[], "overview"],
  [["jobs"], "jobs"],
  [["jobs", ":id"], "job"],
  [["approvals"], "approvals"],
  [["executions", ":id"], "execution"],
  [["hosts"], "hosts"],
  [["hosts", ":id"], "host"],
  [["blocks"], "blocks"],
  [["commands"], "commands"],
  [["commands", ":id"], "command"],
  [["trading"], "trading"],
  [["audit"], "audit"],
  [["settings"], "settings"],
];

/** What stands in the frame: where it leads, its sign, its key, and the permission that it takes. */
const PLACES = [
  { path: [], name: "Overview", sign: "overview", key: "o", permission: "read" },
  { path: ["jobs"], name: "Jobs", sign: "jobs", key: "j", permission: "read" },
  { path: ["approvals"], name: "Approvals", sign: "approvals", key: "a", permission: "read" },
  { path: ["hosts"], name: "Hosts", sign: "hosts", key: "h", permission: "read" },
  { path: ["blocks"], name: "Blocks", sign: "blocks", key: "b", permission: "read" },
  { path: ["commands"], name: "Commands", sign: "commands", key: "c", permission: "read" },
  { path: ["trading"], name: "Trading", sign: "trading", key: "m", permission: "trade" },
  { path: ["audit"], name: "Audit", sign: "audit", key: "u", permission: "read" },
  { path: ["settings"], name: "Settings", sign: "settings", key: "s", permission: "read" },
];

const app = {
  me: undefined, // who is there: not known yet, or nobody (`null`)
  /** How many jobs wait for an approval, for the frame. */
  waiting: 0,
  redraw: () => {},
  may: (permission) => app.me?.permissions.includes(permission) ?? false,
  /** Do something that may be refused: what comes of it is told, and true if it was done. */
  async attempt(deed, done) {
    try {
      await deed();
    } catch (problem) {
      if (problem.name !== "AbortError") note(problem.message, "bad");
      return false;
    }
    if (done) note(done);
    return true;
  },
  login: loggedIn,
};

let away = ""; // why it is not known who is there
let page = null; // what is shown: {title, view, heard?, close?}
let failure = null;
// Whether the stream has told everything since the page first looked.
let followed = false;
let asked = 0;

function matching({ path, query }) {
  for (const [pattern, module] of ROUTES) {
    if (pattern.length !== path.length) continue;
    if (!pattern.every((part, i) => part.startsWith(":") || part === path[i])) continue;
    const params = Object.fromEntries(pattern.map((part, i) => [part.slice(1), path[i]]).filter((_, i) => pattern[i].startsWith(":")));
    return { module, params, query };
  }
  return null;
}

/** What a place asks of whoever looks at it. */
const asks = ({ path: [first = ""] }) => PLACES.find(({ path }) => (path[0] ?? "") === first)?.permission ?? "read";

async function turn() {
  if (app.me === undefined) return;
  let place = here();
  // Whoever may not see the fleet begins with what they may see.
  const first = PLACES.find(({ permission }) => app.may(permission));
  if (app.me && first && !place.path.length && !app.may(asks(place))) {
    history.replaceState(null, "", href(first.path));
    place = here();
  }
  const found = app.me === null ? { module: "login", params: {}, query: place.query } : matching(place);
  const asking = (asked += 1);
  try {
    if (found === null) throw new Error("There is no page at this address.");
    if (app.me && !app.may(asks(place))) throw new Error(`This page takes the permission ${asks(place)}, which the role ${app.me.role} has not.`);
    const { default: make } = await import(`./pages/${found.module}.js`);
    if (asking !== asked) return;
    page?.close?.();
    failure = null;
    followed = connection().state === "live";
    page = make(app, found);
  } catch (error) {
    if (asking !== asked) return;
    page?.close?.();
    page = null;
    failure = error;
    if (connection().state === "live") loadAnew();
  }
  app.redraw.now();
  scrollTo(0, 0);
  // Whoever reads with the keyboard begins here, unless the page itself has said where.
  const main = document.getElementById("main");
  if (main && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
}

let identifying = null;

/** Find out who is there, and turn to their page. */
function loggedIn() {
  identifying ??= identified().finally(() => { identifying = null; });
  return identifying.then(turn);
}

/** Ask who is there until somebody says it: that nobody answers does not mean that nobody is logged in. */
async function identified() {
  for (;;) {
    try {
      app.me = await whoIsThere();
      break;
    } catch (problem) {
      if (problem.status === 401) {
        app.me = null;
        break;
      }
      away = problem.message;
      app.redraw();
      await new Promise((resolve) => { setTimeout(resolve, AGAIN_MS); });
    }
  }
  away = "";
  if (!app.may("read")) return;
  listen();
  countSoon();
}

const AGAIN_MS = 3_000;
let again = null;

// What could not be looked at is looked at again: the stream may never have broken.
whenAway(() => {
  again ??= setTimeout(() => {
    again = null;
    page?.heard?.({ type: "reset" });
  }, AGAIN_MS);
});

async function logOut() {
  leave();
  try {
    await del("/session");
  } catch (problem) {
    if (problem.status !== 401) {
      note(`You are still logged in. ${problem.message}`, "bad");
      listen();
      return;
    }
  }
  announceLeaving();
  await gone();
}

whenLoggedOut(() => {
  if (!app.me) return;
  leave();
  note("You have been logged out: the session has ended.", "bad");
  gone();
});

/** Nobody is there any more. */
function gone() {
  closeAll();
  app.me = null;
  app.waiting = 0;
  return turn();
}

const COUNT_MS = 1_000;
let counting = null;

/** Count what waits for an approval, for the frame. */
function countSoon() {
  counting ??= setTimeout(async () => {
    counting = null;
    if (!app.may("read")) return;
    try {
      app.waiting = (await get("/overview")).jobs.waiting;
      app.redraw();
    } catch {
      // The next change asks again.
    }
  }, COUNT_MS);
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return dark ? "dark" : "light";
}

function turnTheme() {
  const next = theme() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("onward-theme", next);
  } catch {
    // Nothing is kept here; it holds until the page is left.
  }
  dispatchEvent(new CustomEvent("themed"));
  app.redraw();
}

function help() {
  const keys = [["/", "search or filter"], ...PLACES.filter(({ permission }) => app.may(permission)).map(({ key, name }) => [key, name]), ["t", "light or dark"], ["?", "this help"]];
  show({
    title: "Keys",
    body: () => h("dl", { class: "keys" }, keys.map(([key, what]) => [h("dt", { key: `k${key}` }, h("kbd", null, key)), h("dd", { key: `w${key}` }, what)])),
  });
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !app.me) return;
  if (event.target.closest("input, textarea, select") || document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (!field) return;
    event.preventDefault();
    field.focus();
  } else if (event.key === "?") help();
  else if (event.key === "t") turnTheme();
  else {
    const place = PLACES.find(({ key, permission }) => key === event.key && app.may(permission));
    if (place) location.hash = href(place.path);
  }
});

function frame() {
  if (app.me === undefined) return away && h("main", { class: "main-alone" }, h("p", { class: "footing", role: "alert" }, away));
  if (app.me === null) return [content()];
  const at = here().path[0] ?? "";
  return [
    h("button", { class: "skip", key: "skip", onclick: () => document.getElementById("main").focus() }, "Skip to the content"),
    h(
      "header",
      { class: "frame", key: "frame" },
      h("a", { class: "brand", href: href([]), "aria-label": "Onward, overview" }, h("img", { src: new URL("./icon.svg", import.meta.url).pathname, alt: "", width: 26, height: 26 }), h("span", null, "Onward")),
      h(
        "nav",
        { "aria-label": "Pages" },
        PLACES.filter(({ permission }) => app.may(permission)).map(({ path, name, sign }) => {
          const current = (path[0] ?? "") === at || (path[0] === "jobs" && at === "executions");
          const waits = name === "Approvals" && app.waiting > 0;
          return h("a", { key: name, href: href(path), class: "place", "aria-current": current ? "page" : null }, icon(sign), h("span", null, name), waits && h("span", { class: "count", "aria-label": `${app.waiting} waiting` }, app.waiting));
        }),
      ),
      h(
        "div",
        { class: "self" },
        h("button", { class: "quiet", onclick: turnTheme, "aria-label": theme() === "dark" ? "Light" : "Dark", title: "Light or dark (t)" }, icon(theme() === "dark" ? "sun" : "moon")),
        h("span", { class: "who", title: `${app.me.name}, ${app.me.role}` }, app.me.person),
        h("button", { class: "quiet", onclick: logOut, "aria-label": "Log out", title: "Log out" }, icon("leave")),
      ),
    ),
    banner(),
    content(),
  ];
}

const LOST_MS = 1_500; // a break that is over before anybody would have read the banner

function banner() {
  const { state, since, heard } = connection();
  const lost = app.may("read") && state === "lost" && Date.now() - since > LOST_MS;
  return h(
    "div",
    { key: "banner", class: "banner-place", "aria-live": "assertive" },
    lost && h("div", { class: "banner" }, icon("warning"), h("span", null, `Connection lost. What you see is as of ${timeOf(heard)}; it goes on by itself when the service is back.`)),
  );
}

function content() {
  return h("main", { id: "main", key: "main", tabindex: "-1", class: app.me ? "main" : "main-alone" }, failure ? failed(failure) : page ? drawn(page) : h("p", { class: "footing" }, "…"));
}

function drawn(shown) {
  try {
    const title = shown.title();
    document.title = title ? `${title} · Onward` : "Onward";
    return shown.view();
  } catch (error) {
    // A bug of ours; the frame around it has to go on all the same.
    console.error(error);
    return failed(error);
  }
}

const failed = (error) => h("div", { class: "empty", role: "alert" }, h("h1", null, "This cannot be shown"), h("p", null, error.message), h("p", null, h("a", { href: href([]) }, "To the overview")));

/**
 * A module could not be loaded, because the service was away or has another version of it by now.
 * A browser does not ask for it twice, unless all begins anew; once, in case that does not help.
 */
function loadAnew() {
  if (!(failure instanceof TypeError) || history.state === "anew") return;
  history.replaceState("anew", "");
  location.reload();
}

hear((message) => {
  if (message.type === "state") app.redraw();
  if (message.type === "state" && message.state === "out" && app.me) loggedIn();
  if (message.type === "state" && message.state === "live") live();
  if (message.type === "reset" || message.changes?.some(([kind]) => kind === "job")) countSoon();
  page?.heard?.(message);
});

/** The stream has begun, or goes on. What changed between a page's first look and its beginning was
    told to nobody: look once more. */
function live() {
  loadAnew();
  if (!followed) page?.heard?.({ type: "reset" });
  followed = true;
}

// A browser notes whatever is loaded, for whoever measures. A page that is left on a wall asks without end.
performance.setResourceTimingBufferSize(100);
whenMoved(turn);
app.redraw = mount(document.getElementById("app"), frame);
// Times go on, also where nothing changes.
setInterval(() => { if (!document.hidden && app.me) app.redraw(); }, 1_000);
loggedIn();
