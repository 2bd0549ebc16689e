// What machines cost: now, this month, day by day, and cluster by cluster as `sky cost-report` tells it.

import { get, looks } from "../api.js";
import { days } from "../chart.js";
import { day, empty, lasted, link, section, state, tile, tiles, time, to, usd } from "../dom.js";
import { Rows } from "../rows.js";

export const DAYS = 30;

/** What it costs an hour, and since the month began. */
export const now = (summary, href) => [
  tile("Cost an hour", usd(summary.price_per_hour), summary.everybody ? "all users" : "yours", href),
  tile("This month", usd(summary.month_cost), `since ${day(summary.month)}`, href),
];

export const byDay = (summary) =>
  section(
    "Cost of machines by day",
    summary.days.some((one) => one.cost)
      ? days(`Cost of the last ${DAYS} days`, summary.days)
      : empty(`Machines have cost nothing in ${DAYS} days.`, "Those of this computer are free."),
  );

export async function costs(page) {
  const rows = new Rows(page);
  await page.watch(async () => {
    const [summary, found] = await Promise.all([
      get("/api/summary", { days: DAYS }, page.signal),
      looks.costs(page, DAYS),
    ]);
    const sum = (field) => found.reduce((all, one) => all + one[field], 0);
    page.show(
      "Costs",
      tiles(
        ...now(summary),
        tile(
          "Clusters",
          usd(sum("total_cost")),
          `those of ${DAYS} days, ${lasted(sum("machine_seconds"))} of machines`,
        ),
      ),
      byDay(summary),
      section(
        "By cluster",
        found.length
          ? rows.table(
              "By cluster",
              [
                ["Cluster", (one) => (one.status ? link(`clusters/${to(one.name)}`, one.name) : one.name)],
                ["State", (one) => state(one.status ?? "deleted")],
                ["Owner", (one) => one.user_name],
                ["Machines", (one) => one.resources_str],
                ["Since", (one) => time(one.launched_at)],
                ["Had machines for", (one) => lasted(one.duration), "num"],
                ["Cost", (one) => usd(one.total_cost), "num"],
              ],
              found,
              (one) => one.cluster_id,
              (one) => `${one.name} ${one.status ?? "deleted"} ${one.user_name} ${one.resources_str}`,
            )
          : empty("No cluster was there.", "The same in a terminal:", "sky cost-report"),
      ),
    );
  });
}
