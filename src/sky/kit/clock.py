"""The only place that reads time.

Decides: what "now" is, as integer microseconds since 1970 in UTC, and how an interval is measured.
Never: sleeps, schedules, or formats for people.
Follows: everything that stores or compares a moment takes it from a ``Clock``, so a test can own time.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

SECOND_US = 1_000_000


class Clock(Protocol):
    """What reads time. ``now_us`` is wall time; ``monotonic_s`` is for intervals and never steps."""

    def now_us(self) -> int: ...

    def monotonic_s(self) -> float: ...


class SystemClock:
    """The real one."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to, for tests and simulations."""

    def __init__(self, start_us: int = 1_800_000_000 * SECOND_US) -> None:
        self._now_us = start_us
        self._monotonic_s = 0.0

    def now_us(self) -> int:
        return self._now_us

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Move both readings forward together."""
        self._now_us += round(seconds * SECOND_US)
        self._monotonic_s += seconds

    def step_wall(self, seconds: float) -> None:
        """Step the wall clock alone, as an operator or a time service does."""
        self._now_us += round(seconds * SECOND_US)


def to_datetime(us: int) -> datetime:
    """A stored moment as an aware UTC datetime."""
    return datetime.fromtimestamp(us / SECOND_US, UTC)
