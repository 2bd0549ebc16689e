"""Which offer to buy for a node.

Decides: which offers a spec allows, on which market, in which order, at which price, and why each other one
was passed over. Never: asks a provider. Follows: the same offers and spec give the same choice, and of equal
prices the smallest machine is taken. What a region refuses on one market may be had on the other there. What
may well not come (its provider does not answer, or the last one did not come) is taken after all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from sky.domain.compute import Alternative, Wanted
from sky.domain.money import to_usd
from sky.domain.offer import Market, Offer, named, plainly, turned
from sky.domain.snapshots import Source

Rank = tuple[bool, int, int, int, float, str]
"""In which order offers are taken: first by whether one may well not come."""


class Missed(Struct, frozen=True):
    """An offer that was not taken, in words with its region and cost, and in plain ones (``plainly``).
    ``earlier``: it would have been taken before the one that was. ``offer_id`` None: of that provider no
    offer is known."""

    offer_id: str | None
    text: str
    plain: str
    earlier: bool = False


class Chosen(Struct, frozen=True):
    """Buy this one, at ``price_micro`` micro-dollars an hour. ``missed`` are the others, first those that
    would have come before it; ``alternative`` is the place of the one that it meets."""

    offer: Offer
    market: Market
    price_micro: int
    missed: tuple[Missed, ...] = ()
    alternative: int = 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why others were passed over."""
        return tuple(dict.fromkeys(one.text for one in self.missed))


class Nothing(Struct, frozen=True):
    """None will do. ``reasons`` say why each was passed over; ``later``: one may do another time."""

    reasons: tuple[str, ...]
    later: bool


PassedOver = frozenset[tuple[str, str]]
"""Offers, by id and market, that were refused a moment ago, or whose machine did not come."""
NONE: PassedOver = frozenset()


class Weighed(Struct, frozen=True):
    """All offers that would do, the best first, and why each other one was passed over. ``ranks`` are those
    of ``candidates``; of ``passed``, those of what would do another time."""

    candidates: tuple[Chosen, ...]
    passed: tuple[tuple[Offer, str], ...]
    later: bool
    ranks: tuple[Rank, ...] = ()
    passed_ranks: tuple[Rank | None, ...] = ()


def choose(
    offers: Iterable[Offer],
    wanted: Wanted,
    passed_over: PassedOver,
    *,
    sources: Sequence[Source] = (),
    late: PassedOver = NONE,
) -> Chosen | Nothing:
    """The first offer in the spec's order that fits and was not passed over.

    ``sources``: the providers, of which some may not answer; ``late``: offers whose machines did not come.
    """
    silent = {one.id: one.error for one in sources if one.error is not None}
    weighed = weigh(offers, wanted, passed_over, frozenset(silent), late)
    if weighed.candidates:
        return _with_missed(weighed, wanted, sources, silent)
    reasons = dict.fromkeys(_told(*one) for one in _passed(weighed))
    if not reasons:
        names = ", ".join(dict.fromkeys(a.provider for a in wanted.alternatives)) or "none"
        return Nothing((f"no provider named in the spec ({names}) has an offer",), True)
    return Nothing(tuple(reasons), weighed.later)


def weigh(
    offers: Iterable[Offer],
    wanted: Wanted,
    passed_over: PassedOver = NONE,
    silent: frozenset[str] = frozenset(),
    late: PassedOver = NONE,
) -> Weighed:
    """Every offer that fits, in the order in which they would be taken, and every other one."""
    known = sorted(offers, key=lambda o: o.id)
    ranked: list[tuple[Rank, Chosen]] = []
    passed: list[tuple[Offer, str, Rank | None]] = []
    later = False
    for place, alternative in enumerate(wanted.alternatives):
        allocation = alternative.market or wanted.allocation
        for offer in known:
            if not meets(alternative, offer.kind, offer.provider_name, offer.provider_id):
                continue
            price, why, again, first_micro = _on_sale(offer, alternative, allocation, passed_over)
            later |= again
            order = order_of(wanted, place)
            if why is not None:
                rank = None if first_micro is None else _rank(offer, order, first_micro)
                passed.append((offer, why, rank))
            if price is not None:
                market, micro = price
                may_not_come = offer.provider_id in silent or (offer.id, market) in late
                rank = (may_not_come, *_rank(offer, order, micro)[1:])
                ranked.append((rank, Chosen(offer, market, micro, alternative=place)))
    ranked.sort(key=lambda x: x[0])
    return Weighed(
        tuple(chosen for _, chosen in ranked),
        tuple((offer, why) for offer, why, _ in passed),
        later,
        tuple(rank for rank, _ in ranked),
        tuple(rank for _, _, rank in passed),
    )


def order_of(wanted: Wanted, place: int) -> int:
    """The place of an alternative in the order of preference; the same for all where only prices count."""
    own = wanted.alternatives[place].place
    return (place if own is None else own) * (wanted.selection == "first")


def meets(wanted: Alternative, kind: str, name: str, provider_id: str) -> bool:
    """Whether an alternative means that provider."""
    return wanted.provider in (kind, name, provider_id)


def may_precede(wanted: Wanted, source: Source, chosen: Chosen) -> bool:
    """Whether a provider, whatever it offers, comes before or beside the offer that was chosen."""
    last = order_of(wanted, chosen.alternative)
    return any(
        order_of(wanted, place) <= last and meets(one, source.kind, source.name, source.id)
        for place, one in enumerate(wanted.alternatives)
    )


def _with_missed(
    weighed: Weighed, wanted: Wanted, sources: Sequence[Source], silent: Mapping[str, str]
) -> Chosen:
    """The best candidate, with why those that would have come before it, and all others, were not taken."""
    best, best_rank = weighed.candidates[0], weighed.ranks[0]
    missed: list[tuple[Rank, Missed]] = []
    for offer, why, rank in _passed(weighed):
        earlier = rank is not None and rank[1:] < best_rank[1:]
        plain = plainly(offer.kind, offer.region, "unfit" if rank is None else "full")
        missed.append((rank or _LAST, Missed(offer.id, _told(offer, why, rank), plain, earlier)))
    told: set[str] = set()
    for other, rank in zip(weighed.candidates[1:], weighed.ranks[1:], strict=True):
        offer = other.offer
        if rank[1:] >= best_rank[1:] or (offer.provider_id in silent and offer.provider_id in told):
            continue
        error = silent.get(offer.provider_id)
        why = "the last one did not come" if error is None else f"its provider does not answer: {error}"
        told.add(offer.provider_id)
        plain = plainly(offer.kind, offer.region, "late" if error is None else "silent")
        missed.append((rank, Missed(offer.id, turned(offer, why), plain, earlier=True)))
    offering = {one.offer.provider_id for one in weighed.candidates}
    offering |= {offer.provider_id for offer, _ in weighed.passed}
    for source in sources:
        if source.error is not None and source.id not in offering and may_precede(wanted, source, best):
            text = f"{source.name}: its offers are not known: {source.error}"
            plain = plainly(source.kind, None, "silent")
            missed.append((_FIRST, Missed(None, text, plain, earlier=True)))
    missed.sort(key=lambda x: (not x[1].earlier, x[0][1:] if x[1].earlier else ()))
    return Chosen(
        best.offer, best.market, best.price_micro, tuple(one for _, one in missed), best.alternative
    )


def _passed(weighed: Weighed) -> Iterable[tuple[Offer, str, Rank | None]]:
    for (offer, why), rank in zip(weighed.passed, weighed.passed_ranks, strict=True):
        yield offer, why, rank


def _told(offer: Offer, why: str, rank: Rank | None) -> str:
    """What an offer costs is told of those that would do another time."""
    return f"{named(offer)}: {why}" if rank is None else turned(offer, why)


def _rank(offer: Offer, order: int, micro: int) -> Rank:
    return (False, order, micro, offer.cpus, offer.memory_gb, offer.id)


_FIRST: Rank = (False, -1, 0, 0, 0.0, "")
_LAST: Rank = (True, 0, 0, 0, 0.0, "")


def strength(chosen: Chosen) -> tuple[float, int, int, float]:
    """How much a machine can do: its accelerators' memory, how many they are, its cores, its memory."""
    offer = chosen.offer
    return (
        (offer.vram or 0.0) * offer.accelerator_count,
        offer.accelerator_count,
        offer.cpus,
        offer.memory_gb,
    )


def _on_sale(
    offer: Offer, wanted: Alternative, allocation: str, passed_over: PassedOver
) -> tuple[tuple[Market, int] | None, str | None, bool, int | None]:
    """(market and price, why not on a market that would have come first, whether that may pass, and where it
    may the price that counts in the order)."""
    if (unfit := _unfit(offer, wanted)) is not None:
        return None, unfit, False, None
    prices = _prices(offer, allocation)
    if not prices:
        return None, "is not sold in the wanted market", False, None
    if offer.available == 0:
        return None, "is sold out", True, prices[0][1]
    why: str | None = None
    refused_micro: int | None = None
    most = wanted.max_hourly_micro
    for market, micro in prices:
        if most is not None and micro > most:
            why = f"costs {to_usd(micro):g} USD an hour, at most {to_usd(most):g} allowed"
        elif (offer.id, market) in passed_over:
            why, refused_micro = "was refused a moment ago", micro
        else:
            return (market, micro), why, refused_micro is not None, refused_micro
    return None, why, refused_micro is not None, refused_micro


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
