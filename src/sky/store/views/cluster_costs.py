"""What clusters have used of machines, and what that cost.

Decides: which machines count: all that any of a cluster's computes ever had. Never: keeps a sum.
Follows: a machine costs from its launch until its provider says that it is gone, and until now when it has
not; the times in which a cluster had machines are told apart, so that one sees when it was stopped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from sky.domain.money import machine_cost_micro, to_usd
from sky.kit.clock import SECOND_US
from sky.store.prepared import Prepared, places
from sky.store.schema import computes, nodes
from sky.store.schema_requests import clusters as table
from sky.store.sql import Row, many
from sky.store.views.cluster_texts import asked_for, resources_text

OWNER = "clusters/"
DAY_US = 86_400 * SECOND_US
CLUSTERS_MAX = 10_000
DAYS = 30


@dataclass(slots=True)
class Usage:
    """What a cluster has used: money, time of machines, and when it had any (an end of None: it has now)."""

    cost_micro: int = 0
    machine_us: int = 0
    spans: list[tuple[int, int | None]] = field(default_factory=list[tuple[int, int | None]])

    def duration_us(self, now_us: int) -> int:
        """How long it had machines."""
        return sum((now_us if until is None else until) - since for since, until in self.spans)


def usages(connection: sa.Connection, ids: Sequence[str], now_us: int) -> dict[str, Usage]:
    """What each of these clusters has used."""
    found: dict[str, Usage] = defaultdict(Usage)
    if not ids:
        return found
    for row in _NODES.all(connection, {"owners": [OWNER + one for one in ids]}):
        usage = found[row["owner"].removeprefix(OWNER)]
        since, until = row["launched_us"], row["terminated_us"]
        used_us = max(0, (now_us if until is None else until) - since)
        usage.cost_micro += machine_cost_micro(row["price_micro"], used_us, row["billing_unit"])
        usage.machine_us += used_us
        _join(usage.spans, since, until)
    return found


def report(
    connection: sa.Connection, owner: str | None, days: int | None, now_us: int
) -> list[dict[str, Any]]:
    """What clusters have cost that were there within so many days, newest first."""
    since_us = now_us - (days or DAYS) * DAY_US
    query = (
        sa.select(table)
        .where(sa.or_(table.c.removed_us.is_(None), table.c.removed_us >= since_us))
        .order_by(table.c.seq.desc())
        .limit(CLUSTERS_MAX)
    )
    rows = many(connection, query if owner is None else query.where(table.c.owner == owner))
    used = usages(connection, [row["id"] for row in rows], now_us)
    return [_cost(row, used[row["id"]], now_us) for row in rows]


def _cost(row: Row, usage: Usage, now_us: int) -> dict[str, Any]:
    return {
        "name": row["name"],
        "cluster_id": row["id"],
        "launched_at": row["launched_us"] // SECOND_US,
        "duration": usage.duration_us(now_us) // SECOND_US,
        "machine_seconds": usage.machine_us // SECOND_US,
        "num_nodes": row["num_nodes"],
        "resources": asked_for(row),
        "resources_str": resources_text(row["num_nodes"], row["resources"]["machines"]),
        "status": None if row["removed_us"] is not None else row["state"],
        "user_name": row["owner"],
        "total_cost": to_usd(usage.cost_micro),
        "usage_intervals": [
            [since / SECOND_US, None if until is None else until / SECOND_US] for since, until in usage.spans
        ],
    }


def _join(spans: list[tuple[int, int | None]], since: int, until: int | None) -> None:
    """Add a time that begins no earlier than those before it, and make one of those that touch."""
    if spans:
        first, last = spans[-1]
        if last is None:
            return
        if since <= last:
            spans[-1] = (first, None if until is None else max(last, until))
            return
    spans.append((since, until))


def _query(_: Any, count: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(
            computes.c.owner,
            nodes.c.launched_us,
            nodes.c.terminated_us,
            nodes.c.price_micro,
            nodes.c.billing_unit,
        )
        .select_from(computes.join(nodes, nodes.c.compute_id == computes.c.id))
        .where(computes.c.owner.in_(places("owners", count)), nodes.c.launched_us.is_not(None))
        .order_by(nodes.c.launched_us)
    )


_NODES = Prepared(_query, "owners")
