"""Which waiting execution goes to which node.

Decides: assignments. Never: hands anything out; an agent reads its own mailbox.
Follows: first come, first served among those that any node may take; a node never holds more than its
window; slots are filled on every node before any node gets work to queue.
"""

from __future__ import annotations

import heapq

from sky.domain.snapshots import DispatchView, Seats
from sky.domain.task import ExecutionAssigned


def plan(view: DispatchView, now_us: int) -> tuple[ExecutionAssigned, ...]:
    """Assignments for as many of ``view.waiting`` as fit now."""
    ready = [x for x in view.seats if x.window > x.active]
    by_rank = {x.rank: x for x in ready}
    active = {x.rank: x.active for x in ready}
    heap = [(x.active - x.slots, x.rank) for x in ready]
    heapq.heapify(heap)
    assigned: list[ExecutionAssigned] = []
    for waiting in view.waiting:
        rank = waiting.wanted_rank
        if rank is None:
            rank = _least_loaded(heap, by_rank, active)
            if rank is None:
                continue
        node = by_rank.get(rank)
        if node is None or active[rank] >= node.window:
            continue
        active[rank] += 1
        if waiting.wanted_rank is None:
            heapq.heapreplace(heap, (active[rank] - node.slots, rank))
        assigned.append(ExecutionAssigned(waiting.id, node.id, rank, now_us))
    return tuple(assigned)


def _least_loaded(
    heap: list[tuple[int, int]], by_rank: dict[int, Seats], active: dict[int, int]
) -> int | None:
    while heap:
        load, rank = heap[0]
        node = by_rank[rank]
        if active[rank] >= node.window:
            heapq.heappop(heap)
            continue
        if load != active[rank] - node.slots:  # a rank-bound execution went there meanwhile
            heapq.heapreplace(heap, (active[rank] - node.slots, rank))
            continue
        return rank
    return None
