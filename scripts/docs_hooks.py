"""What mkdocs does not do by itself for the site of docs/.

Decides: that the pages at the root of the project are pages of the site, and that links to and from them, as they
are right in the project, are right there; that a folder in the navigation stands for the pages in it.
Never: changes what a page says. Follows: one text is read in the project and on the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
ABOVE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)((?:#[^)\s]*)?)\)")


def pages_of(folder: str) -> list[str]:
    """The pages in a folder of docs/, its README first."""
    found = sorted(
        (ROOT / "docs" / folder).glob("*.md"), key=lambda page: (page.name != "README.md", page.name)
    )
    return [page.relative_to(ROOT / "docs").as_posix() for page in found]


def opened(entries: list[Any]) -> list[Any]:
    """The navigation with pages where folders were."""
    told: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            if isinstance(below, list):
                entry = {title: opened(below)}
            elif below.endswith("/"):
                entry = {title: pages_of(below)}
        told.append(entry)
    return told


def on_config(config: Any) -> Any:
    config.nav = opened(config.nav)
    return config


def on_files(files: Any, config: Any) -> Any:
    for name in ABOVE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links lead from place to place in the project; the site has docs/ and the root in one folder."""
    place = page.file.src_uri
    here = posixpath.dirname(place if place in ABOVE else f"docs/{place}")

    def moved(link: re.Match[str]) -> str:
        goal = posixpath.normpath(posixpath.join(here, link[2]))
        if goal not in ABOVE and not goal.startswith("docs/"):
            return f"{link[1]} (`{goal}`)"  # a file of the project that is no page
        there = posixpath.relpath(goal.removeprefix("docs/"), posixpath.dirname(place) or ".")
        return f"[{link[1]}]({there}{link[3]})"

    return LINK.sub(moved, markdown)
