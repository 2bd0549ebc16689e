"""Types a page of docs/: saves its files, runs its commands in order, and compares what they print.

Decides: what a page's blocks mean. A block behind a line that ends with "`NAME`:" is that file. In a
``console`` each line behind ``$ `` is typed, and what follows is what it prints: ``…`` stands for anything,
on a line of its own for any lines. ``sh`` and ``bash`` are a script, of which every command works; what it
sets is set for what follows. Other ``python`` is one program, which says behind ``# →`` what it prints.
Never: changes a command, but for the names that ``stands`` puts others in the place of: the daemon's address,
and what no test can have (a cloud, a domain). Follows: what a page shows is what its reader sees.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli import warm
from tests.cli.conftest import SKY, Ended, Sky

BLOCK = re.compile(r"(?:`([\w./-]+)`:\n\n)?^( *)```(\w+)\n(.*?)^\2```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
KEPT = re.compile(r"(?:export )?(\w+)=\$\((.*)\)", re.DOTALL)
SAID = re.compile(r"export (\w+)=(\S*)")
SHELL = set("|;&<>*")
WAIT_S = 100.0
USUAL = "http://127.0.0.1:7590"
SCRIPTS = ("sh", "bash")
OF_THE_SHELL = {"_", "PWD", "OLDPWD", "SHLVL"}
LEFT = ".set-by-the-page"
# A request that is refused is no success, and curl is to say so.
CURL = 'curl() { command curl --fail-with-body "$@"; }'


@dataclass(frozen=True)
class Block:
    """One of a page; ``name`` is that of a file, or empty."""

    name: str
    kind: str
    body: str

    @property
    def first(self) -> str:
        """Its first line, by which it is known."""
        return next(filter(None, self.body.splitlines()), "").removeprefix("$ ")


def blocks_of(path: Path) -> list[Block]:
    """The blocks of a page, in order; those in a list too."""
    found = BLOCK.findall(path.read_text(encoding="utf-8"))
    return [Block(name, kind, textwrap.dedent(body)) for name, _, kind, body in found]


@dataclass
class Typist:
    """Somebody with a folder, who speaks to one daemon; ``said`` are the variables that they have set, and
    ``stands`` has what is typed for the page's own names."""

    sky: Sky
    url: str
    said: dict[str, str] = field(default_factory=dict)
    stands: dict[str, str] = field(default_factory=dict)

    def page(self, path: Path, without: Collection[str] = ()) -> None:
        """Do what a page says, from top to bottom, but for the blocks that begin with one of these lines."""
        program: list[str] = []
        for block in blocks_of(path):
            body = self.told(block.body)
            if block.first in without:
                continue
            if block.name:
                (self.sky.folder / block.name).parent.mkdir(parents=True, exist_ok=True)
                (self.sky.folder / block.name).write_text(body, encoding="utf-8")
            elif block.kind == "python":
                program.append(body)
            elif block.kind == "console" or block.kind in SCRIPTS:
                self.program(program)
                if block.kind in SCRIPTS:
                    self.script(body)
                for command, shown in steps(body) if block.kind == "console" else ():
                    self.step(command, shown)
        self.program(program)

    def told(self, text: str) -> str:
        """A text of the page, with what stands for its names."""
        for name, other in {USUAL: self.url, **self.stands}.items():
            text = text.replace(name, other)
        return text

    def script(self, text: str) -> None:
        """Run a block of a shell; its variables are those of what follows."""
        before = {**os.environ, **self.sky.environment, **self.said}
        self.bash(f"{CURL}\nset -a\n{text}\nenv -0 >$HOME/{LEFT}\n").check()
        left = (self.sky.folder / LEFT).read_text(encoding="utf-8").split("\0")
        now = dict(pair.split("=", 1) for pair in left if "=" in pair)
        changed = {name: value for name, value in now.items() if before.get(name) != value}
        self.said |= {name: value for name, value in changed.items() if name not in OF_THE_SHELL | {"PATH"}}

    def program(self, blocks: list[str]) -> None:
        """Run what was collected, and forget it."""
        text = "\n".join(blocks)
        blocks.clear()
        if text:
            ended = self.run([sys.executable, "-c", text]).check()
            assert ended.out.splitlines() == re.findall(r"# → (.*)$", text, re.MULTILINE), ended.err

    def step(self, command: str, shown: list[str]) -> None:
        """Type one command."""
        command = command.replace("\\\n", " ")
        if (said := SAID.fullmatch(command)) is not None and "$(" not in command:
            self.said[said[1]] = said[2]
            return
        kept = KEPT.fullmatch(command)
        ended = self.typed(kept[2] if kept else command)
        refused = any(line.startswith("error: ") for line in shown)
        assert (ended.code != 0) == refused, f"{command}\n{ended.out}{ended.err}"
        if kept:
            self.said[kept[1]] = ended.out.strip()
        compare(command, shown, "" if kept else ended.out, ended.err, self.url)

    def typed(self, command: str) -> Ended:
        quoted = re.sub(r"'[^']*'|\"[^\"]*\"", "", command)
        if command.startswith("sky ") and not SHELL & set(quoted) and "$(" not in command:
            words = list(self.words(command))[1:]
            return self.sky(*words, timeout_s=WAIT_S, **self.said)
        return self.bash(command)

    def bash(self, text: str) -> Ended:
        """Run what a shell reads; ``sky`` is a command as in ``sky`` of a console."""
        if warm.takes("", {**self.sky.environment, **self.said}):
            text = f"{warm.loaded(SKY).in_a_shell()}\n{text}"
        return self.run(["bash", "-euo", "pipefail", "-c", text])

    def words(self, command: str) -> Iterator[str]:
        """The words of a command as a shell makes them: in single quotes nothing is filled in."""
        for word in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+", command):
            parts = re.findall(r"'[^']*'|\"[^\"]*\"|[^'\"]+", word)
            yield "".join(part[1:-1] if part[0] == "'" else self.filled(part.strip('"')) for part in parts)

    def filled(self, text: str) -> str:
        return re.sub(r"\$(\w+)", lambda name: self.said.get(name[1], ""), text)

    def run(self, words: list[str]) -> Ended:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            words,
            cwd=self.sky.folder,
            env={**self.sky.environment, "PATH": path, **self.said},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)


def steps(body: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console, with the lines that are shown below it."""
    parts = TYPED.split(body)
    for command, shown in zip(parts[1::2], parts[2::2], strict=True):
        yield command, shown.strip("\n").splitlines()


def compare(command: str, shown: list[str], out: str, err: str, url: str) -> None:
    """What is shown is printed, and nothing else on standard output."""
    lines = [" ".join(line.split()) for line in out.splitlines()]
    told = lines + [" ".join(line.split()) for line in err.splitlines()]
    story = f"{command}\nshown: {shown}\nprinted: {out}\nbeside it: {err}"
    wanted = [" ".join(line.split()).replace(USUAL, url) for line in shown if line != "…"]
    patterns = [re.compile(".*".join(map(re.escape, line.split("…")))) for line in wanted]
    for line, pattern in zip(wanted, patterns, strict=True):
        assert any(pattern.fullmatch(one) for one in told), f"{line!r} is not printed by {story}"
    if "…" in shown:
        assert told, f"nothing is printed by {story}"
        return
    spare = [one for one in lines if not any(pattern.fullmatch(one) for pattern in patterns)]
    assert not spare, f"{spare} is not shown by {story}"
