"""The page of the manual, from the same parts that ``sky … --help`` shows.

Decides: its sections, and how a command looks in roff. Never: what a command does or takes; the table of nouns
and the commands' functions say that. Follows: a command that is added is in the manual when it is drawn anew.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from functools import cache
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


class Parts:
    """The parts of one help page, as they are handed over one by one."""

    def __init__(self, root: App, words: tuple[str, ...]) -> None:
        self.usage = ""
        self.paragraphs: list[str] = []
        self.panels: list[tuple[str, list[tuple[str, str]]]] = []
        rest = io.StringIO()
        root.help_formatter = self
        root.help_print(list(words), console=Console(file=rest, width=WIDTH, color_system=None))
        lines = map(str.strip, rest.getvalue().splitlines())
        self.examples = [line for line in lines if line.startswith("$ ")]

    def __call__(self, _console: Console, _options: ConsoleOptions, panel: HelpPanel) -> None:
        """Options and arguments; commands have pages of their own."""
        if panel.format == "command" or not panel.entries:
            return
        title = plain(panel.title)
        entries = [(label_of(entry), description_of(entry)) for entry in panel.entries]
        self.panels.append((TITLES.get(title, title), entries))

    def render_usage(self, _console: Console, _options: ConsoleOptions, usage: Any) -> None:
        """The order of words is the first thing below a command's name."""
        self.usage = plain(usage).removeprefix("Usage:").strip()

    def render_description(self, _console: Console, _options: ConsoleOptions, description: Any) -> None:
        """What the command does, in paragraphs."""
        paragraphs = plain(description).split("\n\n")
        self.paragraphs += [" ".join(one.split()) for one in paragraphs if one.strip()]


@cache
def root() -> App:
    """The application, with every noun."""
    return tree(*NOUNS)


@cache
def parts_of(words: tuple[str, ...]) -> Parts:
    """The page of one command; drawing it is most of what this costs."""
    return Parts(root(), words)


def commands(nouns: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Every word path that begins with one of these and has a page."""
    for noun in nouns:
        yield from below(root()[noun], (noun,))


def below(app: App, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    for name in app:
        if not name.startswith("-"):
            one = app[name]
            if one.show and one.name[0] == name:
                yield from below(one, (*words, name))


def section(words: tuple[str, ...]) -> list[str]:
    """One command: its name, and its page."""
    parts = parts_of(words)
    lines = [f".SS sky {escaped(' '.join(words))}"]
    lines += [".PP", f".B {escaped(parts.usage)}"] if parts.usage else []
    for paragraph in parts.paragraphs:
        lines += [".PP", escaped(paragraph)]
    for title, entries in parts.panels:
        lines += [".PP", f"{title}:"]
        for label, description in entries:
            lines += [".TP", f".B {escaped(label)}", escaped(description)]
    if parts.examples:
        lines += [".PP", "Examples:", ".PP", ".EX", *map(escaped, parts.examples), ".EE"]
    return lines


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
        for words in commands(group):
            lines += section(words)
    lines += listed("ENVIRONMENT", list(environment()))
    lines += listed("FILES", list(FILES))
    lines += listed("EXIT STATUS", [(str(code), meaning) for code, meaning in EXITS])
    return "\n".join(lines) + "\n"
