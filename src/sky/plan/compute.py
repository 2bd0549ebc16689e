"""What a compute needs next: node rows, drains, its own state.

Decides: which ranks are missing, which nodes are too many, and what state that is.
Never: buys; a node row is only a wish until ``plan/node`` acts on it.
Follows: never more wanted nodes than asked for, one per rank, and planning twice changes nothing. Another
definition is tried with one node; the others of the definition before go once that one is ready, so that a
definition that breaks costs one node, and going back finds the rest as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sky.domain import compute as c
from sky.domain import node as n
from sky.domain.lifecycle import Fact
from sky.domain.offer import plainly, turned
from sky.domain.snapshots import ComputeView, NodeView
from sky.plan import scale
from sky.plan.decision import Decision, earliest
from sky.plan.node import SILENT_US

BROKEN_NODES_MAX = 3
"""Nodes that may fail to become ready before a compute that never was ready is given up."""
AGAIN_FIRST_US = 30_000_000
AGAIN_LONGEST_US = 600_000_000
"""How long nothing is bought for a rank whose machines break, after the first and after many of them."""
_ON_THE_WAY = frozenset({"provider_refused", "busy"})
"""What is noted of a node that could not be bought so far. Given back like that, it was just not wanted."""
DRAIN_CHECK_US = 10_000_000
LEASE_GRACE_US = 60_000_000
"""How long holders have to be heard again by a daemon that has just started."""
LAST_WORDS_US = 60_000_000
"""How long a machine of a compute that is deleted is kept at most, for its calls to be stopped and told."""
LAST_WORDS_CHECK_US = 500_000
UNHELD_US = 60_000_000
"""How long what is to be deleted without a holder waits for its first one, or for the next."""


class AskForNode(Struct, frozen=True):
    """Write a node row for this rank. ``passed_over``: what did not come for the rows before it."""

    compute_id: str
    rank: int
    generation: int
    passed_over: tuple[dict[str, Any], ...] = ()


class LetDiskGo(Struct, frozen=True):
    """No rank will use that disk again: it is promised to nobody any more, and may go with its machine."""

    name: str


class RemoveDisk(Struct, frozen=True):
    """Have a disk removed that was let go, and that no machine is left of."""

    name: str


Action = AskForNode | LetDiskGo | RemoveDisk | Fact


def plan(view: ComputeView, now_us: int) -> Decision[Action]:
    """What ``view`` needs at ``now_us``."""
    if view.state == c.DELETED:
        return Decision((), None, "deleted")
    if view.state == c.DELETING:
        return _deleting(view, now_us)
    lease = _lease(view, now_us)
    if lease is not None:
        return lease
    if view.state == c.FAILED:
        facts = tuple(
            n.NodeDeleting(node.id, now_us) for node in view.nodes if node.state in n.WANTED | {n.LOST}
        )
        return Decision(facts, _lease_us(view), "failed; it is kept until it is deleted")
    return _running(view, now_us)


def _lease(view: ComputeView, now_us: int) -> Decision[Action] | None:
    if view.desired == "deleted":
        return Decision((c.ComputeDeleting(view.id, now_us),), None, "its spec wants it deleted")
    lapses_us = _lease_us(view)
    if lapses_us is None or lapses_us > now_us:
        return None
    lapsed = f"its holder {view.lease_owner!r} let the lease lapse"
    if view.delete_on_exit:
        facts = (c.ComputeAbandoned(view.id), c.ComputeDeleting(view.id, now_us))
        return Decision(facts, None, f"{lapsed if view.lease_owner else 'nobody holds it'}; deleting")
    return Decision((c.LeaseReleased(view.id, now_us),), None, f"{lapsed}; kept")


def _lease_us(view: ComputeView) -> int | None:
    """When its holder, or the wait for one, is given up. None: it stays without one."""
    if view.lease_owner is not None and view.lease_expires_us is not None:
        return max(view.lease_expires_us, view.listening_us + LEASE_GRACE_US)
    if not view.delete_on_exit:
        return None
    return max(view.lease_expires_us or view.created_us, view.listening_us) + UNHELD_US


def _deleting(view: ComputeView, now_us: int) -> Decision[Action]:
    facts: list[Action] = [
        n.NodeDeleting(node.id, now_us)
        for node in view.nodes
        if node.state in n.WANTED | {n.LOST} and not _has_last_words(view, node, now_us)
    ]
    left = [node for node in view.nodes if node.state not in n.FINAL]
    if not left and view.disks:
        return Decision(_disks(view, facts), None, f"waits for {len(view.disks)} disks to be removed")
    if not left:
        return Decision((c.ComputeDeleted(view.id, now_us),), None, "every machine is gone")
    speaking = [node for node in left if _has_last_words(view, node, now_us)]
    if speaking:
        why = f"waits until the calls of {len(speaking)} machines have been stopped"
        return Decision(tuple(facts), now_us + LAST_WORDS_CHECK_US, why)
    return Decision(tuple(facts), None, f"waits for {len(left)} machines to be given back")


def _has_last_words(view: ComputeView, node: NodeView, now_us: int) -> bool:
    """Whether a machine has calls yet, is heard, and will soon say how they ended."""
    if node.state not in n.SERVING or not node.active or view.deleting_us is None:
        return False
    heard_us = max(node.last_seen_us or 0, node.ready_us or 0, view.listening_us)
    return now_us < min(view.deleting_us + LAST_WORDS_US, heard_us + SILENT_US)


def _running(view: ComputeView, now_us: int) -> Decision[Action]:
    wish, scale_us = scale.target(view, now_us)
    actions: list[Action] = []
    if wish != view.target_nodes:
        actions.append(c.ComputeScaled(view.id, wish, now_us))
    wanted = [node for node in view.nodes if node.state in n.WANTED]
    placed = [node for node in wanted if node.rank < wish and node.unwanted_us is None]
    kept = [node for node in placed if node.generation == view.generation]
    former = [node for node in placed if node.generation != view.generation]
    replaced = _replaced(view, kept, former, wish)
    stay = {node.id for node in placed} - {node.id for node in replaced}
    drains = False
    for node in wanted:
        if node.id not in stay:
            drains |= _let_go(node, now_us, actions)
        elif node.state == n.DRAINING:
            actions.append(n.NodeDrainAborted(node.id))
    trouble = _setbacks(view, wish)
    if given_up := _given_up(view, trouble):
        return given_up
    taken = {node.rank for node in view.nodes if _holds_rank(node, now_us)}
    missing = [rank for rank in range(wish) if rank not in taken]
    again_us = _again_us(view, trouble) if missing else None
    if again_us is not None and again_us > now_us:
        state, why = _short(view, kept, wish, {**(trouble[-1].last_error or {}), "retryable": True})
    else:
        again_us = None
        actions.extend(
            AskForNode(view.id, rank, view.generation, _not_come(trouble, rank)) for rank in missing
        )
        state, why = _state(view, kept, wish, now_us)
    actions.extend(state)
    actions.extend(_disks(view, actions))
    if len(former) > len(replaced):
        why += f"; {len(former) - len(replaced)} of the definition before stay until one of this is ready"
    fences = [x.fenced_us for x in view.nodes if x.state in n.ENDING and (x.fenced_us or 0) > now_us]
    drain_us = now_us + DRAIN_CHECK_US if drains else None
    next_us = earliest(scale_us, _lease_us(view), drain_us, again_us, *fences)
    return Decision(tuple(actions), next_us, why)


def _replaced(view: ComputeView, kept: list[NodeView], former: list[NodeView], wish: int) -> list[NodeView]:
    """Which nodes of an earlier definition go now: one, and the others once its successor is ready."""
    if view.observed_generation == view.generation or any(x.state in n.SERVING for x in kept):
        return former
    useless = [x for x in former if x.state in n.COMING]
    has_place = bool(kept) or len(former) < wish
    if useless or has_place or not former:
        return useless
    return [max(former, key=lambda x: x.rank)]


def _let_go(node: NodeView, now_us: int, actions: list[Action]) -> bool:
    """Give a node back that is not wanted any more; True when it must finish something first."""
    if node.active == 0:
        actions.append(n.NodeDeleting(node.id, now_us))
        return False
    if node.state == n.READY:
        actions.append(n.NodeDraining(node.id))
    return True


def _disks(view: ComputeView, actions: Sequence[Action]) -> tuple[Action, ...]:
    """What becomes of disks that are not wanted. That one goes is decided with the end of its last machine,
    which then need not be stopped first."""
    ended = {action.id for action in actions if isinstance(action, n.NodeDeleting)}
    stay = {node.rank for node in view.nodes if node.state in n.WANTED and node.id not in ended}
    used = {node.rank for node in view.nodes if node.state not in n.FINAL | {n.REQUESTED}}
    wanted = 0 if view.state == c.DELETING else view.disks_wanted
    going = [disk for disk in view.disks if disk.going]
    let_go = [disk for disk in view.disks if not disk.going and disk.rank >= wanted and disk.rank not in stay]
    return (
        *(LetDiskGo(disk.name) for disk in let_go),
        *(RemoveDisk(disk.name) for disk in (*going, *let_go) if disk.rank not in used),
    )


def _holds_rank(node: NodeView, now_us: int) -> bool:
    """Whether another machine of that rank could meet this one at work. One that was never ready had none."""
    if node.state in n.WANTED:
        return True
    if node.state not in n.ENDING or node.ready_us is None:
        return False
    return node.fenced_us is None or node.fenced_us > now_us


# ── when nodes do not come ──────────────────────────────────────────────────────────────────────


def _setbacks(view: ComputeView, wish: int) -> list[NodeView]:
    """Nodes of the present definition that ended before they were ready, since one last was; newest last."""
    since = max((x.ready_us or 0 for x in view.nodes if x.generation == view.generation), default=0)
    if view.observed_generation == view.generation:
        since = max(since, view.ready_us or 0)
    ended = n.ENDING | n.FINAL
    return [
        x
        for x in view.nodes
        if x.generation == view.generation
        and x.state in ended
        and x.ready_us is None
        and x.created_us >= since
        and x.rank < wish
        and x.last_error is not None
        and x.last_error.get("code") not in _ON_THE_WAY
    ]


def _not_come(trouble: list[NodeView], rank: int) -> tuple[dict[str, Any], ...]:
    """Offers whose machines did not come for a rank: bought again only where nothing else will do."""
    found = {
        (x.offer.id, x.market): {
            "offer": x.offer.id,
            "market": x.market,
            "reason": turned(x.offer, "its machine was not there in time"),
            "plain": plainly(x.offer.kind, x.offer.region, "late"),
            "until_us": 0,
            "late": True,
        }
        for x in trouble
        if x.rank == rank and x.launched_us is None and x.offer is not None
    }
    return tuple(found.values())


def _given_up(view: ComputeView, trouble: list[NodeView]) -> Decision[Action] | None:
    """The end of it, where it has never been ready in any definition, and will not be."""
    if view.observed_generation:
        return None
    if any(x.generation == view.generation and x.state in n.SERVING for x in view.nodes):
        return None
    hopeless = [x for x in trouble if x.state == n.FAILED]
    if hopeless:
        fact = c.ComputeFailed(view.id, hopeless[-1].last_error)
        return Decision((fact,), _lease_us(view), "no offer can ever serve it")
    broken = [x for x in trouble if (x.last_error or {}).get("code") == "capability_mismatch"]
    if len(broken) < BROKEN_NODES_MAX:
        return None
    fact = c.ComputeFailed(view.id, broken[-1].last_error)
    return Decision((fact,), _lease_us(view), f"{len(broken)} nodes could not be made ready; given up")


def _again_us(view: ComputeView, trouble: list[NodeView]) -> int | None:
    """When a rank may be asked for again: at once at first, ever later where it fails again and again."""
    proven = view.observed_generation == view.generation
    times = len(trouble) - (0 if proven else BROKEN_NODES_MAX - 1)
    if times <= 0:
        return None
    last = trouble[-1]
    wait_us = min(AGAIN_FIRST_US << min(times - 1, 16), AGAIN_LONGEST_US)
    return (last.deleting_us or last.created_us) + wait_us


# ── its own state ───────────────────────────────────────────────────────────────────────────────


def _state(view: ComputeView, kept: list[NodeView], wish: int, now_us: int) -> tuple[list[Fact], str]:
    ready = sum(x.state in n.SERVING for x in kept)
    why = f"{ready} of {wish} nodes are ready"
    if ready >= wish:
        facts: list[Fact] = []
        if view.observed_generation != view.generation:
            facts.append(c.GenerationApplied(view.id, view.generation))
        if view.state != c.READY:
            facts.append(c.ComputeReady(view.id, view.ready_us or now_us))
        return facts, why
    errors = [x.last_error for x in kept if x.state in n.COMING and x.last_error]
    if errors:
        return _short(view, kept, wish, errors[-1])
    lost = any(
        x.generation == view.generation and x.state in n.ENDING and x.ready_us is not None and x.rank < wish
        for x in view.nodes
    )
    if view.observed_generation == view.generation and (lost or view.state == c.RECOVERING):
        return [] if view.state == c.RECOVERING else [c.ComputeRecovering(view.id)], why
    return [] if view.state == c.PROVISIONING else [c.ComputeProvisioning(view.id)], why


def _short(
    view: ComputeView, kept: list[NodeView], wish: int, error: dict[str, Any]
) -> tuple[list[Fact], str]:
    """Nodes are missing, and why is known."""
    why = f"{sum(x.state in n.SERVING for x in kept)} of {wish} nodes are ready; {error.get('message')}"
    if view.state != c.DEGRADED:
        return [c.ComputeDegraded(view.id, error)], why
    if (view.last_error or {}).get("message") != error.get("message"):
        return [c.ComputeNoted(view.id, error)], why
    return [], why
