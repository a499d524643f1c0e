/** Times that go on: how long ago, with the exact time for whoever wants to know it. */

import { ago, exactly, timeOf } from "../format.js";
import { h } from "../view.js";

/** How long ago it was; hovering or reading it aloud tells when exactly. */
export const when = (at) =>
  at ? h("time", { datetime: at, title: exactly(at) }, ago(at)) : h("span", { class: "faint" }, "–");

/** The time of day. */
export const clock = (at) =>
  at ? h("time", { datetime: at, title: exactly(at) }, timeOf(at)) : h("span", { class: "faint" }, "–");
