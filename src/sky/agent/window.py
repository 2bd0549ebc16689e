"""How many executions a node asks to hold, and how many a worker is sent ahead of time.

Decides both from how long recent calls took: short calls are held in numbers, so that a node never waits for
a message; long ones never wait here while another node is idle.
Never: looks at what the calls are. Follows: a node of one-second calls holds what it runs; a node of calls
that do nothing holds about ``AHEAD_S`` of work.
"""

from __future__ import annotations

import math

AHEAD_S = 0.050
SHORT_CALL_S = 0.020
WINDOW_MAX = 256
WORKER_SHORT_CALL_S = 0.005
WORKER_AHEAD_S = 0.004
WORKER_AHEAD_MAX = 16
SMOOTHING = 0.2
OVERHEAD_S = 0.0001
"""What a call costs beside its own time: messages, pickling."""


def smooth(mean_s: float | None, seconds: float) -> float:
    """The moving mean of call durations after one more."""
    cost = seconds + OVERHEAD_S
    return cost if mean_s is None else mean_s + SMOOTHING * (cost - mean_s)


def worker_ahead(mean_s: float | None, slots: int) -> int:
    """How many calls a worker may be sent beyond its slots."""
    if mean_s is None or mean_s >= WORKER_SHORT_CALL_S:
        return 0
    return min(WORKER_AHEAD_MAX, math.ceil(slots * WORKER_AHEAD_S / mean_s))


class Window:
    """The node's window. Grows at most twofold at a time; shrinks at once."""

    def __init__(self, slots: int, buffer: int) -> None:
        self._slots = slots
        self._buffer = buffer
        self._ahead = 0
        self._mean_s: float | None = None

    @property
    def size(self) -> int:
        """How many executions the node would hold, running ones included."""
        return self._slots + self._buffer + self._ahead

    def note(self, seconds: float) -> None:
        """A call took so long."""
        mean = self._mean_s = smooth(self._mean_s, seconds)
        if mean >= SHORT_CALL_S:
            self._ahead = 0
            return
        wanted = max(0, min(WINDOW_MAX - self._slots, math.ceil(self._slots * AHEAD_S / mean)))
        if wanted < self._ahead // 2 or wanted > self._ahead + self._ahead // 4:
            self._ahead = min(wanted, 2 * (self._slots + self._ahead) - self._slots)
