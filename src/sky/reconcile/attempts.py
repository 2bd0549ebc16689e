"""Ends attempts that nobody will report: lost nodes, passed deadlines, unconfirmed cancels.

Decides: nothing; ``plan/attempt`` does. Never: ends what may still be reported in time.
Follows: an attempt on a node that is merely unreachable goes on, and its report is still taken.
"""

from __future__ import annotations

from typing import ClassVar

from sky.domain import task as t
from sky.plan import attempt as plan
from sky.reconcile.passes import Done, InnerLoop
from sky.store import work
from sky.store.tx import Tx
from sky.verbs import attempts


class Attempts(InnerLoop):
    """One pass: read a compute's doubtful attempts, plan, write."""

    name: ClassVar[str] = "attempts"
    idle: ClassVar[str] = (
        "no call is in the hands of a node that fell silent, and none waits for the end of a cancel"
    )

    def __init__(self, confirm_us: int = t.CANCEL_CONFIRM_US) -> None:
        self._confirm_us = confirm_us

    def look(self, tx: Tx, key_id: str) -> Done:
        view = work.attempts_view(tx.connection, key_id, tx.now_us)
        if view is None:
            return Done("there is no such compute")
        decision = plan.plan(view, tx.now_us, self._confirm_us)
        asked = [a for a in decision.actions if isinstance(a, t.ExecutionCancelRequested)]
        ends = [a for a in decision.actions if isinstance(a, plan.End)]
        tx.apply(*asked)
        if ends:
            attempts.end(
                tx,
                [_fact(tx, end) for end in ends],
                [(end.execution_id, end.retry_kind) for end in ends if end.retry_kind],
            )
        return Done(decision.why, decision.next_us)


def _fact(tx: Tx, end: plan.End) -> t.Ending:
    error = attempts.error_value(end.code, end.message, retryable=end.retry_kind is not None)
    return t.ENDINGS[end.state](end.execution_id, finished_us=tx.now_us, error=error)
