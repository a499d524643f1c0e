/**
 * The executions of a job, one byte each: where every one of them is, and how many are where.
 *
 * What the stream tells is taken once: a change that is older than what is known changes nothing,
 * and what has ended stays ended.
 */

/** What has ended stays ended: of these, the law lets none go on. */
const openUntil = (order) => order.indexOf("RUNNING");

export class Cells {
  constructor(answer) {
    this.order = answer.order;
    this.total = answer.statuses.length;
    this.digits = new Uint8Array(this.total);
    this.counts = new Int32Array(this.order.length);
    for (let i = 0; i < this.total; i += 1) {
      const digit = answer.statuses.charCodeAt(i) - 48;
      this.digits[i] = digit;
      this.counts[digit] += 1;
    }
    this.late = new Set(answer.late);
    this.hosts = runs(answer.hosts);
    this.executions = runs(answer.executions);
    this.byExecution = [...this.executions].sort((a, b) => a.first - b.first);
    this.seqs = new Float64Array(this.total);
    this.changed = new Set(); // what is to be drawn anew
    this.codes = new Map(this.order.map((status, digit) => [status, digit]));
    this.lastOpen = openUntil(this.order);
  }

  /** Take what the stream tells of this job; returns whether anything is another than before. */
  take(changes, jobId) {
    let moved = false;
    for (const [kind, job, execution, , , , status, seq] of changes) {
      if (kind !== "execution" || job !== jobId) continue;
      const index = this.indexOf(execution);
      const digit = this.codes.get(status);
      if (index < 0 || digit === undefined || seq <= this.seqs[index]) continue;
      this.seqs[index] = seq;
      moved = this.move(index, digit) || moved;
    }
    return moved;
  }

  move(index, digit) {
    const now = this.digits[index];
    if (now === digit || (now > this.lastOpen && digit <= this.lastOpen)) return false;
    this.digits[index] = digit;
    this.counts[now] -= 1;
    this.counts[digit] += 1;
    this.changed.add(index);
    return true;
  }

  /** How many are in each status, by its name. */
  byStatus() {
    return Object.fromEntries(this.order.map((status, digit) => [status, this.counts[digit]]));
  }

  /** How many have ended. */
  get ended() {
    let sum = 0;
    for (let digit = this.lastOpen + 1; digit < this.counts.length; digit += 1) sum += this.counts[digit];
    return sum;
  }

  status(index) {
    return this.order[this.digits[index]];
  }

  execution(index) {
    return nth(this.executions, index);
  }

  host(index) {
    return nth(this.hosts, index);
  }

  indexOf(execution) {
    let low = 0;
    let high = this.byExecution.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const run = this.byExecution[middle];
      if (execution < run.first) high = middle - 1;
      else if (execution >= run.first + run.count) low = middle + 1;
      else return run.at + (execution - run.first);
    }
    return -1;
  }
}

function runs(pairs) {
  let at = 0;
  return pairs.map(([first, count]) => {
    const run = { first, count, at };
    at += count;
    return run;
  });
}

function nth(found, index) {
  let low = 0;
  let high = found.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (found[middle].at <= index) low = middle;
    else high = middle - 1;
  }
  return found[low].first + (index - found[low].at);
}
