/** Workers: who lives, who was lost, who has left, and what each of them runs. */

import { count } from "../../format.js";
import { footing, Listing } from "../../parts/listing.js";
import { when } from "../../parts/time.js";
import { h } from "../../view.js";
import { rows } from "./rows.js";

const LOOK_MS = 3_000; // they say that they live, but nobody hears it unless he asks

export default function workers(app) {
  const list = new Listing("/workers", {}, app.redraw, { limit: 200 });
  list.reload();
  const timer = setInterval(() => { if (!document.hidden) list.refresh(); }, LOOK_MS);

  const columns = [
    { label: "Worker", cell: (worker) => h("span", { class: "worker-name" }, pulse(worker), h("strong", null, h("bdi", null, worker.name))) },
    { label: "State", cell: standing },
    { label: "Running", number: true, cell: (worker) => count(worker.running) },
    { label: "Refused", number: true, cell: (worker) => count(worker.refused) },
    { label: "Got on", cell: (worker) => when(worker.progress_at) },
    { label: "Since", cell: (worker) => when(worker.started_at) },
  ];

  return {
    look: () => list.reload(),
    close: () => clearInterval(timer),
    view: () =>
      h(
        "section",
        { class: "card card-flush", "aria-labelledby": "workers-title" },
        h("div", { class: "card-head" }, h("h2", { id: "workers-title" }, "Workers of the last day")),
        list.whole && !list.items.length ? h("div", { class: "empty" }, h("p", null, "Nobody works: what is sent waits. Start a worker:"), h("code", null, "onward worker")) : rows({ label: "Workers", columns, list, key: (worker) => worker.worker_id }),
        footing(list, "workers"),
      ),
  };
}

const kind = (worker) => (worker.stopped_at ? "stopped" : worker.lives ? "alive" : "lost");
const pulse = (worker) => h("span", { class: `pulse pulse-${kind(worker)}`, "aria-hidden": "true" });

function standing(worker) {
  if (worker.stopped_at) return h("span", { class: "soft" }, "stopped ", when(worker.stopped_at));
  if (worker.lives) return h("span", { class: "status tone-good" }, "alive");
  return h("span", { class: "status tone-bad" }, "lost, last heard ", when(worker.beat_at));
}
