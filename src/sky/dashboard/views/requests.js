// Requests: what was asked for, what it said, and what came of it.

import { call, get, lines } from "../api.js";
import {
  Lines,
  between,
  button,
  empty,
  facts,
  field,
  h,
  id,
  link,
  section,
  state,
  time,
  to,
  wrong,
} from "../dom.js";
import { Rows } from "../rows.js";

const KEPT = 500;
const ACTS = new Set(["launch", "exec", "start", "stop", "down", "autostop", "cancel", "storage_delete"]);
const OPEN = new Set(["PENDING", "RUNNING", "WAITING"]);
const SHOWS = {
  acts: ["What changed something", (one) => ACTS.has(one.name)],
  open: ["Under way", (one) => OPEN.has(one.status)],
  failed: ["Failed", (one) => one.status === "FAILED"],
  all: ["Everything", () => true],
};

export async function requests(page) {
  const chosen = Object.hasOwn(SHOWS, page.query.get("show") ?? "") ? page.query.get("show") : "acts";
  const choice = h(
    "select",
    { onchange: (event) => page.go(`requests?show=${event.target.value}`) },
    Object.entries(SHOWS).map(([name, [text]]) =>
      h("option", { value: name, selected: name === chosen }, text),
    ),
  );
  const rows = new Rows(page);
  await page.watch(
    async () => {
      const { items } = await get(
        "/api/status",
        { all_status: true, all_users: true, limit: KEPT },
        page.signal,
      );
      const found = items.filter(SHOWS[chosen][1]);
      page.show(
        "Requests",
        h("div", { class: "inline" }, field("Show", choice)),
        found.length
          ? rows.table(
              "Requests",
              [
                ["Request", (one) => link(`requests/${to(one.request_id)}`, id(one.request_id))],
                ["What", (one) => one.name],
                ["State", (one) => state(one.status)],
                [
                  "Cluster",
                  (one) =>
                    one.cluster_name ? link(`clusters/${to(one.cluster_name)}`, one.cluster_name) : "–",
                ],
                ["By", (one) => one.user],
                ["Asked", (one) => time(one.created_at)],
                ["Took", (one) => between(one.created_at, one.finished_at), "num"],
                ["Error", (one) => one.error?.message ?? "", "wide"],
              ],
              found,
              (one) => one.request_id,
              (one) =>
                `${one.request_id} ${one.name} ${one.status} ${one.cluster_name ?? ""} ${one.user} ${one.error?.message ?? ""}`,
              items.length < KEPT,
            )
          : empty(
              "No such request is kept.",
              "Every command asks one; this shows them all:",
              "sky api status -a",
            ),
      );
    },
    { seconds: 5 },
  );
}

export async function request(page) {
  const wanted = page.parts[1];
  const log = new Lines("What the request said");
  await page.watch(
    async () => {
      const one = await get("/api/get", { request_id: wanted, wait: 0 }, page.signal);
      const cancel = () =>
        page.act(
          () => call("POST", "/api/cancel", { body: { request_ids: [one.request_id] } }),
          "it is cancelled",
        );
      page.show(
        `${one.name}${one.cluster_name ? ` on ${one.cluster_name}` : ""}`,
        OPEN.has(one.status) &&
          page.may("user") &&
          h("div", { class: "row" }, button("Cancel the request", cancel, "danger")),
        one.error && wrong({ title: one.error.type, message: one.error.message }),
        facts(
          ["State", state(one.status)],
          ["Request", id(one.request_id)],
          ["By", one.user],
          ["Cluster", one.cluster_name ? link(`clusters/${to(one.cluster_name)}`, one.cluster_name) : null],
          ["Asked", time(one.created_at)],
          ["Began", time(one.started_at)],
          ["Took", between(one.created_at, one.finished_at)],
          [
            "Job",
            one.result?.job_id && one.cluster_name
              ? link(`clusters/${to(one.cluster_name)}/jobs/${one.result.job_id}`, `job ${one.result.job_id}`)
              : null,
          ],
        ),
        section("What it said", log.box),
        one.result !== null &&
          section(
            "Result",
            h("pre", { class: "command", tabindex: "0" }, JSON.stringify(one.result, null, 2)),
          ),
      );
    },
    { seconds: 3 },
  );
  said(page, wanted, log).catch((error) => page.fail(error));
}

async function said(page, wanted, log) {
  let after = 0;
  while (!page.signal.aborted) {
    try {
      for await (const told of lines("GET", "/api/stream", {
        query: { request_id: wanted, after },
        signal: page.signal,
      })) {
        if ("end" in told) {
          log.add(`— ${told.end.status.toLowerCase()} —`, "note");
          page.again();
          return;
        }
        after = told.line;
        log.add(told.text);
      }
    } catch (error) {
      if (error.code !== "unreachable") throw error;
    }
    await new Promise((later) => setTimeout(later, 1000));
  }
}
