"""Which machines a task would get, and which one is best.

Decides: the order of what would do (by price, or by strength where time counts), and in which words it is
told that nothing will do. Never: asks a provider, or buys.
Follows: by price, the first one is the one that the engine would buy; a name that nobody knows is told with
the nearest one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from sky.domain.compute import Wanted
from sky.domain.offer import Offer, named
from sky.kit.nearby import hint
from sky.plan.offer import Chosen, strength, weigh

CANDIDATES_MAX = 100
REASONS_MAX = 50
IN_WORDS_MAX = 5


class Ranked(Struct, frozen=True):
    """What would do, the best first, and why each other thing was passed over. ``later``: that may change."""

    candidates: tuple[Chosen, ...]
    passed: tuple[tuple[str, str], ...]
    later: bool


def rank(
    offers: Iterable[Offer], wanted: Wanted, *, by_time: bool, silent: frozenset[str] = frozenset()
) -> Ranked:
    """The offers that would do in their order: the cheapest, or the strongest of them, first; those of
    providers that do not answer (``silent``, by id) last."""
    weighed = weigh(offers, wanted, silent=silent)
    found: dict[tuple[str, str], Chosen] = {}
    for one in weighed.candidates:
        found.setdefault((one.offer.id, one.market), one)
    candidates = list(found.values())
    if by_time:
        candidates.sort(
            key=lambda one: (one.offer.provider_id in silent, *(-number for number in strength(one)))
        )
    taken = {one.offer.id for one in candidates}
    passed = dict.fromkeys((named(offer), why) for offer, why in weighed.passed if offer.id not in taken)
    return Ranked(tuple(candidates[:CANDIDATES_MAX]), tuple(passed)[:REASONS_MAX], weighed.later)


def nothing(
    offers: Sequence[Offer],
    wanted: Wanted,
    passed: Sequence[tuple[str, str]],
    known: Iterable[str],
    errors: Sequence[str],
) -> str:
    """Why nothing will do. ``known`` are names of accelerators; ``errors`` what providers said last."""
    there = {offer.accelerator for offer in offers if offer.accelerator}
    lower = {name.casefold() for name in there}
    told: list[str] = []
    for name in dict.fromkeys(a.accelerator for a in wanted.alternatives if a.accelerator):
        if name.casefold() in lower:
            continue
        names = {*there, *known}
        if name.casefold() in {other.casefold() for other in names}:
            has = ", ".join(sorted(there)) or "no accelerators"
            told.append(f"no provider of this server offers {name}; they offer {has}")
        else:
            told.append(f"no accelerator is called {name!r}; {hint(name, names)}")
    nowhere = _nowhere(offers, wanted)
    told += dict.fromkeys(nowhere)
    if len(nowhere) < len(wanted.alternatives):
        told += [f"{what}: {why}" for what, why in passed[:IN_WORDS_MAX]]
        if len(passed) > IN_WORDS_MAX:
            told.append(f"and {len(passed) - IN_WORDS_MAX} more")
    told += errors
    if not told:
        names = ", ".join(dict.fromkeys(a.provider for a in wanted.alternatives))
        told.append(f"no provider named ({names}) has an offer")
    return f"no machine will do: {'; '.join(told)}"


def _nowhere(offers: Sequence[Offer], wanted: Wanted) -> list[str]:
    """The places that are asked for and that no offer is in, one for each alternative that names one."""
    told: list[str] = []
    for one in wanted.alternatives:
        mine = [
            offer for offer in offers if one.provider in {offer.provider_id, offer.provider_name, offer.kind}
        ]
        there = {offer.region for offer in mine if offer.region} | {offer.provider_name for offer in mine}
        if mine and one.region is not None and one.region not in there:
            what = f"{one.region!r} is neither a region nor a provider of {one.provider!r}"
            told.append(f"{what}; {hint(one.region, there)}")
    return told
