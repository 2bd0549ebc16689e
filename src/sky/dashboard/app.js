// The frame of the dashboard: which path is which view, who looks, and how a view is left.
// Decides: the links of the navigation, by role. Never: asks for what a view shows.
// Follows: every view has an address of its own; what a view has begun ends when it is left.

import { Refusal, Unreachable, get, isAway, onAway, token } from "./api.js";
import { ago, button, h, moment, morph, say, wrong } from "./dom.js";
import { begin, onMove } from "./live.js";
import { decoded, nearest } from "./near.js";
import { account, accounts } from "./views/accounts.js";
import { cluster, clusterJob, clusters } from "./views/clusters.js";
import { compute, computes } from "./views/computes.js";
import { console_, events } from "./views/events.js";
import { job, jobs, prices } from "./views/jobs.js";
import { costs } from "./views/costs.js";
import { launch } from "./views/launch.js";
import { login } from "./views/login.js";
import { overview } from "./views/overview.js";
import { request, requests } from "./views/requests.js";
import { settings } from "./views/settings.js";
import { sold } from "./views/sold.js";
import { task, tasks } from "./views/tasks.js";
import { users } from "./views/users.js";
import { webhook } from "./views/webhooks.js";

const ROOT = "/dashboard";
const LOOK_AGAIN_S = 10;
const SETTLE_MS = 250;
const QUIET_MS = 30000;
const AWAY_MS = 2000;
const LOADING_MS = 300;
const ROLES = ["viewer", "user", "admin"];

// [path, view, title, least role, group]; a path with a * stands for any part.
const VIEWS = [
  ["", overview, "Overview", "viewer", "Now"],
  ["costs", costs, "Costs", "viewer", "Now"],
  ["clusters", clusters, "Clusters", "viewer", "Work"],
  ["clusters/*", cluster, null, "viewer"],
  ["clusters/*/jobs/*", clusterJob, null, "viewer"],
  ["launch", launch, "Launch", "user", "Work"],
  ["requests", requests, "Requests", "viewer", "Work"],
  ["requests/*", request, null, "viewer"],
  ["computes", computes, "Computes", "admin", "Machines"],
  ["computes/*", compute, null, "admin"],
  ["tasks", tasks, "Tasks", "admin", "Machines"],
  ["tasks/*", task, null, "admin"],
  ["console", console_, "Console", "admin", "Machines"],
  ["events", events, "Events", "admin", "Machines"],
  ["jobs", jobs, "Paid jobs", null, "Sold"],
  ["jobs/*", job, null, null],
  ["sold/*", sold, null, "admin"],
  ["prices", prices, "Prices", null, "Sold"],
  ["accounts", accounts, "Accounts", "admin", "Sold"],
  ["accounts/*", account, null, "admin"],
  ["accounts/*/webhooks/*", webhook, null, "admin"],
  ["users", users, "Users and tokens", "viewer", "Server"],
  ["settings", settings, "Health and settings", "viewer", "Server"],
  ["login", login, null, null],
];

const LINKED = VIEWS.filter(([, , title]) => title !== null).map(([path]) => path);

const here = () => location.pathname + location.search;
const side = document.getElementById("side");
const main = document.getElementById("main");
let me = null;
let health = null;
let leaving = new AbortController();
let stream = null;
let streamed = "away";
let current = null;
let at = null;
let refused = null; // why a token that was held is not any more

export const may = (role) => role === null || (me !== null && ROLES.indexOf(me.role) >= ROLES.indexOf(role));

/** What a view works with. */
class Page {
  constructor(parts, signal, title = null) {
    Object.assign(this, { parts, signal, title, query: new URLSearchParams(location.search), shown: false });
    this.me = me;
    this.health = health;
    this.may = may;
    this.go = go;
    this.refused = refused;
  }

  /** Show this, in the place of what was shown before. */
  show(title, ...content) {
    if (this.signal.aborted) return;
    document.title = `${title} · Skyfleet`;
    const fresh = h("main", {}, h("h1", { tabindex: "-1" }, title), ...content);
    if (this.shown) morph(main, fresh);
    else main.replaceChildren(...fresh.childNodes);
    if (!this.shown && moved) main.querySelector("h1").focus({ preventScroll: true });
    this.shown = true;
  }

  /** Look now, whenever something moved that `about` says yes to, and every few seconds while it is seen;
   *  `moves`: events tell all that changes, so while they come there is little to look for. */
  async watch(look, { seconds = LOOK_AGAIN_S, about = () => true, moves = false } = {}) {
    let [busy, again, timer, looked] = [false, false, 0, 0];
    const run = async () => {
      if (busy) {
        again = true;
        return;
      }
      busy = true;
      looked = Date.now();
      try {
        await look();
      } catch (error) {
        this.fail(error);
      } finally {
        busy = false;
      }
      if (again && !this.signal.aborted) {
        again = false;
        soon();
      }
    };
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(run, SETTLE_MS);
    };
    this.again = run;
    onMove((event) => {
      if (event === null || about(event)) soon();
    }, this.signal);
    const every = setInterval(() => {
      const told = moves && streamed === "live" && Date.now() - looked < QUIET_MS;
      if (document.visibilityState === "visible" && !told) run();
    }, seconds * 1000);
    const back = () => {
      if (document.visibilityState === "visible") soon();
    };
    document.addEventListener("visibilitychange", back);
    this.signal.addEventListener(
      "abort",
      () => {
        clearInterval(every);
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", back);
      },
      { once: true },
    );
    await run();
  }

  /** Tell what went wrong, above what is shown. */
  fail(error) {
    if (this.signal.aborted || error.name === "AbortError") return;
    if (error instanceof Refusal && error.status === 401) {
      if (token.get()) {
        // Nobody is there until somebody says so: whoever needs no token here may be somebody else.
        refused = error.message;
        token.set(null);
        me = null;
        stream?.abort();
      }
      askForToken();
      return;
    }
    if (!(error instanceof Refusal || error instanceof Unreachable || error.code)) console.error(error);
    if (error instanceof Unreachable && isAway()) this.waits("Waiting for the daemon.");
    else if (!this.shown) this.show(error.status === 404 ? "Not here" : "Something went wrong", wrong(error));
    else say(error.message);
  }

  /** Say why nothing is shown yet. */
  waits(why) {
    if (this.shown || this.signal.aborted) return;
    const name = this.title ?? this.parts.at(-1) ?? "Skyfleet";
    main.replaceChildren(h("h1", { tabindex: "-1" }, name), h("p", { class: "soft" }, why));
  }

  /** Do something that a button asked for, tell how it went, and look again. */
  async act(doing, done) {
    try {
      const result = await doing();
      say(typeof done === "function" ? done(result) : done);
      await this.again?.();
      return result;
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
      return undefined;
    }
  }
}

function askForToken() {
  const next = location.pathname.slice(ROOT.length + 1) + location.search;
  if (!next.startsWith("login")) go(`login?next=${encodeURIComponent(next)}`, true);
}

// ── ways ────────────────────────────────────────────────────────────────────────────────────────

let moved = false;

/** Show another page. */
export function go(path, instead = false) {
  moved = true;
  history[instead ? "replaceState" : "pushState"](null, "", `${ROOT}/${path}`);
  scrollTo(0, 0);
  enter();
}

function found(parts) {
  return VIEWS.find(([path]) => {
    const wanted = path.split("/");
    return wanted.length === parts.length && wanted.every((one, at) => one === "*" || one === parts[at]);
  });
}

async function enter() {
  leaving.abort();
  leaving = new AbortController();
  at = here();
  const parts = location.pathname.slice(ROOT.length).split("/").filter(Boolean).map(decoded);
  const [, view, title, least] = found(parts.length ? parts : [""]) ?? [];
  const page = new Page(parts, leaving.signal, title);
  current = page;
  frame(parts[0] ?? "");
  side.querySelector("#menu")?.setAttribute("aria-expanded", "false");
  if (!view) {
    const near = VIEWS.find(([path]) => path && path === nearest(parts[0], LINKED));
    page.show(
      "Not here",
      h("p", {}, `There is no page ${location.pathname}.`),
      near && h("p", {}, "Did you mean ", h("a", { href: `${ROOT}/${near[0]}` }, near[2]), "?"),
      h("p", {}, h("a", { href: `${ROOT}/` }, "To the overview")),
    );
    main.removeAttribute("aria-busy");
    return;
  }
  if (least !== null && me === null) {
    askForToken();
    return;
  }
  if (!may(least)) {
    page.show(
      title ?? "Not for you",
      h("p", {}, `${me.name} has the role ${me.role}, and this page takes the role ${least}.`),
    );
    return;
  }
  main.setAttribute("aria-busy", "true");
  const slow = setTimeout(() => page.waits("Loading…"), LOADING_MS);
  try {
    await view(page);
  } catch (error) {
    page.fail(error);
  } finally {
    clearTimeout(slow);
    if (page.signal === leaving.signal) main.removeAttribute("aria-busy");
  }
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey)
    return;
  const url = new URL(anchor.href);
  if (url.origin !== location.origin || !url.pathname.startsWith(`${ROOT}/`) || url.hash) return;
  event.preventDefault();
  go(url.pathname.slice(ROOT.length + 1) + url.search);
});
addEventListener("popstate", () => {
  if (here() === at) return; // another place in what is shown
  moved = true;
  enter();
});

// ── the frame ───────────────────────────────────────────────────────────────────────────────────

const STREAMED = {
  live: ["✓", "live"],
  waiting: ["…", "connecting again"],
  away: ["◦", "looks every few seconds"],
};

function state(word) {
  streamed = word;
  const place = document.getElementById("live");
  if (place) morph(place, h("span", {}, ...live()));
}

function live() {
  const [sign, text] = STREAMED[streamed];
  return [h("span", { class: "sign", "aria-hidden": "true" }, sign), text];
}

function frame(current) {
  const groups = new Map();
  for (const [path, , title, least, group] of VIEWS) {
    if (title === null || !may(least)) continue;
    const here = path === current;
    const anchor = h("a", { href: `${ROOT}/${path}`, "aria-current": here && "page" }, title);
    groups.set(group, [...(groups.get(group) ?? []), h("li", {}, anchor)]);
  }
  const menu = button("Menu", () =>
    menu.setAttribute("aria-expanded", String(menu.getAttribute("aria-expanded") !== "true")),
  );
  Object.assign(menu, { id: "menu" });
  menu.setAttribute("aria-expanded", "false");
  menu.setAttribute("aria-controls", "nav");
  const who =
    me === null
      ? h("a", { href: `${ROOT}/login` }, "Log in")
      : [h("span", {}, `${me.name} · ${me.role}`), token.get() && button("Log out", logOut, "plain")];
  morph(
    side,
    h(
      "header",
      {},
      h("div", { class: "brand" }, h("a", { href: `${ROOT}/` }, "Skyfleet"), menu),
      h(
        "nav",
        { id: "nav", "aria-label": "Pages", onkeydown: rove },
        [...groups].map(([group, items]) => [h("h2", { class: "group" }, group), h("ul", {}, items)]),
      ),
      h("div", { class: "who" }, who, h("span", { class: "soft live", id: "live" }, ...live())),
    ),
  );
  const kept = side.querySelector("#menu");
  kept.onclick = () =>
    kept.setAttribute("aria-expanded", String(kept.getAttribute("aria-expanded") !== "true"));
  side.onkeydown = (event) => {
    if (event.key !== "Escape" || kept.getAttribute("aria-expanded") !== "true") return;
    kept.setAttribute("aria-expanded", "false");
    kept.focus();
  };
}

function rove(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const links = [...side.querySelectorAll("nav a")];
  const at = links.indexOf(document.activeElement);
  if (!step || at < 0) return;
  event.preventDefault();
  links[(at + step + links.length) % links.length].focus();
}

function logOut() {
  token.set(null);
  start();
}

/** Find out who looks, and begin. */
export async function start(next) {
  stream?.abort();
  stream = new AbortController();
  try {
    health = await get("/api/health");
    me = health.user;
    if (token.get()) refused = null;
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) {
      if (token.get()) refused = error.message;
      token.set(null);
    } else {
      const page = new Page([], leaving.signal);
      page.fail(error);
      if (!isAway()) setTimeout(() => start(next), AWAY_MS);
      current = { shown: false, again: () => start(next) };
      return;
    }
    health = await get("/api/health").catch(() => null);
    me = health?.user ?? null;
  }
  state("away");
  if (may("admin")) begin(state, stream.signal).catch(() => state("away"));
  if (next !== undefined) go(next, true);
  else enter();
}

// While the daemon does not answer, every page says so; once it does, what is shown is looked at again, and what
// could not be shown is begun anew.
onAway((away) => {
  const place = document.getElementById("away");
  if (!away) {
    place.replaceChildren();
    if (current?.shown) current.again?.();
    else if (me === null && current?.again) current.again();
    else enter();
    return;
  }
  const text = "The daemon does not answer. What is shown is from before; it is asked again every two seconds.";
  place.replaceChildren(h("span", {}, text));
  const ask = () => get("/api/health").catch(() => isAway() && setTimeout(ask, AWAY_MS));
  setTimeout(ask, AWAY_MS);
});

setInterval(() => {
  for (const one of document.querySelectorAll("time")) one.textContent = ago(moment(one.dateTime));
}, 15000);

start();
