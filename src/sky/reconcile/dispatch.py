"""Puts waiting executions into the mailboxes of nodes with room.

Decides: nothing; ``plan/dispatch`` does. Never: talks to an agent.
Follows: a pass is shown a limited part of the queue, so one that assigned something and left places free is
followed by another; what does not fit waits for the next outcome or node.
"""

from __future__ import annotations

from typing import ClassVar

from sky.plan import dispatch as plan
from sky.reconcile.passes import Done, InnerLoop
from sky.store import work
from sky.store.tx import Tx


class Dispatch(InnerLoop):
    """One pass: read free places and the queue, plan, write."""

    name: ClassVar[str] = "dispatch"
    idle: ClassVar[str] = "no call waits for a node"

    def look(self, tx: Tx, key_id: str) -> Done:
        view = work.dispatch_view(tx, key_id)
        if view is None:
            return Done("its compute takes no work")
        assigned = plan.plan(view, tx.now_us)
        tx.apply(*assigned)
        # Too many wait, or none: both are news for a compute that scales itself.
        if view.scalable and (len(assigned) < len(view.waiting) or not view.waiting):
            tx.touch(f"computes/{key_id}")
        left = sum(max(0, x.window - x.active) for x in view.seats) - len(assigned)
        again = bool(assigned) and left > 0 and len(assigned) < len(view.waiting)
        return Done(
            f"assigned {len(assigned)} of {len(view.waiting)} waiting to {len(view.seats)} ready nodes",
            tx.now_us if again else None,
        )
