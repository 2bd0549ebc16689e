"""``sky admin webhook``: where accounts have events sent: what came of it, once more, and no more.

Decides: how a webhook and what was sent to it look. Never: makes one, or shows a secret or what was said:
those are its owner's. Follows: each may be repeated, but for ``redeliver``, which sends each time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.admin_accounts import Account, app
from sky.cli.app import Output, below, command
from sky.cli.computes import LIST_ITEMS, check_limit, tell_more
from sky.cli.connection import PAGE_ITEMS, Api, reading
from sky.cli.webhook_facts import facts, state
from sky.client import calls_admin as calls
from sky.wire import admin
from sky.wire.webhooks import DeliveryState

webhooks = below(
    app,
    "webhook",
    "See what was sent to the webhooks of an account, send it again, or no more.",
    "sky admin webhook list acme",
    "sky admin webhook deliveries whe_01… --state failed",
)

Webhook = Annotated[
    str, Parameter(name="WEBHOOK", help="Id of the webhook: `sky admin webhook list ACCOUNT`.")
]


@command(
    webhooks,
    "sky admin webhook list acme",
    "sky admin webhook list acme -o json",
    name="list",
    instead=("ls",),
)
def list_(account: Account, /, *, output_: Output = "table") -> int:
    """List the webhooks of an account, oldest first."""
    with reading() as api:
        page = api.send(calls.list_webhooks(account))
    if output_ == "json":
        output.json(page)
    elif not page.items:
        output.note(f"{account} has no webhooks; its owner makes them")
    else:
        headings = ("ID", "URL", "STATE", "PENDING", "FAILED", "AGE")
        output.table(headings, map(_row, page.items), flexible=("URL",))
    return 0


def _row(webhook: admin.Webhook) -> tuple[object, ...]:
    age = render.ago(webhook.created_at)
    return webhook.id, webhook.url, state(webhook), webhook.pending, webhook.failed, age


@command(
    webhooks,
    "sky admin webhook show whe_01…",
    "sky admin webhook show whe_01… -o json",
    instead=("get", "describe"),
)
def show(webhook: Webhook, /, *, output_: Output = "table") -> int:
    """Show a webhook: where it sends, what, and why it does not."""
    with reading() as api:
        _tell(api.send(calls.get_webhook(webhook)), output_)
    return 0


def _tell(webhook: admin.Webhook, output_: str) -> None:
    if output_ == "json":
        output.json(webhook)
        return
    output.pairs(
        [
            *facts(webhook),
            ("pending", webhook.pending),
            ("failed", webhook.failed),
            ("created", render.when(webhook.created_at)),
        ]
    )


@command(webhooks, "sky admin webhook disable whe_01…", instead=("stop", "suspend", "block"))
def disable(webhook: Webhook, /, *, output_: Output = "table") -> int:
    """Send nothing more to a webhook. Its owner reads that it was you, and may begin again."""
    return _switch(webhook, output_, enabled=False)


@command(webhooks, "sky admin webhook enable whe_01…", instead=("resume", "start"))
def enable(webhook: Webhook, /, *, output_: Output = "table") -> int:
    """Send to a webhook again."""
    return _switch(webhook, output_, enabled=True)


def _switch(webhook: str, output_: str, *, enabled: bool) -> int:
    with reading() as api:
        _tell(api.send(calls.switch_webhook(webhook, enabled=enabled)), output_)
    return 0


@command(
    webhooks,
    "sky admin webhook deliveries whe_01…",
    "sky admin webhook deliveries whe_01… --state failed -o json",
    instead=("messages", "sent", "log"),
)
def deliveries(
    webhook: Webhook,
    /,
    *,
    state: Annotated[
        DeliveryState | None, Parameter(help="Only these: pending, delivered or failed.")
    ] = None,
    limit: Annotated[int, Parameter(help="How many at most.")] = LIST_ITEMS,
    output_: Output = "table",
) -> int:
    """List what was sent to a webhook, newest first, and what came of it."""
    check_limit(limit)
    with reading() as api:
        found = list(itertools.islice(_deliveries(api, webhook, state), limit + 1))
    shown = tuple(found[:limit])
    if output_ == "json":
        output.json(admin.DeliveryPage(items=shown))
    elif not shown:
        output.note(f"nothing that is {state}" if state else f"nothing was sent to {webhook}")
    else:
        headings = ("ID", "EVENT", "JOB", "STATE", "TRIES", "LAST", "AGE")
        output.table(headings, map(_delivery, shown), flexible=("LAST", "JOB", "ID"))
    tell_more(len(found) > limit, limit)
    return 0


def _deliveries(api: Api, webhook: str, state: DeliveryState | None) -> Iterator[admin.Delivery]:
    cursor = None
    while True:
        page = api.send(calls.list_deliveries(webhook, state=state, cursor=cursor, limit=PAGE_ITEMS))
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _delivery(one: admin.Delivery) -> tuple[object, ...]:
    last = one.last_error or one.last_status
    return one.id, one.event, one.job, render.state(one.state), one.attempts, last, render.ago(one.created_at)


@command(webhooks, "sky admin webhook redeliver whe_01… whd_01…", instead=("resend", "retry"))
def redeliver(
    webhook: Webhook,
    delivery: Annotated[
        str, Parameter(name="DELIVERY", help="Id of what was sent: `sky admin webhook deliveries`.")
    ],
    /,
    *,
    output_: Output = "table",
) -> int:
    """Send something once more, soon."""
    with reading() as api:
        told = api.send(calls.redeliver(webhook, delivery))
    if output_ == "json":
        output.json(told)
    else:
        output.note(
            f"{told.id} is sent again; `sky admin webhook deliveries {webhook}` shows what comes of it"
        )
    return 0
