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
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Self

from sky.kit.clock import SystemClock

if TYPE_CHECKING:
    from sky.wire.v1 import ConsoleEvent

FRESH_LINE = "\r\x1b[2K"
"""Back to the first column, and nothing on the line."""
CHARS_MAX = 120
LASTING_FROM_S = 1.0
"""What is through sooner is not worth a line, and what stands for longer is worth its seconds."""
CALLS_FROM_S = 2.0
"""Calls that are through sooner are not worth a line."""
CALLS_EVERY_S = 0.2
CALLS_MIN = 5
SENT_BYTES_MIN = 4_000_000
"""What is smaller is sent in no time."""

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
        self._since_s = 0.0
        self._over = False
        self._counting: _Counting | None = None

    def __enter__(self) -> Self:
        if self._moving:
            self._counting = _Counting(self._stands)
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        if self._counting is not None:
            self._counting.end()
        if self._moving:
            _screen.clear()

    def _stands(self) -> str:
        return f"{self._said} ({_clock.monotonic_s() - self._since_s:.0f} s)" if self._said else ""

    def say(self, text: str) -> None:
        """This is how it stands now."""
        if self._quiet or text == self._said:
            return
        self._said, self._since_s = text, _clock.monotonic_s()
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


class _Counting:
    """A thread that has the seconds counted on the moving line, until ``end``."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, args=(text,), name="sky-progress", daemon=True)
        self._thread.start()

    def _count(self, text: Callable[[], str]) -> None:
        while not self._over.wait(LASTING_FROM_S):
            with _screen.lock:
                if shown := text():
                    _screen.show(shown)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


_under_way: list[object] = []
"""What goes on at the moment, of all threads and within each other. The line is the last one's that began."""


@contextlib.contextmanager
def _counted(text: str) -> Generator[None]:
    if not _screen.moves:
        yield
        return
    began_s, mine = _clock.monotonic_s(), object()

    def stands() -> str:
        return f"{text} ({_clock.monotonic_s() - began_s:.0f} s)" if _under_way[-1:] == [mine] else ""

    with _screen.lock:
        _under_way.append(mine)
    counting = _Counting(stands)
    try:
        yield
    finally:
        with _screen.lock:
            _under_way.remove(mine)
        counting.end()
        _screen.clear()


_lasting: list[Callable[[str], AbstractContextManager[None]]] = [_counted]


def when_lasting(show: Callable[[str], AbstractContextManager[None]]) -> None:
    """Have another one show what goes on for long: who has a moving line of their own."""
    _lasting[:] = [show]


def lasting(text: str, *, quiet: bool = False) -> AbstractContextManager[None]:
    """While it goes on for over a second, a moving line says so; where none can move, nothing does."""
    return contextlib.nullcontext() if quiet else _lasting[0](text)


def calling(name: str, *, quiet: bool) -> AbstractContextManager[None]:
    """The same while a call is packed, sent and waited for."""
    return lasting(f"{name}() is under way …", quiet=quiet)


def sending(size: int, *, quiet: bool) -> AbstractContextManager[None]:
    """The same while so many bytes are sent for one call."""
    return lasting(f"sending {size / 1e6:,.0f} MB …", quiet=quiet or size < SENT_BYTES_MIN)


class Tally:
    """Says how many calls have ended, while many are under way for long. Only where a line can move."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
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
