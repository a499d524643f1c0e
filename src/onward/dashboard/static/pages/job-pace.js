/** How fast something gets on: what ended in the last seconds. */

const OVER_MS = 4_000;

export class Pace {
  constructor() {
    this.seen = []; // [when, how many]
  }

  note(ended, now = performance.now()) {
    const last = this.seen.at(-1);
    if (last && now - last[0] < 200) last[1] = ended;
    else this.seen.push([now, ended]);
    while (this.seen.length > 2 && now - this.seen[0][0] > OVER_MS) this.seen.shift();
  }

  /** How many a second; none once nothing has ended for a while. */
  rate(now = performance.now()) {
    const [first, last] = [this.seen[0], this.seen.at(-1)];
    if (!first || now - last[0] > OVER_MS || last[1] === first[1]) return 0;
    return (last[1] - first[1]) / (Math.max(now - first[0], 500) / 1_000);
  }
}
