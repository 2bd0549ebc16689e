// Clusters, the jobs of each, and what a job prints.

import { lines, looks, request, submit } from "../api.js";
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
  sure,
  table,
  time,
  to,
  usd,
} from "../dom.js";
import { Rows } from "../rows.js";

const TAIL = 2000;
const ABOUT = (event) =>
  event.data.type === "task.state" || event.data.type === "compute.state" || event.data.type === "node.state";

const owns = (page, one) => one.user_name === page.me.name;
const changes = (page, one) => page.may("admin") || (page.may("user") && owns(page, one));
const whose = (page, one) => (owns(page, one) ? {} : { all_users: true });

export async function clusters(page) {
  const rows = new Rows(page);
  await page.watch(
    async () => {
      const found = await looks.clusters(page);
      page.show(
        "Clusters",
        found.length
          ? rows.table(
              "Clusters",
              [
                ["Cluster", (one) => link(`clusters/${to(one.name)}`, one.name)],
                ["State", (one) => state(one.status)],
                ["Machines", (one) => one.resources_str],
                ["Where", (one) => [one.cloud, one.region].filter(Boolean).join(" / ") || "–"],
                ["Owner", (one) => one.user_name],
                ["Since", (one) => time(one.launched_at)],
                ["An hour", (one) => usd(one.price_per_hour), "num"],
                ["So far", (one) => usd(one.cost), "num"],
              ],
              found,
              (one) => one.cluster_id,
              (one) => `${one.name} ${one.status} ${one.resources_str} ${one.user_name}`,
            )
          : empty(
              "No cluster is there.",
              "A task is launched on one, which is made for it:",
              "sky launch -c dev task.yaml",
            ),
        page.may("user") && h("p", {}, link("launch", "Launch a task")),
      );
    },
    { about: ABOUT },
  );
}

export async function cluster(page) {
  const name = page.parts[1];
  await page.watch(
    async () => {
      const [one] = await looks.clusters(page, name);
      if (!one) {
        page.show(name, ...gone(name));
        return;
      }
      const jobs = await looks.jobs(page, name);
      page.show(
        name,
        acts(page, one),
        one.status_message && h("div", { class: "note-box" }, one.status_message),
        facts(
          ["State", state(one.status)],
          ["Nodes ready", `${one.nodes_ready} of ${one.nodes}`],
          ["Machines", one.resources_str],
          ["Where", [one.cloud, one.region, one.instance_type].filter(Boolean).join(" / ") || "–"],
          ["Owner", one.user_name],
          ["Since", time(one.launched_at)],
          ["Cost an hour", usd(one.price_per_hour)],
          ["Cost so far", usd(one.cost)],
          ["When idle", idle(one)],
          [
            "Compute",
            page.may("admin")
              ? link(`computes/${to(one.handle.compute_id)}`, id(one.handle.compute_id))
              : id(one.handle.compute_id),
          ],
        ),
        changes(page, one) && whenIdle(page, one),
        section(
          "Jobs",
          jobs.length
            ? table(
                "Jobs",
                [
                  [
                    "Job",
                    (job) =>
                      link(`clusters/${to(name)}/jobs/${job.job_id}`, `${job.job_id} ${job.job_name ?? ""}`),
                  ],
                  ["State", (job) => state(job.status)],
                  ["Submitted", (job) => time(job.submitted_at)],
                  ["Ran for", (job) => between(job.start_at, job.end_at), "num"],
                  ["By", (job) => job.username],
                  ["Exit codes", (job) => job.exit_codes?.join(", ") ?? "–"],
                ],
                jobs,
                (job) => job.job_id,
              )
            : empty("It has no jobs yet.", "", `sky exec ${name} 'nvidia-smi'`),
        ),
      );
    },
    { about: ABOUT },
  );
}

/** What is said of a cluster that is not there, to whoever came by a link. */
const gone = (name) => [
  empty(`There is no cluster ${name}.`, "If it was taken down, what its jobs printed is gone.", "sky status"),
  h("p", {}, link("clusters", "All clusters"), " · ", link("requests?show=all", "What was asked for")),
];

const idle = (one) =>
  one.autostop < 0 ? "stays" : `${one.to_down ? "taken down" : "stopped"} after ${one.autostop} min`;

/** A form that says what becomes of a cluster when it is idle. */
function whenIdle(page, one) {
  const minutes = h("input", {
    name: "minutes",
    type: "number",
    min: "0",
    max: "525600",
    required: true,
    value: String(one.autostop < 0 ? 30 : one.autostop),
  });
  const then = h(
    "select",
    { name: "then" },
    h("option", { value: "stop" }, "stop it"),
    h("option", { value: "down", selected: one.to_down }, "take it down"),
  );
  const set = (idle_minutes, down) =>
    page.act(
      () => request("autostop", { cluster_name: one.name, idle_minutes, down, ...whose(page, one) }),
      idle_minutes < 0
        ? `${one.name} stays when it is idle`
        : `${one.name} is ${down ? "taken down" : "stopped"} after ${idle_minutes} min without work`,
    );
  const submit = (event) => {
    event.preventDefault();
    const told = new FormData(event.currentTarget);
    set(Number(told.get("minutes")), told.get("then") === "down");
  };
  return h(
    "details",
    { "data-key": "idle" },
    h("summary", {}, "When it is idle"),
    h(
      "form",
      { class: "inline", onsubmit: submit },
      field("After minutes", minutes),
      field("Then", then),
      h("button", { type: "submit" }, "Say so"),
      one.autostop >= 0 && button("Let it stay", () => set(-1, false)),
    ),
  );
}

function acts(page, one) {
  if (!changes(page, one)) return null;
  const ask = (name, word, more = {}) =>
    page.act(
      () => submit(name, { cluster_name: one.name, ...whose(page, one), ...more }),
      `asked to ${word} ${one.name}`,
    );
  return h(
    "div",
    { class: "row" },
    one.status === "UP" &&
      button("Stop", async () => {
        if (await sure(`Stop ${one.name}? Its jobs end; its disks stay.`, "Stop it")) ask("stop", "stop");
      }),
    one.status === "STOPPED" && button("Start", () => ask("start", "start")),
    button(
      "Take down",
      async () => {
        if (await sure(`Take ${one.name} down? Its machines and their disks are deleted.`, "Take it down"))
          ask("down", "take down");
      },
      "danger",
    ),
  );
}

export async function clusterJob(page) {
  const [, name, , number] = page.parts;
  const log = new Lines("Output of the job");
  const show = async () => {
    const [one] = await looks.clusters(page, name);
    if (!one) {
      page.show(`Job ${number} of ${name}`, ...gone(name));
      return false;
    }
    const jobs = await looks.jobs(page, name);
    const job = jobs.find((each) => String(each.job_id) === number);
    if (!job) {
      page.show(
        `Job ${number} of ${name}`,
        empty(`${name} has no job ${number}.`, "", `sky queue ${name}`),
        h("p", {}, link(`clusters/${to(name)}`, name)),
      );
      return false;
    }
    const open = ["INIT", "PENDING", "SETTING_UP", "RUNNING"].includes(job.status);
    const cancel = () =>
      page.act(
        () => request("cancel", { cluster_name: name, job_ids: [job.job_id], ...whose(page, one) }),
        `job ${number} is cancelled`,
      );
    page.show(
      `Job ${number} of ${name}`,
      open &&
        changes(page, one) &&
        h("div", { class: "row" }, button("Cancel the job", cancel, "danger")),
      job.error && h("div", { class: "wrong" }, job.error),
      facts(
        ["State", state(job.status)],
        ["Name", job.job_name],
        ["Cluster", link(`clusters/${to(name)}`, name)],
        ["By", job.username],
        ["Submitted", time(job.submitted_at)],
        ["Ran for", between(job.start_at, job.end_at)],
        ["Machines", job.resources],
        ["Exit codes", job.exit_codes?.join(", ")],
      ),
      section("Output", log.box),
    );
    return true;
  };
  let there = false;
  await page.watch(
    async () => {
      there = await show();
    },
    { about: ABOUT },
  );
  if (there) output(page, name, Number(number), log).catch((error) => page.fail(error));
}

async function output(page, name, number, log) {
  let after = 0;
  while (!page.signal.aborted) {
    try {
      const body = {
        cluster_name: name,
        job_id: number,
        follow: true,
        all_users: true,
        ...(after ? {} : { tail: TAIL }),
      };
      for await (const told of lines("POST", "/logs", { body, query: { after }, signal: page.signal })) {
        if ("end" in told) {
          log.add(
            `— ${told.end.toLowerCase()}${told.exit_codes ? `, exit codes ${told.exit_codes.join(", ")}` : ""} —`,
            "note",
          );
          page.again();
          return;
        }
        after = told.place;
        log.add(told.text);
      }
    } catch (error) {
      if (error.code !== "unreachable") throw error;
    }
    await new Promise((later) => setTimeout(later, 1000));
  }
}
