/** Small pictures, drawn here: shapes for states, so that colour is never alone, and signs. */

import { h } from "../view.js";

const PATHS = {
  // States
  fresh: "M8 6.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z",
  waiting: "M8 3.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zm0 1.6a2.9 2.9 0 1 1 0 5.8 2.9 2.9 0 0 1 0-5.8z",
  going: "M5 3.2 13 8l-8 4.8z",
  good: "M6.6 12.6 2.4 8.4l1.5-1.5 2.7 2.7 5.5-5.6 1.5 1.5z",
  bad: "M4.3 2.9 8 6.6l3.7-3.7 1.4 1.4L9.4 8l3.7 3.7-1.4 1.4L8 9.4l-3.7 3.7-1.4-1.4L6.6 8 2.9 4.3z",
  late: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zm-.8 2h1.6v3.5l2.5 1.5-.8 1.3-3.3-2z",
  held: "M3.5 3.5h3.2v9H3.5zM9.3 3.5h3.2v9H9.3z",
  gone: "M3 7.1h10v1.8H3z",
  // Places and deeds
  overview: "M2 2h5v6H2zM9 2h5v3.5H9zM9 7.5h5V14H9zM2 10h5v4H2z",
  jobs: "M2 3h12v2H2zM2 7h12v2H2zM2 11h8v2H2z",
  approvals: "M8 1.5 13.5 4v3.6c0 3.3-2.3 5.7-5.5 6.9C4.8 13.3 2.5 10.9 2.5 7.6V4zm-.9 8.9 4-4.1-1.2-1.1-2.8 2.9-1.3-1.3-1.1 1.2z",
  hosts: "M2 2.5h12V7H2zM2 9h12v4.5H2zM4 4v1.5h1.6V4zM4 10.5V12h1.6v-1.5z",
  blocks: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zm0 1.8c1 0 1.9.3 2.6.9L4.5 10.6A4.4 4.4 0 0 1 8 3.6zm0 8.8c-1 0-1.9-.3-2.6-.9l6.1-6.1A4.4 4.4 0 0 1 8 12.4z",
  commands: "M2 3h12v10H2zm1.6 1.6v6.8h8.8V4.6zm1 1.4 2.2 2-2.2 2-1-1 1.1-1-1.1-1zM8 9h3v1.2H8z",
  trading: "M2 11.5 6 7l2.6 2.6L13.4 4H10V2.4h6v6h-1.6V5.2L8.7 11.9 6 9.3l-2.9 3.3z",
  audit: "M4 1.8h6L13 5v9.2H4zm1.7 5v1.4h5.6V6.8zm0 3v1.4h5.6V9.8z",
  settings: "M7 1.5h2l.3 1.8 1.2.5 1.5-1.1 1.4 1.4-1.1 1.5.5 1.2 1.8.3v2l-1.8.3-.5 1.2 1.1 1.5-1.4 1.4-1.5-1.1-1.2.5L9 14.5H7l-.3-1.8-1.2-.5L4 13.3 2.6 11.9l1.1-1.5-.5-1.2L1.4 9V7l1.8-.3.5-1.2L2.6 4 4 2.7l1.5 1.1 1.2-.5zM8 6a2 2 0 1 0 0 4 2 2 0 0 0 0-4z",
  search: "M7 2a5 5 0 1 0 3 9l3.4 3.4 1.1-1.1-3.4-3.4A5 5 0 0 0 7 2zm0 1.6a3.4 3.4 0 1 1 0 6.8 3.4 3.4 0 0 1 0-6.8z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM7.3 1h1.4v2.2H7.3zM7.3 12.8h1.4V15H7.3zM1 7.3h2.2v1.4H1zM12.8 7.3H15v1.4h-2.2zM2.6 3.6l1-1 1.6 1.6-1 1zM10.8 11.8l1-1 1.6 1.6-1 1zM3.6 13.4l-1-1 1.6-1.6 1 1zM11.8 5.2l-1-1 1.6-1.6 1 1z",
  moon: "M6.5 2A6 6 0 1 0 14 9.5 5 5 0 0 1 6.5 2z",
  leave: "M2.5 2.5H8v1.6H4.1v7.8H8v1.6H2.5zM10.2 4.6 13.6 8l-3.4 3.4-1.1-1.1L10.6 8.8H6.2V7.2h4.4L9.1 5.7z",
  warning: "M8 1.8 15 14H1zM7.2 6v4h1.6V6zm0 5v1.6h1.6V11z",
  right: "m6 3.5 4.5 4.5L6 12.5l-1.2-1.2L8.1 8 4.8 4.7z",
};

/** A small picture; without a `title` it is an ornament, and nobody reads it aloud. */
export function icon(name, { title, size = 16 } = {}) {
  return h(
    "svg",
    {
      class: "icon",
      viewBox: "0 0 16 16",
      width: size,
      height: size,
      role: title ? "img" : null,
      "aria-hidden": title ? null : "true",
    },
    title && h("title", null, title),
    h("path", { d: PATHS[name] ?? PATHS.fresh }),
  );
}

/** The outline of a picture, for whoever draws on a canvas. */
export const outline = (name) => new Path2D(PATHS[name] ?? PATHS.fresh);
