"""Where the ports of a cluster can be reached.

Decides: which ports count: those that its machines were asked to open. Never: opens one, or tries whether
anything listens. Follows: a port is reached at the first node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from sky.store.rows import clusters
from sky.store.sql import Row

HERE = "127.0.0.1"
"""Where machines are that have no address of their own."""
PORTS_MAX = 1_000


def endpoints(connection: sa.Connection, cluster: Row) -> dict[str, str]:
    """``host:port`` of each open port of a cluster, by the port."""
    ready = clusters.ready_nodes(connection, cluster["compute_id"])
    if not ready:
        return {}
    address = ready[0]["address"] or HERE
    host = f"[{address}]" if ":" in address else address
    ports = sorted(set(_ports(cluster["resources"]["machines"])))
    return {str(port): f"{host}:{port}" for port in ports[:PORTS_MAX]}


def _ports(machines: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    for machine in machines:
        for text in machine.get("ports", ()):
            first, _, last = text.partition("-")
            yield from range(int(first), int(last or first) + 1)
