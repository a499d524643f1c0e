/** What lets a host speak for itself: the token of an agent, the key of a node; each is shown once. */

import { del, post } from "../../api.js";
import { exactly } from "../../format.js";
import { note } from "../../parts/dialog.js";
import { openForm } from "../../parts/form.js";
import { showOnce } from "../../parts/secret.js";
import { h } from "../../view.js";

const HOURS = [["3600", "an hour"], ["86400", "a day"], ["604800", "a week"]];

/** Make a token that the agent of a host exchanges for its key. */
export async function enrol(host) {
  const values = { ttl_s: "3600" };
  const made = await openForm({
    title: `Enrol the agent of ${host.name}`,
    lead: h("p", null, "A new token ends the former one. Once an agent has enrolled with it, the key of any former agent of this host is worth nothing."),
    values,
    fields: [{ name: "ttl_s", label: "Good for", options: HOURS }],
    action: "Make a token",
    deed: async () => (await post(`/hosts/${host.host_id}/enrolment`, { ttl_s: Number(values.ttl_s) })).data,
  });
  if (!made) return;
  const server = new URL(".", document.baseURI.split("#")[0]).href.replace(/\/$/, "");
  showOnce({
    title: `Token for ${host.name}`,
    secret: made.token,
    command: `ONWARD_AGENT_TOKEN=${made.token} onward agent --server ${server} --state /var/lib/onward-agent`,
    lines: [`It is good for one agent, until ${exactly(made.expires_at)}.`, "Type the command on the host; it is not needed any more once the agent is connected."],
  });
}

/** Make the key of a node. */
export async function makeNodeKey(host) {
  const made = await openForm({
    title: `Make a key for ${host.name}`,
    lead: h("p", null, "A new key makes the former one worthless within ten seconds: the node answers nothing that is believed until it has the new one."),
    action: "Make a key",
    deed: async () => (await post(`/hosts/${host.host_id}/key`)).data,
  });
  if (made) showOnce({ title: `Key of ${host.name}`, secret: made.key, lines: ["32 bytes, hexadecimal: put it into the node."] });
}

/** Make the key of a host worthless. */
export async function takeKey(host) {
  const done = await openForm({
    title: `Take the key of ${host.name} away?`,
    lead: h("p", null, "Whoever is connected with it goes, and a token that was made for it is worth nothing either. What runs there is no longer heard of."),
    typed: () => host.name,
    action: "Take it away",
    tone: "bad",
    deed: async () => {
      await del(`/hosts/${host.host_id}/key`);
      return true;
    },
  });
  if (done) note(`The key of ${host.name} is worth nothing now.`);
}
