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
    """Buy this one, at ``price_micro`` micro-dollars an hour. ``reasons`` say why others were passed over;
    ``alternative`` is the place of the one that it meets."""

    offer: Offer
    market: Market
    price_micro: int
    reasons: tuple[str, ...] = ()
    alternative: int = 0


@dataclass(frozen=True, slots=True)
class Nothing:
    """None will do. ``reasons`` say why each was passed over; ``later``: one may do another time."""

    reasons: tuple[str, ...]
    later: bool


PassedOver = frozenset[tuple[str, str]]
"""Offers, by id and market, that were refused a moment ago."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """All offers that would do, the best first, and why each other one was passed over."""

    candidates: tuple[Chosen, ...]
    passed: tuple[tuple[Offer, str], ...]
    later: bool


def choose(offers: Iterable[Offer], wanted: Wanted, passed_over: PassedOver) -> Chosen | Nothing:
    """The first offer in the spec's order that fits and was not passed over."""
    weighed = weigh(offers, wanted, passed_over)
    reasons = dict.fromkeys(f"{named(offer)}: {why}" for offer, why in weighed.passed)
    if weighed.candidates:
        return replace(weighed.candidates[0], reasons=tuple(reasons))
    if not reasons:
        names = ", ".join(dict.fromkeys(a.provider for a in wanted.alternatives)) or "none"
        return Nothing((f"no provider named in the spec ({names}) has an offer",), True)
    return Nothing(tuple(reasons), weighed.later)


def weigh(offers: Iterable[Offer], wanted: Wanted, passed_over: PassedOver = frozenset()) -> Weighed:
    """Every offer that fits, in the order in which they would be taken, and every other one."""
    known = sorted(offers, key=lambda o: o.id)
    ranked: list[tuple[tuple[int, int, int, float, str], Chosen]] = []
    passed: list[tuple[Offer, str]] = []
    later = False
    for place, alternative in enumerate(wanted.alternatives):
        allocation = alternative.market or wanted.allocation
        for offer in known:
            if not _from(offer, alternative):
                continue
            price, why, again = _on_sale(offer, alternative, allocation, passed_over)
            later |= again
            if why is not None:
                passed.append((offer, why))
            if price is not None:
                market, micro = price
                order = (place if alternative.place is None else alternative.place) * (
                    wanted.selection == "first"
                )
                rank = (order, micro, offer.cpus, offer.memory_gb, offer.id)
                ranked.append((rank, Chosen(offer, market, micro, alternative=place)))
    ranked.sort(key=lambda x: x[0])
    return Weighed(tuple(chosen for _, chosen in ranked), tuple(passed), later)


def strength(chosen: Chosen) -> tuple[float, int, int, float]:
    """How much a machine can do: its accelerators' memory, how many they are, its cores, its memory."""
    offer = chosen.offer
    return (
        (offer.vram or 0.0) * offer.accelerator_count,
        offer.accelerator_count,
        offer.cpus,
        offer.memory_gb,
    )


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
        (
            a.instance_type is not None and offer.instance_type != a.instance_type,
            f"is no {a.instance_type}, which is wanted",
        ),
        (a.cpus is not None and offer.cpus < (a.cpus or 0), f"has {offer.cpus} cpus, {a.cpus} wanted"),
        (a.cpus_exact and offer.cpus != a.cpus, f"has {offer.cpus} cpus, exactly {a.cpus} wanted"),
        (
            a.memory_gb is not None and offer.memory_gb < (a.memory_gb or 0),
            f"has {offer.memory_gb:g} GB of memory, {a.memory_gb} wanted",
        ),
        (
            a.memory_exact and offer.memory_gb != a.memory_gb,
            f"has {offer.memory_gb:g} GB of memory, exactly {a.memory_gb} wanted",
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
