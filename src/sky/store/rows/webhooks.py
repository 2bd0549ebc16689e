"""Webhook endpoints and what is on its way to them, as rows.

Decides: nothing. Never: sends. Follows: an event gets one delivery per endpoint, however often it is looked
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from sky.kit import ids
from sky.store.prepared import prepared
from sky.store.schema_jobs import IS_PENDING, deliveries, job_events, webhooks
from sky.store.sql import Row, insert_ignore, many, one
from sky.store.tx import Tx

SPREAD_MAX = 500
"""How many events are given to an endpoint at once."""


def add(tx: Tx, row: Mapping[str, Any]) -> None:
    """Keep a new endpoint; it begins with what happens from now on."""
    last = tx.connection.execute(sa.select(sa.func.max(job_events.c.seq))).scalar() or 0
    tx.connection.execute(sa.insert(webhooks).values(**row, after_seq=last))


def find(connection: sa.Connection, webhook_id: str, owner: str | None = None) -> Row | None:
    """The endpoint with that id, while it is there and ``owner``'s (None: whoever's)."""
    query = sa.select(webhooks).where(webhooks.c.id == webhook_id, webhooks.c.deleted_us.is_(None))
    if owner is not None:
        query = query.where(webhooks.c.owner == owner)
    return one(connection, query)


def of_owner(connection: sa.Connection, owner: str) -> list[Row]:
    """An owner's endpoints, oldest first."""
    query = sa.select(webhooks).where(webhooks.c.owner == owner, webhooks.c.deleted_us.is_(None))
    return many(connection, query.order_by(webhooks.c.seq))


def listening(connection: sa.Connection, owner: str) -> list[str]:
    """Ids of the endpoints that want to hear of an owner's jobs."""
    return [row["id"] for row in many(connection, _LISTENING, {"b_owner": owner})]


def change(tx: Tx, webhook_id: str, values: Mapping[str, Any]) -> None:
    """Set columns of an endpoint."""
    tx.connection.execute(sa.update(webhooks).where(webhooks.c.id == webhook_id).values(**values))


def forget(tx: Tx, webhook_id: str) -> None:
    """Have an endpoint gone, and what was not sent to it over: nobody will send it."""
    change(tx, webhook_id, {"deleted_us": tx.now_us, "enabled": False})
    unsent = sa.and_(deliveries.c.webhook_id == webhook_id, IS_PENDING)
    over = {"state": "failed", "due_us": None, "last_error": "the endpoint was deleted"}
    tx.connection.execute(sa.update(deliveries).where(unsent).values(**over))


def spread(tx: Tx, webhook: Row) -> int:
    """Make a delivery of each event that an endpoint has not been given; returns how many were looked at."""
    query = (
        sa.select(job_events.c.seq, job_events.c.id, job_events.c.type)
        .where(job_events.c.owner == webhook["owner"], job_events.c.seq > webhook["after_seq"])
        .order_by(job_events.c.seq)
        .limit(SPREAD_MAX)
    )
    found = many(tx.connection, query)
    if not found:
        return 0
    rows = [
        {
            "id": ids.new("delivery"),
            "webhook_id": webhook["id"],
            "event_seq": event["seq"],
            "event_id": event["id"],
            "state": "pending",
            "attempts": 0,
            "created_us": tx.now_us,
            "due_us": tx.now_us,
        }
        for event in found
        if webhook["types"] is None or event["type"] in webhook["types"]
    ]
    if rows:
        statement = insert_ignore(tx.connection.dialect.name, deliveries, list(rows[0]))
        tx.connection.execute(statement, rows)
    change(tx, webhook["id"], {"after_seq": found[-1]["seq"]})
    return len(found)


def due(connection: sa.Connection, webhook_id: str) -> Row | None:
    """The next delivery to an endpoint, with its event; its time may not have come."""
    return one(connection, _DUE, {"b_webhook": webhook_id})


def tried(tx: Tx, sent: Row, values: Mapping[str, Any]) -> None:
    """Note what became of a try; where it was asked for once more meanwhile (``again``), that stands."""
    same = sa.and_(deliveries.c.id == sent["id"], deliveries.c.due_us == sent["due_us"])
    tx.connection.execute(sa.update(deliveries).where(same).values(**values, tried_us=tx.now_us))


def again(tx: Tx, webhook_id: str, delivery_id: str) -> bool:
    """Have a delivery tried once more now; False when there is none of that id."""
    statement = (
        sa.update(deliveries)
        .where(deliveries.c.id == delivery_id, deliveries.c.webhook_id == webhook_id)
        .values(state="pending", due_us=tx.now_us, attempts=0)
    )
    return tx.connection.execute(statement).rowcount == 1


def delivery(connection: sa.Connection, delivery_id: str) -> Row | None:
    """The delivery with that id."""
    return one(connection, sa.select(deliveries).where(deliveries.c.id == delivery_id))


def page(connection: sa.Connection, webhook_id: str, before_event: int | None, limit: int) -> list[Row]:
    """An endpoint's deliveries, newest first: in the order of their events, for which there is an index."""
    query = sa.select(deliveries).where(deliveries.c.webhook_id == webhook_id)
    if before_event is not None:
        query = query.where(deliveries.c.event_seq < before_event)
    return many(connection, query.order_by(deliveries.c.event_seq.desc()).limit(limit))


_LISTENING = prepared(
    sa.select(webhooks.c.id).where(
        webhooks.c.owner == sa.bindparam("b_owner"),
        webhooks.c.enabled.is_(True),
        webhooks.c.deleted_us.is_(None),
    )
)
_DUE = prepared(
    sa.select(
        deliveries.c.id,
        deliveries.c.attempts,
        deliveries.c.due_us,
        deliveries.c.event_seq,
        job_events.c.id.label("event_id"),
        job_events.c.job_id,
        job_events.c.type,
        job_events.c.data,
        job_events.c.at_us,
    )
    .select_from(deliveries.join(job_events, job_events.c.seq == deliveries.c.event_seq))
    .where(deliveries.c.webhook_id == sa.bindparam("b_webhook"), IS_PENDING)
    .order_by(deliveries.c.due_us, deliveries.c.seq)
    .limit(1)
)
