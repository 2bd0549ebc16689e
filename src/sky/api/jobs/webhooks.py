"""Webhook endpoints of an account, and what was sent to them.

Decides: nothing; ``verbs/webhooks`` does. Never: shows a secret twice. Follows: another owner's endpoint
looks like none.
"""

from __future__ import annotations

from typing import Any

from litestar.response.base import ASGIResponse
from msgspec import UNSET

from sky.api.jobs.route import PREFIX, JobAsk, reply, route
from sky.domain.job_errors import JobRefused
from sky.kit.clock import SECOND_US
from sky.store.rows import webhooks as rows
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import webhooks as verbs
from sky.wire import webhooks as wire

TAG = "webhooks"
ROOT = f"{PREFIX}/webhook_endpoints"
ONE = f"{ROOT}/{{id}}"
PAGE_MAX = 100


@route(
    "POST",
    ROOT,
    tag=TAG,
    answers=wire.Webhook,
    statuses=(201,),
    body=wire.WebhookCreate,
    codes=("malformed_body", "invalid_url"),
)
async def create_webhook_endpoint(ask: JobAsk) -> ASGIResponse:
    """Have events of your jobs sent to an address

    Signed as Standard Webhooks are; the secret is in this answer and can never be had again.
    """
    owner = await _owner(ask)
    body: wire.WebhookCreate = await ask.body(wire.WebhookCreate)

    def verb(tx: Tx) -> wire.Webhook:
        webhook_id, secret = verbs.create(tx, owner, body, ask.selling.sealing)
        return _shown(_found(tx.connection, webhook_id, owner), secret)

    webhook = await ask.unit.db.write(verb)
    return reply(webhook, 201, location=f"{ROOT}/{webhook.id}", cache_control="no-store")


@route("GET", ROOT, tag=TAG, answers=wire.WebhookList)
async def list_webhook_endpoints(ask: JobAsk) -> ASGIResponse:
    """List your endpoints"""
    owner = await _owner(ask)
    found = await ask.unit.db.read(lambda c: rows.of_owner(c, owner))
    return reply(wire.WebhookList(object="list", data=tuple(_shown(row) for row in found)))


@route("GET", ONE, tag=TAG, answers=wire.Webhook, codes=("not_found",))
async def get_webhook_endpoint(ask: JobAsk) -> ASGIResponse:
    """Show an endpoint"""
    owner = await _owner(ask)
    return reply(_shown(await ask.unit.db.read(lambda c: _found(c, ask.path["id"], owner))))


@route(
    "PATCH",
    ONE,
    tag=TAG,
    answers=wire.Webhook,
    body=wire.WebhookPatch,
    codes=("malformed_body", "invalid_url", "not_found"),
)
async def change_webhook_endpoint(ask: JobAsk) -> ASGIResponse:
    """Change where an endpoint is, what it hears of, or whether it hears at all"""
    owner = await _owner(ask)
    body: wire.WebhookPatch = await ask.body(wire.WebhookPatch)

    def verb(tx: Tx) -> wire.Webhook:
        verbs.change(tx, _found(tx.connection, ask.path["id"], owner), body, ask.selling.sealing)
        return _shown(_found(tx.connection, ask.path["id"], owner))

    return reply(await ask.unit.db.write(verb))


@route("DELETE", ONE, tag=TAG, answers=wire.Deleted, codes=("not_found",))
async def delete_webhook_endpoint(ask: JobAsk) -> ASGIResponse:
    """Forget an endpoint"""
    owner = await _owner(ask)
    await ask.unit.db.write(lambda tx: verbs.delete(tx, _found(tx.connection, ask.path["id"], owner)))
    gone = wire.Deleted(id=ask.path["id"], object="compute.webhook_endpoint", deleted=True)
    return reply(gone)


@route("POST", f"{ONE}/rotate", tag=TAG, answers=wire.Webhook, codes=("not_found",))
async def rotate_webhook_secret(ask: JobAsk) -> ASGIResponse:
    """Give an endpoint another secret

    For a day the old one signs too.
    """
    owner = await _owner(ask)

    def verb(tx: Tx) -> wire.Webhook:
        row = _found(tx.connection, ask.path["id"], owner)
        return _shown(row, verbs.rotate(tx, row, ask.selling.sealing))

    return reply(await ask.unit.db.write(verb), cache_control="no-store")


@route(
    "GET",
    f"{ONE}/deliveries",
    tag=TAG,
    answers=wire.DeliveryList,
    codes=("not_found", "invalid_limit", "invalid_cursor"),
    query=(
        {"name": "after", "description": "`next` of the page before.", "schema": {"type": "string"}},
        {
            "name": "limit",
            "description": "How many a page has at most.",
            "schema": {"type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": 20},
        },
    ),
)
async def list_webhook_deliveries(ask: JobAsk) -> ASGIResponse:
    """List what was sent to an endpoint, newest first"""
    owner = await _owner(ask)
    limit = ask.number("limit", 1, PAGE_MAX, 20, "invalid_limit")
    after = ask.one("after")

    def read(connection: Any) -> list[Row]:
        webhook = _found(connection, ask.path["id"], owner)
        before = None
        if after is not None:
            place = rows.delivery(connection, after)
            if place is None or place["webhook_id"] != webhook["id"]:
                raise JobRefused("invalid_cursor", "after is no delivery of this endpoint", param="after")
            before = place["event_seq"]
        return rows.page(connection, webhook["id"], before, limit + 1)

    found = await ask.unit.db.read(read)
    data = tuple(_delivery(row) for row in found[:limit])
    more = len(found) > limit
    return reply(
        wire.DeliveryList(object="list", data=data, has_more=more, next=data[-1].id if more else UNSET)
    )


@route(
    "POST",
    f"{ONE}/deliveries/{{delivery}}/redeliver",
    tag=TAG,
    answers=wire.Delivery,
    statuses=(202,),
    codes=("not_found",),
)
async def redeliver_webhook(ask: JobAsk) -> ASGIResponse:
    """Send something once more"""
    owner = await _owner(ask)

    def verb(tx: Tx) -> wire.Delivery:
        verbs.redeliver(tx, _found(tx.connection, ask.path["id"], owner), ask.path["delivery"])
        return _delivery(rows.delivery(tx.connection, ask.path["delivery"]) or {})

    return reply(await ask.unit.db.write(verb), 202)


async def _owner(ask: JobAsk) -> str:
    holder = await ask.customer(counted=ask.request.scope["method"] == "GET")
    ask.need_store("webhook endpoint")
    return holder.customer.owner


def _found(connection: Any, webhook_id: str, owner: str) -> Row:
    row = rows.find(connection, webhook_id, owner)
    if row is None:
        raise JobRefused("not_found", f"you have no webhook endpoint {webhook_id[:40]!r}")
    return row


def _shown(row: Row, secret: str | None = None) -> wire.Webhook:
    return wire.Webhook(
        id=row["id"],
        object="compute.webhook_endpoint",
        url=row["url"],
        types=None if row["types"] is None else tuple(row["types"]),
        enabled=row["enabled"],
        disabled_reason=row["disabled_reason"],
        created_at=row["created_us"] // SECOND_US,
        secret=UNSET if secret is None else secret,
    )


def _delivery(row: Row) -> wire.Delivery:
    return wire.Delivery(
        id=row["id"],
        object="compute.webhook_delivery",
        event_id=row["event_id"],
        state=row["state"],
        attempts=row["attempts"],
        last_status=row["last_status"],
        last_error=row["last_error"],
        created_at=row["created_us"] // SECOND_US,
        tried_at=None if row["tried_us"] is None else row["tried_us"] // SECOND_US,
        next_at=None if row["due_us"] is None else row["due_us"] // SECOND_US,
    )


ROUTES = (
    create_webhook_endpoint,
    list_webhook_endpoints,
    get_webhook_endpoint,
    change_webhook_endpoint,
    delete_webhook_endpoint,
    rotate_webhook_secret,
    list_webhook_deliveries,
    redeliver_webhook,
)
