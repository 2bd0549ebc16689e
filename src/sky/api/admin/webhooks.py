"""Webhooks of accounts, for the operator: what was sent, what failed and why, once more, and no more.

Decides: nothing; ``verbs/webhooks`` does. Never: makes one, or shows its secret or what a message said: those
are its owner's. Follows: an owner reads why nothing is sent, and may begin again.
"""

from __future__ import annotations

from litestar.response.base import ASGIResponse

from sky.api.admin.accounts import PageQuery
from sky.api.operation import Ask, operation, reply
from sky.domain.errors import NotFound
from sky.store.tx import Tx
from sky.store.views import webhooks as views
from sky.verbs import webhooks as verbs
from sky.wire import admin
from sky.wire.webhooks import DeliveryState

TAG = "Webhooks"
ROOT = "/admin/v1"
ONE = f"{ROOT}/webhooks/{{webhook_id}}"
REASON = "the operator ended it"


@operation(
    "GET", f"{ROOT}/accounts/{{account_id}}/webhooks", tag=TAG, answers=admin.WebhookPage, errors=[NotFound]
)
async def list_webhooks(ask: Ask, account_id: str) -> ASGIResponse:
    """List the webhooks of an account, oldest first."""
    return reply(await ask.unit.db.read(lambda c: views.of_account(c, account_id)))


@operation("GET", ONE, tag=TAG, answers=admin.Webhook, errors=[NotFound])
async def get_webhook(ask: Ask, webhook_id: str) -> ASGIResponse:
    """Show a webhook."""
    return reply(await ask.unit.db.read(lambda c: views.webhook(c, webhook_id)))


@operation("PATCH", ONE, tag=TAG, answers=admin.Webhook, errors=[NotFound])
async def switch_webhook(ask: Ask, webhook_id: str, body: admin.WebhookSwitch) -> ASGIResponse:
    """End sending to a webhook, or begin again. Its owner is told that it was the operator."""

    def verb(tx: Tx) -> admin.Webhook:
        row = views.find(tx.connection, webhook_id)
        verbs.switch(tx, row, enabled=body.enabled, reason=REASON)
        return views.webhook(tx.connection, webhook_id)

    return reply(await ask.unit.db.write(verb))


class DeliveriesQuery(PageQuery, frozen=True):
    """Which of what was sent is wanted."""

    state: DeliveryState | None = None


@operation("GET", f"{ONE}/deliveries", tag=TAG, answers=admin.DeliveryPage, errors=[NotFound])
async def list_deliveries(ask: Ask, webhook_id: str, query: DeliveriesQuery) -> ASGIResponse:
    """List what was sent to a webhook, newest first, and what came of it."""
    page = await ask.unit.db.read(
        lambda c: views.sent(c, webhook_id, query.state, cursor=query.cursor, limit=query.limit)
    )
    return reply(page)


@operation(
    "POST",
    f"{ONE}/deliveries/{{delivery_id}}/redeliver",
    tag=TAG,
    answers=admin.Delivery,
    status=202,
    errors=[NotFound],
)
async def redeliver(ask: Ask, webhook_id: str, delivery_id: str) -> ASGIResponse:
    """Send something once more."""

    def verb(tx: Tx) -> admin.Delivery:
        row = views.find(tx.connection, webhook_id)
        views.delivery(tx.connection, row["id"], delivery_id)
        verbs.redeliver(tx, row, delivery_id)
        return views.delivery(tx.connection, row["id"], delivery_id)

    return reply(await ask.unit.db.write(verb), 202)


ROUTES = (list_webhooks, get_webhook, switch_webhook, list_deliveries, redeliver)
