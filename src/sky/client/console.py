"""What calls print on nodes, printed here while they run.

Decides: which lines are shown (of calls this process made), where, and with which prefix.
Never: shows a line twice or mixes two lines; holds a result back longer than ``SETTLE_S`` for its lines.
Follows: a line may arrive before the answer that names its task, so lines of unknown tasks are kept for a
while; with more than one node each line says which rank wrote it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import TextIO

from sky.client.progress import between_lines
from sky.kit.clock import SystemClock
from sky.wire.v1 import ConsoleEvent

SETTLE_S = 1.0
"""How long a result waits for the lines that were written before it."""
UNKNOWN_MAX = 2_000
"""Events of tasks that are not (yet) known to be ours; the oldest make room."""
DIM, PLAIN = "\x1b[2m", "\x1b[0m"

_clock = SystemClock()


class Console:
    """Prints what is heard of the tasks it expects. Safe to use from several threads."""

    def __init__(self, *, ranks: bool = False, quiet: bool = False) -> None:
        self.ranks = ranks
        self._quiet = quiet
        self._changed = threading.Condition()
        self._lines: dict[str, int] = {}
        self._unknown: deque[ConsoleEvent] = deque(maxlen=UNKNOWN_MAX)
        self._closed = False
        self._waiting: dict[str, list[tuple[int, Callable[[], None]]]] = {}

    def expect(self, *tasks: str) -> None:
        """These tasks are ours; print what was heard of them already."""
        with self._changed:
            for task in tasks:
                self._lines.setdefault(task, 0)
            if self._unknown:
                early = [event for event in self._unknown if event.task in self._lines]
                for event in early:
                    self._unknown.remove(event)
                    self._print(event)

    def heard(self, event: ConsoleEvent) -> None:
        """A node wrote this."""
        if event.task is None:
            return
        with self._changed:
            if event.task in self._lines:
                self._print(event)
                self._changed.notify_all()
            else:
                self._unknown.append(event)

    def settle(self, task: str, lines: int) -> None:
        """Wait until ``lines`` lines of a task were printed, but not for long; later ones are printed."""
        if not task:
            return
        deadline_s = _clock.monotonic_s() + SETTLE_S
        with self._changed:
            while self._lines.get(task, lines) < lines and not self._closed:
                left_s = deadline_s - _clock.monotonic_s()
                if left_s <= 0 or not self._changed.wait(left_s):
                    break
            if self._lines.get(task, lines) >= lines:
                self._lines.pop(task, None)

    def when(self, task: str, lines: int, call: Callable[[], None]) -> Callable[[], None] | None:
        """Call ``call`` once ``lines`` lines of a task were printed, in whatever thread that is.

        Returns how to wait no longer, which must be called; None where they have been printed already.
        """
        with self._changed:
            if self._closed or self._lines.get(task, lines) >= lines:
                self._lines.pop(task, None)
                return None
            entry = (lines, call)
            self._waiting.setdefault(task, []).append(entry)

        def leave() -> None:
            with self._changed:
                waiting = self._waiting.get(task, [])
                if entry in waiting:
                    waiting.remove(entry)
                if not waiting:
                    self._waiting.pop(task, None)
                if self._lines.get(task, lines) >= lines:
                    self._lines.pop(task, None)

        return leave

    def close(self) -> None:
        """Nothing more will be heard: let nobody wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for entries in self._waiting.values():
                for _, call in entries:
                    call()

    def _print(self, event: ConsoleEvent) -> None:
        task = event.task or ""
        lines = event.content.split("\n")
        self._lines[task] = self._lines.get(task, 0) + len(lines)
        self._write(event, lines)
        for wanted, call in self._waiting.get(task, ()):
            if self._lines[task] >= wanted:
                call()

    def _write(self, event: ConsoleEvent, lines: list[str]) -> None:
        if self._quiet:
            return
        stream = sys.stderr if event.stream == "stderr" else sys.stdout
        prefix = self._prefix(event.rank, stream)
        try:
            with between_lines():
                stream.write("".join(f"{prefix}{line}\n" for line in lines))
                stream.flush()
        except (OSError, ValueError):
            # Our own output is closed (a pipe's reader left): the calls go on.
            self._quiet = True

    def _prefix(self, rank: int | None, stream: TextIO) -> str:
        if not self.ranks or rank is None:
            return ""
        label = f"[rank {rank}] "
        return f"{DIM}{label}{PLAIN}" if stream.isatty() else label
