/**
 * Every host of a job as one cell of a picture: ten thousand of them, drawn only where something has
 * changed. The picture is not the only way in: a cursor goes over it by keys, and a line of text says
 * what is under it.
 */

import { h } from "../view.js";
import { outline } from "./icons.js";
import { tone } from "./status.js";

const SIZES = [3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28];
const SHAPED = 14; // from this size on, a cell has its shape as well as its colour
const TALL = 420; // pixels that the picture may take before it scrolls

export class Grid {
  constructor({ changed, open }) {
    this.changed = changed; // what is under the pointer or the cursor is another one
    this.open = open;
    this.cells = null;
    this.chosen = new Set(); // statuses that stand out; none: all of them
    this.zoom = null; // the index of a size that somebody chose
    this.cursor = -1;
    this.under = null; // {index, x, y} under the pointer
    this.element = null;
    this.frame = null;
    this.attach = this.attach.bind(this);
  }

  /** Show other cells. */
  load(cells) {
    this.cells = cells;
    this.cursor = Math.min(this.cursor, cells.total - 1);
    this.measured = false;
    this.layOut();
  }

  /** Let some statuses stand out. */
  choose(statuses) {
    this.chosen = statuses;
    this.drawAll();
  }

  /** Draw what has changed since it was last drawn. */
  refresh() {
    if (!this.canvas || this.frame !== null) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.drawChanged();
    });
  }

  view(label) {
    return h(
      "div",
      { class: "grid-place" },
      h(
        "div",
        {
          class: "grid-scroll",
          tabindex: "0",
          role: "application",
          "aria-label": `${label}. Arrow keys move over the hosts, Enter opens one.`,
          "aria-describedby": "grid-line",
          ref: this.attach,
        },
        h("canvas", { class: "grid-canvas", "aria-hidden": "true" }),
        h("div", { class: "grid-room", "aria-hidden": "true" }),
      ),
    );
  }

  attach(element) {
    this.element = element;
    this.canvas = element.querySelector("canvas");
    this.room = element.querySelector(".grid-room");
    this.pen = this.canvas.getContext("2d");
    const sized = new ResizeObserver(() => this.layOut());
    sized.observe(element);
    const themed = () => { this.palette = null; this.drawAll(); };
    const system = matchMedia("(prefers-color-scheme: dark)");
    const listeners = {
      scroll: () => this.drawAll(),
      pointermove: (event) => this.point(event),
      pointerleave: () => this.pointAt(null),
      click: (event) => this.click(event),
      keydown: (event) => this.key(event),
      wheel: (event) => this.wheel(event),
      // The cursor is there only while somebody can move it.
      focus: () => this.drawAll(),
      blur: () => this.drawAll(),
    };
    for (const [name, listener] of Object.entries(listeners)) element.addEventListener(name, listener, { passive: false });
    addEventListener("themed", themed);
    system.addEventListener("change", themed);
    this.layOut();
    return () => {
      sized.disconnect();
      removeEventListener("themed", themed);
      system.removeEventListener("change", themed);
      if (this.frame !== null) cancelAnimationFrame(this.frame);
      this.frame = null;
      this.canvas = null;
    };
  }

  /** Choose a size: by its number, or by what fits where nobody has chosen. */
  zoomTo(level) {
    this.zoom = level === null ? null : Math.max(0, Math.min(SIZES.length - 1, level));
    this.layOut();
    this.changed();
  }

  get level() {
    return this.zoom ?? this.fitting();
  }

  static get levels() {
    return SIZES.length;
  }

  fitting() {
    const wide = this.element?.clientWidth || 800;
    for (let level = SIZES.length - 3; level > 0; level -= 1) {
      const across = Math.max(1, Math.floor(wide / SIZES[level]));
      if (Math.ceil((this.cells?.total ?? 1) / across) * SIZES[level] <= TALL) return level;
    }
    return 0;
  }

  layOut() {
    if (!this.canvas || !this.cells) return;
    this.size = SIZES[this.level];
    const wide = this.element.clientWidth;
    this.across = Math.max(1, Math.floor(wide / this.size));
    const tall = Math.ceil(this.cells.total / this.across) * this.size;
    const seen = Math.min(tall, Math.max(64, this.element.clientHeight || TALL), TALL + 100);
    this.ratio = devicePixelRatio || 1;
    const [width, height] = [Math.round(wide * this.ratio), Math.round(seen * this.ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.canvas.style.setProperty("width", `${wide}px`);
      this.canvas.style.setProperty("height", `${seen}px`);
    }
    this.seen = seen;
    // The canvas stays in sight; this is what there is to scroll beyond it.
    this.room.style.setProperty("height", `${Math.max(0, tall - seen)}px`);
    this.drawAll();
  }

  colours() {
    if (this.palette) return this.palette;
    const probe = document.createElement("span");
    this.element.append(probe);
    const read = (name) => {
      probe.style.setProperty("color", `var(${name})`);
      return getComputedStyle(probe).color;
    };
    const tones = this.cells.order.map((status) => tone(status));
    this.palette = {
      fill: tones.map((name) => read(`--${name}`)),
      shape: tones.map((name) => outline(name)),
      ink: read("--surface"),
      cursor: read("--text"),
      ground: read("--sunken"),
    };
    probe.remove();
    return this.palette;
  }

  drawAll() {
    if (!this.canvas || !this.cells || !this.size) return;
    const { cells, pen } = this;
    const palette = this.colours();
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.fillStyle = palette.ground;
    pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
    const [first, last] = this.inSight();
    // One colour after the other: changing it is what takes time.
    for (let digit = 0; digit < cells.order.length; digit += 1) {
      pen.globalAlpha = this.dimmed(digit) ? 0.16 : 1;
      pen.fillStyle = palette.fill[digit];
      for (let i = first; i < last; i += 1) if (cells.digits[i] === digit) this.rectangle(i);
    }
    pen.globalAlpha = 1;
    for (let i = first; i < last; i += 1) this.marks(i, palette);
    this.drawCursor(palette);
    cells.changed.clear();
    // For whoever measures how long it took until everything was there.
    if (!this.measured) performance.mark("onward-grid");
    this.measured = true;
  }

  drawChanged() {
    if (!this.canvas || !this.cells) return;
    const { cells, pen } = this;
    if (cells.changed.size > 3_000) return this.drawAll();
    const palette = this.colours();
    const [first, last] = this.inSight();
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    for (const i of cells.changed) {
      if (i < first || i >= last) continue;
      const [x, y] = this.corner(i);
      pen.globalAlpha = 1;
      pen.fillStyle = palette.ground;
      pen.fillRect(x, y, this.size, this.size);
      pen.globalAlpha = this.dimmed(cells.digits[i]) ? 0.16 : 1;
      pen.fillStyle = palette.fill[cells.digits[i]];
      this.rectangle(i);
      pen.globalAlpha = 1;
      this.marks(i, palette);
    }
    this.drawCursor(palette);
    cells.changed.clear();
  }

  inSight() {
    const top = this.element.scrollTop;
    const first = Math.floor(top / this.size) * this.across;
    const last = Math.ceil((top + this.seen) / this.size) * this.across;
    return [Math.max(0, first), Math.min(this.cells.total, last)];
  }

  corner(i) {
    return [(i % this.across) * this.size, Math.floor(i / this.across) * this.size - this.element.scrollTop];
  }

  dimmed(digit) {
    return this.chosen.size > 0 && !this.chosen.has(this.cells.order[digit]);
  }

  rectangle(i) {
    const [x, y] = this.corner(i);
    const gap = this.size > 5 ? 1.5 : this.size > 3 ? 1 : 0.5;
    if (this.size >= 8) {
      this.pen.beginPath();
      this.pen.roundRect(x, y, this.size - gap, this.size - gap, this.size / 6);
      this.pen.fill();
    } else this.pen.fillRect(x, y, this.size - gap, this.size - gap);
  }

  /** The shape of a status, where there is room for it, and a corner for what was told too late. */
  marks(i, palette) {
    const late = this.cells.late.has(i);
    if (this.size < SHAPED && !late) return;
    const { pen } = this;
    const [x, y] = this.corner(i);
    const digit = this.cells.digits[i];
    pen.globalAlpha = this.dimmed(digit) ? 0.16 : 0.92;
    pen.fillStyle = palette.ink;
    if (this.size >= SHAPED) {
      pen.save();
      const scale = (this.size - 5) / 16;
      pen.translate(x + 1.75, y + 1.75);
      pen.scale(scale, scale);
      pen.fill(palette.shape[digit]);
      pen.restore();
    }
    if (late) pen.fillRect(x + this.size - 1.5 - this.size / 3, y, this.size / 3, this.size / 3);
    pen.globalAlpha = 1;
  }

  drawCursor(palette) {
    if (this.cursor < 0 || document.activeElement !== this.element) return;
    const [x, y] = this.corner(this.cursor);
    this.pen.strokeStyle = palette.cursor;
    this.pen.lineWidth = 2;
    this.pen.strokeRect(x, y, this.size - 1, this.size - 1);
  }

  indexAt(event) {
    const box = this.element.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top + this.element.scrollTop;
    const column = Math.floor(x / this.size);
    const index = Math.floor(y / this.size) * this.across + column;
    return column < this.across && index >= 0 && index < this.cells.total ? index : null;
  }

  point(event) {
    if (!this.cells) return;
    const index = this.indexAt(event);
    const box = this.element.getBoundingClientRect();
    this.pointAt(index === null ? null : { index, x: event.clientX - box.left, y: event.clientY - box.top, wide: box.width });
  }

  pointAt(under) {
    if (this.under?.index === under?.index) return;
    this.under = under;
    this.changed();
  }

  click(event) {
    const index = this.cells ? this.indexAt(event) : null;
    if (index !== null) this.open(index);
  }

  key(event) {
    if (!this.cells) return;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.cursor >= 0) this.open(this.cursor);
    else if (event.key === "+" || event.key === "-") this.zoomTo(this.level + (event.key === "+" ? 1 : -1));
    else if (event.key in steps) this.moveCursor(steps[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  moveCursor(step) {
    const next = this.cursor < 0 && Number.isFinite(step) ? 0 : this.cursor + step;
    this.cursor = Math.max(0, Math.min(this.cells.total - 1, next));
    const top = Math.floor(this.cursor / this.across) * this.size;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.size > this.element.scrollTop + this.seen) this.element.scrollTop = top + this.size - this.seen;
    this.drawAll();
    this.changed();
  }

  wheel(event) {
    if (!event.ctrlKey) return;
    event.preventDefault();
    this.zoomTo(this.level + (event.deltaY < 0 ? 1 : -1));
  }
}
