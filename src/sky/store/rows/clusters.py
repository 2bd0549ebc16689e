"""Clusters and their jobs, as rows, and the snapshots that plans read.

Decides: nothing. Never: moves a state (``tx`` does).
Follows: jobs come in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain.cluster import ClusterView, JobView
from sky.domain.job import StepView
from sky.domain.node import FINAL
from sky.store.rows.jobs import step_of
from sky.store.schema import computes, nodes
from sky.store.schema_requests import cluster_jobs, clusters
from sky.store.sql import Row, literals, many, one


def find(connection: sa.Connection, cluster_id: str) -> Row | None:
    """The cluster with that id."""
    return one(connection, sa.select(clusters).where(clusters.c.id == cluster_id))


def named(connection: sa.Connection, name: str) -> Row | None:
    """The live cluster with that name."""
    query = sa.select(clusters).where(clusters.c.name == name, clusters.c.removed_us.is_(None))
    return one(connection, query)


def live(connection: sa.Connection, owner: str | None, limit: int) -> list[Row]:
    """Live clusters, newest first: of one owner, or of all (None)."""
    query = sa.select(clusters).where(clusters.c.removed_us.is_(None)).order_by(clusters.c.seq.desc())
    if owner is not None:
        query = query.where(clusters.c.owner == owner)
    return many(connection, query.limit(limit))


def every(connection: sa.Connection, owner: str | None, limit: int) -> list[Row]:
    """Clusters, those that are gone included, newest first."""
    query = sa.select(clusters).order_by(clusters.c.seq.desc()).limit(limit)
    return many(connection, query if owner is None else query.where(clusters.c.owner == owner))


def job(connection: sa.Connection, cluster_id: str, number: int) -> Row | None:
    """A job of a cluster by its number."""
    return one(
        connection,
        sa.select(cluster_jobs).where(
            cluster_jobs.c.cluster_id == cluster_id, cluster_jobs.c.number == number
        ),
    )


def job_by_id(connection: sa.Connection, job_id: str) -> Row | None:
    """The job with that id."""
    return one(connection, sa.select(cluster_jobs).where(cluster_jobs.c.id == job_id))


def jobs(connection: sa.Connection, cluster_id: str, limit: int, *, open_only: bool = False) -> list[Row]:
    """A cluster's jobs, newest first."""
    query = sa.select(cluster_jobs).where(cluster_jobs.c.cluster_id == cluster_id)
    if open_only:
        query = query.where(cluster_jobs.c.ended_us.is_(None))
    return many(connection, query.order_by(cluster_jobs.c.number.desc()).limit(limit))


def ready_nodes(connection: sa.Connection, compute_id: str) -> list[Row]:
    """The nodes of a compute that are ready, by rank."""
    query = sa.select(nodes).where(nodes.c.compute_id == compute_id, nodes.c.state == "ready")
    return many(connection, query.order_by(nodes.c.rank))


def compute(connection: sa.Connection, compute_id: str) -> Row | None:
    """What a plan must know of a cluster's compute."""
    return one(
        connection, sa.select(computes.c.state, computes.c.last_error).where(computes.c.id == compute_id)
    )


def view(connection: sa.Connection, cluster_id: str) -> tuple[Row, ClusterView] | None:
    """A cluster's row, and all that its plan reads, in one snapshot."""
    row = find(connection, cluster_id)
    if row is None:
        return None
    owned = compute(connection, row["compute_id"])
    count = sa.select(sa.func.count()).where(
        nodes.c.compute_id == row["compute_id"], nodes.c.state.not_in(literals(FINAL))
    )
    found = jobs(connection, cluster_id, 10_000, open_only=True)[::-1]
    return row, ClusterView(
        id=row["id"],
        state=row["state"],
        num_nodes=row["num_nodes"],
        gpus=max(
            (spec.get("accelerator_count") or 0) if spec.get("accelerator") else 0 for spec in row["specs"]
        ),
        compute_state=None if owned is None else owned["state"],
        machines=int(connection.execute(count).scalar_one()),
        jobs=tuple(_job(connection, one_job) for one_job in found),
        autostop_minutes=row["autostop_minutes"],
        busy_us=row["busy_us"],
    )


def _job(connection: sa.Connection, row: Row) -> JobView:
    body: Mapping[str, Any] = row["body"]
    begun: Mapping[str, Any] = row["setup_tasks"] or {}
    return JobView(
        id=row["id"],
        number=row["number"],
        state=row["state"],
        num_nodes=row["num_nodes"],
        gpus=row["gpus"],
        brings=bool(body.get("files")),
        sets_up=bool(body.get("setup")),
        bring=_steps(connection, begun.get("bring", ())),
        setup=_steps(connection, begun.get("setup", ())),
        run=_steps(connection, row["run_tasks"] or ()),
        stopping=row["stop_us"] is not None,
        stop_error=row["stop_error"],
    )


def _steps(connection: sa.Connection, ids: Sequence[str]) -> tuple[StepView, ...]:
    found = (step_of(connection, task_id) for task_id in ids)
    return tuple(step for step in found if step is not None)
