"""Tells a console what becomes of the holds of jobs, until it has taken it.

Decides: when a console that did not answer is asked again. Never: gives an order that was not noted before.
Follows: an answer that was lost is had by giving the same order once more; a settlement outlives any outage;
with no console configured, what is noted waits until there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sky.console.bridge import Bridge, Disputed, Unavailable
from sky.domain.hold import HoldView, extension_name
from sky.kit.clock import SECOND_US, Clock
from sky.plan import hold as plan
from sky.reconcile.passes import Done, OuterLoop
from sky.store.db import Database
from sky.store.rows import holds
from sky.store.tx import Tx
from sky.verbs import holds as verbs
from sky.wire import console as wire

ORPHAN_TIMEOUTS = 2
"""A hold whose job is not written after so many times the longest answer has no job."""
AGAIN_US = 2 * SECOND_US
AGAIN_US_MAX = 60 * SECOND_US
"""An end that waits long is told less often: after a quarter of the time that it has waited."""


class Holds(OuterLoop):
    """One pass: give the console the order that is due, write what it answered."""

    name: ClassVar[str] = "holds"
    idle: ClassVar[str] = "no console is owed an order"

    def __init__(self, db: Database, clock: Clock, bridge: Bridge) -> None:
        self._db = db
        self._clock = clock
        self._bridge = bridge
        self._orphan_us = round(ORPHAN_TIMEOUTS * bridge.timeout_s * SECOND_US)

    async def look(self, key_id: str) -> Done:
        now_us = self._clock.now_us()
        view = await self._db.read(lambda c: holds.view(c, key_id, now_us))
        decision = plan.plan(view, now_us, orphan_us=self._orphan_us)
        if not decision.actions:
            return Done(decision.why, decision.next_us)
        [action] = decision.actions
        try:
            write = await self._do(key_id, action)
        except Unavailable as error:
            return Done(f"the console did not decide: {error}", now_us + _patience_us(view, now_us))
        return Done(decision.why, decision.next_us, write)

    async def _do(self, job_id: str, action: plan.Action) -> Callable[[Tx], None]:
        match action:
            case plan.GiveUp():
                return lambda tx: verbs.give_up(tx, job_id)
            case plan.Release():
                await self._bridge.release(job_id)
                return lambda tx: verbs.forget(tx, job_id)
            case plan.Settle(charge_micro):
                if charge_micro:
                    await self._bridge.settle(job_id, charge_micro)
                else:
                    await self._bridge.release(job_id)
                return lambda tx: verbs.settled(tx, job_id, charge_micro)
            case plan.Extend(ordinal, amount_micro):
                named = extension_name(job_id, ordinal)
                answer = await self._bridge.extend(job_id, named, amount_micro)
                return _extended(job_id, ordinal, amount_micro, answer)


def _extended(job_id: str, ordinal: int, amount_micro: int, answer: wire.HoldAnswer) -> Callable[[Tx], None]:
    if answer.status == "held":
        return lambda tx: verbs.extended(tx, job_id, ordinal, amount_micro)
    if answer.status == "over":
        raise Disputed(f"the console says that the hold of {job_id} is over, and its job runs")
    return lambda tx: verbs.refused(tx, job_id, amount_micro, answer.balance_usd)


def _patience_us(view: HoldView, now_us: int) -> int:
    waited_us = 0 if view.finished_us is None else now_us - view.finished_us
    return max(AGAIN_US, min(AGAIN_US_MAX, waited_us // 4))
