"""How often a key may ask: token buckets, one per key and kind of request, kept in this process.

Decides: whether a request is within its rate, and when the next one is. Never: survives a restart.
Follows: a key that asks too often is told in how many whole seconds to come again; buckets that are full
again are forgotten, so memory follows the keys that are in use.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from sky.kit.clock import Clock

KEYS_MAX = 100_000


class Buckets:
    """The buckets of all keys."""

    def __init__(self, clock: Clock, *, submits_per_hour: int, reads_per_minute: int) -> None:
        self._clock = clock
        self._rates = {
            True: (submits_per_hour, submits_per_hour / 3600),
            False: (reads_per_minute, reads_per_minute / 60),
        }
        self._left: OrderedDict[tuple[str, bool], tuple[float, float]] = OrderedDict()

    def take(self, key_id: str, *, submits: bool) -> int:
        """Count one request; 0 when it is within the rate, else in how many seconds to come again."""
        size, per_second = self._rates[submits]
        now_s = self._clock.monotonic_s()
        left, since_s = self._left.pop((key_id, submits), (float(size), now_s))
        left = min(float(size), left + (now_s - since_s) * per_second)
        after_s = 0
        if left >= 1:
            left -= 1
        else:
            after_s = max(1, math.ceil((1 - left) / per_second))
        self._left[key_id, submits] = (left, now_s)
        if len(self._left) > KEYS_MAX:
            self._left.popitem(last=False)
        return after_s
