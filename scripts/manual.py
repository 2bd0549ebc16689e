"""The page of the manual, from the same parts that ``sky … --help`` shows.

Decides: its sections, and how a command looks in roff. Never: what a command does or takes; the table of nouns
and the commands' functions say that. Follows: a command that is added is in the manual when it is drawn anew.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from cyclopts import App
from cyclopts.help import HelpPanel
from rich.console import Console, ConsoleOptions

from sky.cli.app import tree
from sky.cli.help import TITLES, description_of, label_of, plain
from sky.cli.nouns import EXITS, GROUPS, NOUNS, help_page
from sky.kit.version import VERSION

HEAD = '.\\" drawn by scripts/gen_docs; edit the code instead'
WIDTH = 1000
"""Wide enough that nothing is broken into lines: that is for who shows the page."""
DESCRIPTION = (
    "Runs functions, tasks and paid jobs on machines that it gets, watches over and gives back. A daemon does the "
    "work; the commands speak to it over HTTP. Most start one where none runs; `sky server` is about the daemon "
    "itself."
)
FILES = (
    ("~/.sky", "State of the daemon, unless SKY_HOME names another folder. Only its owner can read it."),
    (
        "sky.toml",
        "Definitions of computes and settings of a project, looked for in the working folder and above.",
    ),
    ("/etc/skyfleet/daemon.env", "Settings of the daemon that systemd runs."),
)


def escaped(text: str) -> str:
    """Text that roff prints as it stands, with the code in it in bold."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha")
    text = text.replace("~", "\\(ti").replace("…", "...").replace("–", "\\(en")
    text = re.sub(r"``?([^`]+)``?", r"\\fB\1\\fR", text)
    return "\\&" + text if text.startswith((".", "'")) else text


class Roff:
    """Collects the parts of one help page as lines of roff."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, _console: Console, _options: ConsoleOptions, panel: HelpPanel) -> None:
        if panel.format == "command" or not panel.entries:
            return
        title = plain(panel.title)
        self.lines += [".PP", f"{TITLES.get(title, title)}:"]
        for entry in panel.entries:
            self.lines += [".TP", f".B {escaped(label_of(entry))}", escaped(description_of(entry))]

    def render_usage(self, _console: Console, _options: ConsoleOptions, usage: Any) -> None:
        """The order of words is the first thing below a command's name."""
        text = plain(usage).removeprefix("Usage:").strip()
        if text:
            self.lines += [".PP", f".B {escaped(text)}"]

    def render_description(self, _console: Console, _options: ConsoleOptions, description: Any) -> None:
        """What the command does, in paragraphs."""
        for paragraph in plain(description).split("\n\n"):
            if paragraph.strip():
                self.lines += [".PP", escaped(" ".join(paragraph.split()))]


def commands(app: App, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every word path below ``words`` that has a page, that one first."""
    yield words
    for name in app:
        if not name.startswith("-"):
            below = app[name]
            if below.show and below.name[0] == name:
                yield from commands(below, (*words, name))


def section(root: App, words: tuple[str, ...]) -> list[str]:
    """One command: its name, and its page."""
    roff, rest = Roff(), io.StringIO()
    root.help_formatter = roff
    console = Console(file=rest, width=WIDTH, color_system=None)
    root.help_print(list(words), console=console)
    examples = [line.strip() for line in rest.getvalue().splitlines() if line.strip().startswith("$ ")]
    shown = [".PP", "Examples:", ".PP", ".EX", *map(escaped, examples), ".EE"] if examples else []
    return [f".SS sky {escaped(' '.join(words))}", *roff.lines, *shown]


def environment() -> Iterator[tuple[str, str]]:
    """The variables, as the first help page has them."""
    page = help_page(False).partition("Environment:\n")[2].partition("\n\n")[0]
    for line in page.splitlines():
        name, _, meaning = line.strip().partition(" ")
        yield name, meaning.strip()


def listed(title: str, pairs: list[tuple[str, str]]) -> list[str]:
    """A section of names with their meanings."""
    lines = [f".SH {title}"]
    for name, meaning in pairs:
        lines += [".TP", f".B {escaped(name)}", escaped(meaning[:1].upper() + meaning[1:].rstrip(".") + ".")]
    return lines


def manual_page() -> str:
    """The whole of it."""
    root = tree(*NOUNS)
    lines = [
        HEAD,
        f'.TH SKY 1 "" "skyfleet {VERSION}" "User Commands"',
        ".SH NAME",
        "sky \\- machines as compute that can be called, scripted and sold",
        ".SH SYNOPSIS",
        ".B sky",
        ".I command",
        "[",
        ".I options",
        "]",
        ".SH DESCRIPTION",
        escaped(DESCRIPTION),
    ]
    for title, group in GROUPS:
        lines.append(f".SH {escaped(title.rstrip(':').upper())}")
        for noun in group:
            for words in commands(root[noun], (noun,)):
                lines += section(root, words)
    lines += listed("ENVIRONMENT", list(environment()))
    lines += listed("FILES", list(FILES))
    lines += listed("EXIT STATUS", [(str(code), meaning) for code, meaning in EXITS])
    return "\n".join(lines) + "\n"
