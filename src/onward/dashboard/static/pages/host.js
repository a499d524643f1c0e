/** One host: what it is, what is forbidden there and by whom, who holds it now, and what ran there. */

import { get, getWithVersion } from "../api.js";
import { Again, settled } from "../parts/again.js";
import { runForm } from "../parts/run.js";
import { hasLabel, literal } from "../parts/selectors.js";
import { icon } from "../parts/icons.js";
import { status } from "../parts/status.js";
import { when } from "../parts/time.js";
import { choose, go, href } from "../router.js";
import { h } from "../view.js";
import { changeHost, deleteHost, turnHost } from "./host/changing.js";
import { enrol, makeNodeKey, takeKey } from "./host/keys.js";
import { nowView, pastView, STATUSES, Work } from "./host/work.js";
import { blockHost, liftBlock } from "./hosts/blocking.js";
import { labelFilters } from "./hosts/labels.js";

const LOOK_MS = 10_000; // blocks, labels and agents change, and nobody hears of it
const narrow = matchMedia("(max-width: 760px)");

export default function host(app, { params, query }) {
  const id = Number(params.id);
  const chosen = new Set(query.getAll("status").filter((name) => STATUSES.includes(name)));
  const scroll = { top: 0 };
  let shown = null;
  let problem = null;
  let blocks = [];
  let agent = null;
  const work = new Work(params.id, [...chosen], app.redraw);

  async function read() {
    try {
      const { data } = await getWithVersion(`/hosts/${params.id}`);
      const ruled = await get(`/hosts/${params.id}/blocks`, { limit: 1_000 });
      const found = data.channel === "agent" ? await get("/agents", { host_id: id }) : { items: [] };
      shown = data;
      blocks = ruled.items;
      agent = found.items[0] ?? null;
      problem = null;
    } catch (refused) {
      problem = refused;
    }
    app.redraw();
  }
  const again = new Again(() => Promise.all([read(), work.look()]));
  const heard = ({ type, changes }) => {
    if (type === "reset" || (type === "changes" && changes.some(([, , , hostId]) => hostId === id))) again.soon();
  };
  const ticking = setInterval(() => { if (!document.hidden && !settled(problem)) again.soon(); }, LOOK_MS);
  // Also after what was refused: it may have been about a host that is no longer so.
  const after = async (deed) => {
    await deed;
    again.soon();
  };
  again.now();

  function toggle(name) {
    if (!chosen.delete(name)) chosen.add(name);
    choose({ status: [...chosen] });
    scroll.top = 0;
    work.past.reload({ status: [...chosen] });
  }

  const head = () =>
    h(
      "div",
      { class: "head", key: "head" },
      h("div", { class: "grow" }, h("nav", { class: "crumbs", "aria-label": "Where this is" }, h("a", { href: href(["hosts"]) }, "Hosts"), icon("right"), h("span", null, `host ${shown.host_id}`)), h("h1", null, h("bdi", null, shown.name)), h("p", null, status(shown.state))),
      h(
        "div",
        { class: "buttons" },
        app.may("run") && h("button", { class: "button button-main", key: "run", onclick: () => runForm(app, { selector: `name=${literal(shown.name)}` }) }, "Run something here"),
        app.may("manage") && [
          h("button", { class: "button", key: "change", onclick: () => after(changeHost(shown)) }, "Change"),
          h("button", { class: `button ${shown.state === "ACTIVE" ? "button-bad" : ""}`, key: "turn", onclick: () => after(turnHost(shown)) }, shown.state === "ACTIVE" ? "Disable" : "Enable"),
          h("button", { class: "button button-bad", key: "delete", onclick: async () => { if (!(await deleteHost(shown))) again.soon(); } }, "Delete"),
        ],
      ),
    );

  const facts = () =>
    h(
      "section",
      { class: "card", "aria-labelledby": "facts-title" },
      h("h2", { id: "facts-title" }, "What it is"),
      h(
        "dl",
        { class: "pairs" },
        [
          ["labels", Object.keys(shown.labels).length ? labelFilters(shown.labels, (name, value) => go(href(["hosts"], { selector: hasLabel(name, value) }))) : h("span", { class: "faint" }, "none")],
          ["channel", shown.channel],
          ["address", shown.address ? h("code", null, h("bdi", null, shown.address)) : h("span", { class: "faint" }, "none")],
          shown.channel === "agent" && ["agent", agentView()],
          ["made", when(shown.created_at)],
          ["changed", when(shown.updated_at)],
          ["version", shown.version],
        ].filter(Boolean).map(([name, value]) => [h("dt", { key: `t-${name}` }, name), h("dd", { key: `d-${name}` }, value)]),
      ),
      app.may("admin") && keyButtons(),
    );

  function agentView() {
    if (!agent) return h("span", { class: "status tone-fresh" }, icon("fresh"), "never connected");
    const how = agent.connected ? "good" : "bad";
    return [h("span", { class: `status tone-${how}` }, icon(how), agent.connected ? "connected" : "away"), " since ", when(agent.since), h("span", { class: "soft" }, `, version ${agent.version}, from ${agent.remote}`)];
  }

  const keyButtons = () =>
    h(
      "div",
      { class: "buttons" },
      shown.channel === "mqtt" ? h("button", { class: "button button-small", key: "node", onclick: () => makeNodeKey(shown) }, "Make a key for the node") : h("button", { class: "button button-small", key: "agent", onclick: () => enrol(shown) }, "Enrol an agent"),
      ["mqtt", "agent"].includes(shown.channel) && h("button", { class: "button button-small button-bad", key: "take", onclick: () => takeKey(shown) }, "Take its key away"),
    );

  const blocksView = () =>
    h(
      "section",
      { class: "card", "aria-labelledby": "blocks-title" },
      h("div", { class: "card-head" }, h("h2", { id: "blocks-title" }, "What is blocked here"), app.may("manage") && h("button", { class: "button button-small", "aria-label": "Block a command type", onclick: () => after(blockHost(app, shown)) }, "Block")),
      blocks.length === 0 && h("p", { class: "soft" }, "Nothing: everything may run here."),
      blocks.length > 0 && h("ul", { class: "holders" }, blocks.map(blockView)),
    );

  const blockView = (block) =>
    h(
      "li",
      { key: block.command_type, class: "block" },
      h("div", { class: "grow" }, h("div", null, h("span", { class: `status tone-${block.in_force ? "held" : "gone"}` }, icon(block.in_force ? "held" : "gone"), block.command_type), !block.in_force && h("span", { class: "faint" }, " expired")), h("div", { class: "soft" }, h("bdi", null, block.reason), ` (${block.owner}, `, when(block.created_at), block.expires_at ? [block.in_force ? ", ends " : ", ended ", when(block.expires_at)] : ", without an end", ")")),
      app.may("manage") && h("button", { class: "button button-small", "aria-label": `Lift the block of ${block.command_type}`, onclick: () => after(liftBlock(app, block)) }, "Lift"),
    );

  return {
    title: () => shown?.name ?? "Host",
    view: () => {
      if (problem && !shown) return h("div", { class: "empty", role: "alert" }, h("h1", null, "This host cannot be shown"), h("p", null, problem.message), h("p", null, h("a", { href: href(["hosts"]) }, "To all hosts")));
      if (!shown) return h("p", { class: "footing" }, "Reading…");
      return [
        head(),
        problem && h("p", { class: "refusal", role: "alert", key: "problem" }, problem.message),
        h("div", { class: "columns", key: "cards" }, h("div", { class: "stack" }, nowView(work), blocksView()), facts()),
        h("div", { key: "past" }, pastView(work, { scroll, chosen, onchoose: toggle, redraw: app.redraw, narrow: narrow.matches })),
      ];
    },
    heard,
    close: () => {
      again.close();
      clearInterval(ticking);
    },
  };
}
