"""Who may be sent a webhook now: so many at once of each customer, few of those that did not answer before.

Decides: how long an endpoint that hung is left alone, and that those which hang share a few places. Never:
keeps that beyond this process: after a restart each is tried once more.
Follows: however many endpoints of one customer hang, those of others are told at once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

from sky.kit.clock import SECOND_US

AT_ONCE_MAX = 512
OF_OWNER_MAX = 8
"""Messages on their way to the endpoints of one customer."""
HUNG_AT_ONCE_MAX = 64
"""Messages on their way to endpoints that did not answer the last time."""
REST_US = 15 * SECOND_US
REST_US_MAX = 300 * SECOND_US
KNOWN_MAX = 10_000
"""How many endpoints that hang are remembered; beyond that, the one that hung longest ago is not."""


class Turns:
    """The places that there are. ``hung`` has, by endpoint: how often in a row it did not answer, and until
    when it is left alone."""

    def __init__(self) -> None:
        self._hung: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._of_owner: Counter[str] = Counter()
        self._to_hung = 0

    def rests_until_us(self, webhook_id: str) -> int:
        """Until when an endpoint is left alone; 0: it is not."""
        return self._hung.get(webhook_id, (0, 0))[1]

    def has_room(self, owner: str, webhook_id: str) -> bool:
        """Whether an endpoint of that customer may be sent something now."""
        if self._of_owner[owner] >= OF_OWNER_MAX:
            return False
        return webhook_id not in self._hung or self._to_hung < HUNG_AT_ONCE_MAX

    @contextmanager
    def taken(self, owner: str, webhook_id: str) -> Generator[None]:
        """Around the sending."""
        hung = webhook_id in self._hung
        self._of_owner[owner] += 1
        self._to_hung += hung
        try:
            yield
        finally:
            self._to_hung -= hung
            self._of_owner[owner] -= 1
            if not self._of_owner[owner]:
                del self._of_owner[owner]

    def answered(self, webhook_id: str) -> None:
        """It did, whatever it said."""
        self._hung.pop(webhook_id, None)

    def did_not_answer(self, webhook_id: str, now_us: int) -> None:
        """It is left alone for a while, longer each time."""
        times = self._hung.pop(webhook_id, (0, 0))[0] + 1
        rest_us = min(REST_US_MAX, REST_US << min(times - 1, 10))
        self._hung[webhook_id] = (times, now_us + rest_us)
        while len(self._hung) > KNOWN_MAX:
            self._hung.popitem(last=False)
