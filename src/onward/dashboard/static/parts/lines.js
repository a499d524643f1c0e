/** What a host printed, as far as it has been read, and where each line of it stands. */

import { get } from "../api.js";

const PAGE = 1_000;

/**
 * The lines of an execution, read by cursor: asked again, what was printed meanwhile is the answer.
 *
 * The service keeps at most a million characters of an execution, so all of it is held here.
 */
export class Lines {
  constructor(path, changed) {
    this.path = path;
    this.changed = changed;
    this.rows = []; // lines, and `{section}` before those of each attempt
    this.count = 0;
    this.cursor = null;
    this.problem = null;
    this.reading = null;
    this.read = false; // to the end at least once
  }

  /** Read on to the end; whoever asks meanwhile waits for the same answer. */
  more() {
    this.reading ??= this.toEnd().finally(() => { this.reading = null; });
    return this.reading;
  }

  async toEnd() {
    try {
      for (let full = true; full;) {
        const page = await get(this.path, { limit: PAGE, cursor: this.cursor });
        this.take(page.items);
        this.cursor = page.next_cursor ?? this.cursor;
        full = page.items.length === PAGE;
        if (page.items.length) this.changed();
      }
      if (!this.read || this.problem) this.changed();
      this.read = true;
      this.problem = null;
    } catch (problem) {
      this.problem = problem;
      this.changed();
    }
  }

  take(items) {
    for (const line of items) {
      if (this.epoch !== line.epoch) this.rows.push({ section: line.epoch, at: line.at });
      this.epoch = line.epoch;
      this.rows.push(line);
    }
    this.count += items.length;
  }

  /** Everything as one text, with the stream before each line. */
  text(attemptOf) {
    return this.rows.map((row) =>
      row.section === undefined ? `${row.at} ${row.stream.padEnd(6)} ${row.text}` : `# ${titleOf(row.section, attemptOf)}`,
    ).join("\n") + "\n";
  }

  /** The places of the rows in which a text occurs, in whatever case. */
  find(text) {
    const wanted = text.toLowerCase();
    const found = [];
    if (!wanted) return found;
    this.rows.forEach((row, i) => { if (row.text?.toLowerCase().includes(wanted)) found.push(i); });
    return found;
  }
}

/** What the lines of one attempt are headed by. */
export function titleOf(epoch, attemptOf) {
  const attempt = attemptOf(epoch);
  return attempt ? `Attempt ${attempt} (epoch ${epoch})` : `Epoch ${epoch}`;
}

/**
 * Where rows stand if each is as many rows of letters high as it needs: `tops[i]` is above row `i`.
 *
 * What was computed stays, and only what has come since is added, as long as nothing else changes.
 */
export class Heights {
  constructor() {
    this.tops = [0];
    this.columns = null;
  }

  fit(rows, columns) {
    if (columns !== this.columns || rows.length < this.tops.length - 1) {
      this.tops = [0];
      this.columns = columns;
    }
    for (let i = this.tops.length - 1; i < rows.length; i += 1) {
      this.tops.push(this.tops[i] + (columns === Infinity ? 1 : Math.max(1, Math.ceil(wide(rows[i].text ?? "") / columns))));
    }
    return this.tops;
  }

  /** The row that stands at a height. */
  at(height) {
    let [low, high] = [0, this.tops.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= height) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** How many columns a text takes: letters of the far east and pictures take two, tabs up to eight. */
function wide(text) {
  let columns = 0;
  for (const letter of text) columns += letter === "\t" ? 8 : letter.codePointAt(0) > 0x2e7f ? 2 : 1;
  return columns;
}
