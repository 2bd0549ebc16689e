"""Which attempts must end although nobody reported them: node lost, deadline passed, cancel unconfirmed.

Decides: how each ends and whether another attempt follows. Never: ends one on a node that is merely
unreachable. Follows: what may have begun is ``indeterminate``, and repeated only where that was allowed;
what runs on a compute that ends is stopped, and its node has time to say so.
"""

from __future__ import annotations

from msgspec import Struct

from sky.domain import node as n
from sky.domain import task as t
from sky.domain.snapshots import AttemptsView, AttemptView
from sky.plan.decision import Decision, earliest


class End(Struct, frozen=True):
    """End an attempt as ``state``; with ``retry_kind`` ("safe" or "ambiguous") another one follows."""

    execution_id: str
    state: str
    code: str
    message: str
    retry_kind: str | None = None


Action = End | t.ExecutionCancelRequested


def plan(view: AttemptsView, now_us: int, confirm_us: int = t.CANCEL_CONFIRM_US) -> Decision[Action]:
    """What must happen to ``view.attempts`` at ``now_us``; ``confirm_us``: how long a node has to say that it
    stopped one."""
    actions: list[Action] = []
    moments: list[int | None] = [view.next_us]
    for attempt in view.attempts:
        action, again_us = _one(view, attempt, now_us, confirm_us)
        if action is not None:
            actions.append(action)
        moments.append(again_us)
    why = f"{len(actions)} attempts end" if actions else "nothing is overdue"
    return Decision(tuple(actions), earliest(*moments), why)


def _one(
    view: AttemptsView, a: AttemptView, now_us: int, confirm_us: int
) -> tuple[Action | None, int | None]:
    if a.state in t.WAITING and not view.accepting:
        return End(a.id, t.CANCELLED, "cancelled", "its compute was deleted before it began"), None
    if a.state == t.CREATED and a.wanted_rank is not None and a.wanted_rank >= view.ranks:
        why = f"it waits for rank {a.wanted_rank}, and its compute has {view.ranks} nodes now"
        return End(a.id, t.FAILED, "capability_mismatch", why), None
    if a.node_state in n.ENDING | n.FINAL and a.state in t.ON_NODE:
        gone = a.node_state in n.FINAL or (a.node_fenced_us is not None and a.node_fenced_us <= now_us)
        if a.state in t.WAITING or gone:
            return _lost(view, a), None
    if a.state in t.AT_WORK and not view.accepting and a.node_state in n.SERVING:
        return t.ExecutionCancelRequested(a.id, now_us + confirm_us), now_us + confirm_us
    if a.state == t.CANCEL_REQUESTED:
        if a.cancel_deadline_us is not None and now_us >= a.cancel_deadline_us:
            return End(a.id, t.INDETERMINATE, "cancelled", "the node did not confirm that it stopped"), None
        return None, earliest(a.cancel_deadline_us, a.node_fenced_us)
    if a.deadline_us is None or now_us < a.deadline_us:
        return None, earliest(a.deadline_us, a.node_fenced_us)
    if a.state in t.WAITING:
        return End(a.id, t.TIMED_OUT, "timed_out", "its deadline passed before it began"), None
    if now_us >= a.deadline_us + t.DEADLINE_GRACE_US:
        return t.ExecutionCancelRequested(a.id, now_us + confirm_us), now_us + confirm_us
    return None, earliest(a.deadline_us + t.DEADLINE_GRACE_US, a.node_fenced_us)


def _lost(view: AttemptsView, a: AttemptView) -> End:
    """The end of an attempt whose node is over, or that its node will never be handed."""
    state, again = t.after_loss(a.state, a.tries)
    waiting = a.state in t.WAITING
    kind = ("safe" if waiting else "ambiguous") if again and view.accepting else None
    told = "before it began" if waiting else "after it may have begun"
    return End(a.id, state, "node_lost", f"node {a.node_id} was lost {told}", kind)
