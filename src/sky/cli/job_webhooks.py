"""``sky job webhook``: where a customer has events of their jobs sent, and what was sent there.

Decides: how an endpoint and what was sent to it look. Never: shows a secret but when it is made.
Follows: a secret is alone on standard output, and what is said of it beside it, so ``SECRET=$(sky job webhook
add …)`` works; each may be repeated, but for ``add``, ``rotate`` and ``redeliver``.
"""

from __future__ import annotations

import itertools
from typing import Annotated

from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import DryRun, Many, Output, Yes, below, command
from sky.cli.asking import confirm
from sky.cli.computes import LIST_ITEMS, check_limit, tell_more
from sky.cli.customer import KeyFile, buying, moment
from sky.cli.errors import usage
from sky.cli.job_money import app
from sky.cli.webhook_facts import facts, state, types
from sky.wire import webhooks as wire

webhooks = below(
    app,
    "webhook",
    "Have events of your jobs sent to an address; see what was sent, and send it again.",
    "sky job webhook add https://example.com/hook --type job.succeeded --type job.failed",
    "sky job webhook deliveries whe_01…",
)

Webhook = Annotated[str, Parameter(name="WEBHOOK", help="Id of the webhook: `sky job webhook list`.")]
Types = Annotated[
    tuple[str, ...],
    Many,
    Parameter(name="--type", metavar="TYPE", help="Only events of this type, such as job.failed."),
]


@command(
    webhooks,
    "sky job webhook add https://example.com/hook",
    "SECRET=$(sky job webhook add https://example.com/hook --type job.failed)",
    instead=("create", "new", "register"),
)
def add(
    url: Annotated[str, Parameter(name="URL", help="Where to send; https, and public.")],
    /,
    *,
    type_: Types = (),
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """Have events of your jobs sent to an address, and print the secret that they are signed with.

    The secret is shown now and never again. Without --type, events of all types are sent.
    """
    with buying(key_file) as jobs:
        _tell_secret(jobs.webhooks.add(url, type_ or None), output_)
    return 0


@command(webhooks, "sky job webhook list", "sky job webhook list -o json", name="list", instead=("ls",))
def list_(*, key_file: KeyFile = None, output_: Output = "table") -> int:
    """List your webhooks, oldest first."""
    with buying(key_file) as jobs:
        found = jobs.webhooks.list()
    if output_ == "json":
        output.json(found)
    elif not found:
        output.note("no webhooks; `sky job webhook add URL` makes one")
    else:
        output.table(("ID", "URL", "TYPES", "STATE", "AGE"), map(_row, found), flexible=("URL", "TYPES"))
    return 0


@command(
    webhooks,
    "sky job webhook show whe_01…",
    "sky job webhook show whe_01… -o json",
    instead=("get", "describe"),
)
def show(webhook: Webhook, /, *, key_file: KeyFile = None, output_: Output = "table") -> int:
    """Show a webhook: where it sends, what, and why it does not."""
    with buying(key_file) as jobs:
        _tell(jobs.webhooks.get(webhook), output_)
    return 0


@command(
    webhooks,
    "sky job webhook update whe_01… --url https://example.com/other",
    "sky job webhook update whe_01… --type job.failed",
    instead=("change", "set", "edit"),
)
def update(
    webhook: Webhook,
    /,
    *,
    url: Annotated[str | None, Parameter(metavar="URL", help="Where to send from now on.")] = None,
    type_: Types = (),
    all_types: Annotated[bool, Parameter(negative=(), help="Send events of all types again.")] = False,
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """Change where a webhook sends, or what. What is not said stays."""
    if all_types and type_:
        raise usage("--all-types and --type contradict each other", "say one of them")
    if url is None and not type_ and not all_types:
        raise usage("nothing was said to change", "say --url, --type or --all-types")
    with buying(key_file) as jobs:
        _tell(jobs.webhooks.change(webhook, url=url, types=type_ or None, all_types=all_types), output_)
    return 0


@command(webhooks, "sky job webhook disable whe_01…", instead=("stop", "pause"))
def disable(webhook: Webhook, /, *, key_file: KeyFile = None, output_: Output = "table") -> int:
    """Send nothing more to a webhook until it is enabled."""
    with buying(key_file) as jobs:
        _tell(jobs.webhooks.change(webhook, enabled=False), output_)
    return 0


@command(webhooks, "sky job webhook enable whe_01…", instead=("resume", "start"))
def enable(webhook: Webhook, /, *, key_file: KeyFile = None, output_: Output = "table") -> int:
    """Send to a webhook again, also when the seller had ended it."""
    with buying(key_file) as jobs:
        _tell(jobs.webhooks.change(webhook, enabled=True), output_)
    return 0


@command(
    webhooks,
    "sky job webhook rotate whe_01…",
    "SECRET=$(sky job webhook rotate whe_01…)",
    instead=("rotate-secret", "renew"),
)
def rotate(webhook: Webhook, /, *, key_file: KeyFile = None, output_: Output = "table") -> int:
    """Give a webhook another secret and print it. For a day the old one signs too."""
    with buying(key_file) as jobs:
        _tell_secret(jobs.webhooks.rotate(webhook), output_)
    return 0


@command(
    webhooks,
    "sky job webhook remove whe_01…",
    "sky job webhook remove whe_01… --yes",
    instead=("delete", "rm"),
)
def remove(
    webhook: Webhook, /, *, yes: Yes = False, dry_run: DryRun = False, key_file: KeyFile = None
) -> int:
    """Forget a webhook: nothing more is sent to it, and what was sent is no longer listed."""
    with buying(key_file) as jobs:
        if dry_run or not yes:
            found = jobs.webhooks.get(webhook)
            if dry_run:
                output.say(f"{found.id}, which sends to {found.url}, would be removed")
                output.note("this was a dry run: nothing was removed")
                return 0
            confirm(f"Remove {found.id}, which sends to {found.url}?", "nothing was removed")
        jobs.webhooks.remove(webhook)
    output.note(f"{webhook} is removed")
    return 0


@command(
    webhooks,
    "sky job webhook deliveries whe_01…",
    "sky job webhook deliveries whe_01… --limit 500 -o json",
    instead=("messages", "sent", "log"),
)
def deliveries(
    webhook: Webhook,
    /,
    *,
    limit: Annotated[int, Parameter(help="How many at most.")] = LIST_ITEMS,
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """List what was sent to a webhook, newest first, and what came of it."""
    check_limit(limit)
    with buying(key_file) as jobs:
        found = list(itertools.islice(jobs.webhooks.deliveries(webhook), limit + 1))
    shown = found[:limit]
    if output_ == "json":
        output.json(shown)
    elif not shown:
        output.note(f"nothing was sent to {webhook}")
    else:
        headings = ("ID", "EVENT", "STATE", "TRIES", "LAST", "AGE")
        output.table(headings, map(_delivery, shown), flexible=("LAST", "EVENT"))
    tell_more(len(found) > limit, limit)
    return 0


@command(webhooks, "sky job webhook redeliver whe_01… whd_01…", instead=("resend", "retry"))
def redeliver(
    webhook: Webhook,
    delivery: Annotated[
        str, Parameter(name="DELIVERY", help="Id of what was sent: `sky job webhook deliveries`.")
    ],
    /,
    *,
    key_file: KeyFile = None,
    output_: Output = "table",
) -> int:
    """Send something once more, soon."""
    with buying(key_file) as jobs:
        told = jobs.webhooks.redeliver(webhook, delivery)
    if output_ == "json":
        output.json(told)
    else:
        output.note(f"{told.id} is sent again; `sky job webhook deliveries {webhook}` shows what comes of it")
    return 0


# ── how they look ───────────────────────────────────────────────────────────────────────────────


def _row(webhook: wire.Webhook) -> tuple[object, ...]:
    age = render.ago(moment(webhook.created_at))
    return webhook.id, webhook.url, types(webhook), state(webhook), age


def _delivery(one: wire.Delivery) -> tuple[object, ...]:
    last = one.last_error or one.last_status
    age = render.ago(moment(one.created_at))
    return one.id, one.event_id, render.state(one.state), one.attempts, last, age


def _tell(webhook: wire.Webhook, output_: str) -> None:
    if output_ == "json":
        output.json(webhook)
        return
    output.pairs(
        [
            *facts(webhook),
            ("created", render.when(moment(webhook.created_at))),
        ]
    )


def _tell_secret(webhook: wire.Webhook, output_: str) -> None:
    if output_ == "json":
        output.json(webhook)
        return
    output.say(webhook.secret if isinstance(webhook.secret, str) else "")
    output.note(f"this is the secret of {webhook.id}; keep it now, it is never shown again")
