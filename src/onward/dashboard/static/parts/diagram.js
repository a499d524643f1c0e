/** A lifecycle as a picture: what may happen, the way that was gone, and where it is now. */

import { get } from "../api.js";
import { exactly, words } from "../format.js";
import { h } from "../view.js";
import { icon } from "./icons.js";
import { BOX, layout } from "./layout.js";
import { tone } from "./status.js";

let lifecycles = null;

/** All lifecycles by their names; the law does not change while a page is open. */
export async function allLifecycles() {
  lifecycles ??= get("/lifecycles").then(({ items }) => new Map(items.map((each) => [each.name, each])));
  try {
    return await lifecycles;
  } catch (problem) {
    lifecycles = null;
    throw problem;
  }
}

const pictures = new WeakMap(); // lifecycle -> its layout

function pictureOf(lifecycle) {
  if (!pictures.has(lifecycle)) pictures.set(lifecycle, layout(lifecycle));
  return pictures.get(lifecycle);
}

/**
 * Draw a lifecycle; `events` of a timeline say which way was gone, `status` where it is.
 *
 * What is emphasised is what the verdicts say, and not what could have been: only `OK` moves.
 */
export function diagram(lifecycle, { status, events }) {
  const picture = pictureOf(lifecycle);
  const gone = travelled(lifecycle, events);
  const { width, height } = picture;
  const taken = (way) => gone.ways.has(`${way.from} ${way.to}`);
  const ways = picture.ways.map((way, i) => ({ ...way, key: i, taken: taken(way) }));
  return h(
    "div",
    // With every status anew, so that it comes into sight again.
    { class: "diagram", key: status, tabindex: "0", role: "group", "aria-label": "Lifecycle", ref: (element) => inSight(element, picture.boxes.get(status)) },
    h(
      "svg",
      { class: "diagram-picture", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": told(lifecycle, status, gone) },
      // What was gone is drawn last, over what it shares with others.
      [...ways.filter((way) => !way.taken), ...ways.filter((way) => way.taken)].map((way) => wayView(way, lifecycle)),
      picture.labels.map((label, i) => labelView(label, i, { taken, gone })),
      lifecycle.states.map((state) => stateView(state, picture.boxes.get(state.name), { status, gone, lifecycle })),
    ),
  );
}

/** Where it is stays in sight, however narrow the page is or becomes. */
function inSight(element, box) {
  const scroll = () => { if (box) element.scrollLeft = box.x + BOX.wide / 2 - element.clientWidth / 2; };
  const resized = new ResizeObserver(scroll);
  resized.observe(element);
  return () => resized.disconnect();
}

/** Which pairs of states were gone between, how often, and when each state was reached last. */
function travelled(lifecycle, events) {
  const ways = new Map();
  const reached = new Map([[lifecycle.initial, null]]);
  for (const { verdict, from_status: from, to_status: to, event, at } of events) {
    if (verdict !== "OK" || !to) continue;
    reached.set(to, at);
    if (!from) continue;
    const key = `${from} ${to}`;
    if (!ways.has(key)) ways.set(key, { times: 0, events: new Set() });
    ways.get(key).times += 1;
    ways.get(key).events.add(event);
  }
  return { ways, reached };
}

function told(lifecycle, status, { reached }) {
  const open = lifecycle.moves.filter(({ from }) => from.includes(status)).map(({ event }) => words(event));
  const been = [...reached.keys()].map(words).join(", ");
  return `Lifecycle ${words(lifecycle.name)}. It has been ${been}, and is ${words(status)} now. ${open.length ? `From here: ${open.join(", ")}.` : "That is an end."}`;
}

function wayView({ key, from, to, events, points, taken }, lifecycle) {
  const d = rounded(points);
  return h(
    "g",
    { class: taken ? "way way-gone" : "way", key: `way-${key}` },
    h("path", { class: "way-target", d }),
    h("path", { class: "way-line", d }),
    h("path", { class: "way-head", d: head(points) }),
    h("title", null, `${events.join(" or ")}: from ${from} to ${to}${ends(lifecycle, to) ? ", an end" : ""}`),
  );
}

const ends = ({ states }, name) => states.find((state) => state.name === name)?.terminal;

function labelView({ x, y, anchor, events, ways }, i, { taken, gone }) {
  const went = ways.filter(taken).map((way) => gone.ways.get(`${way.from} ${way.to}`));
  const names = new Set(went.flatMap((each) => [...each.events]));
  const times = went.reduce((sum, each) => sum + each.times, 0);
  const emphasised = events.some((event) => names.has(event));
  return h(
    "text",
    { class: emphasised ? "way-name way-name-gone" : "way-name", key: `name-${i}`, x, y, "text-anchor": anchor },
    `${events.map(words).join(" / ")}${emphasised && times > 1 ? ` ×${times}` : ""}`,
  );
}

function stateView({ name, terminal }, box, { status, gone, lifecycle }) {
  const lit = name === status;
  const been = gone.reached.has(name);
  const kind = lit ? "state-lit" : been ? "state-been" : "state-not";
  const at = gone.reached.get(name);
  const into = lifecycle.moves.filter(({ from, to }) => to === name && from.length).map(({ event }) => event);
  const out = lifecycle.moves.filter(({ from }) => from.includes(name)).map(({ event }) => event);
  const unreached = !into.length && name !== lifecycle.initial;
  return h(
    "g",
    { class: `state tone-${tone(name)} ${kind} ${terminal ? "state-end" : ""} ${unreached ? "state-unreached" : ""}`, key: `state-${name}`, transform: `translate(${box.x} ${box.top})` },
    lit && h("rect", { class: "state-glow", key: "glow", x: -4, y: -4, width: BOX.wide + 8, height: BOX.tall + 8, rx: terminal ? 21 : 12 }),
    h("rect", { class: "state-box", key: "box", width: BOX.wide, height: BOX.tall, rx: terminal ? 17 : 8 }),
    h("g", { transform: "translate(12 10)", key: "sign" }, icon(tone(name), { size: 14 })),
    h("text", { class: "state-name", key: "name", x: 33, y: BOX.tall / 2 + 4.5 }, words(name)),
    h("title", { key: "title" }, [
      name,
      lit ? "where it is now" : null,
      at ? `reached ${exactly(at)}` : null,
      into.length ? `comes of ${into.join(", ")}` : unreached ? "no event leads here" : "where it begins",
      out.length ? `goes on by ${out.join(", ")}` : "an end",
    ].filter(Boolean).join("; ")),
  );
}

const RADIUS = 9;

/** A line with rounded corners. */
function rounded(points) {
  const kept = points.filter(([x, y], i) => i === 0 || x !== points[i - 1][0] || y !== points[i - 1][1]);
  let d = `M${kept[0]}`;
  for (let i = 1; i < kept.length - 1; i += 1) {
    const [before, corner, after] = [kept[i - 1], kept[i], kept[i + 1]];
    const radius = Math.min(RADIUS, distance(before, corner) / 2, distance(corner, after) / 2);
    d += ` L${toward(corner, before, radius)} Q${corner} ${toward(corner, after, radius)}`;
  }
  // The line ends inside of its head.
  return `${d} L${toward(kept.at(-1), kept.at(-2), 3)}`;
}

const distance = ([x1, y1], [x2, y2]) => Math.hypot(x2 - x1, y2 - y1);

function toward([x, y], [x2, y2], by) {
  const far = Math.hypot(x2 - x, y2 - y) || 1;
  return [x + ((x2 - x) / far) * by, y + ((y2 - y) / far) * by];
}

function head(points) {
  const [x, y] = points.at(-1);
  const [bx, by] = toward([x, y], points.at(-2), 8);
  const [nx, ny] = [(y - by) / 2, (bx - x) / 2];
  return `M${x} ${y} L${bx + nx} ${by + ny} L${bx - nx} ${by - ny} Z`;
}
