"""Offers as the faces show them: what could be bought now, and from whom.

Decides: which stored offers a question means, and their order: cheapest first, by name where they cost the
same. Never: asks a provider. Follows: an answer is as old as its ``fetched_at`` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from sky.domain.money import to_micro, to_usd
from sky.domain.offer import Offer
from sky.kit.clock import SECOND_US, to_datetime
from sky.store.schema import offers, providers
from sky.store.views.paging import WHOLE_LIST_MAX, cut, place_of
from sky.wire import v1

KIND = "offers"


class Wanted(Struct, frozen=True):
    """Which offers are meant; None: any. ``max_price`` in USD per hour, ``min_vram`` in GiB."""

    provider_id: str | None = None
    kind: str | None = None
    accelerator: str | None = None
    min_count: int | None = None
    min_vram: float | None = None
    max_price: float | None = None


class Freshness(Struct, frozen=True):
    """How old the offers of a provider are. ``fetched_us`` None: they were never fetched."""

    provider_id: str
    fetched_us: int | None
    error: bool
    stale: bool


def freshness(connection: sa.Connection, wanted: Wanted, now_us: int) -> Sequence[Freshness]:
    """Of each provider that is meant, when its offers were fetched and whether that is too long ago."""
    query = sa.select(
        providers.c.id,
        providers.c.offers_fetched_us,
        providers.c.last_error.is_not(None).label("error"),
        providers.c.offers_ttl_seconds,
    )
    if wanted.provider_id is not None:
        query = query.where(providers.c.id == wanted.provider_id)
    if wanted.kind is not None:
        query = query.where(providers.c.kind == wanted.kind)
    return [
        Freshness(
            row.id,
            row.offers_fetched_us,
            bool(row.error),
            row.offers_fetched_us is None
            or row.offers_fetched_us + row.offers_ttl_seconds * SECOND_US <= now_us,
        )
        for row in connection.execute(query)
    ]


def page(connection: sa.Connection, wanted: Wanted, *, cursor: str | None, limit: int | None) -> v1.OfferPage:
    """The stored offers that are meant, cheapest first."""
    query = sa.select(offers.c.body, offers.c.fetched_us, offers.c.expires_us)
    if wanted.provider_id is not None:
        query = query.where(offers.c.provider_id == wanted.provider_id)
    found: list[v1.Offer] = []
    for body, fetched_us, expires_us in connection.execute(query):
        offer = msgspec.convert(body, Offer)
        if _fits(offer, wanted):
            found.append(_shown(offer, fetched_us, expires_us))
    found.sort(key=lambda o: (o.price is None, o.price or 0.0, o.provider_name, o.cpus, o.id))
    start = place_of(KIND, cursor) or 0
    many = limit or WHOLE_LIST_MAX
    rows = [(start + i, offer) for i, offer in enumerate(found[start : start + many + 1], 1)]
    shown, following = cut(rows, many, KIND, lambda row: row[0])
    return v1.OfferPage(items=tuple(offer for _, offer in shown), next_cursor=following)


def _price_micro(offer: Offer) -> int | None:
    known = [price for price in (offer.spot_micro, offer.on_demand_micro) if price is not None]
    return min(known) if known else None


def _fits(offer: Offer, wanted: Wanted) -> bool:
    price = _price_micro(offer)
    most = None if wanted.max_price is None else to_micro(wanted.max_price)
    accelerator = (wanted.accelerator or "").lower()
    return (
        (wanted.kind is None or offer.kind == wanted.kind)
        and (wanted.accelerator is None or (offer.accelerator or "").lower() == accelerator)
        and (wanted.min_count is None or offer.accelerator_count >= wanted.min_count)
        and (wanted.min_vram is None or (offer.vram or 0.0) >= wanted.min_vram)
        and (most is None or (price is not None and price <= most))
    )


def _usd(micro: int | None) -> float | None:
    return None if micro is None else to_usd(micro)


def _shown(offer: Offer, fetched_us: int, expires_us: int) -> v1.Offer:
    specific: dict[str, Any] = offer.specific
    return v1.Offer(
        id=offer.id,
        provider_id=offer.provider_id,
        provider_name=offer.provider_name,
        kind=offer.kind,
        instance_type=offer.instance_type,
        cpus=offer.cpus,
        memory_gb=offer.memory_gb,
        accelerator_count=offer.accelerator_count,
        fetched_at=to_datetime(fetched_us),
        expires_at=to_datetime(expires_us),
        accelerator=offer.accelerator,
        vram=offer.vram,
        disk_gb=offer.disk_gb,
        architecture=offer.architecture,
        region=offer.region,
        available=offer.available,
        price=_usd(_price_micro(offer)),
        on_demand_price=_usd(offer.on_demand_micro),
        spot_price=_usd(offer.spot_micro),
        billing_unit=offer.billing_unit,
        specific=specific,
    )
