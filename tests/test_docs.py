"""The documents say what the code does, and name only what exists.

Decides: which pages must agree with which tables, and that commands, links and paths they show are real.
Never: judges prose. Follows: a state, an error or a setting that nobody described fails here.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from bench import page as figures
from cyclopts import CycloptsError
from tests.conftest import RunningDaemon

from sky.cli.app import tree
from sky.cli.nouns import NOUNS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples/README.md"])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE_PATH = re.compile(r"`((?:src|tests|docs|scripts|examples|bench|requirements|packaging)/[\w./-]*\w)`")
COMMAND = re.compile(rf"(?:(?:^|(?<=\$\())sky |(?<= )sky (?=(?:{'|'.join(NOUNS)})\b)).*")
KINDS = {"python", "py", "json", "toml", "yaml", "sh", "bash", "console", "text", "ini", "csv"}
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
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_figures_are_those_that_were_measured() -> None:
    assert figures.PAGE.read_text(encoding="utf-8") == figures.drawn()


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


def commands(page: Path) -> Iterator[list[str]]:
    """The ``sky`` commands that a page types, in a shell's words, without what they are piped into."""
    shown = [re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, re.MULTILINE) for body in blocks(page, "console")]
    for line in itertools.chain(*shown, "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()):
        for typed in COMMAND.findall(line.replace("\\\n", " ")):
            lexer = shlex.shlex(typed, posix=True, punctuation_chars="|;&<>()")
            lexer.whitespace_split, lexer.commenters = True, ""
            words = list(lexer)
            ends = [place for place, word in enumerate(words) if set(word) <= set("|;&<>()")]
            ends += [place for place, word in enumerate(words) if word == "#"]
            yield words[1 : min(ends, default=len(words))]


def test_commands_and_their_options_exist() -> None:
    root = tree(*NOUNS)
    refused: list[str] = []
    for page in PAGES:
        for words in commands(page):
            words = ["run", "--", *words[1:]] if words[:1] == ["run"] else words
            try:
                root.parse_args(words, print_error=False, exit_on_error=False)
            except CycloptsError as error:
                refused.append(f"{name_of(page)}: sky {' '.join(words)}: {error}")
    assert not refused, "\n".join(refused)


def read(kind: str, text: str) -> None:
    """Read a block as what it says it is. Raises what its reader does."""
    match kind:
        case "python" | "py":
            compile(text, "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        case "json":
            json.loads(text)
        case "toml":
            tomllib.loads(text)
        case "yaml":
            list(yaml.safe_load_all(text))
        case "sh" | "bash":
            subprocess.run(["bash", "-n"], input=text, text=True, check=True, capture_output=True, timeout=60)
        case _:
            pass


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_are_what_they_say(page: Path) -> None:
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        assert kind in KINDS, f"a block is of no known kind: {kind!r}\n{text}"
        read(kind, text)


def test_scripts_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for script in ("scripts/demo", "scripts/test"):
        assert f"$ {script}" in text
        assert (ROOT / script).is_file()


def environment(home: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("SKY_")}
    return ours | {"SKY_HOME": str(home)}


@pytest.mark.real
def test_first_call_of_the_readme_runs(daemon: RunningDaemon, tmp_path: Path) -> None:
    code, _ = blocks(ROOT / "README.md", "python")
    script = tmp_path / "first.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        env=environment(daemon.home),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"# ([\d\[][^:]*):", code)
    assert len(promised) == 3
    assert done.stdout.splitlines() == [*promised, "1 4 25"]


@pytest.mark.real
def test_http_lines_of_the_readme_work(daemon: RunningDaemon) -> None:
    [lines] = (one for one in blocks(ROOT / "README.md", "sh") if "/v1/health/live" in one)
    script = lines.replace("http://127.0.0.1:7590", daemon.url)
    script = script.replace("curl -s ", "curl -sS --fail-with-body ")
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"name":"first"' in done.stdout.replace(" ", "")


def test_definitions_of_the_readme_are_accepted(tmp_path: Path) -> None:
    (text,) = blocks(ROOT / "README.md", "toml")
    file = tmp_path / "sky.toml"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "sky.cli.main", "config", "validate", str(file)]
    done = subprocess.run(
        command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 compute, no mistakes" in done.stdout
