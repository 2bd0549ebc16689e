// How the daemon is, where its machines come from, and what its loops decided last.

import { all, get } from "../api.js";
import { empty, facts, h, section, state, table, time } from "../dom.js";

const DECISIONS = 100;

const settingTable = (label, found) =>
  table(
    label,
    [
      ["Setting", (one) => h("code", { title: one.about }, one.variable), "fit"],
      ["Value", (one) => one.value ?? "not set", "wide"],
      ["What it does", (one) => one.about, "wide"],
    ],
    found,
    (one) => one.name,
  );

/** Those that were set, and behind a click all others. */
function settingsOf(found) {
  const [own, usual] = [found.filter((one) => !one.is_default), found.filter((one) => one.is_default)];
  return [
    settingTable("Settings that were set", own),
    h("details", { "data-key": "usual" }, h("summary", {}, `${usual.length} as they come`), settingTable("As they come", usual)),
  ];
}

export async function settings(page) {
  await page.watch(
    async () => {
      const own = page.health;
      const basics = facts(
        ["Server", state("live")],
        ["Release", own.version],
        ["Interface", `${own.api_version}, from ${own.min_compatible_api_version}`],
        ["You are", `${own.user.name} (${own.user.role})`],
        ["Behind a proxy", own.basic_auth_enabled ? "yes" : "no"],
        ["Interfaces", h("a", { href: "/docs" }, "control plane")],
      );
      if (!page.may("admin")) {
        page.show("Health and settings", basics);
        return;
      }
      const [ready, dependencies, loops, providers, kinds, { items: held }] = await Promise.all([
        get("/v1/health/ready", {}, page.signal).catch((error) => ({ ready: false, error })),
        get("/v1/health/dependencies", {}, page.signal).catch(() => ({})),
        get("/v1/loops", {}, page.signal),
        all("/v1/providers", {}, { signal: page.signal }),
        get("/v1/provider-kinds", {}, page.signal),
        get("/admin/v1/settings", {}, page.signal),
      ]);
      page.show(
        "Health and settings",
        basics,
        section(
          "What it stands on",
          table(
            "What it stands on",
            [
              ["Part", ([name]) => name],
              ["State", ([, word]) => state(word)],
            ],
            [["serves", ready.ready ? "ok" : "failed"], ...Object.entries(dependencies)],
            ([name]) => name,
          ),
        ),
        section(
          "Where machines come from",
          providers.length
            ? table(
                "Where machines come from",
                [
                  ["Name", (one) => one.name],
                  ["Kind", (one) => one.kind],
                  ["Offers", (one) => one.offers_count, "num"],
                  ["Asked", (one) => time(one.offers_fetched_at)],
                  ["Trouble", (one) => one.last_error?.message ?? "", "wide"],
                ],
                providers,
                (one) => one.id,
              )
            : empty(
                "No provider was added.",
                `Known here: ${kinds.map((one) => one.kind).join(", ")}`,
                "sky provider add local --name here",
              ),
        ),
        section("Settings", ...settingsOf(held)),
        section(
          "What the loops decided last",
          h("p", { class: "soft" }, "Of one thing: sky why <its id>"),
          table(
            "What the loops decided last",
            [
              ["Loop", (one) => one.loop],
              ["About", (one) => h("code", {}, one.key)],
              ["Decided", (one) => one.decision, "wide"],
              ["When", (one) => time(one.decided_at), "fit"],
              ["Failed", (one) => one.failures || "", "num"],
              ["Error", (one) => one.error ?? "", "wide"],
            ],
            loops.items.slice(0, DECISIONS),
            (one) => one.key,
          ),
        ),
      );
    },
    { seconds: 10 },
  );
}
