// Accounts of those who buy, their keys and their money: for operators.

import { all, call, get, random } from "../api.js";
import {
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
  tile,
  tiles,
  time,
  to,
  usd,
} from "../dom.js";
import { soldTable } from "./sold.js";
import { webhooksTable } from "./webhooks.js";

const ROOT = "/admin/v1";
const BOUGHT = 50;
const once = () => ({ "idempotency-key": random() });

/** A form of some fields on one line; `act` gets what they say. */
function ask(word, fields, act) {
  const form = h(
    "form",
    {
      class: "inline",
      onsubmit: (event) => {
        event.preventDefault();
        act(Object.fromEntries(new FormData(event.currentTarget)), event.currentTarget);
      },
    },
    fields,
    h("button", { type: "submit" }, word),
  );
  return form;
}

export async function accounts(page) {
  await page.watch(
    async () => {
      const [found, audit, catalogue] = await Promise.all([
        all(`${ROOT}/accounts`, {}, { signal: page.signal }),
        get(`${ROOT}/ledger/audit`, {}, page.signal),
        get(`${ROOT}/catalogue`, {}, page.signal),
      ]);
      const make = (given, form) =>
        page.act(
          async () => {
            const account = await call("POST", `${ROOT}/accounts`, {
              body: { name: given.name },
              headers: once(),
            });
            form.reset();
            return account;
          },
          (account) => `made the account ${account.name}`,
        );
      page.show(
        "Accounts",
        tiles(
          tile("Accounts", found.length),
          tile("Lines of the ledger", audit.lines, audit.ok ? "✓ they add up" : "✕ they do not add up"),
          tile("Sold", catalogue.skus.length, `${catalogue.templates.length} templates`, "prices"),
        ),
        catalogue.error &&
          h("div", { class: "wrong" }, `The catalogue's newest version does not hold: ${catalogue.error}`),
        audit.findings.length > 0 &&
          section(
            "What does not add up",
            table(
              "What does not add up",
              [
                ["Line", (one) => one.seq, "fit"],
                ["What", (one) => one.what, "wide"],
              ],
              audit.findings,
              (one) => `${one.seq}${one.what}`,
            ),
          ),
        section(
          "All accounts",
          found.length
            ? table(
                "All accounts",
                [
                  ["Account", (one) => link(`accounts/${to(one.id)}`, one.name)],
                  ["State", (one) => state(one.enabled ? one.state : "disabled")],
                  ["Available", (one) => usd(one.available_usd), "num"],
                  ["Held", (one) => usd(one.held_usd), "num"],
                  ["Made", (one) => time(one.created_at)],
                ],
                found,
                (one) => one.id,
              )
            : empty("There are no accounts.", "Whoever buys needs one:", "sky admin account create acme"),
        ),
        section(
          "A new account",
          ask(
            "Make it",
            field("Name", h("input", { name: "name", required: true, autocomplete: "off" })),
            make,
          ),
        ),
      );
    },
    { seconds: 15 },
  );
}

export async function account(page) {
  const path = `${ROOT}/accounts/${to(page.parts[1])}`;
  let secret = null;
  await page.watch(
    async () => {
      const [one, { items: keys }, entries, bought, { items: hooks }] = await Promise.all([
        get(path, {}, page.signal),
        get(`${path}/keys`, {}, page.signal),
        all(`${path}/entries`, {}, { signal: page.signal }),
        all(`${ROOT}/jobs`, { account: page.parts[1] }, { signal: page.signal, most: BOUGHT }),
        get(`${path}/webhooks`, {}, page.signal),
      ]);
      const pay = (given, form) =>
        page.act(async () => {
          await call("POST", `${path}/payments`, {
            body: { amount_usd: given.amount, payment: given.payment },
            headers: once(),
          });
          form.reset();
        }, "the payment is booked");
      const makeKey = (given, form) =>
        page.act(async () => {
          const made = await call("POST", `${path}/keys`, { body: { name: given.name }, headers: once() });
          secret = made.key;
          form.reset();
        }, "the key is made; it is shown this once");
      const change = (word) =>
        page.act(() => call("PATCH", path, { body: { change: word } }), `done: ${word}`);
      const revoke = async (each) => {
        if (await sure(`Revoke the key ${each.name}? Whoever uses it is let in no more.`, "Revoke it"))
          await page.act(() => call("DELETE", `${ROOT}/keys/${to(each.id)}`), "the key is revoked");
      };
      page.show(
        one.name,
        h(
          "div",
          { class: "row" },
          one.enabled ? button("Disable", () => change("disable")) : button("Enable", () => change("enable")),
          one.state === "active"
            ? button("Suspend", () => change("suspend"), "danger")
            : one.state === "suspended" && button("Resume", () => change("resume")),
        ),
        facts(
          ["State", state(one.enabled ? one.state : "disabled")],
          ["Account", id(one.id)],
          ["Available", usd(one.available_usd)],
          ["Held for jobs", usd(one.held_usd)],
          ["At most a day", one.budget.day_usd ? usd(one.budget.day_usd) : "no limit"],
          ["At most a month", one.budget.month_usd ? usd(one.budget.month_usd) : "no limit"],
          ["Made", time(one.created_at)],
        ),
        section(
          "Keys",
          secret && h("div", { class: "note-box" }, "The new key, shown this once: ", h("code", {}, secret)),
          keys.length
            ? table(
                "Keys",
                [
                  ["Name", (each) => each.name],
                  ["Begins", (each) => h("code", {}, each.hint)],
                  ["May", (each) => each.scopes.join(", ")],
                  ["Made", (each) => time(each.created_at)],
                  ["State", (each) => state(each.revoked_at ? "revoked" : "active")],
                  ["", (each) => !each.revoked_at && button("Revoke", () => revoke(each), "danger")],
                ],
                keys,
                (each) => each.id,
              )
            : empty("It has no keys.", "", `sky admin key create ${one.name}`),
          h("p", {}),
          ask(
            "Make a key",
            field(
              "Name of the key",
              h("input", { name: "name", required: true, value: "default", autocomplete: "off" }),
            ),
            makeKey,
          ),
        ),
        section(
          "Jobs",
          bought.length ? soldTable("Jobs", bought, { named: false }) : empty("It has bought no jobs."),
        ),
        section(
          "Webhooks",
          hooks.length
            ? webhooksTable(page.parts[1], hooks)
            : empty(
                "It has no webhooks.",
                "Its owner makes one, with a key of it:",
                'curl $SKY_URL/compute/v1/webhook_endpoints -H "Authorization: Bearer $SKY_API_KEY" ' +
                  "-H 'Content-Type: application/json' -d '{\"url\": \"https://example.com/hook\"}'",
              ),
        ),
        section(
          "Money",
          ask(
            "Book a payment",
            [
              field(
                "Amount in USD",
                h("input", {
                  name: "amount",
                  required: true,
                  inputmode: "decimal",
                  autocomplete: "off",
                  placeholder: "50.00",
                }),
              ),
              field(
                "Its id elsewhere",
                h("input", { name: "payment", required: true, autocomplete: "off" }),
                "Told twice, it counts once.",
              ),
            ],
            pay,
          ),
          h("p", {}),
          entries.length
            ? table(
                "Ledger",
                [
                  ["Line", (each) => each.seq, "fit"],
                  ["When", (each) => time(each.at), "fit"],
                  ["What", (each) => each.kind.replace("_", " ")],
                  ["Of", (each) => each.account],
                  ["Amount", (each) => usd(each.amount_usd), "num"],
                  ["Then", (each) => usd(each.balance_usd), "num"],
                  ["For", (each) => (each.job ? link(`sold/${to(each.job)}`, id(each.job)) : (each.note ?? each.reference)), "wide"],
                ],
                [...entries].reverse(),
                (each) => `${each.seq}`,
              )
            : empty("No money has moved.", "", `sky admin account topup ${one.name} 50`),
        ),
      );
    },
    { seconds: 15 },
  );
}
