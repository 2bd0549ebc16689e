"""Tells whoever follows the events what each compute has cost so far.

Decides: how often. Never: records it: a cost is a sum of machine time, and can be read at any moment.
Follows: with nobody listening nothing is read, and what costs nothing is not told.
"""

from __future__ import annotations

import asyncio

from sky.kit import codec
from sky.kit.clock import Clock, to_datetime
from sky.store.db import Database
from sky.store.events import Hub
from sky.store.tx import Event
from sky.store.views import computes
from sky.wire import v1

COST_EVERY_S = 5.0


class Costs:
    """Publishes ``compute.cost``."""

    def __init__(self, db: Database, hub: Hub, clock: Clock) -> None:
        self._db = db
        self._hub = hub
        self._clock = clock

    async def run_forever(self) -> None:
        """Tell it every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(COST_EVERY_S)
            await self.tell()

    async def tell(self) -> None:
        """Tell it once, if anybody listens."""
        if not self._hub.followed:
            return
        now_us = self._clock.now_us()
        for compute, cost, nodes in await self._db.read(lambda c: computes.running_costs(c, now_us)):
            told = v1.CostEvent(compute=compute, cost=cost, nodes=nodes, at=to_datetime(now_us))
            self._hub.publish([Event(0, "compute.cost", codec.dumps(told), compute_id=compute)])
