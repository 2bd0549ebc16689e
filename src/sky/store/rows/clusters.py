"""Clusters and their jobs, as rows.

Decides: nothing. Never: moves a state (``tx`` does).
Follows: jobs come in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain.cluster import Buying
from sky.domain.cluster_job import RUNNING, SETTING_UP
from sky.domain.node import COMING, DELETING, FINAL, READY, REQUESTED
from sky.store.prepared import Prepared, places, prepared
from sky.store.schema import computes, nodes, providers
from sky.store.schema_requests import cluster_jobs, clusters
from sky.store.sql import Row, literals, many, one
from sky.store.tx import Tx

BUYING_MAX = 64
"""So many of a compute's newest nodes tell how far its machines have come."""
OPEN_JOBS_PAGE = 1_000
"""So many of a cluster's jobs are read at a time."""
NUMBER_MAX = 2**63 - 1
SECRETIVE_JOBS_MAX = 1_000
"""Of so many of a cluster's newest jobs the secrets are hidden."""


def find(connection: sa.Connection, cluster_id: str) -> Row | None:
    """The cluster with that id."""
    return one(connection, _CLUSTER, {"b_id": cluster_id})


def named(connection: sa.Connection, name: str) -> Row | None:
    """The live cluster with that name."""
    return one(connection, _NAMED, {"b_name": name})


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


def live(connection: sa.Connection, owner: str | None, names: Sequence[str] | None, limit: int) -> list[Row]:
    """What is shown of live clusters, newest first: of one owner, or of all (None); those of these names, or
    all (None)."""
    asked: dict[str, Any] = {"b_limit": limit, "b_owner": owner}
    if names is None:
        return (_LIVE if owner is None else _LIVE_OF).all(connection, asked)
    query = _LIVE_NAMED if owner is None else _LIVE_NAMED_OF
    return query.all(connection, {**asked, "names": names})


def names_in_use(connection: sa.Connection, limit: int) -> list[str]:
    """The names of live clusters."""
    return [row["name"] for row in _NAMES.all(connection, {"b_limit": limit})]


def job(connection: sa.Connection, cluster_id: str, number: int) -> Row | None:
    """A job of a cluster by its number."""
    return one(connection, _JOB, {"b_cluster": cluster_id, "b_number": number})


def job_states(connection: sa.Connection, cluster_id: str, numbers: Sequence[int]) -> dict[int, str]:
    """The states of those jobs of a cluster that are there, by their numbers."""
    found = _STATES.all(connection, {"b_cluster": cluster_id, "numbers": numbers})
    return {row["number"]: row["state"] for row in found}


def newest_job(connection: sa.Connection, cluster_id: str) -> Row | None:
    """Number and state of a cluster's newest job."""
    return one(connection, _NEWEST, {"b_cluster": cluster_id})


def job_by_id(connection: sa.Connection, job_id: str) -> Row | None:
    """The job with that id."""
    return one(connection, _JOB_BY_ID, {"b_id": job_id})


def jobs(connection: sa.Connection, cluster_id: str, limit: int) -> list[Row]:
    """A cluster's jobs, newest first."""
    return _JOBS.all(connection, {"b_cluster": cluster_id, "b_limit": limit})


def newest_open(connection: sa.Connection, cluster_id: str) -> Row | None:
    """The newest job of a cluster that is not over."""
    return _OPEN_JOBS.first(connection, {"b_cluster": cluster_id, "b_below": NUMBER_MAX, "b_limit": 1})


def open_jobs(connection: sa.Connection, cluster_id: str) -> Iterator[Row]:
    """Every job of a cluster that is not over, newest first. They may be ended meanwhile."""
    below = NUMBER_MAX
    while True:
        asked = {"b_cluster": cluster_id, "b_below": below, "b_limit": OPEN_JOBS_PAGE}
        page = _OPEN_JOBS.all(connection, asked)
        yield from page
        if len(page) < OPEN_JOBS_PAGE:
            return
        below = page[-1]["number"]


def shown_jobs(connection: sa.Connection, cluster_id: str, limit: int, *, open_only: bool) -> list[Row]:
    """What is shown of a cluster's jobs, newest first."""
    query = _OPEN_SHOWN if open_only else _SHOWN
    return query.all(connection, {"b_cluster": cluster_id, "b_limit": limit})


def ready_nodes(connection: sa.Connection, compute_id: str) -> list[Row]:
    """The nodes of a compute that are ready, by rank."""
    return ready_of(connection, [compute_id])[compute_id]


def compute(connection: sa.Connection, compute_id: str) -> Row | None:
    """What a plan must know of a cluster's compute."""
    return one(connection, _COMPUTE, {"b_id": compute_id})


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


def node_states(connection: sa.Connection, compute_id: str) -> list[str]:
    """The states of the nodes of a compute that are not over."""
    return [row["state"] for row in _NODE_STATES.all(connection, {"b_id": compute_id})]


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
    errors: list[Mapping[str, Any]] = [
        row["last_error"] for row in _REFUSALS.all(connection, {"b_id": compute_id})
    ]
    return next((error["message"] for error in errors if error["code"] == "release_pending"), None)


def buying(connection: sa.Connection, compute_id: str) -> Buying:
    """How far the machines of a compute have come."""
    newest = _NEWEST_NODES.all(connection, {"b_id": compute_id, "b_limit": BUYING_MAX})
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


_OF_CLUSTER = cluster_jobs.c.cluster_id == sa.bindparam("b_cluster")
_IS_OPEN = cluster_jobs.c.ended_us.is_(None)
_IS_LIVE = clusters.c.removed_us.is_(None)
_OF_COMPUTE = nodes.c.compute_id == sa.bindparam("b_id")
_LIMIT = sa.bindparam("b_limit", type_=sa.Integer)


def _newest_first(*conditions: sa.ColumnElement[bool], shown: bool = False) -> sa.Select[*tuple[Any, ...]]:
    """Jobs of a cluster; ``shown``: only what a queue shows of them, which of a body is its machines."""
    job, machines = cluster_jobs.c, cluster_jobs.c.body["machines"].label("machines")
    few = (job.number, job.name, job.owner, job.state, job.num_nodes, job.exit_codes, job.error, machines)
    times = (job.submitted_us, job.started_us, job.ended_us)
    query = sa.select(*few, *times) if shown else sa.select(cluster_jobs)
    return query.where(_OF_CLUSTER, *conditions).order_by(job.number.desc()).limit(_LIMIT)


def _live(*conditions: sa.ColumnElement[bool]) -> sa.Select[*tuple[Any, ...]]:
    """What a record of a cluster is made of. What its machines are bought by is not."""
    row = clusters.c
    few = (row.seq, row.id, row.name, row.state, row.owner, row.compute_id, row.num_nodes, row.resources)
    more = (row.autostop_minutes, row.autostop_down, row.last_use, row.launched_us)
    query = sa.select(*few, *more).where(_IS_LIVE, *conditions)
    return query.order_by(row.seq.desc()).limit(_LIMIT)


def _named(count: int) -> sa.ColumnElement[bool]:
    return clusters.c.name.in_(places("names", count))


_OF_OWNER = clusters.c.owner == sa.bindparam("b_owner")
_CLUSTER = prepared(sa.select(clusters).where(clusters.c.id == sa.bindparam("b_id")))
_NAMED = prepared(sa.select(clusters).where(_IS_LIVE, clusters.c.name == sa.bindparam("b_name")))
_NAMES = prepared(sa.select(clusters.c.name).where(_IS_LIVE).order_by(clusters.c.seq.desc()).limit(_LIMIT))
_LIVE, _LIVE_OF = prepared(_live()), prepared(_live(_OF_OWNER))
_LIVE_NAMED = Prepared(lambda _, count: _live(_named(count)), "names")
_LIVE_NAMED_OF = Prepared(lambda _, count: _live(_OF_OWNER, _named(count)), "names")
_NUMBER = sa.bindparam("b_number", type_=sa.BigInteger)
_JOB = prepared(sa.select(cluster_jobs).where(_OF_CLUSTER, cluster_jobs.c.number == _NUMBER))
_JOB_BY_ID = prepared(sa.select(cluster_jobs).where(cluster_jobs.c.id == sa.bindparam("b_id")))
_STATE = sa.select(cluster_jobs.c.number, cluster_jobs.c.state).where(_OF_CLUSTER)
_STATES = Prepared(
    lambda _, count: _STATE.where(cluster_jobs.c.number.in_(places("numbers", count))), "numbers"
)
_NEWEST = prepared(_STATE.order_by(cluster_jobs.c.number.desc()).limit(1))
_BELOW = cluster_jobs.c.number < sa.bindparam("b_below", type_=sa.BigInteger)
_JOBS, _OPEN_JOBS = prepared(_newest_first()), prepared(_newest_first(_IS_OPEN, _BELOW))
_SHOWN = prepared(_newest_first(shown=True))
_OPEN_SHOWN = prepared(_newest_first(_IS_OPEN, shown=True))
_COMPUTE = prepared(
    sa.select(computes.c.state, computes.c.spec, computes.c.last_error).where(
        computes.c.id == sa.bindparam("b_id")
    )
)
_NODE_STATES = prepared(sa.select(nodes.c.state).where(_OF_COMPUTE, nodes.c.state.not_in(literals(FINAL))))
_REFUSALS = prepared(
    sa.select(nodes.c.last_error).where(
        _OF_COMPUTE, nodes.c.state.in_(literals([DELETING])), nodes.c.last_error.is_not(None)
    )
)
_NEWEST_NODES = prepared(
    sa.select(
        nodes.c.state,
        nodes.c.passed_over,
        nodes.c.created_us,
        nodes.c.bound_us,
        nodes.c.deleting_us,
        nodes.c.terminated_us,
    )
    .where(_OF_COMPUTE)
    .order_by(nodes.c.seq.desc())
    .limit(_LIMIT)
)
_READY_ONES = (
    sa.select(
        nodes.c.compute_id,
        nodes.c.rank,
        nodes.c.address,
        nodes.c.provider_kind,
        nodes.c.price_micro,
        nodes.c.offer,
        nodes.c.binding,
    )
    .where(nodes.c.state.in_(literals([READY])))
    .order_by(nodes.c.rank)
)
_READY = Prepared(lambda _, count: _READY_ONES.where(nodes.c.compute_id.in_(places("ids", count))), "ids")
_ERRORS = Prepared(
    lambda _, count: sa.select(computes.c.id, computes.c.last_error).where(
        computes.c.id.in_(places("ids", count))
    ),
    "ids",
)
