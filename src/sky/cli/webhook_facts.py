"""What is shown of a webhook alike to its owner and to whoever sells.

Decides: how its state and its types are said, and which facts come first. Never: shows a secret.
Follows: ``sky job webhook`` and ``sky admin webhook`` say the same of one endpoint.
"""

from __future__ import annotations

from typing import Protocol

from sky.cli.output import Cell


class Webhook(Protocol):
    """An endpoint, as either face of the seller tells of it."""

    @property
    def id(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def types(self) -> tuple[str, ...] | None: ...
    @property
    def enabled(self) -> bool: ...
    @property
    def disabled_reason(self) -> str | None: ...


def state(webhook: Webhook) -> Cell:
    """Whether events are sent there."""
    return Cell("enabled", "good") if webhook.enabled else Cell("disabled", "busy")


def types(webhook: Webhook) -> str:
    """Which events are sent there."""
    return "all" if webhook.types is None else ", ".join(webhook.types)


def facts(webhook: Webhook) -> list[tuple[str, object]]:
    """What it is, as pairs of a name and a value; whoever shows it adds what only they know."""
    pairs: list[tuple[str, object]] = [
        ("id", webhook.id),
        ("url", webhook.url),
        ("events", types(webhook)),
        ("state", state(webhook)),
    ]
    if webhook.disabled_reason:
        pairs.append(("why", webhook.disabled_reason))
    return pairs
