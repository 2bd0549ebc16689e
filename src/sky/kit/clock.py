"""The only place that reads time.

Decides: what "now" is, as integer microseconds since 1970 in UTC, and how an interval is measured.
Never: sleeps, schedules, or formats for people.
Follows: everything that stores or compares a moment takes it from a ``Clock``, so a test can own time.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

SECOND_US = 1_000_000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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


@dataclass(frozen=True, slots=True)
class SinceBoot:
    """How long this computer has run since it was started, and how much of that it was asleep."""

    boot: str
    seconds: float
    asleep_s: float


def since_boot() -> SinceBoot | None:
    """None where that cannot be told: only Linux says which start it is."""
    try:
        boot = BOOT_ID.read_text(encoding="ascii").strip()
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError, UnicodeDecodeError):
        return None
    return SinceBoot(boot, seconds, seconds - time.clock_gettime(time.CLOCK_MONOTONIC))


class SteadyClock:
    """Wall time that never steps: it runs with the monotonic clock and leans towards the wall.

    When somebody sets the wall clock, what is measured between two readings stays right within
    ``LEAN_MAX``, and the gap closes over the following hours. Safe to read from several threads.
    """

    LEAN_MAX = 0.1

    def __init__(self, wall: Clock, from_us: int | None = None) -> None:
        self._wall = wall
        self._lock = threading.Lock()
        self._read_s = wall.monotonic_s()
        self._now_us = wall.now_us() if from_us is None else from_us

    def not_before(self, us: int) -> None:
        """Never again say a moment before ``us``, such as the last one that was written down."""
        with self._lock:
            self._now_us = max(self._now_us, us)

    def now_us(self) -> int:
        with self._lock:
            monotonic_s = self._wall.monotonic_s()
            passed_us = max(0, round((monotonic_s - self._read_s) * SECOND_US))
            lean_us = round(passed_us * self.LEAN_MAX)
            gap_us = self._wall.now_us() - self._now_us - passed_us
            self._now_us += passed_us + max(-lean_us, min(lean_us, gap_us))
            self._read_s = monotonic_s
            return self._now_us

    def monotonic_s(self) -> float:
        return self._wall.monotonic_s()


class AgreedClock:
    """Wall time as somebody else has it, whom all who must agree go by; ours until they were asked."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._ahead_us = 0

    def heard(self, theirs_us: int, asked_us: int, answered_us: int) -> None:
        """They said ``theirs_us`` between two moments of our own clock."""
        self._ahead_us = theirs_us - (asked_us + answered_us) // 2

    def own_us(self) -> int:
        """What our own clock says."""
        return self._own.now_us()

    def now_us(self) -> int:
        return self._own.now_us() + self._ahead_us

    def monotonic_s(self) -> float:
        return self._own.monotonic_s()


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
