"""The line in which verbs wait for the one writer.

Decides: who is next: verbs that somebody waits for before those of the loops, of which a commit takes a few
at a time. Never: runs a verb. Follows: however much the loops have to write, an answer is late by a few of
their passes at most; and since each commit takes some of them, they go on however much is asked for.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

VERBS_PER_COMMIT_MAX = 128
PASSES_PER_COMMIT_MAX = 4
"""Verbs of the loops in a commit: whoever asks meanwhile waits for so many."""
WRITES_WAITING_MAX = 10_000
"""Verbs that may wait for the writer; beyond that, callers are told to come again."""


class Line(Generic[T]):
    """Two queues with one door. Put from any thread, taken by one."""

    def __init__(self) -> None:
        self._first: deque[T] = deque()
        self._later: deque[T] = deque()
        self._news = threading.Condition(threading.Lock())
        self._ended = False

    def put(self, item: T, *, later: bool) -> bool:
        """Wait here; False: too many do."""
        with self._news:
            if len(self._first) + len(self._later) >= WRITES_WAITING_MAX:
                return False
            (self._later if later else self._first).append(item)
            self._news.notify()
            return True

    def __len__(self) -> int:
        return len(self._first) + len(self._later)

    def end(self) -> None:
        """What is in line is still taken, and then the line is over."""
        with self._news:
            self._ended = True
            self._news.notify()

    def take(self) -> list[T]:
        """Who is next, for one commit; waits until somebody is. Empty: the line is over."""
        with self._news:
            while not (self._first or self._later or self._ended):
                self._news.wait()
            taken = [self._first.popleft() for _ in range(min(len(self._first), VERBS_PER_COMMIT_MAX))]
            passes = min(len(self._later), PASSES_PER_COMMIT_MAX)
            return taken + [self._later.popleft() for _ in range(passes)]
