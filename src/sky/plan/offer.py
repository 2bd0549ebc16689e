"""Which offer to buy for a node.

Decides: which offers a spec allows, in which order, at which price, and why each other one was passed over.
Never: asks a provider. Follows: the same offers and spec give the same choice, and of equal prices the
smallest machine is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sky.domain.compute import Alternative, Wanted
from sky.domain.money import to_usd
from sky.domain.offer import Offer


@dataclass(frozen=True, slots=True)
class Chosen:
    """Buy this one, at ``price_micro`` micro-dollars an hour."""

    offer: Offer
    market: str
    price_micro: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """None will do. ``reasons`` say why each was passed over; ``later``: one may do another time."""

    reasons: tuple[str, ...]
    later: bool


def choose(offers: Iterable[Offer], wanted: Wanted, passed_over: frozenset[str]) -> Chosen | Nothing:
    """The first offer in the spec's order that fits and was not passed over."""
    known = sorted(offers, key=lambda o: o.id)
    candidates: list[tuple[tuple[int, int, int, float, str], Chosen]] = []
    reasons: list[str] = []
    later = False
    for place, alternative in enumerate(wanted.alternatives):
        for offer in known:
            if not _from(offer, alternative):
                continue
            price = _price(offer, wanted.allocation)
            why = _unfit(offer, alternative, price)
            if why is None and offer.available == 0:
                why, later = "is sold out", True
            if why is None and offer.id in passed_over:
                why, later = "was refused a moment ago", True
            if why is not None or price is None:
                reasons.append(f"{offer.provider_name}/{offer.instance_type}: {why}")
                continue
            market, micro = price
            order = place if wanted.selection == "first" else 0
            rank = (order, micro, offer.cpus, offer.memory_gb, offer.id)
            candidates.append((rank, Chosen(offer, market, micro)))
    if candidates:
        return min(candidates, key=lambda x: x[0])[1]
    if not reasons:
        names = ", ".join(dict.fromkeys(a.provider for a in wanted.alternatives)) or "none"
        reasons.append(f"no provider named in the spec ({names}) has an offer")
        later = True
    return Nothing(tuple(reasons), later)


def _from(offer: Offer, wanted: Alternative) -> bool:
    return wanted.provider in (offer.kind, offer.provider_name, offer.provider_id)


def _price(offer: Offer, allocation: str) -> tuple[str, int] | None:
    spot, demand = offer.spot_micro, offer.on_demand_micro
    if allocation == "spot":
        return None if spot is None else ("spot", spot)
    if allocation == "on_demand":
        return None if demand is None else ("on_demand", demand)
    if spot is not None and (allocation == "spot_if_available" or demand is None or spot < demand):
        return "spot", spot
    return None if demand is None else ("on_demand", demand)


def _unfit(offer: Offer, a: Alternative, price: tuple[str, int] | None) -> str | None:
    checks = (
        (price is None, "is not sold in the wanted market"),
        (a.cpus is not None and offer.cpus < (a.cpus or 0), f"has {offer.cpus} cpus, {a.cpus} wanted"),
        (
            a.memory_gb is not None and offer.memory_gb < (a.memory_gb or 0),
            f"has {offer.memory_gb:g} GB of memory, {a.memory_gb} wanted",
        ),
        (
            a.disk_gb is not None and offer.disk_gb is not None and offer.disk_gb < (a.disk_gb or 0),
            f"has {offer.disk_gb} GB of disk, {a.disk_gb} wanted",
        ),
        (
            a.accelerator is not None and (offer.accelerator or "").lower() != (a.accelerator or "").lower(),
            f"has {offer.accelerator or 'no accelerator'}, {a.accelerator} wanted",
        ),
        (
            a.accelerator is not None and offer.accelerator_count < a.accelerator_count,
            f"has {offer.accelerator_count} accelerators, {a.accelerator_count} wanted",
        ),
        (a.region is not None and offer.region != a.region, f"is in {offer.region}, {a.region} wanted"),
        (
            a.architecture is not None and offer.architecture not in (None, a.architecture),
            f"is {offer.architecture}, {a.architecture} wanted",
        ),
    )
    for failed, why in checks:
        if failed:
            return why
    if price is not None and a.max_hourly_micro is not None and price[1] > a.max_hourly_micro:
        return f"costs {to_usd(price[1]):g} USD an hour, at most {to_usd(a.max_hourly_micro):g} allowed"
    return None
