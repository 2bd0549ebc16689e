"""How much of everything there is now, in numbers, for those who watch a deployment.

Decides: what is counted. Never: names a thing of somebody's, or counts what is over. Follows: what is counted
is found by an index over what is not settled, so that counting costs by that and never by what there was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from sky.domain import cluster, cluster_job, job, request
from sky.domain import compute as c
from sky.domain import node as n
from sky.kit.clock import SECOND_US
from sky.store import passes
from sky.store.schema import IS_ON_NODE, IS_WAITING, computes, executions, nodes
from sky.store.schema_jobs import IS_PENDING, JOB_IS_UNSETTLED, deliveries, jobs, webhooks
from sky.store.schema_requests import cluster_jobs, clusters, requests
from sky.store.sql import literals

Counts = Mapping[str, float]
_IS_SENT_TO = deliveries.c.webhook_id.in_(sa.select(webhooks.c.id).where(webhooks.c.enabled.is_(True)))
"""What waits for an endpoint that is disabled waits for its owner, and is not late."""


class Standing(Struct, frozen=True):
    """Numbers by state, or by loop. ``lag_s``: how long a loop's key has been due that waits longest."""

    computes: Counts
    nodes: Counts
    calls: Counts
    requests: Counts
    clusters: Counts
    cluster_jobs: Counts
    jobs: Counts
    holds: int
    webhooks_due: int
    webhooks_waiting: int
    keys_due: Counts
    lag_s: Counts


def standing(connection: sa.Connection, now_us: int) -> Standing:
    """What there is now."""
    live = computes.c.state.in_(literals(c.LIVE))
    nodes_there = nodes.c.state.not_in(literals(n.FINAL))
    open_jobs = _by(connection, jobs.c.state, JOB_IS_UNSETTLED, job.LIVE)
    keys_due: Counter[str] = Counter()
    lag_s: dict[str, float] = {}
    for key, due_us in passes.overdue(connection, now_us):
        loop = key.partition("/")[0]
        keys_due[loop] += 1
        lag_s.setdefault(loop, (now_us - due_us) / SECOND_US)
    return Standing(
        computes=_by(connection, computes.c.state, live, c.LIVE),
        nodes=_by(connection, nodes.c.state, nodes_there, [one for one in n.STATES if one not in n.FINAL]),
        calls={
            "queued": _count(connection, executions, IS_WAITING),
            "on_node": _count(connection, executions, IS_ON_NODE),
        },
        requests=_by(connection, requests.c.state, requests.c.finished_us.is_(None), request.OPEN),
        clusters=_by(connection, clusters.c.state, clusters.c.removed_us.is_(None), cluster.LIVE),
        cluster_jobs=_by(
            connection, cluster_jobs.c.state, cluster_jobs.c.ended_us.is_(None), cluster_job.OPEN
        ),
        jobs=open_jobs,
        holds=int(sum(open_jobs.values())),
        webhooks_due=_count(
            connection, deliveries, IS_PENDING & (deliveries.c.due_us <= now_us) & _IS_SENT_TO
        ),
        webhooks_waiting=_count(connection, deliveries, IS_PENDING),
        keys_due=keys_due,
        lag_s=lag_s,
    )


def _by(
    connection: sa.Connection,
    column: Any,
    which: sa.ColumnElement[bool],
    usual: Iterable[str],
) -> Counts:
    """How many there are by state; the usual states are told with 0 too."""
    found = connection.execute(sa.select(column, sa.func.count()).where(which).group_by(column)).all()
    return dict.fromkeys(usual, 0.0) | {state: float(many) for state, many in found}


def _count(connection: sa.Connection, table: sa.Table, which: sa.ColumnElement[bool]) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(table).where(which)).scalar_one()
