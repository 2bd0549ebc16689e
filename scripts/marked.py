"""How drawn pages write Markdown: the head of each, rows of tables, and the first words of a docstring."""

from __future__ import annotations

import inspect

HEAD = "<!-- drawn by scripts/gen_docs; edit the code instead -->\n"


def sentence(thing: object) -> str:
    """The first paragraph of a docstring on one line."""
    return joined((inspect.getdoc(thing) or "").split("\n\n")[0])


def joined(text: str) -> str:
    """The same words on one line, with code in single backticks."""
    return " ".join(text.split()).replace("``", "`")


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("``", "`")


def row(*cells: str) -> str:
    return f"| {' | '.join(cell(text) for text in cells)} |"


def header(*names: str) -> list[str]:
    return [row(*names), f"|{' --- |' * len(names)}"]
