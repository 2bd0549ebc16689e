"""The site of docs/: it can be built, has every page, and loads nothing from elsewhere.

Decides: what is looked at in the pages as they are built. Follows: a link that leads nowhere, a page in no
menu and a picture from another host fail here.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.packaging.conftest import ROOT, run

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
SITE_S = 300.0
LINKS_THAT_LOAD = {"stylesheet", "icon", "preload", "modulepreload", "preconnect", "dns-prefetch"}

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as whoever writes a page does it."""
    folder = tmp_path_factory.mktemp("site") / "pages"
    done = run(ROOT / "scripts" / "docs", folder, timeout=SITE_S)
    assert (done.returncode, done.stdout) == (0, f"{folder}/index.html\n"), done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """Collects the addresses that a browser asks for by itself when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag == "link" and LINKS_THAT_LOAD.intersection((said.get("rel") or "").split()):
            self.found.add(said.get("href") or "")
        elif tag in LOADING:
            self.found.add(said.get(LOADING[tag]) or "")


def test_it_has_every_page_and_finds_words(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    pages = {page.with_name("index.html") if page.stem == "README" else page for page in pages}
    assert [page for page in sorted(pages) if not (site / page).is_file()] == []
    index = json.loads((site / "search" / "search_index.json").read_bytes())
    found = {
        entry["location"].partition("#")[0] for entry in index["docs"] if "indeterminate" in entry["text"]
    }
    assert {"errors.html", "states.html"} <= found


def test_it_is_light_or_dark_as_the_reader_is(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    schemes = re.findall(r'data-md-color-media="\(prefers-color-scheme: (\w+)\)"', page)
    assert set(schemes) == {"light", "dark"}


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    foreign: set[tuple[str, str]] = set()
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loads = Loads()
        loads.feed(text)
        loads.found |= set(re.findall(r"url\(([^)]+)\)", text))
        foreign |= {(page.name, one) for one in loads.found if urlsplit(one).netloc}
        # The theme fetches what draws these when there is one.
        assert 'class="mermaid"' not in text
    for style in site.rglob("*.css"):
        places = re.findall(r"url\([\"']?([^)\"']+)", style.read_text(encoding="utf-8"))
        foreign |= {(style.name, one) for one in places if re.match(r"(?:https?:)?//", one)}
    assert not foreign
