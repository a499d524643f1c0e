/** Blocks: what is forbidden on which host, by whom, why, and until when; to be made and lifted. */

import { icon } from "../parts/icons.js";
import { footing, Listing, table } from "../parts/listing.js";
import { when } from "../parts/time.js";
import { href } from "../router.js";
import { h } from "../view.js";
import { blockMany, liftBlock, liftMany } from "./hosts/blocking.js";

const LOOK_MS = 10_000; // blocks come and go, and nobody hears of it
const narrow = matchMedia("(max-width: 760px)");

export default function blocks(app) {
  const scroll = { top: 0 };
  const list = new Listing("/blocks", {}, app.redraw, { limit: 200 });
  const after = async (deed) => { if (await deed) list.reload(); };
  list.reload();
  const ticking = setInterval(() => { if (!document.hidden) list.refresh(); }, LOOK_MS);

  const columns = [
    { name: "host", label: "Host", class: "cell-2", cell: (block) => h("a", { href: href(["hosts", String(block.host_id)]) }, h("bdi", null, block.host_name)) },
    { name: "type", label: "Command type", class: "cell-2", cell: (block) => h("span", { class: `status tone-${block.in_force ? "held" : "gone"}` }, icon(block.in_force ? "held" : "gone"), h("span", null, block.command_type)) },
    { name: "reason", label: "Why", class: "cell-3 block-why", cell: (block) => [h("bdi", { title: block.reason }, block.reason), h("span", { class: "block-owner soft" }, " (", h("bdi", null, block.owner), ")")] },
    { name: "owner", label: "Whom to ask", class: "wide", cell: (block) => h("bdi", { title: block.owner }, block.owner) },
    { name: "since", label: "Since", class: "cell-when wide", cell: (block) => when(block.created_at) },
    { name: "ends", label: "Ends", class: "cell-ends", cell: ends },
  ];
  const deed = { name: "deed", label: h("span", { class: "visually-hidden" }, "What can be done"), class: "cell-turn", cell: (block) => h("button", { class: "button button-small", "aria-label": `Lift ${block.command_type} on ${block.host_name}`, onclick: () => after(liftBlock(app, block)) }, "Lift") };

  const empty = () => (list.loading || list.problem ? null : [h("p", null, "Nothing is blocked: everything may run everywhere."), app.may("manage") && h("p", null, "A block keeps a command type from hosts, with a reason, somebody to ask, and an end.")]);

  return {
    title: () => "Blocks",
    view: () => [
      h(
        "div",
        { class: "head", key: "head" },
        h("div", { class: "grow" }, h("h1", null, "Blocks"), h("p", { class: "lead" }, "What is forbidden where, by whom and why.")),
        app.may("manage") && h("div", { class: "buttons" }, h("button", { class: "button button-main", onclick: () => after(blockMany(app, "")) }, "Block"), h("button", { class: "button", onclick: () => after(liftMany(app)) }, "Lift by selector")),
      ),
      h(
        "section",
        { class: "card card-flush blocks", key: "list", "aria-label": "Blocks" },
        table({ state: scroll, columns: app.may("manage") ? [...columns, deed] : columns, items: list.items, key: (block) => `${block.host_id} ${block.command_type}`, onend: () => list.more(), empty: empty(), label: "Blocks", redraw: app.redraw, rowHeight: narrow.matches ? 68 : 42, rows: narrow.matches ? 9 : 16 }),
        footing(list, "blocks"),
      ),
    ],
    heard: (message) => { if (message.type === "reset") list.reload(); },
    close: () => clearInterval(ticking),
  };
}

/** When it ends by itself; by the clock of whoever looks, once that has come. */
function ends(block) {
  if (!block.expires_at) return h("span", { class: "faint" }, "never");
  const over = !block.in_force || new Date(block.expires_at).getTime() <= Date.now();
  return over ? h("span", { class: "status tone-gone" }, icon("gone"), h("span", null, "expired "), when(block.expires_at)) : when(block.expires_at);
}
