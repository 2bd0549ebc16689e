"""Forgets what is kept only for a time: keys, requests that ended, notes about what is over, and events.

Decides: how often, and how much at once. Never: drops what may still be asked for: a key within its seven
days, a note within its day, a request and an event within the time that the operator has set, which for
events is for ever unless set.
Follows: much that is old at once is dropped bit by bit, with other work between.
"""

from __future__ import annotations

from typing import ClassVar

from sky.domain.keeping import USUAL
from sky.kit.clock import SECOND_US
from sky.reconcile.passes import Done, InnerLoop
from sky.store import events, passes
from sky.store.rows import requests
from sky.store.tx import Tx

LOOK_EVERY_US = 300 * SECOND_US
LOOK_AGAIN_US = SECOND_US // 10
"""When there is more to drop than is dropped at once."""
REQUESTS_MAX = 500
"""Requests that are dropped at once."""
LATENESS = 10
"""Events go at most this part of their time too late."""


class Forget(InnerLoop):
    """One pass: some of what is old."""

    name: ClassVar[str] = "forget"
    idle: ClassVar[str] = "it has not looked yet what is old"

    def __init__(self, events_kept_us: int | None = None, requests_kept_us: int = USUAL.requests_us) -> None:
        """``events_kept_us``: for how long events can be replayed; None: for ever."""
        self._events_kept_us = events_kept_us
        self._requests_kept_us = requests_kept_us

    def look(self, tx: Tx, key_id: str) -> Done:
        tx.forget_keys()
        notes = passes.forget(tx)
        ended = requests.forget(tx, tx.now_us - self._requests_kept_us, REQUESTS_MAX)
        dropped, every_us = 0, LOOK_EVERY_US
        if self._events_kept_us is not None:
            dropped = events.forget(tx, tx.now_us - self._events_kept_us)
            every_us = min(every_us, max(SECOND_US, self._events_kept_us // LATENESS))
        more = notes == passes.FORGOTTEN_MAX or ended == REQUESTS_MAX or dropped == events.FORGOTTEN_MAX
        why = f"of what is {key_id}, dropped {notes} notes, {ended} requests and {dropped} events"
        return Done(why, tx.now_us + (LOOK_AGAIN_US if more else every_us))
