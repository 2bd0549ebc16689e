"""What the plan of a cluster reads: its row, its compute, and those of its jobs that it decides on.

Decides: which jobs those are. Never: moves a state (``tx`` does), or reads what a job runs: that is read of
the one that begins. Follows: however many jobs wait, a look at their cluster costs as if one did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain.cluster import JOBS_AND_SSH, ClusterView, Idling, JobView
from sky.domain.cluster_job import INIT, RUNNING, SETTING_UP
from sky.domain.compute import ACCEPTING, Bounds
from sky.domain.job import StepView
from sky.domain.node import READY
from sky.store.prepared import Prepared, places, prepared
from sky.store.rows import clusters
from sky.store.rows.jobs import step_of
from sky.store.schema_requests import cluster_jobs
from sky.store.specs import bounds_of, is_spec
from sky.store.sql import Row, literals


def view(connection: sa.Connection, cluster_id: str) -> tuple[Row, ClusterView] | None:
    """A cluster's row, and all that its plan reads, in one snapshot."""
    row = clusters.find(connection, cluster_id)
    if row is None:
        return None
    owned = clusters.compute(connection, row["compute_id"])
    states = clusters.node_states(connection, row["compute_id"])
    jobs, count = _jobs(connection, cluster_id)
    return row, ClusterView(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        num_nodes=row["num_nodes"],
        gpus=max(
            (spec.get("accelerator_count") or 0) if spec.get("accelerator") else 0 for spec in row["specs"]
        ),
        compute_state=None if owned is None else owned["state"],
        machines=len(states),
        ready=states.count(READY),
        jobs=jobs,
        waiting_more=count - len(jobs),
        wanted=None if owned is None else _wanted(owned),
        idling=_idling(connection, row),
    )


def _jobs(connection: sa.Connection, cluster_id: str) -> tuple[tuple[JobView, ...], int]:
    """The open jobs that are at work, and the first of those that wait in each state; how many are open."""
    asked = {"b_cluster": cluster_id}
    counted = _COUNTED.all(connection, asked)
    if not counted:
        return (), 0
    firsts = [row["first"] for row in counted]
    found = _DECIDED.all(connection, {**asked, "numbers": firsts})
    return tuple(_job(connection, row) for row in found), sum(row["count"] for row in counted)


def _job(connection: sa.Connection, row: Row) -> JobView:
    begun: Mapping[str, Any] = row["setup_tasks"] or {}
    return JobView(
        id=row["id"],
        number=row["number"],
        state=row["state"],
        num_nodes=row["num_nodes"],
        gpus=row["gpus"],
        brings=bool(row["files"]),
        sets_up=bool(row["setup"]),
        bring=_steps(connection, begun.get("bring", ())),
        setup=_steps(connection, begun.get("setup", ())),
        run=_steps(connection, row["run_tasks"] or ()),
        stopping=row["stop_us"] is not None,
        stop_error=row["stop_error"],
    )


def _steps(connection: sa.Connection, ids: Sequence[str]) -> tuple[StepView, ...]:
    found = (step_of(connection, task_id) for task_id in ids)
    return tuple(step for step in found if step is not None)


def _wanted(compute: Row) -> Bounds | None:
    """How many nodes a compute may have. One whose spec cannot be read has passes that say so; its cluster
    can be taken down all the same."""
    known = compute["state"] in ACCEPTING and is_spec(compute["spec"])
    return bounds_of(compute["spec"]) if known else None


def _idling(connection: sa.Connection, row: Row) -> Idling:
    ended_us = None
    if row["autostop_minutes"] >= 0:
        ended_us = _LAST_END.scalar(connection, {"b_cluster": row["id"]})
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


_OF_CLUSTER = cluster_jobs.c.cluster_id == sa.bindparam("b_cluster")
_IS_OPEN = cluster_jobs.c.ended_us.is_(None)
_AT_WORK = cluster_jobs.c.state.in_(literals((SETTING_UP, RUNNING)))
_YET_TO_BEGIN = cluster_jobs.c.state.in_(literals((INIT, SETTING_UP)))
_COUNTED = prepared(
    sa.select(
        cluster_jobs.c.state,
        sa.func.count().label("count"),
        sa.func.min(cluster_jobs.c.number).label("first"),
    )
    .where(_OF_CLUSTER, _IS_OPEN)
    .group_by(cluster_jobs.c.state)
)


def _decided(_: str, count: int) -> sa.Select[*tuple[Any, ...]]:
    job = cluster_jobs.c
    few = (job.id, job.number, job.state, job.num_nodes, job.gpus, job.setup_tasks, job.run_tasks)
    told = (job.stop_us, job.stop_error)
    body = (
        sa.case((_YET_TO_BEGIN, job.body["files"])).label("files"),
        sa.case((_YET_TO_BEGIN, job.body["setup"])).label("setup"),
    )
    which = sa.or_(_AT_WORK, job.number.in_(places("numbers", count)))
    return sa.select(*few, *told, *body).where(_OF_CLUSTER, _IS_OPEN, which).order_by(job.number)


_DECIDED = Prepared(_decided, "numbers")
_LAST_END = prepared(sa.select(sa.func.max(cluster_jobs.c.ended_us).label("ended_us")).where(_OF_CLUSTER))
