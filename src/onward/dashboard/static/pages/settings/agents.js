/** Agents: which hosts have one, and whether it is there. */

import { icon } from "../../parts/icons.js";
import { footing, Listing, table } from "../../parts/listing.js";
import { when } from "../../parts/time.js";
import { href } from "../../router.js";
import { h } from "../../view.js";

const LOOK_MS = 5_000;
const narrow = matchMedia("(max-width: 760px)");

export default function agents(app) {
  const scroll = { top: 0 };
  const list = new Listing("/agents", {}, app.redraw, { limit: 200 });
  list.reload();
  const timer = setInterval(() => { if (!document.hidden) list.refresh(); }, LOOK_MS);

  const columns = [
    { name: "host", label: "Host", class: "cell-2", cell: (agent) => h("bdi", null, agent.host) },
    { name: "state", label: "State", class: "cell-status", cell: (agent) => h("span", { class: `status tone-${agent.connected ? "good" : "bad"}` }, icon(agent.connected ? "good" : "bad"), h("span", null, agent.connected ? "connected" : "away")) },
    { name: "since", label: "Since", class: "cell-when", cell: (agent) => when(agent.since) },
    { name: "version", label: "Version", class: "wide", cell: (agent) => agent.version },
    { name: "remote", label: "From", class: "wide", cell: (agent) => agent.remote },
  ];
  const empty = () => list.whole && [h("p", null, "No agent has ever been connected. Open a host, enrol its agent, and start there:"), h("code", null, "onward agent --server URL --state DIRECTORY")];

  return {
    look: () => list.reload(),
    close: () => clearInterval(timer),
    view: () =>
      h(
        "section",
        { class: "card card-flush", "aria-labelledby": "agents-title" },
        h("div", { class: "card-head" }, h("h2", { id: "agents-title" }, "Agents")),
        table({ state: scroll, columns, items: list.items, key: (agent) => agent.host_id, link: (agent) => href(["hosts", String(agent.host_id)]), onend: () => list.more(), empty: empty(), label: "Agents", redraw: app.redraw, rows: narrow.matches ? 10 : 15 }),
        footing(list, "agents"),
      ),
  };
}
