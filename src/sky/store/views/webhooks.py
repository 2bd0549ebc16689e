"""Webhooks of accounts and what was sent to them, as an operator is shown them.

Decides: how a row becomes a shape of ``wire/admin``. Never: shows a secret, or what a message said.
Follows: what is looked at again and again costs by what is shown, and not by what was ever sent.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sky.domain.errors import NotFound
from sky.kit.clock import to_datetime
from sky.store.rows import webhooks as rows
from sky.store.schema_jobs import IS_FAILED, IS_PENDING, deliveries, job_events
from sky.store.sql import Row, many, one
from sky.store.views import accounts
from sky.store.views.errors import moment
from sky.store.views.paging import cut, place_of
from sky.wire import admin
from sky.wire.webhooks import DeliveryState

CURSOR = "deliveries"
_IN: dict[DeliveryState, sa.ColumnElement[bool]] = {
    "pending": IS_PENDING,
    "failed": IS_FAILED,
    "delivered": deliveries.c.state == "delivered",
}


def find(connection: sa.Connection, webhook_id: str) -> Row:
    """The webhook with that id, whoever's it is. Raises NotFound."""
    row = rows.find(connection, webhook_id)
    if row is None:
        msg = (
            f"there is no webhook {webhook_id[:80]!r}; `sky admin webhook list ACCOUNT` shows those there are"
        )
        raise NotFound(msg, details={"webhook": webhook_id[:80]})
    return row


def webhook(connection: sa.Connection, webhook_id: str) -> admin.Webhook:
    """A webhook as it is. Raises NotFound."""
    return _webhook(connection, find(connection, webhook_id))


def of_account(connection: sa.Connection, ref: str) -> admin.WebhookPage:
    """An account's webhooks. Raises NotFound."""
    owner = accounts.OWNER + accounts.find(connection, ref)["id"]
    return admin.WebhookPage(
        items=tuple(_webhook(connection, row) for row in rows.of_owner(connection, owner))
    )


def sent(
    connection: sa.Connection,
    webhook_id: str,
    state: DeliveryState | None,
    *,
    cursor: str | None,
    limit: int,
) -> admin.DeliveryPage:
    """What was sent to a webhook, newest first: all of it, or what is in a state. Raises NotFound."""
    query = _events().where(deliveries.c.webhook_id == find(connection, webhook_id)["id"])
    if state is not None:
        query = query.where(_IN[state])
    if (place := place_of(CURSOR, cursor)) is not None:
        query = query.where(deliveries.c.event_seq < place)
    found = many(connection, query.order_by(deliveries.c.event_seq.desc()).limit(limit + 1))
    shown, following = cut(found, limit, CURSOR, lambda row: row["event_seq"])
    return admin.DeliveryPage(items=tuple(_delivery(row) for row in shown), next_cursor=following)


def delivery(connection: sa.Connection, webhook_id: str, delivery_id: str) -> admin.Delivery:
    """One of them. Raises NotFound."""
    query = _events().where(deliveries.c.webhook_id == webhook_id, deliveries.c.id == delivery_id)
    row = one(connection, query)
    if row is None:
        msg = (
            f"webhook {webhook_id!r} has no delivery {delivery_id[:80]!r}; it may be older than what is kept"
        )
        raise NotFound(msg, details={"webhook": webhook_id, "delivery": delivery_id[:80]})
    return _delivery(row)


def _events() -> sa.Select[Any]:
    # Each has its event: those are kept for good. The outer join only says which of both is read first.
    both = sa.outerjoin(deliveries, job_events, job_events.c.seq == deliveries.c.event_seq)
    return sa.select(deliveries, job_events.c.type, job_events.c.job_id).select_from(both)


def _webhook(connection: sa.Connection, row: Row) -> admin.Webhook:
    return admin.Webhook(
        id=row["id"],
        url=row["url"],
        types=None if row["types"] is None else tuple(row["types"]),
        enabled=row["enabled"],
        disabled_reason=row["disabled_reason"],
        created_at=to_datetime(row["created_us"]),
        pending=_count(connection, row["id"], IS_PENDING),
        failed=_count(connection, row["id"], IS_FAILED),
    )


def _count(connection: sa.Connection, webhook_id: str, which: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(deliveries).where(deliveries.c.webhook_id == webhook_id)
    return connection.execute(query.where(which)).scalar_one()


def _delivery(row: Row) -> admin.Delivery:
    return admin.Delivery(
        id=row["id"],
        event=row["type"],
        job=row["job_id"],
        state=row["state"],
        attempts=row["attempts"],
        last_status=row["last_status"],
        last_error=row["last_error"],
        created_at=to_datetime(row["created_us"]),
        tried_at=moment(row["tried_us"]),
        next_at=moment(row["due_us"]),
    )
