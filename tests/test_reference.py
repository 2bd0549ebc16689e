"""Pages name routes and events that are there, as the reference of them says.

Decides: what in a page is a route: `` `GET /v1/…` ``, and an address that is asked with curl. Never: draws
the reference; tests/test_docs.py sees to it that it is fresh.
"""

from __future__ import annotations

import re

from tests.test_docs import PAGES, ROOT, name_of

HEADING = re.compile(r"^### `([A-Z]+) (/.*)`$", re.MULTILINE)
NAMED = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[^\s`?]*)")
ADDRESS = re.compile(
    r"()(?:\$url|\$SKY_URL|http://127\.0\.0\.1:7590|https://sky\.example\.com:7590)(/[^\s\"'?]*)"
)
DESCRIBED = (
    "/v1/",
    "/compute/v1/",
    "/api/get",
    "/api/health",
    "/launch",
    "/queue",
    "/logs",
    "/down",
    "/users",
)
"""Where the paths begin that the three documents describe."""


def test_routes_exist() -> None:
    there: list[tuple[str, re.Pattern[str]]] = []
    for page in (ROOT / "docs/reference").glob("*.md"):
        for method, path in HEADING.findall(page.read_text(encoding="utf-8")):
            parts = map(re.escape, re.split(r"{\w+}", path))
            there.append((method, re.compile("[^/]+".join(parts))))
    assert len(there) > 100
    wrong: list[str] = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for method, path in NAMED.findall(text) + ADDRESS.findall(text):
            known = any(method in ("", one) and route.fullmatch(path) for one, route in there)
            if path.startswith(DESCRIBED) and not known:
                wrong.append(f"{name_of(page)}: {method} {path}")
    assert not wrong


def test_events_of_jobs_are_described() -> None:
    table = (ROOT / "docs/jobs.md").read_text(encoding="utf-8").partition("### Events")[2].partition("###")[0]
    told = set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src/sky").rglob("*.py")]
    assert told == set(re.findall(r'"((?:job|billing)\.[a-z_]+)"', "\n".join(sources)))
