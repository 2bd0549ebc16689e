// Launching a task from a form. What it says is checked by the server, which reads every field.

import { random, request, call } from "../api.js";
import { field, h, section, table, to, usd, wrong } from "../dom.js";

const number = (text, name) => {
  const match = /^(\d+(?:\.\d+)?)(\+?)$/.exec(text.trim());
  if (!match) throw new Error(`${name} is a number, or one with a + for at least; it is "${text}"`);
  return [Number(match[1]), match[2] === ""];
};

function machineOf(given) {
  const machine = {};
  if (given.infra) machine.infra = given.infra;
  if (given.cpus) [machine.cpus, machine.cpus_exact] = number(given.cpus, "cpus");
  if (given.memory) [machine.memory_gb, machine.memory_exact] = number(given.memory, "memory");
  if (given.accelerators) {
    const [name, count = "1", more] = given.accelerators.split(":");
    if (!name || more !== undefined || !/^\d+$/.test(count))
      throw new Error(`accelerators is a name, or NAME:COUNT; it is "${given.accelerators}"`);
    machine.accelerator = name;
    machine.accelerator_count = Number(count);
  }
  if (given.spot) machine.use_spot = true;
  return machine;
}

function envsOf(text) {
  const envs = {};
  for (const line of text
    .split("\n")
    .map((one) => one.trim())
    .filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`each line of the environment is NAME=value; one is "${line}"`);
    envs[line.slice(0, at)] = line.slice(at + 1);
  }
  return envs;
}

function taskOf(given) {
  return {
    name: given.name || null,
    num_nodes: Number(given.nodes) || 1,
    machines: [machineOf(given)],
    envs: envsOf(given.envs),
    setup: given.setup || null,
    run: given.run || null,
  };
}

export async function launch(page) {
  const input = (name, more) => h("input", { name, autocomplete: "off", spellcheck: "false", ...more });
  const area = (name, more) => h("textarea", { name, spellcheck: "false", ...more });
  const said = h("div", { "aria-live": "polite" });
  let once = random();
  const form = h(
    "form",
    {
      class: "form card",
      onsubmit: (event) => {
        event.preventDefault();
        doing(send);
      },
      oninput: () => {
        once = random();
      },
    },
    h(
      "div",
      { class: "pair" },
      field(
        "Cluster",
        input("cluster", { placeholder: "dev" }),
        "It is made if there is none. Empty: a new one.",
      ),
      field("Name of the task", input("name", { placeholder: "train" })),
    ),
    h(
      "div",
      { class: "pair" },
      field("Nodes", input("nodes", { type: "number", min: "1", max: "1000", value: "1" })),
      field("Processors", input("cpus", { placeholder: "4+" })),
      field("Memory in GB", input("memory", { placeholder: "16+" })),
      field("Accelerators", input("accelerators", { placeholder: "A100:8" })),
      field("Where", input("infra", { placeholder: "anywhere" })),
    ),
    h("label", { class: "check" }, h("input", { type: "checkbox", name: "spot" }), "Spot machines"),
    field(
      "Set up",
      area("setup", { placeholder: "pip install -r requirements.txt" }),
      "Runs once, on every node, before the task.",
    ),
    field(
      "Run",
      area("run", { placeholder: "python train.py" }),
      "A script for bash; on every node at once.",
    ),
    field("Environment", area("envs", { placeholder: "NAME=value" }), "One NAME=value on each line."),
    h(
      "div",
      { class: "row" },
      h("button", { class: "main", type: "submit" }, "Launch"),
      h("button", { type: "button", onclick: () => doing(look) }, "Which machine would it get?"),
    ),
  );
  const given = () => Object.fromEntries([...new FormData(form)]);
  const doing = async (what) => {
    const buttons = form.querySelectorAll("button");
    for (const one of buttons) one.disabled = true;
    said.replaceChildren(h("p", { class: "soft" }, "The server looks…"));
    try {
      await what(taskOf(given()), given());
    } catch (error) {
      if (error.name !== "AbortError") said.replaceChildren(wrong(error));
    } finally {
      for (const one of buttons) one.disabled = false;
    }
  };
  const look = async (task) => {
    const [found] = await request("optimize", { tasks: [task] }, { signal: page.signal });
    said.replaceChildren(
      section(
        "Machines that would do",
        table(
          "Machines that would do",
          [
            ["Where", (one) => [one.infra, one.region].filter(Boolean).join(" / ")],
            ["Machine", (one) => one.instance_type],
            ["Processors", (one) => one.cpus, "num"],
            ["Memory", (one) => `${one.memory_gb} GB`, "num"],
            [
              "Accelerators",
              (one) => (one.accelerator ? `${one.accelerator}:${one.accelerator_count}` : "–"),
            ],
            ["An hour", (one) => usd(one.total_cost), "num"],
            ["", (one) => (one.chosen ? h("strong", {}, "✓ taken") : "")],
          ],
          found.candidates,
          (one) => JSON.stringify(one),
        ),
      ),
    );
  };
  const send = async (task, told) => {
    await request("validate", { tasks: [task] }, { signal: page.signal });
    const body = { task, ...(told.cluster ? { cluster_name: told.cluster } : {}) };
    const { record } = await call("POST", "/launch", { body, headers: { "idempotency-key": once } });
    page.go(`requests/${to(record.request_id)}`);
  };
  page.show(
    "Launch",
    h(
      "p",
      { class: "lead" },
      "A task runs on a cluster: machines that are got for it, and kept until you take them down.",
    ),
    form,
    said,
  );
}
