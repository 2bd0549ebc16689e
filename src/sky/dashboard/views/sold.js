// Jobs that were bought, as the operator sees them: what sells, what it brings, what failed.

import { get } from "../api.js";
import { between, empty, facts, h, id, link, section, state, table, time, to, usd, wrong } from "../dom.js";

export const place = ({ placement: at }) => (at ? [...new Set([at.cloud, at.region, at.instance_type])].join(" / ") : "–");
const account = (one) => (one.account ? link(`accounts/${to(one.account)}`, one.account) : one.owner);
const compute = (one) => (one.compute_id ? link(`computes/${to(one.compute_id)}`, id(one.compute_id)) : "–");
const where = (one) => (one.compute_id ? link(`computes/${to(one.compute_id)}`, place(one)) : place(one));
const how = (one) => [state(one.status), one.error && h("div", { class: "soft" }, one.error)];
const costs = (one) => (one.placement ? usd(one.placement.cost_usd_per_hour) : "–");
const charged = (one) => (one.charged_usd === null ? "not yet" : usd(one.charged_usd));

/** A table of jobs of all who buy. */
export function soldTable(label, found, { named = true } = {}) {
  return table(
    label,
    [
      ["Job", (one) => link(`sold/${to(one.id)}`, id(one.id))],
      named && ["Account", account],
      ["State", how],
      ["SKU", (one) => one.sku],
      ["Submitted", (one) => time(one.created_at)],
      ["Ran for", (one) => between(one.started_at, one.finished_at), "num"],
      ["Sold / costs an hour", (one) => `${usd(one.price_usd_per_hour)} / ${costs(one)}`, "num"],
      ["Where", where],
      ["Charged", charged, "num"],
    ].filter(Boolean),
    found,
    (one) => one.id,
  );
}

/** A job that was bought: all that an operator is shown of it, without what is in it. */
export async function sold(page) {
  const wanted = page.parts[1];
  await page.watch(
    async () => {
      const [one] = (await get("/admin/v1/jobs", { job: wanted }, page.signal)).items;
      if (!one) {
        page.show("Paid job", empty(`There is no paid job ${wanted}.`), h("p", {}, link("jobs", "All paid jobs")));
        return;
      }
      const passed = one.placement?.passed_over ?? [];
      page.show(
        "Paid job",
        one.error && wrong({ title: `It ${one.status}`, message: one.error }),
        facts(
          ["State", state(one.status)],
          ["Job", id(one.id)],
          ["Account", account(one)],
          ["SKU", one.sku],
          ["Submitted", time(one.created_at)],
          ["Ran for", between(one.started_at, one.finished_at)],
          ["Where", place(one)],
          ["Compute", compute(one)],
          ["Sold for an hour", usd(one.price_usd_per_hour)],
          ["Costs an hour", costs(one)],
          ["Charged", charged(one)],
        ),
        passed.length > 0 &&
          section(
            "Passed over",
            h(
              "ul",
              {},
              passed.map((each) => h("li", {}, each)),
            ),
          ),
        h("p", { class: "soft" }, "What it runs and prints is told to whoever holds a key of its account."),
      );
    },
    { seconds: 5 },
  );
}
