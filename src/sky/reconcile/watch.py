"""Looks over all nodes that serve for those that have become silent, in one query.

Decides: which nodes are to be looked at, of those that nobody looks at anyway. Never: judges one; the node's
own pass asks its provider. Follows: a fleet that is heard costs one query every few seconds, whatever its
size, and a daemon that has just started hears first.
"""

from __future__ import annotations

from typing import ClassVar

from sky.kit.clock import SECOND_US
from sky.plan.node import SILENT_US
from sky.reconcile.passes import Done, InnerLoop
from sky.store import passes
from sky.store.rows import nodes
from sky.store.tx import Tx

WATCH_EVERY_US = 3 * SECOND_US
SILENT_AT_ONCE_MAX = 1_000


class Watch(InnerLoop):
    """One pass: find the silent ones, make them due."""

    name: ClassVar[str] = "watch"
    idle: ClassVar[str] = "no compute has nodes that may fall silent"

    def __init__(self) -> None:
        self._listening_us = 0

    def look(self, tx: Tx, key_id: str) -> Done:
        self._listening_us = self._listening_us or tx.now_us
        heard_us = tx.now_us - SILENT_US
        silent: list[str] = []
        if self._listening_us <= heard_us:
            silent = nodes.silent(tx.connection, heard_us, SILENT_AT_ONCE_MAX)
        for node_id in silent:
            passes.begin(tx, f"nodes/{node_id}")
        if not nodes.any_serving(tx.connection):
            return Done(f"no node of {key_id} serves")
        return Done(f"{len(silent)} of {key_id} are silent", tx.now_us + WATCH_EVERY_US)
