"""Tells webhook endpoints what happened to their owner's jobs, at least once each.

Decides: when a delivery is tried again, and when an endpoint is left alone. Never: lets a customer wait for
the endpoints of another. Follows: each pass sends at most one message; what is noted before it is sent is
sent again after a crash, under the same id.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING, Any, ClassVar

from sky.kit.clock import SECOND_US, Clock
from sky.reconcile.passes import Done, OuterLoop
from sky.reconcile.turns import AT_ONCE_MAX, Turns
from sky.store.db import Database
from sky.store.rows import webhooks as rows
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import webhooks as verbs
from sky.wire import jobs as wire
from sky.wire.webhooks import payload

if TYPE_CHECKING:
    from sky.reconcile.sender import Sent

RETRY_S = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""How long after each try that failed the next one comes: ten tries over about three days."""
GONE = 410
TURN_US = SECOND_US
"""How soon an endpoint for which there was no place is looked at again."""


class Webhooks(OuterLoop):
    """One pass: spread new events, send the delivery that is due, write what became of it."""

    name: ClassVar[str] = "webhooks"
    idle: ClassVar[str] = "no webhook has anything to be told"
    passes_max: ClassVar[int] = AT_ONCE_MAX

    def __init__(self, db: Database, clock: Clock, sealing: verbs.Sealing) -> None:
        self._db = db
        self._clock = clock
        self._sealing = sealing
        self._turns = Turns()

    async def look(self, key_id: str) -> Done:
        webhook = await self._db.write(lambda tx: _spread(tx, key_id), later=True)
        if webhook is None:
            return Done("there is no such endpoint, or it is disabled")
        delivery = await self._db.read(lambda c: rows.due(c, key_id))
        if delivery is None:
            return Done("everything is delivered")
        now_us = self._clock.now_us()
        if delivery["due_us"] > now_us:
            return Done("the next try has its time", delivery["due_us"])
        if (rests_us := self._turns.rests_until_us(key_id)) > now_us:
            return Done("it did not answer, and is left alone for a while", rests_us)
        if not self._turns.has_room(webhook["owner"], key_id):
            return Done("other endpoints of its customer, or that hang, are being told", now_us + TURN_US)
        with self._turns.taken(webhook["owner"], key_id):
            sent = await self._send(webhook, delivery, now_us)
        if sent.hung:
            self._turns.did_not_answer(key_id, self._clock.now_us())
        else:
            self._turns.answered(key_id)
        return Done(
            f"sent: {sent.error or sent.status}",
            now_us,
            lambda tx: _note(tx, webhook, delivery, sent),
        )

    async def _send(self, webhook: Row, delivery: Row, now_us: int) -> Sent:
        event = wire.Event(
            id=delivery["event_id"],
            object="compute.event",
            job_id=delivery["job_id"],
            type=delivery["type"],
            created_at=delivery["at_us"] // SECOND_US,
            data=delivery["data"],
        )
        secrets = verbs.signing(webhook["secrets"], self._sealing, now_us)
        body = payload(event, delivery["event_seq"])
        await asyncio.to_thread(importlib.import_module, "aiohttp")
        from sky.reconcile.sender import Sender

        sender = Sender(loopback=self._sealing.loopback)
        return await sender.send(webhook["url"], event.id, now_us // SECOND_US, body, secrets)


def _spread(tx: Tx, webhook_id: str) -> Row | None:
    webhook = rows.find(tx.connection, webhook_id)
    if webhook is None or not webhook["enabled"]:
        return None
    rows.spread(tx, webhook)
    return webhook


def _note(tx: Tx, webhook: Row, delivery: Row, sent: Sent) -> None:
    attempts = delivery["attempts"] + 1
    values: dict[str, Any] = {
        "attempts": attempts,
        "last_status": sent.status,
        "last_error": sent.error,
        "due_us": None,
        "state": "delivered" if sent.taken else "failed",
    }
    if sent.status == GONE:
        reason = "the endpoint answered 410: it wants no more events"
        rows.change(tx, webhook["id"], {"enabled": False, "disabled_reason": reason})
    elif not sent.taken and attempts <= len(RETRY_S):
        values |= {"state": "pending", "due_us": tx.now_us + RETRY_S[attempts - 1] * SECOND_US}
    rows.tried(tx, delivery, values)
