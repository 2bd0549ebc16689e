"""What is hidden in what a cluster's nodes report: the secrets of its tasks, and all that the daemon knows.

Decides: when they are read: before the first line or the first error of each execution is written down.
Never: tells them to a node in order to be hidden there, or keeps them longer than the node's line. Follows:
which secrets there are is read from the jobs, so that a daemon that was not there when they came hides them
too; a node that is no cluster's costs one query.
"""

from __future__ import annotations

from sky.kit.masks import Masks
from sky.store.db import Database
from sky.store.rows import clusters
from sky.wire.agent import Report

EXECUTIONS_MAX = 10_000
"""Executions of which it is remembered that their secrets are known."""


class TaskMasks:
    """The masks for one node."""

    def __init__(self, db: Database, known: Masks, compute_id: str) -> None:
        self._db = db
        self._masks = Masks(beside=known)
        self._compute_id = compute_id
        self._cluster: str | None = None
        self._looked = False
        self._learnt: set[str | None] = set()

    async def of(self, report: Report) -> Masks:
        """What is to be hidden in this report."""
        shown: set[str | None] = {lines.execution for lines in report.console}
        shown |= {outcome.execution for outcome in report.outcomes if outcome.error}
        if not shown <= self._learnt:
            await self._learn()
            if len(self._learnt) > EXECUTIONS_MAX:
                self._learnt.clear()
            self._learnt |= shown
        return self._masks

    async def _learn(self) -> None:
        if not self._looked:
            compute_id = self._compute_id
            self._cluster = await self._db.read(lambda c: clusters.owning(c, compute_id))
            self._looked = True
        if (cluster := self._cluster) is not None:
            self._masks.add(await self._db.read(lambda c: clusters.secrets_of(c, cluster)))
