// What runs, what it costs, what failed lately.

import { get, looks } from "../api.js";
import { empty, h, link, section, state, table, tile, tiles, time, to, usd } from "../dom.js";
import { DAYS, byDay, now } from "./costs.js";

const FAILURES = 20;
const PATHS = {
  job: (one) => to("clusters", one.cluster, "jobs", one.id),
  request: (one) => to("requests", one.id),
  task: (one) => to("tasks", one.id),
  sold: (one) => to("sold", one.id),
};
const KINDS = { job: (one) => `job on ${one.cluster}`, sold: () => "paid job" };

export async function overview(page) {
  await page.watch(async () => {
    const [summary, clusters] = await Promise.all([
      get("/api/summary", { days: DAYS }, page.signal),
      looks.clusters(page),
    ]);
    page.show(
      "Overview",
      ...numbers(page, summary, clusters),
      running(page, clusters),
      failures(summary),
      byDay(summary),
    );
  });
}

function numbers(page, summary, clusters) {
  const up = clusters.filter((one) => one.status === "UP").length;
  return [
    tiles(
      tile("Clusters up", up, `${clusters.length} in all`, "clusters"),
      tile("Jobs running", summary.jobs_running, `${summary.jobs_queued} queued`, "clusters"),
      summary.everybody &&
        tile("Tasks running", summary.tasks_running, `${summary.tasks_queued} queued`, "tasks"),
      tile(
        "Machines",
        summary.nodes_ready,
        `${summary.nodes_total - summary.nodes_ready} not ready`,
        page.may("admin") ? "computes" : "clusters",
      ),
      ...now(summary, "costs"),
      tile(
        "Failed in a day",
        summary.failed_day,
        summary.everybody ? "of all users" : "of yours",
        "#failed",
      ),
    ),
  ];
}

function running(page, clusters) {
  if (!clusters.length) {
    return section(
      "Clusters",
      empty(
        "No cluster is there.",
        "A task is launched on one, which is made for it:",
        "sky launch -c dev 'echo hello'",
      ),
    );
  }
  return section(
    "Clusters",
    table(
      "Clusters",
      [
        ["Cluster", (one) => link(`clusters/${to(one.name)}`, one.name)],
        ["State", (one) => state(one.status)],
        ["Nodes", (one) => `${one.nodes_ready} of ${one.nodes}`, "num"],
        ["Since", (one) => time(one.launched_at)],
        ["Cost", (one) => usd(one.cost), "num"],
      ],
      clusters.slice(0, 10),
      (one) => one.cluster_id,
    ),
  );
}

function failures(summary) {
  const more = summary.failures.length - FAILURES;
  const shown = section(
    "Failed lately",
    summary.failures.length
      ? table(
          "What failed lately",
          [
            ["What", (one) => link(PATHS[one.kind](one), one.name)],
            ["Kind", (one) => (KINDS[one.kind]?.(one) ?? one.kind)],
            ["When", (one) => time(one.at), "fit"],
            ["Why", (one) => one.message ?? "–", "wide"],
          ],
          summary.failures.slice(0, FAILURES),
          (one) => `${one.cluster}${one.id}`,
        )
      : empty("Nothing failed in the last seven days."),
    more > 0 && h("p", { class: "soft" }, `and ${more} more, among the `, link("requests?show=failed", "requests")),
  );
  shown.id = "failed";
  return shown;
}
