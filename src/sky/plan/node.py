"""What one node needs next: an offer, a machine, patience, or to be given back.

Decides: one step. Never: carries it out, or judges a machine gone on silence alone before its lease is over.
Follows: an offer is written down before it is bought, so that a repeat buys the same one under the same tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sky.domain import node as n
from sky.domain.lifecycle import Fact
from sky.domain.money import to_usd
from sky.domain.offer import Offer, named
from sky.domain.snapshots import NodeCase, NodeView, Source
from sky.plan import offer
from sky.plan.decision import Decision, earliest

REASONS_MAX = 20
"""Offers of which it is kept why they were passed over."""
PASSED_OVER_US = 30_000_000
"""For how long an offer that was refused is not tried again."""
TURN_US = 1_000_000
TURNS_MAX = 10
"""What was refused to several nodes of a compute is tried again by one after another, so long apart."""
PROBE_COMING_US = 2_000_000
PROBE_COMING_LONGEST_US = 32_000_000
"""A machine is asked after ever more rarely until its agent calls; then it is the listing of its provider's
machines, for all of them at once (``reconcile/sweep``), that tells of its end."""
PROBE_SILENT_US = 2_000_000
PROBE_STEADY_US = 30_000_000
SILENT_US = 12_000_000
"""Without a word for this long, a serving node's provider is asked (``reconcile/watch`` sees to that)."""
LEASE_MARGIN_US = 30_000_000
LEASE_MARGIN_PART = 8
"""How much longer than an agent's lease we wait before taking it for granted that it has ended itself: so
long, and a part of the lease: our clock runs up to a tenth faster while it follows one that was set."""
OFFERS_WAIT_US = 1_000_000
DISK_WAIT_US = 30_000_000
"""How long a node waits for a disk to be removed where nobody tells it that this was done."""
OFFERS_PATIENCE_US = 10_000_000
"""For how long a provider that is asked for its offers keeps those of others from being taken."""
COMING = "coming"
"""The reason of what is written down of a machine that is there and does not run yet."""


class Launch(Struct, frozen=True):
    """Buy the machine that is written on the row."""


class Probe(Struct, frozen=True):
    """Ask the provider whether the machine is still there."""


class Terminate(Struct, frozen=True):
    """Give the machine back, and ask whether it is gone."""


class FetchOffers(Struct, frozen=True):
    """Offers of these providers are not known yet, or not any more."""

    provider_ids: tuple[str, ...]


Action = Launch | Probe | Terminate | FetchOffers | Fact


def plan(case: NodeCase, now_us: int) -> Decision[Action]:
    """The next step of ``case.node`` at ``now_us``."""
    node = case.node
    if node.state in n.FINAL:
        return Decision((), None, node.state)
    if node.state == n.LOST:
        return Decision((n.NodeDeleting(node.id, now_us),), None, "lost; its machine is given back")
    if node.state == n.DELETING:
        if node.provider_id is None:
            return Decision((n.NodeDeleted(node.id, now_us),), None, "no machine was bought")
        return Decision((Terminate(),), None, "gives its machine back")
    if node.state == n.REQUESTED:
        if not case.accepting:  # its compute's own pass gives it back
            return Decision((), now_us + PASSED_OVER_US, "its compute ends; nothing is bought for it")
        return _choose(case, now_us)
    if node.state == n.PROVISIONING:
        if node.launch_deadline_us is not None and now_us >= node.launch_deadline_us:
            return _broken(case, now_us, "its machine was not there in time")
        return Decision((Launch(),), None, "buys its machine")
    if node.state in (n.CONNECTING, n.BOOTSTRAPPING):
        return _coming(case, now_us)
    return _serving(case, now_us)


def _choose(case: NodeCase, now_us: int) -> Decision[Action]:
    node = case.node
    if case.disk is not None and case.disk.going:
        return Decision((), now_us + DISK_WAIT_US, "waits until the former disk of its rank is removed")
    case = replace(case, sources=tuple(_as_known(one, case.listening_us, now_us) for one in case.sources))
    still = _refused(case, now_us)
    refused = frozenset(still)
    own = {_key(entry) for entry in node.passed_over}
    beside = tuple(entry for key, (entry, _) in still.items() if key not in own)
    case = replace(case, node=replace(node, passed_over=(*node.passed_over, *beside)))
    late = frozenset((p["offer"], p["market"]) for p in node.passed_over if p.get("late"))
    choice = offer.choose(_at_its_disk(case), case.wanted, refused, sources=case.sources, late=late)
    if isinstance(choice, offer.Chosen):
        if unread := _unread(case, choice):
            return Decision((FetchOffers(unread),), now_us + OFFERS_WAIT_US, "waits for offers")
        return _bound(case, choice, now_us)
    reasons = "; ".join(choice.reasons)
    unread = tuple(one.id for one in case.sources if not one.fresh)
    if unread:
        silent = "; ".join(f"{one.name}: {one.error}" for one in case.sources if one.error is not None)
        noted = _noted(node, f"its offers are not known: {silent}") if silent else None
        again_us = now_us + OFFERS_WAIT_US
        return Decision((noted or FetchOffers(unread),), again_us, silent or "waits for offers")
    if choice.later and case.sources:
        message = f"nothing can be bought now: {reasons}"
        noted = None if len(still) > len(beside) else _noted(node, message)
        again_us = min((until_us for _, until_us in still.values()), default=now_us + PASSED_OVER_US)
        return Decision((noted,) if noted else (), again_us, message)
    message = f"nothing that the spec allows can be bought: {reasons}"
    error = {"code": "capability_mismatch", "message": message, "retryable": False}
    return Decision((n.NodeFailed(node.id, error, now_us),), None, message)


def _bound(case: NodeCase, choice: offer.Chosen, now_us: int) -> Decision[Action]:
    chosen = choice.offer
    bound = n.NodeBound(
        case.node.id,
        provider_id=chosen.provider_id,
        provider_kind=chosen.kind,
        offer=chosen,
        market=choice.market,
        price_micro=choice.price_micro,
        billing_unit=chosen.billing_unit,
        accelerator=chosen.accelerator,
        passed_over=_reasons(case.node, choice),
        bound_us=now_us,
        launch_deadline_us=now_us + case.wanted.provision_timeout_us,
    )
    return Decision((bound,), None, _taken(choice))


def _refused(case: NodeCase, now_us: int) -> dict[tuple[str, str], tuple[dict[str, Any], int]]:
    """What is not tried before a moment, since it was refused to this node or to another one of its compute.

    Whom a provider has nothing for would have the same answer as those beside it. So one of them asks again,
    the oldest, and the others wait for what it is told, or a little longer for their turn.
    """
    turn_us = TURN_US * min(sum(one.before for one in case.beside), TURNS_MAX)
    others = (entry for one in case.beside for entry in one.passed_over if entry.get("alike"))
    found: dict[tuple[str, str], tuple[dict[str, Any], int]] = {}
    for entry in (*case.node.passed_over, *others):
        until_us = entry["until_us"] + (turn_us if entry.get("alike") else 0)
        if until_us > max(now_us, found.get(_key(entry), (entry, 0))[1]):
            found[_key(entry)] = entry, until_us
    own = {_key(entry): entry for entry in case.node.passed_over if entry.get("alike")}
    for one in case.beside:
        if one.asks in own and one.asks not in found and now_us < one.asked_us + PASSED_OVER_US:
            found[one.asks] = own[one.asks], now_us + max(turn_us, TURN_US)
    return found


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["offer"], entry["market"]


def _as_known(source: Source, listening_us: int, now_us: int) -> Source:
    """One that was asked a while ago is, until its answer comes, as one that does not answer."""
    if source.fresh or source.error is not None or source.asked_us is None:
        return source
    # Nobody asked while no daemon ran.
    if now_us - max(source.asked_us, listening_us) < OFFERS_PATIENCE_US:
        return source
    return replace(source, error=f"no answer for more than {OFFERS_PATIENCE_US // 1_000_000} s")


def _unread(case: NodeCase, choice: offer.Chosen) -> tuple[str, ...]:
    """Providers that might sell something better than what was chosen, and have not been asked of late.

    One that does not answer is not waited for: it is asked again by its own loop.
    """
    if case.disk is not None and case.disk.used:
        return ()
    return tuple(
        one.id
        for one in case.sources
        if not one.fresh
        and one.error is None
        and one.id != choice.offer.provider_id
        and offer.may_precede(case.wanted, one, choice)
    )


def _at_its_disk(case: NodeCase) -> tuple[Offer, ...]:
    """What could be bought where the disk of its rank is; anything, as long as there is nothing on it."""
    disk = case.disk
    if disk is None or not disk.used:
        return case.offers
    where = (disk.provider_id, disk.instance_type, disk.region)
    return tuple(x for x in case.offers if (x.provider_id, x.instance_type, x.region) == where)


def _taken(choice: offer.Chosen) -> str:
    text = f"takes {named(choice.offer)} ({choice.market}, {to_usd(choice.price_micro):g} USD an hour)"
    if choice.reasons:
        text += f"; passed over: {'; '.join(choice.reasons[:REASONS_MAX])}"
    return text


def _reasons(node: NodeView, choice: offer.Chosen) -> list[dict[str, Any]]:
    """Why the others were passed over: what providers have said so far, and what did not fit; each where it
    would have come, whichever way it was heard of."""
    said = [p for p in node.passed_over if p["offer"] is not None]
    told = {p["offer"] for p in said}
    more = {one.text: one for one in choice.missed if one.offer_id not in told}
    unsaid = [
        {
            "offer": None,
            "market": None,
            "reason": one.text,
            "plain": one.plain,
            "until_us": 0,
            "earlier": one.earlier,
        }
        for one in more.values()
    ]
    places: dict[str | None, int] = {}
    for place, one in enumerate(choice.missed):
        places.setdefault(one.offer_id if one.offer_id in told else one.text, place)
    kept = [*said, *unsaid][:REASONS_MAX]
    return sorted(kept, key=lambda entry: places.get(entry["offer"] or entry["reason"], len(places)))


def _noted(node: NodeView, message: str) -> n.NodeNoted | None:
    """Why nothing was bought yet, unless that is known."""
    if (node.last_error or {}).get("message") == message:
        return None
    return n.NodeNoted(node.id, {"code": "provider_refused", "message": message, "retryable": True})


def _coming(case: NodeCase, now_us: int) -> Decision[Action]:
    node = case.node
    answered = case.answered_us
    if node.state == n.CONNECTING:
        deadline = answered + case.connect_timeout_us
        late = "its agent did not call in time"
    else:
        deadline = answered + case.connect_timeout_us + case.bootstrap_timeout_us
        late = "its environment was not ready in time"
    if now_us >= deadline:
        return _broken(case, now_us, late + _why_late(node))
    waited_us = max(PROBE_COMING_US, now_us - answered)
    again_us = now_us + waited_us if waited_us <= PROBE_COMING_LONGEST_US else None
    return Decision((Probe(),), earliest(deadline, again_us), "waits for its agent")


def _why_late(node: NodeView) -> str:
    """What its provider said last of a machine that was not there in time."""
    told: Mapping[str, Any] = node.last_error or {}
    details: Mapping[str, Any] = told.get("details") or {}
    if node.state != n.CONNECTING or details.get("reason") != COMING:
        return ""
    return f"; {told.get('message')}"


def _broken(case: NodeCase, now_us: int, why: str) -> Decision[Action]:
    error = {"code": "capability_mismatch", "message": f"node {case.node.id}: {why}", "retryable": True}
    return Decision((n.NodeBroken(case.node.id, now_us, error),), None, why)


def _fenced_us(ttl_us: int) -> int:
    """How long a node with a lease of ``ttl_us`` is silent when its agent has surely ended itself."""
    return ttl_us + LEASE_MARGIN_US + ttl_us // LEASE_MARGIN_PART


def _serving(case: NodeCase, now_us: int) -> Decision[Action]:
    # An agent could not be heard before this daemon listened; its lease counts from then at the earliest.
    seen = max(case.node.last_seen_us or case.node.ready_us or now_us, case.listening_us)
    silent_us = max(0, now_us - seen)
    if case.ttl_us and silent_us >= _fenced_us(case.ttl_us):
        error = {
            "code": "node_lost",
            "message": f"node {case.node.id} was silent for {silent_us // 1_000_000} s, beyond its lease",
            "retryable": True,
        }
        return Decision((n.NodeLost(case.node.id, error, now_us),), None, "its lease ran out")
    if silent_us < SILENT_US:
        return Decision((Probe(),), None, "serves")
    wait_us = min(max(PROBE_SILENT_US, silent_us // 4), PROBE_STEADY_US)
    ends_us = seen + _fenced_us(case.ttl_us) if case.ttl_us else None
    return Decision((Probe(),), earliest(now_us + wait_us, ends_us), f"silent for {silent_us // 1_000_000} s")
