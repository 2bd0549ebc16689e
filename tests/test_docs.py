"""The documents say what the code does, and name only what exists.

Decides: which pages must agree with which tables, and that commands, links and paths they show are real.
Never: judges prose. Follows: a state, an error or a setting that nobody described fails here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import without_daemon

START_S = 45.0
ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:src|tests|docs|scripts|examples|bench|requirements|packaging)/[\w./-]*\w)`")
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
        timeout=55,
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


def test_commands_exist(tmp_path: Path) -> None:
    named = sorted(set().union(*(commands(page) for page in PAGES)))
    tried = sorted({words for command in named for words in (command, command[:1])})
    sky = without_daemon(tmp_path)
    ended = sky.together([[*words, "--help"] for words in tried])
    exists = {words: one.code == 0 for words, one in zip(tried, ended, strict=True)}
    assert [command for command in named if not exists[command] and not exists[command[:1]]] == []


def test_scripts_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for script in ("scripts/demo", "scripts/test"):
        assert f"$ {script}" in text
        assert (ROOT / script).is_file()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The state folder of a daemon that runs while the test does."""
    command = [sys.executable, "-m", "sky.server.main", "--home", str(tmp_path), "--port", "0"]
    with open(tmp_path / "out", "wb") as out:
        daemon = subprocess.Popen(command, stdout=out, stderr=out, env=environment(tmp_path))
    try:
        deadline_s = time.monotonic() + START_S
        while not (tmp_path / "daemon.json").is_file():
            assert daemon.poll() is None, (tmp_path / "out").read_text()
            assert time.monotonic() < deadline_s, "the daemon did not start"
            time.sleep(0.02)
        yield tmp_path
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(START_S)


def environment(home: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SKY_")}
    return ours | {"SKY_HOME": str(home)}


@pytest.mark.real
def test_first_call_of_the_readme_runs(home: Path, tmp_path: Path) -> None:
    code, _ = blocks(ROOT / "README.md", "python")
    script = tmp_path / "first.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"# ([\d\[][^:]*):", code)
    assert len(promised) == 3
    assert done.stdout.splitlines() == [*promised, "1 4 25"]


@pytest.mark.real
def test_http_lines_of_the_readme_work(home: Path) -> None:
    lines, _ = blocks(ROOT / "README.md", "sh")
    url = json.loads((home / "daemon.json").read_bytes())["url"]
    script = lines.replace("http://127.0.0.1:7590", url).replace("curl -s ", "curl -sS --fail-with-body ")
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"name":"first"' in done.stdout.replace(" ", "")


def test_definitions_of_the_readme_are_accepted(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "README.md", "toml")
    file = tmp_path / "sky.toml"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "sky.cli.main", "config", "validate", str(file)]
    done = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 compute, no mistakes" in done.stdout
