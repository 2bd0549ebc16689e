"""What a person sees while a compute comes up: where it is, on standard error.

Decides: a moving line on a terminal, plain lines elsewhere, nothing when quiet.
Never: writes to standard output, or says the same thing twice in a row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Self

from sky.wire.v1 import ConsoleEvent

FRESH_LINE = "\r\x1b[2K"
"""Back to the first column, and nothing on the line."""
CHARS_MAX = 120


class Progress:
    """Says where things are. A context manager: the moving line ends with it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._moving = not quiet and sys.stderr.isatty()
        self._said = ""
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._moving and self._said:
            _write(FRESH_LINE)

    def say(self, text: str) -> None:
        """This is how it stands now."""
        if self._quiet or text == self._said:
            return
        self._said = text
        _write(f"{FRESH_LINE}{text[:CHARS_MAX]}" if self._moving else f"sky: {text}\n")

    def heard(self, event: ConsoleEvent) -> None:
        """A node wrote this; said while the compute comes up, in lines that stay."""
        for line in installing(event):
            if not (self._quiet or self._over):
                _write(f"{FRESH_LINE if self._moving else ''}sky: {line}\n")
                self._said = ""


def installing(event: ConsoleEvent) -> Iterator[str]:
    """What the installers of a node say, line by line; nothing for what calls write."""
    if event.task is None:
        node = event.node if event.rank is None else f"node {event.rank}"
        for line in event.content.splitlines():
            if line.strip():
                yield f"{node}: {line.rstrip()}"


def note(text: str) -> None:
    """One plain line that stays."""
    _write(f"sky: {text}\n")


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody reads it any more; it was a courtesy.
        return
