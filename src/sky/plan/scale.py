"""How many nodes a compute should have: the whole autoscaling policy.

Decides: a number within the bounds. Never: which node goes (``plan/compute``: the highest rank first).
Follows: it grows at once to what the queue needs; it gives up a rank only when what is there and waits fits
below it, and nothing has come to that rank's node or ended there for the idle time; never below the minimum,
to zero when the minimum is zero, and not twice within the cooldown. A load that comes and goes within the
idle time moves nothing.
"""

from __future__ import annotations

from sky.domain.node import SERVING, WANTED
from sky.domain.snapshots import ComputeView, NodeView


def target(view: ComputeView, now_us: int) -> tuple[int, int | None]:
    """(how many nodes, when that may change by time alone)."""
    low, high = view.bounds.low, view.bounds.high
    if low == high:
        return high, None
    current = min(max(view.target_nodes, low), high)
    needed = min(max(_places(view, high), view.ranks_waited_for, view.ranks_at_work, low), high)
    if needed >= current:
        return needed, None
    holders = {node.rank: node for node in view.nodes if node.state in WANTED}
    cool_us = (view.scaled_us or 0) + view.wanted.cooldown_us
    wish = current
    while wish > needed:
        quiet_us = _quiet_since_us(view, holders.get(wish - 1))
        free_us = max(quiet_us + view.wanted.idle_timeout_us, cool_us)
        if free_us > now_us:
            return wish, free_us
        wish -= 1
    return wish, None


def _places(view: ComputeView, high: int) -> int:
    """How many nodes, from rank 0 on, have room for all that runs and waits."""
    load = view.waiting + view.running
    slots = {node.rank: node.slots for node in view.nodes if node.state in SERVING and node.slots > 0}
    usual = min(slots.values(), default=view.wanted.concurrency or 1)
    count = 0
    while load > 0 and count < high:
        load -= slots.get(count, usual)
        count += 1
    return count


def _quiet_since_us(view: ComputeView, node: NodeView | None) -> int:
    """Since when a rank is not needed: no work came to its node, and none ended there."""
    if node is not None and node.ready_us is not None:
        return max(node.ready_us, node.worked_us or 0, node.assigned_us or 0)
    # It has yet to come. What it was asked for came with the scaling, or is done by others meanwhile.
    asked_us = view.created_us if node is None else node.created_us
    return max(asked_us, view.scaled_us or 0, view.idle_since_us)
