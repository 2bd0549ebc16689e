"""How the help page of one command looks: usage, what it does, options in two columns, examples.

Decides: the layout and its widths. Never: decides what is on the page; the commands' functions do.
Follows: the page is plain text when piped, and a line is never longer than the terminal, or 80 columns.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

LABELS_MAX = 30
INDENT = 2
TITLES = {"Parameters": "Options"}


class Pages:
    """Lays out the parts of a help page that the parser hands over one by one."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """One group of commands or options."""
        from rich.text import Text

        if not panel.entries:
            return
        title = plain(panel.title)
        console.print()
        console.print(Text(TITLES.get(title, title) + ":", style="bold"))
        labelled = [(label_of(entry), description_of(entry)) for entry in panel.entries]
        if panel.format == "command":
            labelled = [
                (label, description.partition(". ")[0].rstrip(".") + ".") for label, description in labelled
            ]
        columns = min(LABELS_MAX, max(len(label) for label, _ in labelled))
        for label, description in labelled:
            _entry(console, label, description, columns)

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """The line that shows the order of words."""
        from rich.text import Text

        text = plain(usage).removeprefix("Usage:").strip()
        if text:
            console.print(Text.assemble(("Usage: ", "bold"), text))

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """What the command does; a function without a docstring says nothing."""
        from cyclopts.help.silent import SILENT

        text = "" if description is SILENT else plain(description)
        if text:
            for paragraph in text.split("\n\n"):
                joined = " ".join(paragraph.split())
                console.print()
                console.print("\n".join(textwrap.wrap(joined, console.width)))


def _entry(console: Console, label: str, description: str, columns: int) -> None:
    room = max(20, console.width - INDENT - columns - 2)
    lines = textwrap.wrap(description, room) or [""]
    margin = " " * (INDENT + columns + 2)
    if len(label) > columns:
        console.print(" " * INDENT + label)
        console.print("\n".join(margin + line for line in lines))
        return
    console.print(f"{'':<{INDENT}}{label:<{columns}}  {lines[0]}".rstrip())
    for line in lines[1:]:
        console.print(margin + line)


def label_of(entry: HelpEntry) -> str:
    """How an option or an argument is written."""
    if entry.positional_label and not entry.names:
        return entry.positional_label
    names = (*entry.positive_shorts, *entry.positive_names)
    label = ", ".join(names)
    if entry.metavar:
        label = f"{label} {entry.metavar}"
    return ", ".join((label, *entry.negative_names))


def description_of(entry: HelpEntry) -> str:
    """What it is for, what it may be, and what it is unless said."""
    said = [plain(entry.description)]
    if entry.choices:
        said.append(f"One of: {', '.join(entry.choices)}.")
    if entry.required:
        said.append("Required.")
    elif entry.default is not None and entry.default not in ("None", "[]", "()", "", "False"):
        said.append(f"[{entry.default}]")
    return " ".join(part for part in said if part)


def plain(value: Any) -> str:
    """The text of something that is made to be printed, without its looks."""
    if value is None:
        return ""
    text = getattr(value, "plain", None)
    if isinstance(text, str):
        return text.rstrip()
    inner = getattr(value, "primary_renderable", None)
    return plain(inner) if inner is not None else str(value).rstrip()
