"""Which attempts must end although nobody reported them: node lost, deadline passed, cancel unconfirmed.

Decides: how each ends and whether another attempt follows. Never: ends one on a node that is merely
unreachable. Follows: what may have begun is ``indeterminate``, and repeated only where that was allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

from sky.domain import node as n
from sky.domain import task as t
from sky.domain.snapshots import AttemptsView, AttemptView
from sky.plan.decision import Decision, earliest

CANCEL_CONFIRM_US = 60_000_000
"""How long an agent has to confirm a cancel."""


@dataclass(frozen=True, slots=True)
class End:
    """End an attempt as ``state``; with ``retry_kind`` ("safe" or "ambiguous") another one follows."""

    execution_id: str
    state: str
    code: str
    message: str
    retry_kind: str | None = None


Action = End | t.ExecutionCancelRequested


def plan(view: AttemptsView, now_us: int) -> Decision[Action]:
    """What must happen to ``view.attempts`` at ``now_us``."""
    actions: list[Action] = []
    moments: list[int | None] = [view.next_us]
    for attempt in view.attempts:
        action, again_us = _one(view, attempt, now_us)
        if action is not None:
            actions.append(action)
        moments.append(again_us)
    why = f"{len(actions)} attempts end" if actions else "nothing is overdue"
    return Decision(tuple(actions), earliest(*moments), why)


def _one(view: AttemptsView, a: AttemptView, now_us: int) -> tuple[Action | None, int | None]:
    if a.state == t.CREATED and not view.accepting:
        return End(a.id, t.CANCELLED, "cancelled", "its compute was deleted before it began"), None
    if a.node_state in n.ENDING | n.FINAL and a.state in t.ON_NODE:
        return _on_ending_node(view, a, now_us)
    if a.state == t.CANCEL_REQUESTED:
        if a.cancel_deadline_us is not None and now_us >= a.cancel_deadline_us:
            return End(a.id, t.INDETERMINATE, "cancelled", "the node did not confirm that it stopped"), None
        return None, a.cancel_deadline_us
    if a.deadline_us is None or now_us < a.deadline_us:
        return None, a.deadline_us
    if a.state in t.WAITING:
        return End(a.id, t.TIMED_OUT, "timed_out", "its deadline passed before it began"), None
    if now_us >= a.deadline_us + t.DEADLINE_GRACE_US:
        return t.ExecutionCancelRequested(a.id, now_us + CANCEL_CONFIRM_US), now_us + CANCEL_CONFIRM_US
    return None, a.deadline_us + t.DEADLINE_GRACE_US


def _on_ending_node(view: AttemptsView, a: AttemptView, now_us: int) -> tuple[Action | None, int | None]:
    gone = a.node_state in n.FINAL or (a.node_fenced_us is not None and a.node_fenced_us <= now_us)
    if a.state not in t.WAITING and not gone:
        return None, a.node_fenced_us  # its machine may still be working, and may still report
    state, again = t.after_loss(a.state, a.tries)
    kind = None
    if again and view.accepting:
        kind = "safe" if a.state in t.WAITING else "ambiguous"
    told = "before it began" if a.state in t.WAITING else "after it may have begun"
    if a.state in t.WAITING and not view.accepting:
        return End(a.id, t.CANCELLED, "cancelled", f"its compute was deleted {told}"), None
    return End(a.id, state, "node_lost", f"node {a.node_id} was lost {told}", kind), None
