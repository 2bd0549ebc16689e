// Users and the tokens they come with.

import { all, call, random } from "../api.js";
import { button, empty, field, h, section, state, sure, table, time, to } from "../dom.js";

const ROLES = ["viewer", "user", "admin"];
const once = () => ({ "idempotency-key": random() });
const roles = (chosen) => ROLES.map((one) => h("option", { value: one, selected: one === chosen }, one));

export async function users(page) {
  let secret = null;
  await page.watch(
    async () => {
      const [tokens, people] = await Promise.all([
        all("/users/tokens", {}, { signal: page.signal }),
        page.may("admin") ? all("/users", {}, { signal: page.signal }) : null,
      ]);
      const form = (word, fields, act) =>
        h(
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
      const makeToken = (given, at) =>
        page.act(async () => {
          const made = await call("POST", "/users/tokens", {
            body: { name: given.name, ...(given.user ? { user: given.user } : {}) },
            headers: once(),
          });
          secret = made.token;
          at.reset();
        }, "the token is made; it is shown this once");
      const revoke = async (one) => {
        if (await sure(`Revoke the token ${one.name} of ${one.user}?`, "Revoke it"))
          await page.act(() => call("DELETE", `/users/tokens/${to(one.id)}`), "the token is revoked");
      };
      page.show(
        "Users and tokens",
        people !== null && everybody(page, people, form),
        section(
          "Tokens",
          secret &&
            h("div", { class: "note-box" }, "The new token, shown this once: ", h("code", {}, secret)),
          tokens.length
            ? table(
                "Tokens",
                [
                  ["Name", (one) => one.name],
                  ["Of", (one) => one.user],
                  ["Begins", (one) => h("code", {}, one.hint)],
                  ["At most", (one) => one.role ?? "as its user"],
                  ["State", (one) => state(standing(one))],
                  ["Made", (one) => time(one.created_at)],
                  ["Until", (one) => (one.expires_at ? time(one.expires_at) : "revoked")],
                  ["Used", (one) => time(one.last_used_at)],
                  ["", (one) => standing(one) === "active" && button("Revoke", () => revoke(one), "danger")],
                ],
                tokens,
                (one) => one.id,
              )
            : empty(
                "There are no tokens.",
                "The daemon's own user needs none here. For another computer:",
                "sky token create laptop",
              ),
          h("p", {}),
          form(
            "Make a token",
            [
              field("Name of the token", h("input", { name: "name", required: true, autocomplete: "off" })),
              page.may("admin") &&
                field(
                  "For the user",
                  h("input", { name: "user", autocomplete: "off", placeholder: page.me.name }),
                ),
            ],
            makeToken,
          ),
        ),
      );
    },
    { seconds: 15 },
  );
}

function standing(one) {
  if (one.revoked_at) return "revoked";
  return one.expires_at && new Date(one.expires_at) < new Date() ? "expired" : "active";
}

function everybody(page, people, form) {
  const make = (given, at) =>
    page.act(async () => {
      await call("POST", "/users", { body: given, headers: once() });
      at.reset();
    }, `made ${given.name}`);
  const change = (one, role) =>
    page.act(
      () => call("PATCH", `/users/${to(one.name)}`, { body: { role } }),
      `${one.name} has the role ${role}`,
    );
  const remove = async (one) => {
    if (await sure(`Remove ${one.name}? Their tokens let in no more; their clusters stay.`, "Remove them"))
      await page.act(() => call("DELETE", `/users/${to(one.name)}`), `${one.name} is removed`);
  };
  return section(
    "Users",
    people.length
      ? table(
          "Users",
          [
            ["Name", (one) => one.name],
            [
              "Role",
              (one) =>
                h(
                  "select",
                  {
                    "aria-label": `Role of ${one.name}`,
                    onchange: (event) => change(one, event.target.value),
                  },
                  roles(one.role),
                ),
            ],
            ["Since", (one) => time(one.created_at)],
            ["", (one) => one.name !== page.me.name && button("Remove", () => remove(one), "danger")],
          ],
          people,
          (one) => one.name,
        )
      : empty("Nobody but the daemon's own user comes here.", "Let somebody in:", "sky user create ada"),
    h("p", {}),
    form(
      "Make a user",
      [
        field("Name", h("input", { name: "name", required: true, autocomplete: "off" })),
        field("Role", h("select", { name: "role" }, roles("user"))),
      ],
      make,
    ),
  );
}
