// Elements from values: the only place that makes them, and text is only ever set as text.
// Decides: how times, money, states, tables and empty places look. Never: turns a string into markup.
// Follows: what is shown again is changed in place, so the focus and the place of a reader stay.

const SVG = "http://www.w3.org/2000/svg";
const LINKS = /^(\/(?!\/)|#|https:\/\/|http:\/\/127\.0\.0\.1)/;

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node[name] = value;
    else if (name === "style")
      for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name === "value" || name === "checked") node[name] = value;
    else if (name === "href" && !LINKS.test(value)) continue;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(node, child);
    else if (child instanceof Node) node.append(child);
    else if (child !== null && child !== undefined && child !== false) node.append(String(child));
  }
}

// ── showing again ───────────────────────────────────────────────────────────────────────────────

const HANDLERS = ["onclick", "onsubmit", "oninput", "onchange", "onkeydown"];

/** Make `old` like `fresh`. A node with data-keep keeps its content; one with data-key is known by it. */
export function morph(old, fresh) {
  const rest = [...old.childNodes];
  const keyed = new Map(rest.filter((one) => one.dataset?.key).map((one) => [one.dataset.key, one]));
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = wanted.dataset?.key;
    let found = key ? keyed.get(key) : at;
    if (found && !key && found.dataset?.key) found = null;
    if (!found || !alike(found, wanted)) {
      old.insertBefore(wanted, at);
      continue;
    }
    if (found !== at) old.insertBefore(found, at);
    else at = at.nextSibling;
    same(found, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName;
}

function same(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  const open = old.nodeName === "DETAILS" && old.open;
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (open) old.open = true;
  for (const name of HANDLERS) if (old[name] || fresh[name]) old[name] = fresh[name];
  if (!("keep" in fresh.dataset)) morph(old, fresh);
}

// ── values ──────────────────────────────────────────────────────────────────────────────────────

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

export function moment(value) {
  if (value === null || value === undefined) return null;
  const date = typeof value === "number" ? new Date(value * 1000) : new Date(value);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** How long ago, or until when; the exact moment of the reader's zone stands in its title. */
export function time(value) {
  const date = moment(value);
  if (date === null) return h("span", { class: "soft" }, "–");
  return h("time", { datetime: date.toISOString(), title: EXACT.format(date) }, ago(date));
}

const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", timeZone: "UTC" });

/** The day that a text such as 2026-01-31 names. Days of money are those of UTC, for every reader. */
export const day = (text) => `${DAY.format(new Date(text))} (UTC)`;

export function ago(date) {
  const seconds = (Date.now() - date.getTime()) / 1000;
  if (Math.abs(seconds) < 2) return "now";
  return seconds > 0 ? `${lasted(seconds, true)} ago` : `in ${lasted(-seconds, true)}`;
}

export function lasted(seconds, roughly = false) {
  if (!(seconds >= 0)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  for (const [size, unit] of UNITS) {
    if (seconds < size) continue;
    const whole = Math.floor(seconds / size);
    const left = UNITS[UNITS.findIndex(([one]) => one === size) + 1];
    const more = left && whole < 10 && !(roughly && size <= 60) ? Math.floor((seconds % size) / left[0]) : 0;
    return more ? `${whole} ${unit} ${more} ${left[1]}` : `${whole} ${unit}`;
  }
  return "0 s";
}

export function between(from, until) {
  const [start, end] = [moment(from), moment(until)];
  if (start === null) return "–";
  const seconds = ((end ?? new Date()).getTime() - start.getTime()) / 1000;
  // Customers are told moments in whole seconds, which say nothing of what is within one.
  return Number.isInteger(from) && seconds < 1 ? "< 1 s" : lasted(seconds);
}

export function usd(value) {
  const number = Number(value);
  if (value === null || value === undefined || Number.isNaN(number)) return "–";
  const exact = typeof value === "string"; // what is paid is told to the last place, what machines cost is not
  const digits = exact ? 6 : number !== 0 && Math.abs(number) < 1 ? 4 : 2;
  return new Intl.NumberFormat(undefined, {
    style: "currency",
    currency: "USD",
    minimumFractionDigits: 2,
    maximumFractionDigits: digits,
  }).format(number);
}

export function count(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let [left, unit] = [Number(value), 0];
  while (Math.abs(left) >= 1024 && unit < 5) [left, unit] = [left / 1024, unit + 1];
  return `${left < 10 && unit ? left.toFixed(1) : Math.round(left)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

// A state is a sign, a word and a colour: two of them say it without the third.
const KINDS = {
  good: ["✓", "ready UP succeeded SUCCEEDED active ok live healthy published delivered enabled"],
  busy: [
    "▸",
    "running RUNNING started provisioning connecting bootstrapping recovering assigned dispatching accepted INIT SETTING_UP",
  ],
  wait: [
    "◦",
    "queued PENDING WAITING requested created STOPPED AUTOSTOPPING stopped draining deleting cancel_requested pending",
  ],
  bad: [
    "✕",
    "failed FAILED FAILED_SETUP FAILED_DRIVER timed_out lost degraded interrupted unreachable suspended",
  ],
  odd: ["?", "indeterminate"],
  over: ["–", "deleted CANCELLED cancelled closed revoked expired disabled"],
};
const KIND_OF = new Map(
  Object.entries(KINDS).flatMap(([kind, [, words]]) => words.split(" ").map((word) => [word, kind])),
);

export function state(word) {
  const kind = KIND_OF.get(word) ?? "over";
  const text = String(word ?? "unknown")
    .replaceAll("_", " ")
    .toLowerCase();
  return h(
    "span",
    { class: `state ${kind}` },
    h("span", { class: "sign", "aria-hidden": "true" }, KINDS[kind][0]),
    text,
  );
}

export function kindOf(word) {
  return KIND_OF.get(word) ?? "over";
}

export function link(path, ...text) {
  return h("a", { href: `/dashboard/${path}` }, ...text);
}

/** A path of the dashboard from its parts, each of which may hold any characters. */
export function to(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/** An id by its end, since they begin alike; the whole of it stands in the title. */
export function id(value) {
  if (!value) return h("span", { class: "soft" }, "–");
  const text = String(value);
  const [prefix, body] = text.includes("_") ? text.split("_", 2) : ["", text];
  const short = body.length > 10 ? `…${body.slice(-8)}` : body;
  return h("code", { title: text }, prefix ? `${prefix}_${short}` : short);
}

// ── parts of pages ──────────────────────────────────────────────────────────────────────────────

export function empty(title, hint, command) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "empty-title" }, title),
    hint && h("p", { class: "soft" }, hint),
    command && h("pre", { class: "command", tabindex: "0" }, command),
  );
}

/** columns: [label, cell(row), class?]; rows are known again by key(row). */
export function table(label, columns, rows, key) {
  const cells = rows.map((row) => columns.map(([, cell]) => cell(row)));
  // What is seldom there, such as an error, has a column only where it is.
  const said = (at) => columns[at][2] !== "wide" || cells.some((one) => one[at] !== "");
  const shown = columns.map((_, at) => at).filter(said);
  const heads = shown.map((at) => h("th", { scope: "col", class: columns[at][2] }, columns[at][0]));
  const body = rows.map((row, number) => {
    const line = shown.map((at) => h("td", { class: columns[at][2] }, cells[number][at]));
    return h("tr", { "data-key": `k${key(row)}` }, line);
  });
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)),
  );
}

export function section(title, ...content) {
  return h("section", { "data-key": `s${title}` }, h("h2", {}, title), ...content);
}

/** Names and their values. */
export function facts(...pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value ?? "–"))),
  );
}

export function tiles(...content) {
  return h("div", { class: "tiles" }, content.filter(Boolean));
}

export function tile(label, value, more, href) {
  const inner = [
    h("span", { class: "tile-label" }, label),
    h("span", { class: "tile-value" }, value),
    h("span", { class: "tile-more" }, more ?? " "),
  ];
  return href
    ? h("a", { class: "tile", href: `/dashboard/${href}` }, inner)
    : h("div", { class: "tile" }, inner);
}

export function button(text, act, kind) {
  return h("button", { type: "button", class: kind, onclick: act }, text);
}

export function field(label, control, hint) {
  const name = `f-${label.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  control.id = name;
  if (hint) control.setAttribute("aria-describedby", `${name}-hint`);
  return h(
    "div",
    { class: "field" },
    h("label", { for: name }, label),
    control,
    hint && h("span", { class: "hint", id: `${name}-hint` }, hint),
  );
}

export function wrong(error) {
  return h(
    "div",
    { class: "wrong", role: "alert" },
    h("strong", {}, error.title ?? "That did not work"),
    h("p", {}, error.message),
    error.code && h("p", { class: "soft" }, `${error.code}${error.status ? ` · ${error.status}` : ""}`),
  );
}

const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
const LINES_MAX = 5000;

/** A box of lines that follows its end while its reader is there. */
export class Lines {
  constructor(label) {
    this.box = h("pre", {
      class: "lines",
      tabindex: "0",
      role: "log",
      "aria-label": label,
      "data-keep": true,
      "data-key": `log-${label}`,
    });
    this.waiting = [];
  }

  add(text, kind) {
    const shown = String(text)
      .replace(ESCAPES, "")
      .replace(/^.*\r(?=.)/gm, "");
    this.waiting.push(h("span", { class: kind }, `${shown}\n`));
    if (this.waiting.length === 1) requestAnimationFrame(() => this.flush());
  }

  flush() {
    const { box } = this;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    box.append(...this.waiting.splice(0));
    while (box.childElementCount > LINES_MAX) box.firstElementChild.remove();
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  clear() {
    this.waiting.length = 0;
    this.box.replaceChildren();
  }
}

/** Ask before something that cannot be taken back. */
export function sure(question, word) {
  return new Promise((answered) => {
    const box = h(
      "dialog",
      { "aria-label": question },
      h("p", {}, question),
      h(
        "div",
        { class: "row" },
        button(word, () => box.close("yes"), "danger"),
        button("Leave it", () => box.close("no")),
      ),
    );
    box.addEventListener("close", () => {
      box.remove();
      answered(box.returnValue === "yes");
    });
    document.body.append(box);
    box.showModal();
  });
}

let telling = 0;
export function say(text) {
  const place = document.getElementById("says");
  place.replaceChildren(h("span", {}, text));
  clearTimeout(telling);
  telling = setTimeout(() => place.replaceChildren(), 8000);
}
