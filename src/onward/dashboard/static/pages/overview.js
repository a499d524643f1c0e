/** What runs, what waits for somebody, how it went in the last hour, and who does the work. */

import { get } from "../api.js";
import { count, many, selector } from "../format.js";
import { bar } from "../parts/bar.js";
import { columns } from "../parts/chart.js";
import { involved } from "../parts/decision.js";
import { icon } from "../parts/icons.js";
import { status } from "../parts/status.js";
import { when } from "../parts/time.js";
import { href } from "../router.js";
import { h } from "../view.js";

const EVERY_MS = 10_000; // also where nothing changes: workers breathe or do not
const SOON_MS = 1_000;

export default function overview(app) {
  let told = null;
  let problem = null;
  let soon = null;

  async function load() {
    clearTimeout(soon);
    soon = null;
    try {
      told = await get("/overview");
      app.waiting = told.jobs.waiting;
      problem = null;
    } catch (error) {
      problem = error;
    }
    app.redraw();
  }

  const regularly = setInterval(load, EVERY_MS);
  load();

  return {
    title: () => "Overview",
    heard({ type }) {
      if (type === "changes" || type === "reset") soon ??= setTimeout(load, SOON_MS);
    },
    close() {
      clearInterval(regularly);
      clearTimeout(soon);
    },
    view: () =>
      h(
        "div",
        { class: "stack" },
        h("div", { class: "head" }, h("h1", { class: "grow" }, "Overview")),
        problem && h("p", { class: "footing tone-bad", role: "alert" }, problem.message),
        told ? shown(told, app) : !problem && h("p", { class: "footing" }, "Reading…"),
      ),
  };
}

const shown = (told, app) => [
  figures(told),
  attention(told.attention),
  h("div", { class: "columns", key: "columns" }, h("div", { class: "stack" }, activity(told.activity), openJobs(told.open)), h("div", { class: "stack" }, waiting(told.waiting, app), workers(told.workers))),
];

function figures({ executions, jobs, hosts, blocks, workers: found }) {
  const alive = found.filter(({ lives }) => lives).length;
  return h(
    "div",
    { class: "figures", key: "figures" },
    figure(executions.RUNNING ?? 0, "running", href(["jobs"], { open: true }), "going"),
    figure((executions.QUEUED ?? 0) + (executions.NEW ?? 0), "to be run", href(["jobs"], { open: true })),
    figure(jobs.open, "jobs open", href(["jobs"], { open: true })),
    figure(jobs.waiting, "waiting for approval", href(["approvals"]), jobs.waiting ? "late" : ""),
    figure(hosts.ACTIVE ?? 0, hosts.DISABLED ? `hosts, ${count(hosts.DISABLED)} disabled` : "hosts", href(["hosts"])),
    figure(blocks, "blocks", href(["blocks"]), blocks ? "held" : ""),
    figure(alive, alive === 1 ? "worker" : "workers", href(["settings"], { tab: "workers" }), alive ? "good" : "bad"),
  );
}

const figure = (n, label, to, tone = "") =>
  h("a", { class: tone ? `figure tone-${tone}` : "figure", href: to, key: label.split(",")[0] }, h("strong", null, count(n)), h("span", null, label));

const TONES = { NO_WORKER: "bad", WORKER_LOST: "bad", OVERDUE: "late", OUTBOX_STUCK: "late", FAILING: "bad", PAUSED: "held", DUE: "late" };

function attention(found) {
  if (!found.length) return null;
  return h(
    "section",
    { class: "stack", key: "attention", "aria-label": "What wants somebody's attention" },
    found.map((each, i) => {
      const tone = TONES[each.kind] ?? "late";
      return h("div", { class: `callout tone-${tone}`, key: `${each.kind}-${each.job_id ?? i}` }, icon("warning"), h("div", { class: "callout-body" }, h("span", null, each.text)), each.job_id && h("a", { href: href(["jobs", each.job_id]) }, `Job ${each.job_id}`));
    }),
  );
}

function activity({ statuses, from, step_s }) {
  const all = Object.values(statuses).flat().reduce((sum, n) => sum + n, 0);
  return h(
    "section",
    { class: "card", "aria-labelledby": "activity" },
    h("div", { class: "card-head" }, h("h2", { id: "activity" }, "What ended, minute by minute"), h("span", { class: "faint" }, `${many(all, "execution")} in the last hour`)),
    columns(statuses, { from, step_s, label: "Executions that ended, by minute" }),
    h("div", { class: "legend" }, Object.entries(statuses).filter(([, series]) => series.some(Boolean)).map(([name, series]) => h("span", { key: name }, status(name, { note: count(series.reduce((sum, n) => sum + n, 0)) })))),
  );
}

function openJobs(jobs) {
  return h(
    "section",
    { class: "card", "aria-labelledby": "open" },
    h("div", { class: "card-head" }, h("h2", { id: "open" }, "Under way"), h("a", { href: href(["jobs"]) }, "All jobs")),
    jobs.length === 0 && h("div", { class: "empty" }, h("span", null, "Nothing is under way. To run something:"), h("code", null, "onward run --on all -- uptime")),
    jobs.map((job) =>
      h(
        "a",
        { class: "job-line", href: href(["jobs", job.job_id]), key: job.job_id },
        h("span", { class: "job-line-head" }, h("strong", null, `${job.job_id} · ${job.command_type}`), h("span", { class: "soft job-line-on" }, `on ${selector(job.selector)}`), status(job.state)),
        bar(job.counts, { label: `Progress of job ${job.job_id}`, thin: true }),
      ),
    ),
  );
}

function waiting(jobs, app) {
  const mine = app.may("approve") ? jobs.filter((job) => !involved(app, job)) : [];
  const others = jobs.filter((job) => !mine.includes(job));
  return h(
    "section",
    { class: "card", "aria-labelledby": "waiting" },
    h("div", { class: "card-head" }, h("h2", { id: "waiting" }, mine.length ? "Waits for you" : "Waits for approval"), mine.length > 0 && h("a", { href: href(["approvals"]) }, "Decide")),
    jobs.length === 0 && h("p", { class: "faint" }, "Nothing waits for anybody."),
    mine.map(waitingJob),
    mine.length > 0 && others.length > 0 && h("h3", { key: "others" }, "Waits for somebody else"),
    others.map(waitingJob),
  );
}

const waitingJob = (job) =>
  h("a", { class: "job-line", href: href(["jobs", job.job_id]), key: job.job_id }, h("span", { class: "job-line-head" }, h("strong", null, `${job.job_id} · ${job.command_type}`), h("span", { class: "soft" }, when(job.created_at))), h("span", { class: "soft" }, `${many(job.total, "host")}, asked for by ${job.requested_by}`));

function workers(found) {
  return h(
    "section",
    { class: "card", "aria-labelledby": "workers" },
    h("div", { class: "card-head" }, h("h2", { id: "workers" }, "Workers")),
    found.length === 0 && h("div", { class: "empty" }, h("span", null, "Nobody does the work. Start one:"), h("code", null, "onward up")),
    found.map((worker) =>
      h(
        "div",
        { class: "worker", key: worker.worker_id },
        h("span", { class: `pulse ${worker.lives ? "pulse-alive" : worker.stopped_at ? "" : "pulse-lost"}`, "aria-hidden": "true" }),
        h("span", { class: "grow cell" }, worker.name),
        h("span", { class: "soft" }, worker.lives ? `${count(worker.running)} running` : [worker.stopped_at ? "left " : "lost ", when(worker.stopped_at ?? worker.beat_at)]),
      ),
    ),
  );
}
