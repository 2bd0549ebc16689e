// Jobs that were bought, as the operator sees them: what sells, what it brings, what failed.

import { between, id, link, state, table, time, to, usd } from "../dom.js";

/** A table of jobs of all who buy. */
export function soldTable(label, found, { named = true } = {}) {
  return table(
    label,
    [
      ["Job", (one) => id(one.id)],
      named && [
        "Account",
        (one) => (one.account ? link(`accounts/${to(one.account)}`, one.account) : one.owner),
      ],
      ["State", (one) => state(one.status)],
      ["SKU", (one) => one.sku],
      ["Submitted", (one) => time(one.created_at)],
      ["Ran for", (one) => between(one.started_at, one.finished_at), "num"],
      ["An hour", (one) => usd(one.price_usd_per_hour), "num"],
      ["Costs an hour", (one) => (one.placement ? usd(one.placement.cost_usd_per_hour) : "–"), "num"],
      [
        "Where",
        ({ placement: at }) => (at ? [at.cloud, at.region, at.instance_type].join(" / ") : "–"),
      ],
      ["Charged", (one) => (one.charged_usd === null ? "not yet" : usd(one.charged_usd)), "num"],
      [
        "Compute",
        (one) => (one.compute_id ? link(`computes/${to(one.compute_id)}`, id(one.compute_id)) : "–"),
      ],
      ["Error", (one) => one.error ?? "", "wide"],
    ].filter(Boolean),
    found,
    (one) => one.id,
  );
}
