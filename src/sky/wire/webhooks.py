"""Webhook endpoints, as customers keep them.

Decides: their fields and limits. Never: shows a secret again. Follows: an event's delivery carries the
event's id, so that whoever gets it twice knows.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from sky.wire.jobs import Answer, Event, EventId, Request, UnixSeconds

URL_CHARS_MAX = 2_048
TYPES_MAX = 50
DeliveryState = Literal["pending", "delivered", "failed"]
EventType = Annotated[str, Meta(min_length=1, max_length=64)]


class WebhookCreate(Request, frozen=True):
    """An endpoint to make. ``types``: only events of these types; left out: all."""

    url: str
    types: tuple[EventType, ...] | msgspec.UnsetType = msgspec.UNSET


class WebhookPatch(Request, frozen=True):
    """What is to change of an endpoint. ``enabled`` true also ends a disabling that we decided."""

    url: str | msgspec.UnsetType = msgspec.UNSET
    types: tuple[EventType, ...] | msgspec.UnsetType | None = msgspec.UNSET
    enabled: bool | msgspec.UnsetType = msgspec.UNSET


class Webhook(Answer, frozen=True):
    """An endpoint. ``secret`` is shown when it is made and when it is rotated, and never again."""

    id: str
    object: Literal["compute.webhook_endpoint"]
    url: str
    types: tuple[str, ...] | None
    enabled: bool
    disabled_reason: str | None
    created_at: UnixSeconds
    secret: str | msgspec.UnsetType = msgspec.UNSET


class WebhookList(Answer, frozen=True):
    """An owner's endpoints, oldest first."""

    object: Literal["list"]
    data: tuple[Webhook, ...]


class Delivery(Answer, frozen=True):
    """An event on its way to an endpoint."""

    id: str
    object: Literal["compute.webhook_delivery"]
    event_id: EventId
    state: DeliveryState
    attempts: int
    last_status: int | None
    last_error: str | None
    created_at: UnixSeconds
    tried_at: UnixSeconds | None
    next_at: UnixSeconds | None


class DeliveryList(Answer, frozen=True):
    """An endpoint's deliveries, newest first."""

    object: Literal["list"]
    data: tuple[Delivery, ...]
    has_more: bool
    next: str | msgspec.UnsetType = msgspec.UNSET


class Deleted(Answer, frozen=True):
    """That something is gone."""

    id: str
    object: Literal["compute.webhook_endpoint"]
    deleted: Literal[True]


def payload(event: Event, sequence: int) -> bytes:
    """What is sent for an event: the event, and its place in the order of all events of its owner."""
    return msgspec.json.encode({**msgspec.to_builtins(event), "sequence": sequence})
