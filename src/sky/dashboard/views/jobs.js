// Paid jobs, as the customer whose key is given sees them, and what is sold.

import { all, call, frames, get, key, random } from "../api.js";
import {
  Lines,
  between,
  button,
  bytes,
  count,
  day,
  empty,
  facts,
  field,
  h,
  id,
  lasted,
  link,
  section,
  state,
  sure,
  table,
  tile,
  tiles,
  time,
  to,
  usd,
  wrong,
} from "../dom.js";
import { Rows } from "../rows.js";
import { place, soldTable } from "./sold.js";

const ROOT = "/compute/v1";
const SOLD = 200;
const OPEN = new Set(["queued", "provisioning", "running"]);

function keyForm(page, error) {
  const given = h("input", {
    type: "password",
    autocomplete: "off",
    placeholder: "uck_…",
    required: true,
    spellcheck: "false",
  });
  return h(
    "form",
    {
      class: "form card",
      onsubmit: (event) => {
        event.preventDefault();
        key.set(given.value.trim());
        page.go(page.parts.join("/"), true);
      },
    },
    error && wrong(error),
    field(
      "Key",
      given,
      "A customer's key. It stays in this tab until it is closed. An operator makes one with: sky admin key create ACCOUNT",
    ),
    h("div", { class: "row" }, h("button", { class: "main", type: "submit" }, "Show my jobs")),
  );
}

/** What an operator sees without a customer's key. */
async function sold(page) {
  await page.watch(
    async () => {
      const found = await all("/admin/v1/jobs", {}, { signal: page.signal, most: SOLD });
      page.show(
        "Paid jobs",
        found.length
          ? soldTable("Paid jobs of all accounts", found)
          : empty(
              "Nobody has bought a job yet.",
              "Whoever buys needs an account, and a key of it:",
              "sky admin account create acme",
            ),
        section("As a customer sees theirs", keyForm(page)),
      );
    },
    { seconds: 5 },
  );
}

/** Look with the key; without one that lets in, ask for it. */
async function keyed(page, title, look) {
  const ask = (error) =>
    page.show(
      title,
      h("p", { class: "lead" }, "Paid jobs belong to whoever holds an account's key."),
      keyForm(page, error),
    );
  if (!key.get()) {
    ask();
    return;
  }
  await page.watch(
    async () => {
      try {
        await look();
      } catch (error) {
        if (error.status === 401 || error.status === 403) {
          key.set(null);
          ask(error);
        } else throw error;
      }
    },
    { seconds: 5 },
  );
}

/** What an event says: a place as its parts. */
const told = (value) =>
  value !== null && typeof value === "object" ? Object.values(value).filter(Boolean).join(" / ") : value;

const forget = (page) =>
  button(
    "Forget the key",
    () => {
      key.set(null);
      page.go("jobs");
    },
    "plain",
  );

/** The newest jobs, so many at least where there are: {jobs, whole}. */
async function newest(least, signal) {
  const found = [];
  for (let after; ; ) {
    const page = await get(`${ROOT}/jobs`, { limit: 100, after }, signal);
    found.push(...page.data);
    after = page.next;
    if (!page.has_more || found.length >= least) return { jobs: found, whole: !page.has_more };
  }
}

export async function jobs(page) {
  if (!key.get() && page.may("admin")) {
    await sold(page);
    return;
  }
  const rows = new Rows(page);
  await keyed(page, "Paid jobs", async () => {
    const [list, balance, usage] = await Promise.all([
      newest(rows.reach, page.signal),
      get(`${ROOT}/balance`, {}, page.signal),
      get(`${ROOT}/usage`, {}, page.signal),
    ]);
    page.show(
      "Paid jobs",
      tiles(
        tile("Available", usd(balance.available_usd)),
        tile("Held for jobs", usd(balance.held_usd)),
        tile(
          "Charged in 30 days",
          usd(usage.total.charged_usd),
          `since ${day(usage.since)}: ${count(usage.total.jobs, "job")}, ${lasted(usage.total.seconds)}`,
        ),
      ),
      section(
        "Jobs",
        list.jobs.length
          ? rows.table(
              "Jobs",
              [
                ["Job", (one) => link(`jobs/${to(one.id)}`, id(one.id))],
                ["State", (one) => state(one.status)],
                ["SKU", (one) => one.sku],
                ["Submitted", (one) => time(one.created_at)],
                ["Ran for", (one) => between(one.started_at, one.finished_at), "num"],
                [
                  "Cost",
                  (one) =>
                    usd(OPEN.has(one.status) ? one.usage.estimated_cost_usd : one.usage.settled_cost_usd),
                  "num",
                ],
                [
                  "Metadata",
                  (one) =>
                    Object.entries(one.metadata)
                      .map(([name, value]) => `${name}=${value}`)
                      .join(", "),
                  "wide",
                ],
              ],
              list.jobs,
              (one) => one.id,
              (one) => `${one.id} ${one.status} ${one.sku} ${JSON.stringify(one.metadata)}`,
              list.whole,
            )
          : empty(
              "This account has submitted no jobs.",
              "",
              "sky job submit --sku cpu --image local -- echo hello",
            ),
      ),
      h("p", {}, forget(page)),
    );
  });
}

export async function job(page) {
  const path = `${ROOT}/jobs/${to(page.parts[1])}`;
  const log = new Lines("Output of the job");
  let there = false;
  await keyed(page, "Paid job", async () => {
    const [one, events, artifacts] = await Promise.all([
      get(path, {}, page.signal),
      get(`${path}/events`, { limit: 100 }, page.signal),
      get(`${path}/artifacts`, {}, page.signal).catch(() => null),
    ]);
    there = true;
    const cancel = async () => {
      if (await sure("Cancel the job? What it used so far is charged.", "Cancel it")) {
        await page.act(
          () => call("POST", `${path}/cancel`, { headers: { "idempotency-key": random() } }),
          "it is cancelled",
        );
      }
    };
    page.show(
      "Paid job",
      OPEN.has(one.status) && h("div", { class: "row" }, button("Cancel", cancel, "danger")),
      one.error && wrong({ title: one.error.code, message: one.error.message }),
      facts(
        ["State", state(one.status)],
        ["Job", id(one.id)],
        ["SKU", one.sku],
        ["Submitted", time(one.created_at)],
        ["Ran for", between(one.started_at, one.finished_at)],
        ["Where", place(one)],
        ["Image", one.spec.image],
        ["Command", h("code", {}, (one.spec.command ?? []).join(" "))],
        ["Held", usd(one.usage.hold_usd)],
        ["Cost", usd(OPEN.has(one.status) ? one.usage.estimated_cost_usd : one.usage.settled_cost_usd)],
        ...Object.entries(one.metadata).map(([name, value]) => [name, value]),
      ),
      section("Output", log.box),
      section(
        "Events",
        table(
          "Events",
          [
            ["When", (each) => time(each.created_at), "fit"],
            ["Event", (each) => each.type],
            [
              "More",
              (each) =>
                Object.entries(each.data ?? {})
                  .map(([name, value]) => `${name} ${told(value)}`)
                  .join(", "),
              "wide",
            ],
          ],
          events.data,
          (each) => each.id,
        ),
      ),
      section(
        "Files",
        artifacts?.data.length
          ? table(
              "Files",
              [
                ["File", (each) => h("a", { href: each.url, download: true }, each.path)],
                ["Size", (each) => bytes(each.size), "num"],
                ["SHA-256", (each) => id(each.sha256)],
              ],
              artifacts.data,
              (each) => each.path,
            )
          : empty("It has left no files.", "Files in the folders of its outputs are kept."),
      ),
    );
  });
  if (there) output(page, path, log).catch((error) => page.fail(error));
}

async function output(page, path, log) {
  let place = "";
  while (!page.signal.aborted) {
    try {
      const query = { follow: true, since: place };
      for await (const { id, name, text } of frames(`${path}/logs`, { query, signal: page.signal })) {
        place = id ?? place;
        if (name === null && text !== null) log.add(text);
        else if (name === "end") {
          log.add(`— ${JSON.parse(text).status} —`, "note");
          page.again();
          return;
        } else if (name === "error") throw new Error(JSON.parse(text).message);
      }
    } catch (error) {
      if (error.code !== "unreachable") throw error;
    }
    await new Promise((later) => setTimeout(later, 1000));
  }
}

export async function prices(page) {
  await page.watch(
    async () => {
      const { data, note } = await get(`${ROOT}/skus`, {}, page.signal);
      const price = (one) => Number(one.price_usd_per_hour);
      page.show(
        "Prices",
        note && h("p", { class: "lead" }, note),
        data.length
          ? table(
              "Prices",
              [
                ["SKU", (one) => h("strong", {}, one.id)],
                ["An hour", (one) => usd(one.price_usd_per_hour), "num"],
                ["A minute", (one) => usd((price(one) / 60).toFixed(4)), "num"],
                [
                  "GPU",
                  (one) => (one.gpu_count ? `${one.gpu_count} × ${one.gpu || one.accelerator}` : "none"),
                ],
                ["GPU memory", (one) => (one.gpu_count ? `${one.gpu_memory_gb} GB` : "–"), "num"],
                ["Processors", (one) => one.vcpus, "num"],
                ["Memory", (one) => `${one.memory_gb} GB`, "num"],
                ["Where", (one) => (one.providers ?? []).map((each) => each.cloud).join(", ") || "–"],
                [
                  "Now",
                  (one) =>
                    one.available
                      ? one.interruptible
                        ? "to be had, may be interrupted"
                        : "to be had"
                      : "not to be had",
                ],
              ],
              data,
              (one) => one.id,
            )
          : empty("Nothing is sold here.", "An operator names a catalogue:", "sky server start"),
      );
    },
    { seconds: 60 },
  );
}
