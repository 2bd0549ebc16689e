"""Keeps a compute's node rows and state as its plan wants them.

Decides: nothing; ``plan/compute`` does. Never: buys.
Follows: running it twice in a row changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sky.domain.lifecycle import Fact
from sky.kit import ids
from sky.plan import compute as plan
from sky.reconcile.passes import Done, InnerLoop
from sky.store import passes, snapshots
from sky.store.rows import disks
from sky.store.tx import Tx

TokenHash = Callable[[str], str]
"""From a node's id to the SHA-256 of the token that its agent will show."""


class Computes(InnerLoop):
    """One pass: read a compute and its nodes, plan, write."""

    name: ClassVar[str] = "computes"
    idle: ClassVar[str] = "there are no computes"

    def __init__(self, token_hash: TokenHash) -> None:
        self._token_hash = token_hash
        self._listening_us = 0

    def look(self, tx: Tx, key_id: str) -> Done:
        self._listening_us = self._listening_us or tx.now_us
        view = snapshots.compute_view(tx.connection, key_id, self._listening_us)
        if view is None:
            return Done("there is no such compute")
        decision = plan.plan(view, tx.now_us)
        wishes = [a for a in decision.actions if isinstance(a, plan.AskForNode)]
        tx.add("nodes", [self._row(tx, wish) for wish in wishes], event="node.requested")
        for action in decision.actions:
            if isinstance(action, Fact):
                tx.apply(action)
            elif isinstance(action, plan.LetDiskGo):
                disks.let_go(tx, action.name)
            elif isinstance(action, plan.RemoveDisk):
                passes.begun(tx, f"disks/{action.name}")
                passes.begin(tx, f"disks/{action.name}")
        return Done(decision.why, decision.next_us)

    def _row(self, tx: Tx, wish: plan.AskForNode) -> dict[str, Any]:
        node_id = ids.new("node")
        return {
            "id": node_id,
            "compute_id": wish.compute_id,
            "rank": wish.rank,
            "generation": wish.generation,
            "state": "requested",
            "version": 1,
            "revision": 1,
            "price_micro": 0,
            "token": self._token_hash(node_id),
            "heard": 0,
            "slots": 0,
            "window": 0,
            "passed_over": list(wish.passed_over) or None,
            "created_us": tx.now_us,
        }
