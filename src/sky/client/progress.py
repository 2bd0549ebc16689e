"""What a person sees while a compute comes up: where it is, on standard error.

Decides: a moving line on a terminal, plain lines elsewhere, nothing when quiet.
Never: writes to standard output, or says the same thing twice in a row.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.status import Status


class Progress:
    """Says where things are. A context manager: the moving line ends with it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._status: Status | None = None
        self._said = ""

    def __enter__(self) -> Self:
        if not self._quiet and sys.stderr.isatty():
            self._status = _moving_line()
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def say(self, text: str) -> None:
        """This is how it stands now."""
        if self._quiet or text == self._said:
            return
        self._said = text
        if self._status is not None:
            self._status.update(text)
        else:
            _line(text)


def note(text: str, *, quiet: bool = False) -> None:
    """One plain line that stays."""
    if not quiet:
        _line(text)


def _line(text: str) -> None:
    try:
        sys.stderr.write(f"sky: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody reads it any more; it was a courtesy.
        return


def _moving_line() -> Status:
    from rich.console import Console  # slow to import, and only wanted on a terminal

    return Console(stderr=True, highlight=False).status("")
