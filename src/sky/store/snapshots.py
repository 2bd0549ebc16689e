"""Rows as the frozen values that plans read.

Decides: how a snapshot is read, in a bounded number of queries. Never: writes, or judges.
Follows: every number in a snapshot is counted from rows in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from sky.domain import node as n
from sky.domain import task as t
from sky.domain.compute import ACCEPTING, Alternative, Bounds, Wanted
from sky.domain.money import to_micro
from sky.domain.offer import Offer
from sky.domain.snapshots import (
    AttemptsView,
    AttemptView,
    ComputeView,
    DispatchView,
    NodeCase,
    NodeView,
    Waiting,
)
from sky.domain.task import Tries
from sky.store.schema import IS_ON_NODE, IS_WAITING, computes, executions, nodes, offers, providers, tasks
from sky.store.sql import Row, many, one

ASSIGNMENTS_MAX = 1_000
ATTEMPTS_MAX = 1_000
SECOND_US = 1_000_000

_NODE_COLUMNS = (
    nodes.c.id,
    nodes.c.compute_id,
    nodes.c.rank,
    nodes.c.generation,
    nodes.c.state,
    nodes.c.provider_id,
    nodes.c.market,
    nodes.c.offer,
    nodes.c.machine,
    nodes.c.passed_over,
    nodes.c.last_error,
    nodes.c.slots,
    nodes.c.window,
    nodes.c.created_us,
    nodes.c.launch_deadline_us,
    nodes.c.connect_deadline_us,
    nodes.c.launched_us,
    nodes.c.ready_us,
    nodes.c.last_seen_us,
    nodes.c.deleting_us,
    nodes.c.fenced_us,
)
_ACTIVE = (
    sa.select(sa.func.count())
    .select_from(executions)
    .where(executions.c.node_id == nodes.c.id, IS_ON_NODE)
    .scalar_subquery()
    .label("active")
)


def wanted_of(spec: Mapping[str, Any]) -> Wanted:
    """The part of a stored spec that decides what is bought."""
    options: Mapping[str, Any] = spec.get("options") or {}
    return Wanted(
        alternatives=tuple(_alternative(s) for s in spec["specs"]),
        selection=spec["selection"],
        allocation=spec["allocation"],
        provision_timeout_us=_us(options.get("provision_timeout", 300.0)) or 300 * SECOND_US,
        idle_timeout_us=_us(options.get("autoscale_idle_timeout", 30.0)),
        cooldown_us=_us(options.get("autoscale_cooldown", 0.0)),
        concurrency=spec["worker"].get("concurrency"),
    )


def bounds_of(spec: Mapping[str, Any]) -> Bounds:
    """How many nodes a stored spec allows."""
    wish: Mapping[str, Any] = spec["nodes"]
    desired, low, high = wish["desired"], wish.get("min"), wish.get("max")
    if low is None and high is None:
        return Bounds(desired, desired, desired)
    return Bounds(desired, desired if low is None else low, desired if high is None else high)


def compute_view(connection: sa.Connection, compute_id: str) -> ComputeView | None:
    """A compute and its nodes that are not over, with those that failed in its current generation."""
    row = one(connection, sa.select(computes).where(computes.c.id == compute_id))
    if row is None:
        return None
    query = sa.select(*_NODE_COLUMNS, _ACTIVE).where(
        nodes.c.compute_id == compute_id,
        sa.or_(nodes.c.state.not_in(sorted(n.FINAL)), nodes.c.generation == row["generation"]),
    )
    found = many(connection, query.order_by(nodes.c.seq))
    spec = row["spec"]
    bounds = bounds_of(spec)
    waiting = running = idle_since = 0
    if bounds.low != bounds.high:
        waiting, running, idle_since = _load(connection, compute_id)
    return ComputeView(
        id=row["id"],
        state=row["state"],
        generation=row["generation"],
        observed_generation=row["observed_generation"],
        wanted=wanted_of(spec),
        bounds=bounds,
        desired=spec["desired"],
        target_nodes=row["target_nodes"],
        scaled_us=row["scaled_us"],
        ready_us=row["ready_us"],
        last_error=row["last_error"],
        lease_owner=row["lease_owner"],
        lease_expires_us=row["lease_expires_us"],
        delete_on_exit=spec["delete_on_exit"],
        created_us=row["created_us"],
        waiting=waiting,
        running=running,
        idle_since_us=max(idle_since, row["ready_us"] or row["created_us"]),
        nodes=tuple(_node(x) for x in found),
    )


def node_case(connection: sa.Connection, node_id: str, now_us: int) -> NodeCase | None:
    """A node, what its compute wants, and the offers of the providers that its spec names."""
    query = sa.select(*_NODE_COLUMNS, _ACTIVE).where(nodes.c.id == node_id)
    found = one(connection, query)
    if found is None:
        return None
    compute = connection.execute(
        sa.select(computes.c.spec, computes.c.state).where(computes.c.id == found["compute_id"])
    ).one()
    wanted = wanted_of(compute.spec)
    known: list[Offer] = []
    fresh, ids, errors = True, tuple[str, ...](), tuple[str, ...]()
    if found["state"] == n.REQUESTED:
        known, fresh, ids, errors = _offers(connection, wanted, now_us)
    options = compute.spec["options"]
    return NodeCase(
        node=_node(found),
        wanted=wanted,
        accepting=compute.state in ACCEPTING,
        ttl_us=compute.spec["ttl"] * SECOND_US,
        bootstrap_timeout_us=compute.spec["image"]["bootstrap_timeout"] * SECOND_US,
        connect_timeout_us=_us(options["ssh_connect_timeout"]) or 240 * SECOND_US,
        offers=tuple(known),
        offers_known=fresh,
        image=compute.spec["image"],
        worker=compute.spec["worker"],
        provider_ids=ids,
        provider_errors=errors,
    )


def dispatch_view(connection: sa.Connection, compute_id: str) -> DispatchView | None:
    """A compute's ready nodes, and as many waiting executions as they could take."""
    row = connection.execute(_COMPUTE_SCALE, {"b_compute": compute_id}).first()
    if row is None:
        return None
    ready = tuple(_node(x) for x in many(connection, _READY_NODES, {"b_compute": compute_id}))
    free = min(sum(max(0, x.window - x.active) for x in ready), ASSIGNMENTS_MAX)
    bounds = bounds_of(row.spec)
    scalable = bounds.low != bounds.high
    waiting: list[Waiting] = []
    if free:
        found = [*connection.execute(_ANY_RANK, {"b_compute": compute_id, "b_limit": free})]
        ranks = [x.rank for x in ready if x.window > x.active]
        bound = {"b_compute": compute_id, "b_limit": free, "ranks": ranks}
        found.extend(connection.execute(_THESE_RANKS, bound))
        found.sort(key=lambda x: x.seq)
        waiting = [Waiting(x.id, x.wanted_rank) for x in found]
    elif scalable:
        first = connection.execute(_ANY_RANK, {"b_compute": compute_id, "b_limit": 1}).first()
        waiting = [Waiting(first.id, first.wanted_rank)] if first else []
    return DispatchView(compute_id, scalable, row.target_nodes, ready, tuple(waiting))


def attempts_view(connection: sa.Connection, compute_id: str, now_us: int) -> AttemptsView | None:
    """A compute's live attempts whose node is ending, that are overdue, or that were asked to stop."""
    state = connection.execute(sa.select(computes.c.state).where(computes.c.id == compute_id)).scalar()
    if state is None:
        return None
    accepting = state in ACCEPTING
    concerned = _concerned(compute_id, now_us, accepting=accepting)
    joined = executions.join(tasks, tasks.c.id == executions.c.task_id).outerjoin(
        nodes, nodes.c.id == executions.c.node_id
    )
    query = (
        sa.select(
            executions.c.id,
            executions.c.task_id,
            executions.c.state,
            executions.c.place,
            executions.c.node_id,
            executions.c.cancel_deadline_us,
            nodes.c.state.label("node_state"),
            nodes.c.fenced_us,
            tasks.c.deadline_us,
            tasks.c.safe_retries,
            tasks.c.ambiguous_retries,
        )
        .select_from(joined)
        .where(executions.c.id.in_(concerned), executions.c.state.in_(sorted(t.EXECUTION_LIVE)))
        .order_by(executions.c.seq)
        .limit(ATTEMPTS_MAX)
    )
    rows = connection.execute(query).all()
    used = tries_used(connection, [(r.task_id, r.place) for r in rows])
    attempts = tuple(
        AttemptView(
            id=r.id,
            task_id=r.task_id,
            state=r.state,
            node_id=r.node_id,
            node_state=r.node_state,
            node_fenced_us=r.fenced_us,
            tries=Tries(r.safe_retries, r.ambiguous_retries, *used.get((r.task_id, r.place), (0, 0))),
            deadline_us=r.deadline_us,
            cancel_deadline_us=r.cancel_deadline_us,
        )
        for r in rows
    )
    coming = connection.execute(
        sa.select(sa.func.min(tasks.c.deadline_us)).where(
            tasks.c.compute_id == compute_id,
            tasks.c.deadline_us > now_us,
            tasks.c.finished_us.is_(None),
        )
    ).scalar()
    next_us = now_us if len(rows) == ATTEMPTS_MAX else coming
    return AttemptsView(compute_id, accepting, attempts, next_us)


def _concerned(compute_id: str, now_us: int, *, accepting: bool) -> sa.CompoundSelect[Any]:
    """Ids of executions that may have to be ended, each kind by an index of its own."""
    on_node = executions.join(nodes, nodes.c.id == executions.c.node_id)
    ending = (
        sa.select(executions.c.id)
        .select_from(on_node)
        .where(nodes.c.compute_id == compute_id, nodes.c.state.in_(sorted(n.ENDING | n.FINAL)), IS_ON_NODE)
    )
    stopping = (
        sa.select(executions.c.id)
        .select_from(on_node)
        .where(nodes.c.compute_id == compute_id, IS_ON_NODE, executions.c.state == t.CANCEL_REQUESTED)
    )
    overdue = (
        sa.select(executions.c.id)
        .select_from(executions.join(tasks, tasks.c.id == executions.c.task_id))
        .where(tasks.c.compute_id == compute_id, tasks.c.deadline_us <= now_us, tasks.c.finished_us.is_(None))
    )
    if accepting:
        return sa.union(ending, stopping, overdue)
    queued = sa.select(executions.c.id).where(executions.c.compute_id == compute_id, IS_WAITING)
    return sa.union(ending, stopping, overdue, queued)


def tries_used(
    connection: sa.Connection, places: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """For each (task, place): how many safe and how many ambiguous retries it has had."""
    if not places:
        return {}
    rows = connection.execute(
        sa.select(executions.c.task_id, executions.c.place, executions.c.retry_kind, sa.func.count())
        .where(
            executions.c.task_id.in_(sorted({task for task, _ in places})),
            executions.c.retry_kind.in_(("safe", "ambiguous")),
        )
        .group_by(executions.c.task_id, executions.c.place, executions.c.retry_kind)
    )
    used: dict[tuple[str, int], tuple[int, int]] = {}
    for task_id, place, kind, count in rows:
        safe, ambiguous = used.get((task_id, place), (0, 0))
        used[task_id, place] = (count, ambiguous) if kind == "safe" else (safe, count)
    return used


def _load(connection: sa.Connection, compute_id: str) -> tuple[int, int, int]:
    waiting = connection.execute(
        sa.select(sa.func.count()).where(executions.c.compute_id == compute_id, IS_WAITING)
    ).scalar_one()
    running = connection.execute(
        sa.select(sa.func.count())
        .select_from(executions.join(nodes, nodes.c.id == executions.c.node_id))
        .where(nodes.c.compute_id == compute_id, IS_ON_NODE)
    ).scalar_one()
    idle = connection.execute(
        sa.select(sa.func.max(tasks.c.finished_us)).where(tasks.c.compute_id == compute_id)
    ).scalar()
    return waiting, running, idle or 0


def _offers(
    connection: sa.Connection, wanted: Wanted, now_us: int
) -> tuple[list[Offer], bool, tuple[str, ...], tuple[str, ...]]:
    names = [a.provider for a in wanted.alternatives]
    rows = connection.execute(
        sa.select(
            providers.c.id,
            providers.c.name,
            providers.c.offers_ttl_seconds,
            providers.c.offers_fetched_us,
            providers.c.last_error,
        ).where(sa.or_(providers.c.id.in_(names), providers.c.name.in_(names), providers.c.kind.in_(names)))
    ).all()
    ids = tuple(r.id for r in rows)
    fresh = all(
        r.offers_fetched_us is not None and r.offers_fetched_us + r.offers_ttl_seconds * SECOND_US > now_us
        for r in rows
    )
    errors = tuple(f"{r.name}: {r.last_error.get('message')}" for r in rows if r.last_error)
    bodies = connection.execute(sa.select(offers.c.body).where(offers.c.provider_id.in_(ids)))
    return [msgspec.convert(body, Offer) for (body,) in bodies], fresh, ids, errors


def _node(row: Row) -> NodeView:
    values = dict(row)
    values["offer"] = None if row["offer"] is None else msgspec.convert(row["offer"], Offer)
    values["passed_over"] = tuple(row["passed_over"] or ())
    return NodeView(**values)


def _alternative(spec: Mapping[str, Any]) -> Alternative:
    cap = spec.get("max_hourly_cost")
    return Alternative(
        provider=spec["provider"]["kind"],
        accelerator=spec.get("accelerator"),
        accelerator_count=spec.get("accelerator_count", 1),
        cpus=spec.get("cpus"),
        memory_gb=spec.get("memory_gb"),
        disk_gb=spec.get("disk_gb"),
        region=spec.get("region"),
        architecture=spec.get("architecture"),
        max_hourly_micro=None if cap is None else to_micro(cap),
    )


def _us(seconds: float) -> int:
    return round(seconds * SECOND_US)


_COMPUTE_SCALE = sa.select(computes.c.spec, computes.c.target_nodes).where(
    computes.c.id == sa.bindparam("b_compute"), computes.c.state.in_(sorted(ACCEPTING))
)
_READY_NODES = sa.select(*_NODE_COLUMNS, _ACTIVE).where(
    nodes.c.compute_id == sa.bindparam("b_compute"), nodes.c.state == n.READY
)
_WAITING = (
    sa.select(executions.c.id, executions.c.wanted_rank, executions.c.seq)
    .where(executions.c.compute_id == sa.bindparam("b_compute"), IS_WAITING)
    .order_by(executions.c.seq)
    .limit(sa.bindparam("b_limit"))
)
_ANY_RANK = _WAITING.where(executions.c.wanted_rank.is_(None))
_THESE_RANKS = _WAITING.where(executions.c.wanted_rank.in_(sa.bindparam("ranks", expanding=True)))
