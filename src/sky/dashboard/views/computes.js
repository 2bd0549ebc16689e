// Computes and their nodes, with gauges as they are told.

import { all, call, get } from "../api.js";
import { Series, line } from "../chart.js";
import {
  between,
  button,
  bytes,
  empty,
  facts,
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
import { follow } from "../live.js";

const GAUGES = [
  ["cpu_percent", "Processors", (value) => `${Math.round(value)} %`, () => 100],
  ["memory_used_bytes", "Memory", bytes, (of) => of("memory_total_bytes")],
  ["disk_used_bytes", "Disk", bytes, (of) => of("disk_total_bytes")],
  ["network_received_bytes_per_second", "Received a second", bytes],
  ["network_sent_bytes_per_second", "Sent a second", bytes],
];
const SHADOWS = new Set(["memory_total_bytes", "disk_total_bytes"]);
const GONE = new Set(["deleted", "failed"]);
const DRAW_MS = 250;

export async function computes(page) {
  await page.watch(async () => {
    const found = await all("/v1/computes", {}, { signal: page.signal });
    const live = found.filter((one) => one.status.state !== "deleted");
    page.show(
      "Computes",
      found.length
        ? table(
            "Computes",
            [
              ["Compute", (one) => link(`computes/${to(one.id)}`, one.name ?? id(one.id))],
              ["State", (one) => state(one.status.state)],
              ["Nodes", (one) => `${one.status.nodes_ready} of ${one.spec.nodes.desired}`, "num"],
              [
                "From",
                (one) => [...new Set(one.spec.specs.map((spec) => spec.provider.kind))].join(", ") || "–",
              ],
              ["Made", (one) => time(one.created_at)],
              ["An hour", (one) => usd(one.status.price_per_hour), "num"],
              ["So far", (one) => usd(one.status.cost), "num"],
              ["Trouble", (one) => one.status.last_error?.message ?? "", "wide"],
            ],
            live.length ? live : found,
            (one) => one.id,
          )
        : empty(
            "There is no compute.",
            "A program makes one, or a command:",
            "sky compute create first --provider local --nodes 2",
          ),
    );
  });
}

export async function compute(page) {
  const wanted = page.parts[1];
  const gauges = new Map();
  let nodes = [];
  let one = null;
  const cards = h("div", { class: "cards", "data-keep": true, "data-key": "cards" });
  const draw = () =>
    cards.replaceChildren(
      ...nodes.filter((node) => !GONE.has(node.state)).map((node) => card(node, gauges.get(node.id))),
    );
  await page.watch(
    async () => {
      [one, nodes] = await Promise.all([
        get(`/v1/computes/${to(wanted)}`, {}, page.signal),
        all(`/v1/computes/${to(wanted)}/nodes`, { include_terminal: true }, { signal: page.signal }),
      ]);
      for (const node of nodes) {
        if (gauges.has(node.id)) continue;
        gauges.set(node.id, new Series());
        for (const [name, value] of Object.entries(node.metrics)) gauges.get(node.id).add(name, value);
      }
      const decisions = (await get("/v1/loops", { key: `computes/${one.id}` }, page.signal)).items;
      show(page, one, nodes, decisions, cards);
      draw();
    },
    { about: (event) => event.data.compute === one?.id, moves: true },
  );
  if (one === null) return;
  let waiting = 0;
  follow(
    { types: "node.metrics", compute: one.id },
    {
      signal: page.signal,
      heed: ({ data }) => {
        gauges.get(data.node)?.add(data.name, data.value);
        waiting ||= setTimeout(() => {
          waiting = 0;
          draw();
        }, DRAW_MS);
      },
    },
  ).catch((error) => page.fail(error));
}

function show(page, one, nodes, decisions, cards) {
  const remove = async () => {
    const name = one.name ?? one.id;
    if (await sure(`Delete ${name}? Its machines are given back, and what runs there ends.`, "Delete it")) {
      await page.act(
        () => call("DELETE", `/v1/computes/${to(one.id)}`, { headers: { "if-match": "*" } }),
        `${name} is being deleted`,
      );
    }
  };
  page.show(
    one.name ?? one.id,
    one.status.state !== "deleted" &&
      h(
        "div",
        { class: "row" },
        link(`console?compute=${encodeURIComponent(one.id)}`, "Console"),
        link(`tasks?compute=${encodeURIComponent(one.id)}`, "Tasks"),
        link(`events?compute=${encodeURIComponent(one.id)}`, "Events"),
        button("Delete", remove, "danger"),
      ),
    one.status.last_error && h("div", { class: "note-box" }, one.status.last_error.message),
    one.status.drift.length > 0 &&
      h(
        "div",
        { class: "note-box" },
        `Asked for and not applied yet: ${one.status.drift.join(", ")}. A new generation applies it.`,
      ),
    facts(
      ["State", state(one.status.state)],
      ["Nodes ready", `${one.status.nodes_ready} of ${one.spec.nodes.desired}`],
      ["Id", id(one.id)],
      ["Generation", `${one.generation}, seen ${one.status.observed_generation}`],
      ["Held by", one.lease.owner ?? "nobody"],
      ["Made", time(one.created_at)],
      ["Cost an hour", usd(one.status.price_per_hour)],
      ["Cost so far", usd(one.status.cost)],
    ),
    section("Nodes now", cards),
    section(
      "Every node it had",
      nodes.length
        ? table(
            "Every node it had",
            [
              ["Node", (node) => id(node.id)],
              ["Rank", (node) => node.rank, "num"],
              ["State", (node) => state(node.state)],
              [
                "Machine",
                (node) =>
                  [node.provider_binding.kind, node.provider_binding.instance_type]
                    .filter(Boolean)
                    .join(" / ") || "–",
              ],
              ["Address", (node) => node.address ?? "–"],
              ["Had for", (node) => between(node.launched_at, node.terminated_at), "num"],
              ["An hour", (node) => usd(node.price_per_hour), "num"],
              ["Trouble", (node) => node.last_error?.message ?? "", "wide"],
            ],
            nodes,
            (node) => node.id,
          )
        : empty("It has had no nodes yet.", "Why, the loops tell:", `sky why ${one.id}`),
    ),
    section(
      "What was decided last",
      decisions.length
        ? table(
            "What was decided last",
            [
              ["By", (each) => each.loop],
              ["What", (each) => each.decision, "wide"],
              ["When", (each) => time(each.decided_at)],
              ["Looks again", (each) => (each.next_at ? time(each.next_at) : "when something happens")],
            ],
            decisions,
            (each) => each.key,
          )
        : empty("Nothing is noted about it."),
    ),
    h(
      "details",
      {},
      h("summary", {}, "What was asked for"),
      h("pre", { class: "command", tabindex: "0" }, JSON.stringify(one.spec, null, 2)),
    ),
  );
}

function card(node, series) {
  const last = (name) => series?.of(name).at(-1);
  const known = GAUGES.filter(([name]) => last(name) !== undefined);
  const others = [...(series?.values.keys() ?? [])].filter(
    (name) => !SHADOWS.has(name) && !GAUGES.some(([one]) => one === name),
  );
  const gauge = (label, name, text, top) => {
    const most = top?.(last);
    const shown = most && text === bytes ? `${bytes(last(name))} of ${bytes(most)}` : text(last(name));
    return h(
      "div",
      { class: "gauge" },
      h("span", { class: "soft" }, label),
      h("span", {}, shown),
      line(`${label}: ${shown}`, series.of(name), most),
    );
  };
  return h(
    "article",
    { class: "card", "aria-label": `Node of rank ${node.rank}` },
    h("div", { class: "row" }, h("strong", {}, `Rank ${node.rank}`), state(node.state)),
    h("div", { class: "soft" }, node.provider_binding.instance_type ?? "", " ", node.accelerator ?? ""),
    known.map(([name, label, text, top]) => gauge(label, name, text, top)),
    others.map((name) => gauge(name, name, (value) => String(value))),
    !known.length && !others.length && h("p", { class: "soft" }, "It has told no gauges yet."),
  );
}
