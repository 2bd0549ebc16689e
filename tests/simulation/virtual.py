"""An event loop whose time only passes when nothing is left to do, and then all at once.

Decides: that a wait of an hour takes no time, and that nothing happens between two timers.
Never: looks at a socket or at the real clock. Follows: real loops with real timeouts run as they are written,
always in the same order.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

from sky.kit.clock import ManualClock

IDLE_TURNS_MAX = 5_000
"""Turns of the loop without any time between them, after which nothing will ever make it stop."""


class _Jump(selectors.SelectSelector):
    """Waits by moving the clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("nothing is left that could ever happen")
        if timeout > 0:
            self._clock.advance(timeout)
            self._turns = 0
        self._turns += 1
        if self._turns > IDLE_TURNS_MAX:
            raise AssertionError(f"{IDLE_TURNS_MAX} turns, and no time passes: something never comes to rest")
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on ``clock``."""

    def __init__(self, clock: ManualClock) -> None:
        self._virtual = clock
        super().__init__(_Jump(clock))
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._virtual.monotonic_s()

    # No other thread ever has to wake it, so that it needs no sockets for that.
    def _make_self_pipe(self) -> None:
        pass

    def _close_self_pipe(self) -> None:
        pass
