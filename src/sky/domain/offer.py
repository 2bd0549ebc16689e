"""An offer: one kind of machine that a provider would sell now, and for how much.

Decides: what is known of a machine before it is bought, in which words it is told, and the name an offer
keeps between two fetches.
Never: asks a provider, or picks one offer over another (``plan/offer`` does).
Follows: prices are integer micro-dollars per hour. No price for a market means that the machine is not
sold on it; a price of 0 means that it is free there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from sky.domain.money import to_usd

BillingUnit = Literal["second", "minute", "hour"]
Market = Literal["spot", "on_demand"]
Cause = Literal["full", "refused", "late", "silent", "unfit"]
"""Why an offer was passed over, without what its provider said of it."""
_BODY_CHARS = 26


class Offer(Struct, frozen=True):
    """One kind of machine of one provider in one region.

    ``memory_gb``, ``vram`` and ``disk_gb`` are GiB, ``vram`` of one accelerator. ``available`` is how many
    could be bought now (None: the provider does not say). ``specific`` is what only the provider's own
    code reads when it launches.
    """

    id: str
    provider_id: str
    provider_name: str
    kind: str
    instance_type: str
    cpus: int
    memory_gb: float
    accelerator: str | None = None
    accelerator_count: int = 0
    vram: float | None = None
    disk_gb: float | None = None
    architecture: str | None = None
    region: str | None = None
    available: int | None = None
    on_demand_micro: int | None = None
    spot_micro: int | None = None
    billing_unit: BillingUnit = "second"
    specific: dict[str, Any] = field(default_factory=dict[str, Any])

    def price_micro(self, market: Market) -> int | None:
        """Micro-dollars per hour on ``market``, or None when it is not sold there."""
        return self.spot_micro if market == "spot" else self.on_demand_micro


def named(offer: Offer) -> str:
    """An offer as people are told of it."""
    where = f" in {offer.region}" if offer.region else ""
    return f"{offer.provider_name}/{offer.instance_type}{where}"


def cost(offer: Offer) -> str:
    """What an offer costs, as people are told."""
    if offer.on_demand_micro is None and offer.spot_micro is None:
        return "without a price"
    if offer.on_demand_micro is None:
        return f"{to_usd(offer.spot_micro or 0):g} USD an hour (spot)"
    spot = "" if offer.spot_micro is None else f" (spot {to_usd(offer.spot_micro):g})"
    return f"{to_usd(offer.on_demand_micro):g} USD an hour{spot}"


def turned(offer: Offer, why: str) -> str:
    """An offer that was not taken, with where it is, what it costs, and why."""
    return f"{named(offer)}, {cost(offer)}: {why}"


def plainly(kind: str, region: str | None, cause: Cause) -> str:
    """The same for whoever may not know what a machine would have cost, or what its provider said."""
    where = f" in {region}" if region else ""
    return f"{kind}{where} {_PLAIN[cause]}"


_PLAIN: dict[Cause, str] = {
    "full": "had none for it",
    "refused": "did not take it",
    "late": "brought none in time",
    "silent": "did not answer",
    "unfit": "has no such machine",
}


def whereabouts(
    kind: str | None, offer: Mapping[str, Any] | None, binding: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Cloud, region and type of a node's machine: what its provider says of it, which may have had a choice,
    and otherwise what was bought."""
    bought, known = offer or {}, binding or {}
    told = {name: known.get(name) or bought.get(name) for name in ("region", "instance_type")}
    return {"cloud": str(known["cloud"]).lower() if known.get("cloud") else kind, **told}


def offer_id(provider_id: str, instance_type: str, region: str | None) -> str:
    """The id of an offer: the same every time that the same thing is offered."""
    seed = "\x1f".join((provider_id, instance_type, region or ""))
    return "ofr_" + hashlib.sha256(seed.encode()).hexdigest()[:_BODY_CHARS]
