"""Clusters and their jobs, as rows, and the snapshots that plans read.

Decides: nothing. Never: moves a state (``tx`` does).
Follows: jobs come in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain.cluster import JOBS_AND_SSH, Buying, ClusterView, Idling, JobView
from sky.domain.cluster_job import RUNNING, SETTING_UP
from sky.domain.job import StepView
from sky.domain.node import COMING, DELETING, FINAL, READY, REQUESTED
from sky.store.prepared import Prepared, places
from sky.store.rows.jobs import step_of
from sky.store.schema import computes, nodes, providers
from sky.store.schema_requests import cluster_jobs, clusters
from sky.store.sql import Row, literals, many, one
from sky.store.tx import Tx

SECRETIVE_JOBS_MAX = 1_000
"""Of so many of a cluster's newest jobs the secrets are hidden."""


def find(connection: sa.Connection, cluster_id: str) -> Row | None:
    """The cluster with that id."""
    return one(connection, sa.select(clusters).where(clusters.c.id == cluster_id))


def named(connection: sa.Connection, name: str) -> Row | None:
    """The live cluster with that name."""
    query = sa.select(clusters).where(clusters.c.name == name, clusters.c.removed_us.is_(None))
    return one(connection, query)


def of_compute(connection: sa.Connection, compute_id: str) -> Row | None:
    """The live cluster whose compute that is."""
    query = sa.select(clusters).where(clusters.c.compute_id == compute_id, clusters.c.removed_us.is_(None))
    return one(connection, query)


def owning(connection: sa.Connection, compute_id: str) -> str | None:
    """The id of the cluster whose compute that is or was."""
    owner = connection.execute(sa.select(computes.c.owner).where(computes.c.id == compute_id)).scalar()
    kind, _, cluster_id = (owner or "").partition("/")
    return cluster_id if kind == "clusters" else None


def secrets_of(connection: sa.Connection, cluster_id: str) -> set[str]:
    """The values of the secrets of a cluster's newest jobs."""
    query = (
        sa.select(cluster_jobs.c.body["secrets"].label("secrets"))
        .where(cluster_jobs.c.cluster_id == cluster_id)
        .order_by(cluster_jobs.c.number.desc())
        .limit(SECRETIVE_JOBS_MAX)
    )
    found: list[Mapping[str, str]] = [row["secrets"] or {} for row in many(connection, query)]
    return {value for secrets in found for value in secrets.values()}


def live(connection: sa.Connection, owner: str | None, limit: int) -> list[Row]:
    """Live clusters, newest first: of one owner, or of all (None)."""
    query = sa.select(clusters).where(clusters.c.removed_us.is_(None)).order_by(clusters.c.seq.desc())
    if owner is not None:
        query = query.where(clusters.c.owner == owner)
    return many(connection, query.limit(limit))


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


def ready_of(connection: sa.Connection, compute_ids: Sequence[str]) -> dict[str, list[Row]]:
    """The nodes that are ready of each of these computes, by rank."""
    found: dict[str, list[Row]] = {one_id: [] for one_id in compute_ids}
    for row in _READY.all(connection, {"ids": list(found)}) if found else ():
        found[row["compute_id"]].append(row)
    return found


def errors_of(connection: sa.Connection, compute_ids: Sequence[str]) -> dict[str, Mapping[str, Any] | None]:
    """What each of these computes has last met."""
    if not compute_ids:
        return {}
    return {row["id"]: row["last_error"] for row in _ERRORS.all(connection, {"ids": list(compute_ids)})}


def view(connection: sa.Connection, cluster_id: str) -> tuple[Row, ClusterView] | None:
    """A cluster's row, and all that its plan reads, in one snapshot."""
    row = find(connection, cluster_id)
    if row is None:
        return None
    owned = compute(connection, row["compute_id"])
    states = node_states(connection, row["compute_id"])
    found = jobs(connection, cluster_id, 10_000, open_only=True)[::-1]
    return row, ClusterView(
        id=row["id"],
        state=row["state"],
        num_nodes=row["num_nodes"],
        gpus=max(
            (spec.get("accelerator_count") or 0) if spec.get("accelerator") else 0 for spec in row["specs"]
        ),
        compute_state=None if owned is None else owned["state"],
        machines=len(states),
        ready=states.count(READY),
        jobs=tuple(_job(connection, one_job) for one_job in found),
        idling=_idling(connection, row),
    )


def node_states(connection: sa.Connection, compute_id: str) -> list[str]:
    """The states of the nodes of a compute that are not over."""
    query = sa.select(nodes.c.state).where(
        nodes.c.compute_id == compute_id, nodes.c.state.not_in(literals(FINAL))
    )
    return list(connection.scalars(query))


def tasks_of(job_row: Row) -> list[str]:
    """The tasks of a job so far."""
    begun: Mapping[str, list[str]] = job_row["setup_tasks"] or {}
    return [*begun.get("bring", ()), *begun.get("setup", ()), *(job_row["run_tasks"] or ())]


def at_work(connection: sa.Connection, cluster_id: str, before_us: int) -> int:
    """How many of a cluster's jobs are at work on its nodes, of those submitted up to a moment."""
    query = sa.select(sa.func.count()).where(
        cluster_jobs.c.cluster_id == cluster_id,
        cluster_jobs.c.ended_us.is_(None),
        cluster_jobs.c.state.in_((SETTING_UP, RUNNING)),
        cluster_jobs.c.submitted_us <= before_us,
    )
    return int(connection.execute(query).scalar_one())


def bought(connection: sa.Connection, compute_id: str) -> list[tuple[str | None, str | None]]:
    """For each node of a compute that is not over, its kind of provider and its market; None: not yet
    known."""
    query = sa.select(nodes.c.provider_kind, nodes.c.market).where(
        nodes.c.compute_id == compute_id, nodes.c.state.not_in(literals(FINAL))
    )
    return [(row.provider_kind, row.market) for row in connection.execute(query)]


def kinds_named(connection: sa.Connection, names: Sequence[str]) -> set[str]:
    """The kinds of the providers that are meant by these ids, names or kinds."""
    wanted = list(names)
    query = sa.select(providers.c.kind).where(
        sa.or_(providers.c.id.in_(wanted), providers.c.name.in_(wanted), providers.c.kind.in_(wanted))
    )
    return set(connection.scalars(query))


def refusal(connection: sa.Connection, compute_id: str) -> str | None:
    """Why a machine of a compute could not be given back at the last try."""
    query = sa.select(nodes.c.last_error).where(
        nodes.c.compute_id == compute_id, nodes.c.state == DELETING, nodes.c.last_error.is_not(None)
    )
    errors: list[Mapping[str, Any]] = list(connection.scalars(query))
    return next((error["message"] for error in errors if error["code"] == "release_pending"), None)


def buying(connection: sa.Connection, compute_id: str) -> Buying:
    """How far the machines of a compute have come."""
    query = sa.select(
        nodes.c.state,
        nodes.c.passed_over,
        nodes.c.created_us,
        nodes.c.bound_us,
        nodes.c.deleting_us,
        nodes.c.terminated_us,
    )
    newest = many(
        connection, query.where(nodes.c.compute_id == compute_id).order_by(nodes.c.seq.desc()).limit(64)
    )
    times = ("created_us", "bound_us", "deleting_us", "terminated_us")
    refused: list[Mapping[str, Any]] = [
        entry for row in newest if row["state"] == REQUESTED for entry in row["passed_over"] or ()
    ]
    return Buying(
        coming=any(row["state"] in COMING - {REQUESTED} for row in newest),
        moved_us=max((row[name] or 0 for row in newest for name in times), default=0),
        refused_until_us=max((entry["until_us"] for entry in refused), default=0),
    )


def session(tx: Tx, compute_id: str, until_us: int) -> None:
    """A shell is open on a machine of a live cluster's compute, until that moment at least."""
    tx.connection.execute(
        sa.update(clusters)
        .where(clusters.c.compute_id == compute_id, clusters.c.removed_us.is_(None))
        .values(session_us=until_us)
    )


def _idling(connection: sa.Connection, row: Row) -> Idling:
    ended_us = None
    if row["autostop_minutes"] >= 0:
        query = sa.select(sa.func.max(cluster_jobs.c.ended_us))
        ended_us = connection.execute(query.where(cluster_jobs.c.cluster_id == row["id"])).scalar()
    return Idling(
        minutes=row["autostop_minutes"],
        down=row["autostop_down"],
        wait=row["autostop_wait"] or JOBS_AND_SSH,
        set_us=row["autostop_us"] or 0,
        up_us=row["up_us"] or 0,
        used_us=row["busy_us"],
        ended_us=ended_us or 0,
        session_us=row["session_us"] or 0,
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


def _ready(_: Any, count: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(nodes)
        .where(nodes.c.compute_id.in_(places("ids", count)), nodes.c.state.in_(literals([READY])))
        .order_by(nodes.c.rank)
    )


def _errors(_: Any, count: int) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(computes.c.id, computes.c.last_error).where(computes.c.id.in_(places("ids", count)))


_READY = Prepared(_ready, "ids")
_ERRORS = Prepared(_errors, "ids")
