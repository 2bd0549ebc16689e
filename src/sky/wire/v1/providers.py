"""Providers, what they offer, how the daemon is, and what its loops last decided.

Decides: every field, default and limit of them. Never: shows a credential.
Follows: prices are USD per hour; null means that it is not sold that way.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import field

from sky.wire.error import Error
from sky.wire.v1.base import Answer, BillingUnit, Name, Request, ShortText


class ProviderCreate(Request, frozen=True):
    """A place to get machines from. ``credentials`` are kept encrypted and never served back."""

    kind: ShortText
    name: Name
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    credentials: dict[str, str] = field(default_factory=dict[str, str])


class Provider(Answer, frozen=True):
    """A place to get machines from."""

    id: str
    name: str
    kind: str
    config: dict[str, Any]
    offers_ttl_seconds: int
    created_at: datetime
    offers_count: int = 0
    offers_fetched_at: datetime | None = None
    last_error: Error | None = None


class ProviderPage(Answer, frozen=True):
    """The providers that were added, by name."""

    items: tuple[Provider, ...]
    next_cursor: str | None = None


class ProviderKind(Answer, frozen=True):
    """A kind of provider this build knows, and the credentials it takes."""

    kind: str
    credential_fields: tuple[str, ...]
    offers_ttl_seconds: int


class Offer(Answer, frozen=True):
    """A machine that a provider would sell now. Prices are USD per hour."""

    id: str
    provider_id: str
    provider_name: str
    kind: str
    instance_type: str
    cpus: int
    memory_gb: float
    accelerator_count: int
    fetched_at: datetime
    expires_at: datetime
    accelerator: str | None = None
    vram: float | None = None
    disk_gb: float | None = None
    architecture: str | None = None
    region: str | None = None
    available: int | None = None
    price: float | None = None
    on_demand_price: float | None = None
    spot_price: float | None = None
    billing_unit: BillingUnit = "hour"
    specific: dict[str, Any] = field(default_factory=dict[str, Any])


class OfferPage(Answer, frozen=True):
    """Offers, cheapest first."""

    items: tuple[Offer, ...]
    next_cursor: str | None = None


class Liveness(Answer, frozen=True):
    """The process answers.

    ``version``: the release of the published client library that this daemon serves. That library compares it
    with its own, and talks to no other. It is not the daemon's own release.
    """

    live: bool
    version: str = ""


class Readiness(Answer, frozen=True):
    """The process can serve: its database answers and its loops run."""

    ready: bool


class Decision(Answer, frozen=True):
    """What a loop last decided about one key, when, and when it will look again (null: settled)."""

    loop: str
    key: str
    decision: str
    decided_at: datetime | None = None
    next_at: datetime | None = None
    failures: int = 0
    error: str | None = None


class DecisionPage(Answer, frozen=True):
    """What the loops last decided, most recent first."""

    items: tuple[Decision, ...]
    next_cursor: str | None = None
