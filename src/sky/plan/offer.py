"""Which offer to buy for a node.

Decides: which offers a spec allows, on which market, in which order, at which price, and why each other one
was passed over. Never: asks a provider. Follows: the same offers and spec give the same choice, and of equal
prices the smallest machine is taken. What a region refuses on one market may be had on the other there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sky.domain.compute import Alternative, Wanted
from sky.domain.money import to_usd
from sky.domain.offer import Market, Offer


@dataclass(frozen=True, slots=True)
class Chosen:
    """Buy this one, at ``price_micro`` micro-dollars an hour. ``reasons`` say why others were passed over."""

    offer: Offer
    market: Market
    price_micro: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """None will do. ``reasons`` say why each was passed over; ``later``: one may do another time."""

    reasons: tuple[str, ...]
    later: bool


PassedOver = frozenset[tuple[str, str]]
"""Offers, by id and market, that were refused a moment ago."""


def choose(offers: Iterable[Offer], wanted: Wanted, passed_over: PassedOver) -> Chosen | Nothing:
    """The first offer in the spec's order that fits and was not passed over."""
    known = sorted(offers, key=lambda o: o.id)
    candidates: list[tuple[tuple[int, int, int, float, str], Chosen]] = []
    reasons: list[str] = []
    later = False
    for place, alternative in enumerate(wanted.alternatives):
        for offer in known:
            if not _from(offer, alternative):
                continue
            price, why, again = _on_sale(offer, alternative, wanted.allocation, passed_over)
            later |= again
            if why is not None:
                reasons.append(f"{named(offer)}: {why}")
            if price is not None:
                market, micro = price
                order = place if wanted.selection == "first" else 0
                rank = (order, micro, offer.cpus, offer.memory_gb, offer.id)
                candidates.append((rank, Chosen(offer, market, micro)))
    if candidates:
        chosen = min(candidates, key=lambda x: x[0])[1]
        return replace(chosen, reasons=tuple(dict.fromkeys(reasons)))
    if not reasons:
        names = ", ".join(dict.fromkeys(a.provider for a in wanted.alternatives)) or "none"
        reasons.append(f"no provider named in the spec ({names}) has an offer")
        later = True
    return Nothing(tuple(dict.fromkeys(reasons)), later)


def named(offer: Offer) -> str:
    """An offer as people are told of it."""
    where = f" in {offer.region}" if offer.region else ""
    return f"{offer.provider_name}/{offer.instance_type}{where}"


def _on_sale(
    offer: Offer, wanted: Alternative, allocation: str, passed_over: PassedOver
) -> tuple[tuple[Market, int] | None, str | None, bool]:
    """(market and price, why not on a market that would have come first, whether that may pass)."""
    if (unfit := _unfit(offer, wanted)) is not None:
        return None, unfit, False
    prices = _prices(offer, allocation)
    if not prices:
        return None, "is not sold in the wanted market", False
    if offer.available == 0:
        return None, "is sold out", True
    why: str | None = None
    refused = False
    most = wanted.max_hourly_micro
    for market, micro in prices:
        if most is not None and micro > most:
            why = f"costs {to_usd(micro):g} USD an hour, at most {to_usd(most):g} allowed"
        elif (offer.id, market) in passed_over:
            why, refused = "was refused a moment ago", True
        else:
            return (market, micro), why, refused
    return None, why, refused


def _from(offer: Offer, wanted: Alternative) -> bool:
    return wanted.provider in (offer.kind, offer.provider_name, offer.provider_id)


def _prices(offer: Offer, allocation: str) -> list[tuple[Market, int]]:
    """The markets that would do, the preferred one first, and what they cost."""
    both: tuple[Market, ...] = ("spot", "on_demand")
    sold: list[tuple[Market, int]] = []
    for market in both:
        price = offer.price_micro(market)
        if price is not None and (allocation not in both or allocation == market):
            sold.append((market, price))
    if allocation == "cheapest":
        sold.sort(key=lambda x: (x[1], x[0]))
    return sold


def _unfit(offer: Offer, a: Alternative) -> str | None:
    checks = (
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
    return None
