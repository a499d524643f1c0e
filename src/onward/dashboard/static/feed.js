/**
 * Follows what changes: one connection, which goes on exactly where it broke.
 *
 * It is read by hand and not by the browser's `EventSource`, because that one tells neither why a
 * connection was refused nor that it has gone silent.
 */

/** The service says something at least every 15 seconds. */
const SILENT_MS = 25_000;
const AGAIN_MS = [250, 500, 1_000, 2_000, 4_000, 8_000];

/**
 * Follow until `stop()`. What is told through `tell(message)`:
 *
 * - `{type: "state", state: "live" | "lost" | "out", since, heard}`: `out` when nobody is logged in;
 *   `heard` is when the service said something last
 * - `{type: "changes", changes}`: arrays, as `/events?batch=true` gives them
 * - `{type: "reset"}`: something was missed, so look at everything again
 */
export class Feed {
  constructor(url, headers, tell) {
    this.url = url;
    this.headers = headers;
    this.tell = tell;
    this.position = null;
    this.state = "lost";
    this.since = Date.now();
    this.heard = Date.now();
    this.failures = 0;
    this.stopped = true;
    this.turn = 0; // whoever runs in another one than the present has been stopped
  }

  start() {
    if (!this.stopped) return;
    this.stopped = false;
    // Whoever was out may be somebody else by now.
    if (this.state === "out") [this.state, this.since] = ["lost", Date.now()];
    this.turn += 1;
    this.run(this.turn);
  }

  stop() {
    this.stopped = true;
    this.position = null;
    this.abort?.abort();
    this.wake?.();
  }

  /** Try again at once, as when the machine says that it has a network again. */
  hurry() {
    this.failures = 0;
    this.wake?.();
  }

  async run(turn) {
    const over = () => this.stopped || turn !== this.turn;
    while (!over()) {
      const ended = await this.listen().catch(() => "lost");
      if (over()) return;
      if (ended === "out") {
        this.stopped = true;
        this.position = null;
        this.say("out");
        return;
      }
      if (ended === "gone") {
        this.position = null;
        this.tell({ type: "reset" });
        continue;
      }
      this.tried = true;
      this.say("lost");
      const wait = AGAIN_MS[Math.min(this.failures, AGAIN_MS.length - 1)];
      this.failures += 1;
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, wait * (0.75 + Math.random() / 2));
      });
    }
  }

  async listen() {
    const abort = new AbortController();
    this.abort = abort;
    const headers = { ...this.headers, Accept: "text/event-stream" };
    const resumed = this.position !== null;
    if (resumed) headers["Last-Event-ID"] = this.position;
    const watch = () => setTimeout(() => abort.abort(), SILENT_MS);
    let silent = watch();
    try {
      const answer = await fetch(this.url, {
        headers,
        signal: abort.signal,
        credentials: "same-origin",
        cache: "no-store",
      });
      if (answer.status === 401) return "out";
      if (resumed && (answer.status === 410 || answer.status === 422)) return "gone";
      if (!answer.ok) return "lost";
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let buffer = "";
      let greeted = false;
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return "lost";
        this.heard = Date.now();
        clearTimeout(silent);
        silent = watch();
        buffer += value;
        const blocks = buffer.split("\n\n");
        buffer = blocks.pop();
        for (const block of blocks) this.take(block);
        if (!greeted) {
          greeted = true;
          this.failures = 0;
          // Whoever begins anew after the first try has missed something, or never had a position.
          if (!resumed && this.tried) this.tell({ type: "reset" });
          this.tried = true;
          this.say("live");
        }
      }
    } finally {
      clearTimeout(silent);
      abort.abort();
    }
  }

  take(block) {
    let data = null;
    let id = null;
    for (const line of block.split("\n")) {
      if (line.startsWith("data: ")) data = line.slice(6);
      else if (line.startsWith("id: ")) id = line.slice(4);
    }
    if (data !== null) this.tell({ type: "changes", changes: JSON.parse(data) });
    if (id !== null) this.position = id;
  }

  /** How it stands, as a message. */
  told() {
    return { type: "state", state: this.state, since: this.since, heard: this.heard };
  }

  say(state) {
    if (this.state === state && state !== "out") return;
    this.state = state;
    this.since = Date.now();
    this.tell(this.told());
  }
}
