// Small drawings: a line of what was measured last, bars of days, and spans of time on one line.
// Decides: their scales. Never: says something that does not also stand beside it in words.

import { between, day, h, lasted, moment, s, usd } from "./dom.js";

const POINTS = 60;
const WIDTH = 300;
const HEIGHT = 40;

/** The last values of something, oldest first; `top` is the value at the upper edge, or the greatest one. */
export function line(label, values, top) {
  const most = top ?? Math.max(1e-9, ...values);
  const at = (value, index) => [
    WIDTH - (values.length - 1 - index) * (WIDTH / (POINTS - 1)),
    HEIGHT - 1 - Math.min(1, value / most) * (HEIGHT - 3),
  ];
  const points = values.map((value, index) =>
    at(value, index)
      .map((one) => one.toFixed(1))
      .join(" "),
  );
  const box = {
    class: "chart",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  };
  if (points.length < 2) return s("svg", box);
  const [first] = at(values[0], 0);
  return s(
    "svg",
    box,
    s("path", {
      class: "area",
      d: `M${first.toFixed(1)} ${HEIGHT} L${points.join(" L")} L${WIDTH} ${HEIGHT} Z`,
    }),
    s("path", { class: "stroke", d: `M${points.join(" L")}` }),
  );
}

/** The newest values of each name, as many as a line shows. */
export class Series {
  constructor() {
    this.values = new Map();
  }

  add(name, value) {
    const held = this.values.get(name) ?? [];
    held.push(value);
    if (held.length > POINTS) held.shift();
    this.values.set(name, held);
  }

  of(name) {
    return this.values.get(name) ?? [];
  }
}

/** What each day cost: [{day, cost}], oldest first. */
export function days(label, found) {
  const most = Math.max(...found.map((one) => one.cost), 1e-9);
  const total = found.reduce((sum, one) => sum + one.cost, 0);
  return h(
    "div",
    { class: "card" },
    h(
      "div",
      { class: "bars", role: "img", "aria-label": `${label}: ${usd(total)} together` },
      found.map((one) =>
        h("div", {
          class: one.cost ? "bar" : "bar none",
          title: `${day(one.day)}: ${usd(one.cost)}`,
          style: { height: `${(one.cost / most) * 100}%` },
        }),
      ),
    ),
    h(
      "div",
      { class: "bars-foot" },
      h("span", {}, found.length ? day(found[0].day) : ""),
      h("span", {}, `most on a day: ${usd(most <= 1e-9 ? 0 : most)}`),
      h("span", {}, found.length ? day(found.at(-1).day) : ""),
    ),
  );
}

/** Spans of time on one scale: [{label, from, until, state, title}]. */
export function spans(label, found) {
  const starts = found.map((one) => moment(one.from)?.getTime()).filter(Boolean);
  if (!starts.length) return null;
  const now = Date.now();
  const first = Math.min(...starts);
  const last = Math.max(...found.map((one) => moment(one.until)?.getTime() ?? now), first + 1);
  const share = (at) => `${((at - first) / (last - first)) * 100}%`;
  const rows = found.map((one) => {
    const from = moment(one.from)?.getTime();
    const until = moment(one.until)?.getTime() ?? now;
    const drawn =
      from &&
      h("div", {
        class: `span ${one.kind}`,
        title: one.title,
        style: { left: share(from), width: share(first + (until - from)) },
      });
    return h(
      "div",
      { class: "span-row", "data-key": `a${one.label}` },
      h("span", {}, one.label),
      h("div", { class: "track" }, drawn),
      h("span", { class: "soft" }, from ? between(one.from, one.until) : "–"),
    );
  });
  return h(
    "div",
    { class: "card", role: "group", "aria-label": label },
    rows,
    h("p", { class: "soft" }, `over ${lasted((last - first) / 1000)}`),
  );
}
