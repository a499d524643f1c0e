/** Looking again: soon after something has changed, but never more than once a second. */

const APART_MS = 1_000;

/** What is not there does not come by being asked for. */
export const settled = (problem) => problem?.status === 404 || problem?.status === 422;

export class Again {
  /** `deed` looks; while it does, nobody looks a second time. */
  constructor(deed) {
    this.deed = deed;
    this.last = 0;
    this.timer = null;
    this.looking = false;
    this.stale = false;
    this.over = false;
  }

  /** Look soon: at once if the last time is long enough ago. */
  soon() {
    this.stale = true;
    if (this.timer || this.looking || this.over) return;
    const wait = Math.max(0, this.last + APART_MS - performance.now());
    this.timer = setTimeout(() => this.now(), wait);
  }

  async now() {
    clearTimeout(this.timer);
    this.timer = null;
    this.stale = false;
    this.looking = true;
    this.last = performance.now();
    try {
      await this.deed();
    } finally {
      this.looking = false;
    }
    if (this.stale) this.soon();
  }

  close() {
    this.over = true;
    clearTimeout(this.timer);
  }
}
