// Launching a task from a form. What it says is checked by the server, which reads every field.

import { call, looks, random, request } from "../api.js";
import { button, bytes, count, field, h, link, section, state, sure, table, to, usd, wrong } from "../dom.js";
import { chosen, dropped, stored, travelling } from "../files.js";

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

/** The files that go along: chosen as a folder or as files, or dropped. `changed` is told of another choice. */
function picker(changed) {
  let found = null;
  const told = h("p", { class: "soft", "aria-live": "polite" }, "No files go along.");
  const none = button("Take none", () => clear(), "plain");
  none.hidden = true;
  const take = async (files) => {
    let given = [];
    told.textContent = "Looking at the files…";
    try {
      given = await files;
      found = given.length ? travelling(given) : null;
      const { files: kept, size, left } = found ?? {};
      told.textContent = found
        ? `${count(kept.length, "file")}, ${bytes(size)}${left ? `; ${left} of caches and environments stay behind` : ""}.`
        : "No files go along.";
      if (kept?.some(({ path }) => path.endsWith(".skyignore")))
        told.textContent += " Its .skyignore is heeded by sky launch, and not here.";
    } catch (error) {
      found = null;
      told.textContent = `No files go along: ${error.message}.`;
    }
    none.hidden = !given.length;
    changed();
  };
  const folder = h("input", { type: "file", webkitdirectory: true, onchange: () => take(chosen(folder.files)) });
  const files = h("input", { type: "file", multiple: true, onchange: () => take(chosen(files.files)) });
  const clear = () => {
    folder.value = files.value = "";
    take([]);
  };
  const box = h(
    "fieldset",
    { class: "drop" },
    h("legend", {}, "Files"),
    h(
      "div",
      { class: "pair" },
      field("A folder", folder, "What is in it; or drop it here."),
      field("Or files, or an archive", files, "A .tar.gz is unpacked on each node."),
    ),
    h("div", { class: "row" }, told, none),
  );
  box.ondragover = (event) => event.preventDefault();
  box.ondrop = (event) => {
    event.preventDefault();
    take(dropped(event.dataTransfer.items));
  };
  return { box, files: () => found?.files ?? [] };
}

function fields(picked) {
  const input = (name, more) => h("input", { name, autocomplete: "off", spellcheck: "false", ...more });
  const area = (name, more) => h("textarea", { name, spellcheck: "false", ...more });
  return [
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
    picked.box,
    field(
      "Set up",
      area("setup", { placeholder: "pip install -r requirements.txt" }),
      "Runs once, on every node, before the task.",
    ),
    field(
      "Run",
      area("run", { placeholder: "python train.py" }),
      "A script for bash, in the folder of the files; on every node at once.",
    ),
    field("Environment", area("envs", { placeholder: "NAME=value" }), "One NAME=value on each line."),
  ];
}

/** The same as a task file, which says it in YAML; texts are written as JSON has them, which YAML reads too. */
function fileOf(task, given) {
  const text = JSON.stringify;
  const block = (name, value) => [`${name}: |${/^\s/.test(value) ? "2" : ""}`, ...value.split("\n").map((line) => `  ${line}`)];
  const resources = ["infra", "cpus", "memory", "accelerators"].filter((name) => given[name]);
  const envs = Object.entries(task.envs);
  return [
    ...(task.name ? [`name: ${text(task.name)}`] : []),
    ...(task.num_nodes > 1 ? [`num_nodes: ${task.num_nodes}`] : []),
    ...(given.files ? ["workdir: ."] : []),
    ...(resources.length || given.spot ? ["resources:"] : []),
    ...resources.map((name) => `  ${name}: ${text(given[name].trim())}`),
    ...(given.spot ? ["  use_spot: true"] : []),
    ...(envs.length ? ["envs:"] : []),
    ...envs.map(([name, value]) => `  ${name}: ${text(value)}`),
    ...(task.setup ? block("setup", task.setup) : []),
    ...(task.run ? block("run", task.run) : []),
  ].join("\n");
}

const together = (one, nodes) =>
  `${nodes} × ${one.instance_type} in ${[one.infra, one.region].filter(Boolean).join(" / ")}: ` +
  `${usd(one.total_cost)} an hour${nodes > 1 ? " together" : ""}.`;

function offers(found) {
  return section(
    "What it would get",
    h("p", {}, h("strong", {}, together(found.chosen, found.num_nodes)), " Nothing was bought."),
    table(
      "Machines that would do",
      [
        ["Where", (one) => [one.infra, one.region].filter(Boolean).join(" / ")],
        ["Machine", (one) => one.instance_type],
        ["Processors", (one) => one.cpus, "num"],
        ["Memory", (one) => `${one.memory_gb} GB`, "num"],
        ["Accelerators", (one) => (one.accelerator ? `${one.accelerator}:${one.accelerator_count}` : "–")],
        ["An hour", (one) => usd(one.total_cost), "num"],
        ["", (one) => (one.chosen ? h("strong", {}, "✓ taken") : "")],
      ],
      found.candidates,
      (one) => JSON.stringify(one),
    ),
    found.passed_over.length > 0 &&
      h(
        "details",
        {},
        h("summary", {}, `Passed over: ${found.passed_over.length}`),
        h(
          "ul",
          {},
          found.passed_over.map((one) => h("li", {}, `${one.what}: ${one.reason}`)),
        ),
      ),
  );
}

const there = (one) =>
  section(
    "Where it would run",
    h("p", {}, "On ", link(`clusters/${to(one.name)}`, one.name), ", which is there: ", state(one.status)),
    h("p", {}, `${one.resources_str}: ${usd(one.price_per_hour)} an hour as before. Nothing was bought.`),
  );

export async function launch(page) {
  const said = h("div", { "aria-live": "polite" });
  let once = random();
  const changed = () => {
    once = random();
  };
  const picked = picker(changed);
  const form = h(
    "form",
    {
      class: "form card",
      onsubmit: (event) => {
        event.preventDefault();
        doing(send);
      },
      oninput: changed,
    },
    fields(picked),
    h(
      "div",
      { class: "row" },
      h("button", { class: "main", type: "submit" }, "Launch"),
      h("button", { type: "button", onclick: () => doing(dry) }, "Dry run: machine and price"),
    ),
  );
  const tell = (...content) => said.replaceChildren(...content.filter(Boolean));
  const doing = async (what) => {
    const buttons = form.querySelectorAll("button");
    for (const one of buttons) one.disabled = true;
    tell(h("p", { class: "soft" }, "The server looks…"));
    try {
      const told = Object.fromEntries([...new FormData(form)]);
      await what(taskOf(told), told.cluster);
    } catch (error) {
      if (error.name !== "AbortError") tell(wrong(error));
    } finally {
      for (const one of buttons) one.disabled = false;
    }
  };
  /** What it would run on: a cluster that is there, or the offers for a new one. */
  const look = async (task, name) => {
    await request("validate", { tasks: [task] }, { signal: page.signal });
    const [cluster] = name ? await looks.clusters(page, name) : [];
    if (cluster && cluster.status !== "STOPPED") return { cluster };
    return { found: (await request("optimize", { tasks: [task] }, { signal: page.signal }))[0] };
  };
  const dry = async (task, name) => {
    const { cluster, found } = await look(task, name);
    const file = fileOf(task, { ...Object.fromEntries(new FormData(form)), files: picked.files().length > 0 });
    tell(
      cluster ? there(cluster) : offers(found),
      file &&
        section(
          "The same as a task file",
          h("p", { class: "soft" }, `Kept as task.yaml: sky launch ${name ? `-c ${name} ` : ""}task.yaml`),
          h("pre", { class: "command", tabindex: "0", id: "file" }, file),
        ),
    );
  };
  const send = async (task, name) => {
    const { found } = await look(task, name);
    const costs = found && found.chosen.total_cost > 0;
    if (costs && !(await sure(`It gets ${together(found.chosen, found.num_nodes)} Launch it?`, "Launch it"))) {
      tell(offers(found));
      return;
    }
    const files = picked.files();
    if (files.length) {
      tell(h("p", { class: "soft" }, `Sending ${count(files.length, "file")}…`));
      task.files = [{ target: ".", sha256: await stored(files, page.signal) }];
    }
    const body = { task, ...(name ? { cluster_name: name } : {}) };
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
