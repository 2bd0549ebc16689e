// What happens, and what nodes print, as it comes.

import { Lines, button, empty, field, h, id, link, table, time, to } from "../dom.js";
import { STATES, follow } from "../live.js";

const MOST = 300;
const COLOURS_OF_RANKS = 6;

export async function console_(page) {
  const of = page.query.get("compute") ?? "";
  const log = new Lines("Output of nodes");
  const place = h("input", {
    value: of,
    placeholder: "all",
    onchange: (event) => page.go(`console?compute=${encodeURIComponent(event.target.value.trim())}`),
  });
  page.show(
    "Console",
    h(
      "p",
      { class: "lead" },
      of
        ? "Everything its nodes have printed, and what they print now."
        : "What any node prints from now on. Name a compute to see all that it has printed.",
    ),
    h(
      "div",
      { class: "inline" },
      field("Compute", place, "Its name or id."),
      button("Clear", () => log.clear()),
    ),
    log.box,
  );
  follow(
    { types: "node.console", ...(of ? { compute: of } : {}) },
    {
      signal: page.signal,
      heed: ({ data }) => {
        const rank = data.rank ?? 0;
        for (const text of data.content.split("\n"))
          log.add(
            `${of ? "" : `${data.compute.slice(-6)} `}[${rank}] ${text}`,
            data.stream === "stderr" ? "err" : `rank${rank % COLOURS_OF_RANKS}`,
          );
      },
    },
  ).catch((error) => page.fail(error));
}

const told = ({ type, compute, node, task, at, ...rest }) =>
  Object.entries(rest)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");

export async function events(page) {
  const of = page.query.get("compute") ?? "";
  const found = [];
  let waiting = 0;
  const place = h("input", {
    value: of,
    placeholder: "all",
    onchange: (event) => page.go(`events?compute=${encodeURIComponent(event.target.value.trim())}`),
  });
  const show = () => {
    waiting = 0;
    page.show(
      "Events",
      h("div", { class: "inline" }, field("Compute", place, "Its name or id: all it has told.")),
      found.length
        ? table(
            "Events",
            [
              ["Number", (one) => one.id, "fit"],
              ["Came", (one) => time(one.came), "fit"],
              ["Event", (one) => one.name],
              [
                "Compute",
                (one) =>
                  one.data.compute ? link(`computes/${to(one.data.compute)}`, id(one.data.compute)) : "–",
              ],
              [
                "Task or node",
                (one) =>
                  one.data.task ? link(`tasks/${to(one.data.task)}`, id(one.data.task)) : id(one.data.node),
              ],
              ["More", (one) => told(one.data), "wide"],
            ],
            found,
            (one) => one.id,
          )
        : empty(
            "Nothing has happened since this page was opened.",
            "Events come as they happen:",
            "sky compute create first --provider local",
          ),
    );
  };
  show();
  follow(
    { types: STATES.join(","), ...(of ? { compute: of } : {}) },
    {
      signal: page.signal,
      heed: (event) => {
        found.unshift({ ...event, came: new Date().toISOString() });
        found.length = Math.min(found.length, MOST);
        waiting ||= setTimeout(show, 200);
      },
    },
  ).catch((error) => page.fail(error));
}
