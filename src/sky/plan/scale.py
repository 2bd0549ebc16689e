"""How many nodes a compute should have: the whole autoscaling policy.

Decides: a number within the bounds. Never: which node goes (``plan/compute``: the highest rank first).
Follows: it grows at once to what the queue needs, shrinks only after the idle time, never below the
minimum, to zero when the minimum is zero, and not twice within the cooldown.
"""

from __future__ import annotations

from sky.domain.node import SERVING
from sky.domain.snapshots import ComputeView
from sky.plan.decision import earliest


def target(view: ComputeView, now_us: int) -> tuple[int, int | None]:
    """(how many nodes, when that may change by time alone)."""
    low, high = view.bounds.low, view.bounds.high
    if low == high:
        return high, None
    current = min(max(view.target_nodes, low), high)
    slots = max((n.slots for n in view.nodes if n.state in SERVING), default=0)
    per_node = slots or view.wanted.concurrency or 1
    places = -(-(view.waiting + view.running) // per_node)
    needed = min(max(places, view.ranks_waited_for, low), high)
    if needed > current:
        return needed, None
    if needed == current:
        return current, None
    quiet_us = view.idle_since_us + view.wanted.idle_timeout_us
    cool_us = (view.scaled_us or 0) + view.wanted.cooldown_us
    when = max(quiet_us, cool_us)
    if view.running + view.waiting == 0 and now_us >= when:
        return needed, None
    return current, earliest(when if when > now_us else None)
