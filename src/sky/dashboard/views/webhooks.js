// Webhooks of an account, for operators: what was sent, what failed and why, once more, and no more.

import { all, call, get } from "../api.js";
import { button, count, empty, facts, field, h, id, link, section, state, sure, table, time, to } from "../dom.js";

const ROOT = "/admin/v1/webhooks";
const SHOWN = 200;
const STATES = { "": "all", failed: "failed", pending: "on its way", delivered: "delivered" };
const standing = (one) => state(one.enabled ? "enabled" : "disabled");
const heard = (one) => one.types?.join(", ") ?? "all events";

/** The webhooks of an account, each of which leads to its own page. */
export function webhooksTable(account, found) {
  return table(
    "Webhooks",
    [
      ["Webhook", (one) => link(`accounts/${to(account)}/webhooks/${to(one.id)}`, one.url)],
      ["State", standing],
      ["Hears", heard],
      ["On its way", (one) => one.pending || "", "num"],
      ["Failed", (one) => one.failed || "", "num"],
      ["Made", (one) => time(one.created_at)],
      ["Why not", (one) => one.disabled_reason ?? "", "wide"],
    ],
    found,
    (one) => one.id,
  );
}

export async function webhook(page) {
  const [, account, , wanted] = page.parts;
  const path = `${ROOT}/${to(wanted)}`;
  const chosen = Object.hasOwn(STATES, page.query.get("state") ?? "") ? (page.query.get("state") ?? "") : "";
  const choice = h(
    "select",
    { onchange: (event) => page.go(`${page.parts.map((one) => to(one)).join("/")}?state=${event.target.value}`) },
    Object.entries(STATES).map(([name, text]) => h("option", { value: name, selected: name === chosen }, text)),
  );
  await page.watch(
    async () => {
      const [one, sent] = await Promise.all([
        get(path, {}, page.signal),
        all(`${path}/deliveries`, { state: chosen }, { signal: page.signal, most: SHOWN }),
      ]);
      show(page, one, sent, { account, path, choice });
    },
    { seconds: 5 },
  );
}

function show(page, one, sent, { account, path, choice }) {
  const say = (enabled) =>
    page.act(() => call("PATCH", path, { body: { enabled } }), enabled ? "it is sent to again" : "nothing is sent to it");
  const end = async () => {
    const question = `Send nothing to ${one.url}? What happens meanwhile is sent when it begins again.`;
    if (await sure(question, "Send nothing")) await say(false);
  };
  const again = (each) =>
    page.act(
      () => call("POST", `${path}/deliveries/${to(each.id)}/redeliver`),
      one.enabled ? "it is sent again" : "it is sent again once the webhook is enabled",
    );
  page.show(
    "Webhook",
    h(
      "div",
      { class: "row" },
      link(`accounts/${to(account)}`, "Its account"),
      one.enabled ? button("Disable", end, "danger") : button("Enable", () => say(true)),
    ),
    one.disabled_reason && h("div", { class: "note-box" }, `Nothing is sent: ${one.disabled_reason}.`),
    facts(
      ["State", standing(one)],
      ["Address", h("code", {}, one.url)],
      ["Hears", heard(one)],
      ["Made", time(one.created_at)],
      ["On its way", count(one.pending, "message")],
      ["Failed", count(one.failed, "message")],
    ),
    section(
      "What was sent",
      h("div", { class: "inline" }, field("Show", choice)),
      sent.length ? sentTable(sent, again) : empty("Nothing of that was sent, or it is not kept any more."),
    ),
  );
}

function sentTable(sent, again) {
  return table(
    "What was sent",
    [
      ["Event", (each) => each.event],
      ["Job", (each) => link(`sold/${to(each.job)}`, id(each.job))],
      ["State", (each) => state(each.state)],
      ["Tries", (each) => each.attempts, "num"],
      ["Last try", (each) => time(each.tried_at), "fit"],
      ["Answer", (each) => each.last_status ?? "–", "num"],
      ["Next try", (each) => (each.state === "pending" ? time(each.next_at) : "–"), "fit"],
      ["", (each) => button("Send again", () => again(each)), "fit"],
      ["Why", (each) => each.last_error ?? "", "wide"],
    ],
    sent,
    (each) => each.id,
  );
}
