// A token for those who are not the daemon's own user on its own computer.

import { Refusal, get, token } from "../api.js";
import { field, h, wrong } from "../dom.js";
import { start } from "../app.js";

export async function login(page) {
  const given = h("input", { type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const said = h(
    "div",
    { "data-key": "said" },
    page.refused && wrong({ title: "Your token is not accepted any more", message: page.refused }),
  );
  const submit = async (event) => {
    event.preventDefault();
    const before = token.get();
    token.set(given.value.trim());
    try {
      await get("/users/me");
    } catch (error) {
      token.set(before);
      said.replaceChildren(
        wrong(
          error instanceof Refusal ? error : { title: "The daemon does not answer", message: error.message },
        ),
      );
      given.focus();
      return;
    }
    await start(page.query.get("next") ?? "");
  };
  page.show(
    "Log in",
    h("p", { class: "lead" }, "The token stays in this tab until it is closed or you log out."),
    said,
    h(
      "form",
      { class: "card form", onsubmit: submit },
      field("Token", given, "An admin makes one with: sky token create NAME --user YOU"),
      h("div", { class: "row" }, h("button", { class: "main", type: "submit" }, "Log in")),
    ),
  );
}
