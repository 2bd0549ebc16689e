"""What nodes said last about how they are.

Decides: how long that is believed. Never: keeps it anywhere but in this process.
Follows: a node that speaks to another daemon, or has fallen silent, has no gauges here, rather than old ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sky.wire import v1

BELIEVED_S = 20.0
NODES_MAX = 100_000


class Gauges:
    """The latest gauges by node, each with the moment it was heard."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, Mapping[str, float]]] = {}

    def heard(self, node_id: str, gauges: Mapping[str, float], now_s: float) -> None:
        """A node has told."""
        self._heard.pop(node_id, None)
        self._heard[node_id] = (now_s, gauges)
        while len(self._heard) > NODES_MAX:
            del self._heard[next(iter(self._heard))]

    def forget(self, node_id: str) -> None:
        """A node is not connected any more."""
        self._heard.pop(node_id, None)

    def on(self, node: v1.Node, now_s: float) -> v1.Node:
        """A node with its gauges, where they are known."""
        told_s, gauges = self._heard.get(node.id, (0.0, {}))
        if not gauges or now_s - told_s > BELIEVED_S:
            return node
        return msgspec.structs.replace(node, metrics=dict(gauges))
