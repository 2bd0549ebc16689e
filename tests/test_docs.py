"""The documents say what the code does, and name only what exists.

Decides: which pages must agree with which tables, and that commands, links and paths they show are real.
Never: judges prose. Follows: a state, an error or a setting that nobody described fails here.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:src|tests|docs|scripts|examples|bench|requirements)/[\w./-]*\w)`")
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """What a link can point at in a page, by the usual rule for headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def test_drawn_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/gen_docs", "--check"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken: list[str] = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists() or (anchor and anchor not in anchors(goal)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_exist(page: Path) -> None:
    named = set(CODE_PATH.findall(page.read_text(encoding="utf-8")))
    assert not sorted(path for path in named if not (ROOT / path).exists())


def commands(page: Path) -> set[tuple[str, ...]]:
    """The ``sky`` commands that a page types: the words up to the first option or argument."""
    found: set[tuple[str, ...]] = set()
    for body in blocks(page, "console") + blocks(page, "sh"):
        for line in body.splitlines():
            words = line.removeprefix("$ ").split()
            if words[:1] == ["sky"]:
                found.add(tuple(word for word in words[1:3] if re.fullmatch(r"[a-z]+", word)))
    return found


def test_commands_exist() -> None:
    sky = Path(sys.executable).with_name("sky")
    unknown: list[str] = []
    for command in sorted(set().union(*(commands(page) for page in PAGES))):
        for words in (command, command[:1]):
            done = subprocess.run(
                [sky, *words, "--help"], capture_output=True, text=True, timeout=30, check=False
            )
            if done.returncode == 0:
                break
        else:
            unknown.append(" ".join(command))
    assert not unknown


def test_scripts_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for script in ("scripts/demo", "scripts/test"):
        assert f"$ {script}" in text
        assert (ROOT / script).is_file()
