"""What a compute needs next: node rows, drains, its own state.

Decides: which ranks are missing, which nodes are too many, and what state that is.
Never: buys; a node row is only a wish until ``plan/node`` acts on it.
Follows: never more wanted nodes than asked for, one per rank, and planning twice changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sky.domain import compute as c
from sky.domain import node as n
from sky.domain.lifecycle import Fact
from sky.domain.snapshots import ComputeView, NodeView
from sky.plan import scale
from sky.plan.decision import Decision, earliest

BROKEN_NODES_MAX = 3
"""Nodes of one generation that may fail to become ready before the compute is given up."""
DRAIN_CHECK_US = 500_000


@dataclass(frozen=True, slots=True)
class AskForNode:
    """Write a node row for this rank."""

    compute_id: str
    rank: int
    generation: int


Action = AskForNode | Fact


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
        return Decision(facts, view.lease_expires_us, "failed; it is kept until it is deleted")
    return _running(view, now_us)


def _lease(view: ComputeView, now_us: int) -> Decision[Action] | None:
    if view.desired == "deleted":
        return Decision((c.ComputeDeleting(view.id, now_us),), None, "its spec wants it deleted")
    if view.lease_expires_us is None or view.lease_expires_us > now_us:
        return None
    if view.delete_on_exit:
        facts = (c.ComputeAbandoned(view.id), c.ComputeDeleting(view.id, now_us))
        return Decision(facts, None, f"its holder {view.lease_owner!r} let the lease lapse; deleting")
    return Decision(
        (c.LeaseReleased(view.id),), None, f"its holder {view.lease_owner!r} let the lease lapse; kept"
    )


def _deleting(view: ComputeView, now_us: int) -> Decision[Action]:
    facts: list[Action] = [
        n.NodeDeleting(node.id, now_us) for node in view.nodes if node.state in n.WANTED | {n.LOST}
    ]
    left = [node for node in view.nodes if node.state not in n.FINAL]
    if not left:
        return Decision((c.ComputeDeleted(view.id, now_us),), None, "every machine is gone")
    return Decision(tuple(facts), None, f"waits for {len(left)} machines to be given back")


def _running(view: ComputeView, now_us: int) -> Decision[Action]:
    wish, scale_us = scale.target(view, now_us)
    actions: list[Action] = []
    if wish != view.target_nodes:
        actions.append(c.ComputeScaled(view.id, wish, now_us))
    kept: list[NodeView] = []
    drains = False
    for node in view.nodes:
        if node.state not in n.WANTED:
            continue
        if node.rank < wish and node.generation == view.generation:
            kept.append(node)
            if node.state == n.DRAINING:
                actions.append(n.NodeDrainAborted(node.id))
        else:
            drains |= _let_go(node, now_us, actions)
    broken = _broken(view)
    if len(broken) >= BROKEN_NODES_MAX:
        return Decision(
            (c.ComputeFailed(view.id, broken[-1].last_error),),
            None,
            f"{len(broken)} nodes could not be made ready; given up",
        )
    hopeless = [
        x for x in view.nodes if x.state == n.FAILED and x.generation == view.generation and x.rank < wish
    ]
    if hopeless:
        return Decision(
            (c.ComputeFailed(view.id, hopeless[-1].last_error),), None, "no offer can ever serve it"
        )
    taken = {node.rank for node in view.nodes if _holds_rank(node, now_us)}
    missing = [rank for rank in range(wish) if rank not in taken]
    actions.extend(AskForNode(view.id, rank, view.generation) for rank in missing)
    state, why = _state(view, kept, wish, now_us)
    actions.extend(state)
    fences = [x.fenced_us for x in view.nodes if x.state in n.ENDING and (x.fenced_us or 0) > now_us]
    drain_us = now_us + DRAIN_CHECK_US if drains else None
    return Decision(tuple(actions), earliest(scale_us, view.lease_expires_us, drain_us, *fences), why)


def _let_go(node: NodeView, now_us: int, actions: list[Action]) -> bool:
    """Give a node back that is not wanted any more; True when it must finish something first."""
    if node.active == 0:
        actions.append(n.NodeDeleting(node.id, now_us))
        return False
    if node.state == n.READY:
        actions.append(n.NodeDraining(node.id))
    return True


def _holds_rank(node: NodeView, now_us: int) -> bool:
    if node.state in n.WANTED:
        return True
    return node.state in n.ENDING and (node.fenced_us is None or node.fenced_us > now_us)


def _broken(view: ComputeView) -> list[NodeView]:
    since = view.ready_us or 0
    return [
        x
        for x in view.nodes
        if x.state in n.ENDING | n.FINAL
        and x.generation == view.generation
        and x.ready_us is None
        and x.created_us >= since
        and (x.last_error or {}).get("code") == "capability_mismatch"
    ]


def _state(view: ComputeView, kept: list[NodeView], wish: int, now_us: int) -> tuple[list[Fact], str]:
    ready = sum(x.state == n.READY or x.state == n.DRAINING for x in kept)
    if ready >= wish:
        facts: list[Fact] = []
        if view.state != c.READY:
            facts.append(c.ComputeReady(view.id, view.ready_us or now_us, view.generation))
        elif view.observed_generation != view.generation:
            facts.append(c.GenerationApplied(view.id, view.generation))
        return facts, f"{ready} of {wish} nodes are ready"
    errors = [x.last_error for x in kept if x.state in n.COMING and x.last_error]
    why = f"{ready} of {wish} nodes are ready"
    if errors:
        return [c.ComputeDegraded(view.id, errors[-1])], f"{why}; {errors[-1].get('message')}"
    if view.ready_us is None:
        return [c.ComputeProvisioning(view.id)], why
    if view.state == c.DEGRADED:
        return [c.ComputeRecovering(view.id)], why
    return [c.ComputeRecovering(view.id)], why
