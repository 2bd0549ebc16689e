// Tasks, and the attempts of each as spans of time.

import { all, call, get } from "../api.js";
import { spans } from "../chart.js";
import {
  Lines,
  between,
  button,
  empty,
  facts,
  field,
  h,
  id,
  kindOf,
  link,
  section,
  state,
  sure,
  table,
  time,
  to,
} from "../dom.js";
import { follow } from "../live.js";
import { Rows } from "../rows.js";

const STATES = ["queued", "running", "succeeded", "failed", "cancelled", "timed_out", "indeterminate"];
const OPEN = new Set(["queued", "running"]);

export async function tasks(page) {
  const [chosen, of] = [page.query.get("state") ?? "", page.query.get("compute") ?? ""];
  const again = (more) => page.go(`tasks?${new URLSearchParams({ state: chosen, compute: of, ...more })}`);
  const choice = h(
    "select",
    { onchange: (event) => again({ state: event.target.value }) },
    ["", ...STATES].map((name) =>
      h("option", { value: name, selected: name === chosen }, name.replace("_", " ") || "all"),
    ),
  );
  const place = h("input", {
    value: of,
    placeholder: "any",
    onchange: (event) => again({ compute: event.target.value.trim() }),
  });
  const rows = new Rows(page);
  await page.watch(
    async () => {
      const reach = rows.reach;
      const found = await all(
        "/v1/tasks",
        { state: chosen, compute: of },
        { signal: page.signal, most: reach },
      );
      page.show(
        "Tasks",
        h("div", { class: "inline" }, field("State", choice), field("Compute", place)),
        found.length
          ? rows.table(
              "Tasks",
              [
                ["Task", (one) => link(`tasks/${to(one.id)}`, id(one.id))],
                ["State", (one) => state(one.state)],
                ["Compute", (one) => link(`computes/${to(one.compute_id)}`, id(one.compute_id))],
                ["Attempts", (one) => one.executions.length, "num"],
                ["Submitted", (one) => time(one.submitted_at)],
                ["Took", (one) => between(one.submitted_at, one.finished_at), "num"],
                ["Error", (one) => one.executions.at(-1)?.error?.message ?? "", "wide"],
              ],
              found,
              (one) => one.id,
              (one) => `${one.id} ${one.state} ${one.compute_id} ${one.executions.at(-1)?.error?.message ?? ""}`,
              found.length < reach,
            )
          : empty(
              "There are no such tasks.",
              "A program makes them, when it calls a function on a compute:",
              "train(10) >> compute",
            ),
      );
    },
    { about: (event) => event.data.type === "task.state", moves: true },
  );
}

export async function task(page) {
  const wanted = page.parts[1];
  const log = new Lines("Output of the task");
  let there = false;
  await page.watch(
    async () => {
      const one = await get(`/v1/tasks/${to(wanted)}`, {}, page.signal);
      const called = await get(`/v1/functions/${one.function}`, {}, page.signal).catch(() => null);
      there = true;
      show(page, one, called, log);
    },
    { about: (event) => event.data.task === wanted, moves: true },
  );
  if (!there) return;
  follow(
    { types: "node.console", task: wanted },
    {
      signal: page.signal,
      heed: ({ data }) => log.add(data.content, data.stream === "stderr" ? "err" : null),
    },
  ).catch((error) => page.fail(error));
}

function show(page, one, called, log) {
  const path = `/v1/tasks/${to(one.id)}`;
  const cancel = () => page.act(() => call("DELETE", path), "it is being cancelled");
  const retry = async () => {
    const unknown = one.state === "indeterminate";
    if (
      unknown &&
      !(await sure("Nobody knows whether it ran. Run it, perhaps for the second time?", "Run it again"))
    )
      return;
    await page.act(
      () => call("POST", `${path}/executions`, { body: unknown ? { acknowledge_duplication: true } : {} }),
      "it is tried again",
    );
  };
  const attempts = one.executions;
  page.show(
    called?.name ? `Task ${called.name}` : "Task",
    one.state !== "succeeded" &&
      h(
        "div",
        { class: "row" },
        OPEN.has(one.state) ? button("Cancel", cancel, "danger") : button("Try again", retry),
      ),
    facts(
      ["State", state(one.state)],
      ["Task", id(one.id)],
      ["Compute", link(`computes/${to(one.compute_id)}`, id(one.compute_id))],
      ["Dispatch", one.dispatch],
      ["Submitted", time(one.submitted_at)],
      ["Took", between(one.submitted_at, one.finished_at)],
      ["Deadline", one.deadline_at ? time(one.deadline_at) : "none"],
      ["Function", id(one.function)],
    ),
    section(
      "Attempts",
      attempts.length
        ? [
            spans(
              "Attempts",
              attempts.map((each) => ({
                label: `${each.ordinal}, rank ${each.rank}`,
                from: each.started_at,
                until: each.finished_at,
                kind: kindOf(each.state),
                title: each.state,
              })),
            ),
            h("p", {}),
            table(
              "Attempts",
              [
                ["Attempt", (each) => each.ordinal, "fit"],
                ["State", (each) => state(each.state)],
                ["Rank", (each) => each.rank, "num"],
                ["Node", (each) => id(each.node_id)],
                ["Began", (each) => time(each.started_at)],
                ["Ran for", (each) => between(each.started_at, each.finished_at), "num"],
                ["Error", (each) => each.error?.message ?? "", "wide"],
              ],
              attempts,
              (each) => each.id,
            ),
          ]
        : empty("It has not been begun.", "Why, the loops tell:", `sky why ${one.id}`),
    ),
    section("Output", log.box),
  );
}
