"""What a person sees while something takes its time: where it is, on standard error.

Decides: one moving line on a terminal and in a notebook; elsewhere plain lines while a compute comes up, and
nothing about calls; nothing at all when quiet.
Never: writes to standard output, or says the same thing twice in a row.
Follows: whoever writes other lines does it within ``between_lines``, so that none lands on the moving one.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Generator, Iterator
from typing import Self

from sky.kit.clock import SystemClock
from sky.wire.v1 import ConsoleEvent

FRESH_LINE = "\r\x1b[2K"
"""Back to the first column, and nothing on the line."""
CHARS_MAX = 120
CALLS_FROM_S = 2.0
"""Calls that are through sooner are not worth a line."""
CALLS_EVERY_S = 0.2
CALLS_MIN = 5

_clock = SystemClock()


class _Screen:
    """The moving line of this process, of which there is at most one."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._chars = 0

    @property
    def moves(self) -> bool:
        """Whether a line can be written over: on a terminal, and in what shows a notebook."""
        return sys.stderr.isatty() or _in_notebook()

    def show(self, text: str) -> None:
        """Have this on the line."""
        with self.lock:
            fresh = self._fresh()
            self._chars = min(len(text), CHARS_MAX)
            _write(fresh + text[:CHARS_MAX])

    def clear(self) -> None:
        """Have nothing on the line."""
        with self.lock:
            if self._chars:
                _write(self._fresh())
                self._chars = 0

    def _fresh(self) -> str:
        # A notebook goes back to the first column as well, but knows no other control of a terminal.
        return f"\r{' ' * self._chars}\r" if _in_notebook() else FRESH_LINE


def _in_notebook() -> bool:
    return type(sys.stderr).__module__.startswith("ipykernel.")


_screen = _Screen()


@contextlib.contextmanager
def between_lines() -> Generator[None]:
    """Within this, whole lines may be written: the moving one is out of the way."""
    with _screen.lock:
        _screen.clear()
        yield


class Progress:
    """Says where things are. A context manager: the moving line ends with it."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._moving = not quiet and _screen.moves
        self._said = ""
        self._over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._moving:
            _screen.clear()

    def say(self, text: str) -> None:
        """This is how it stands now."""
        if self._quiet or text == self._said:
            return
        self._said = text
        if self._moving:
            _screen.show(text)
        else:
            _write(f"sky: {text}\n")

    def heard(self, event: ConsoleEvent) -> None:
        """A node wrote this; said while the compute comes up, in lines that stay."""
        for line in installing(event):
            if not (self._quiet or self._over):
                note(line)
                self._said = ""


class Tally:
    """Says how many calls have ended, while many are under way for long. Only where a line can move."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = not quiet and _screen.moves
        self._began_s: float | None = None
        self._said_s = 0.0

    def stands(self, ended: int, under_way: int) -> None:
        """So many of the calls that began together have ended, and so many have not."""
        if not self._shown or not under_way or ended + under_way < CALLS_MIN:
            return
        now_s = _clock.monotonic_s()
        if self._began_s is None:
            self._began_s = now_s
        if now_s - self._began_s < CALLS_FROM_S or now_s - self._said_s < CALLS_EVERY_S:
            return
        self._said_s = now_s
        seconds = f"{now_s - self._began_s:.0f} s"
        _screen.show(f"{ended:,} calls have ended, {under_way:,} are under way ({seconds})")

    def over(self) -> None:
        """None is under way any more."""
        if self._shown and self._began_s is not None:
            self._began_s = None
            _screen.clear()


def installing(event: ConsoleEvent) -> Iterator[str]:
    """What the installers of a node say, line by line; nothing for what calls write."""
    if event.task is None:
        node = event.node if event.rank is None else f"node {event.rank}"
        for line in event.content.splitlines():
            if line.strip():
                yield f"{node}: {line.rstrip()}"


def note(text: str) -> None:
    """One plain line that stays."""
    with between_lines():
        _write(f"sky: {text}\n")


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        # Nobody reads it any more; it was a courtesy.
        return
