"""Rows as the frozen values that plans read.

Decides: how a snapshot is read, in a bounded number of queries. Never: writes, or judges.
Follows: every number in a snapshot is counted from rows in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa

from sky.domain import node as n
from sky.domain.compute import ACCEPTING, Wanted
from sky.domain.offer import Offer
from sky.domain.snapshots import (
    Beside,
    ComputeView,
    NodeCase,
    NodeView,
    Source,
)
from sky.kit.clock import SECOND_US
from sky.store.prepared import Prepared, places, prepared
from sky.store.rows import disks
from sky.store.schema import (
    IS_ON_NODE,
    IS_WAITING,
    computes,
    executions,
    nodes,
    offers,
    passes,
    providers,
    tasks,
)
from sky.store.specs import NEVER_US, bounds_of, microseconds, spec_of, wanted_of
from sky.store.sql import Row, literals, many, one

NEVER_READY_MAX = 20
"""Nodes that ended without having been ready, as many as a plan has to know of."""
BESIDE_MAX = 20
"""Nodes without a machine, as many as another one has to know of."""

_NODE_COLUMNS = (
    nodes.c.seq,
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
    nodes.c.unwanted_us,
    nodes.c.worked_us,
)
ACTIVE = (
    sa.select(sa.func.count())
    .select_from(executions)
    .where(executions.c.node_id == nodes.c.id, IS_ON_NODE)
    .scalar_subquery()
    .label("active")
)
_ASSIGNED = (
    sa.select(sa.func.max(executions.c.assigned_us))
    .select_from(executions)
    .where(executions.c.node_id == nodes.c.id, IS_ON_NODE)
    .scalar_subquery()
    .label("assigned_us")
)


def compute_view(connection: sa.Connection, compute_id: str, listening_us: int = 0) -> ComputeView | None:
    """A compute and its nodes that are not over, with the newest of its definition that never were ready."""
    row = one(connection, _COMPUTE, {"b_id": compute_id})
    if row is None:
        return None
    asked = {"b_id": compute_id, "b_gen": row["generation"], "b_limit": NEVER_READY_MAX}
    spec = spec_of(row)
    bounds = bounds_of(spec)
    scales = bounds.low != bounds.high
    found = many(connection, _LIVE_NODES_AT_WORK if scales else _LIVE_NODES, asked)
    found += many(connection, _NEVER_READY, asked)
    found.sort(key=lambda node: node["seq"])
    queue, at_work, ended_us = _NO_WORK, _NO_WORK, None
    if scales:
        queue = _QUEUE.first(connection, asked) or _NO_WORK
        at_work = _AT_NODES.first(connection, asked) or _NO_WORK
        ended_us = _LAST_END.scalar(connection, asked)
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
        waiting=queue["count"],
        running=at_work["count"],
        ranks_waited_for=_ranks(queue),
        ranks_at_work=_ranks(at_work),
        idle_since_us=max(ended_us or 0, row["ready_us"] or row["created_us"]),
        nodes=tuple(_node(x) for x in found),
        listening_us=listening_us,
        deleting_us=row["deleting_us"],
        disks_wanted=row["disks"] or 0,
        disks=() if row["disks"] is None else disks.of_compute(connection, compute_id),
    )


def node_case(connection: sa.Connection, node_id: str, now_us: int, listening_us: int = 0) -> NodeCase | None:
    """A node, what its compute wants, and the offers of the providers that its spec names."""
    found = one(connection, _NODE, {"b_id": node_id})
    if found is None:
        return None
    compute = _DEFINITION.first(connection, {"b_id": found["compute_id"]}) or {}
    spec = spec_of(compute)
    wanted = wanted_of(spec, compute.get("narrow"))
    known, sources, beside = list[Offer](), tuple[Source, ...](), list[Row]()
    if found["state"] == n.REQUESTED:
        known, sources = offers_of(connection, wanted, now_us)
        beside = _BESIDE.all(connection, {"b_id": node_id, "b_compute": found["compute_id"]})
    options = spec["options"]
    keeps = compute.get("disks")
    return NodeCase(
        node=_node(found),
        wanted=wanted,
        accepting=compute["state"] in ACCEPTING,
        ttl_us=spec["ttl"] * SECOND_US,
        bootstrap_timeout_us=spec["image"]["bootstrap_timeout"] * SECOND_US,
        connect_timeout_us=microseconds(options["ssh_connect_timeout"]) or NEVER_US,
        offers=tuple(known),
        image=spec["image"],
        worker=spec["worker"],
        plugins=tuple(spec["plugins"]),
        sources=sources,
        listening_us=listening_us,
        keeps_disk=compute["state"] in ACCEPTING and found["rank"] < (keeps or 0),
        disk=None if keeps is None else disks.of_rank(connection, found["compute_id"], found["rank"]),
        beside=tuple(_beside(row, found["seq"]) for row in beside),
    )


def offers_of(
    connection: sa.Connection, wanted: Wanted, now_us: int
) -> tuple[list[Offer], tuple[Source, ...]]:
    """Offers of the providers that are named, and those providers."""
    names = {a.provider for a in wanted.alternatives}
    rows = [r for r in _PROVIDERS.all(connection, {}) if names & {r["id"], r["name"], r["kind"]}]
    sources = tuple(_source(row, now_us) for row in rows)
    bodies = _OFFERS.all(connection, {"ids": tuple(one.id for one in sources)})
    return [msgspec.convert(row["body"], Offer) for row in bodies], sources


def _source(row: Row, now_us: int) -> Source:
    fetched_us = row["offers_fetched_us"]
    fresh = fetched_us is not None and fetched_us + row["offers_ttl_seconds"] * SECOND_US > now_us
    error: Mapping[str, Any] | None = row["last_error"]
    told = None if error is None else str(error.get("message"))
    asked_us = row["due_us"]  # it stays what it was for as long as the loop's pass about it takes
    if asked_us is not None and asked_us > now_us:
        asked_us = None
    return Source(row["id"], row["name"], row["kind"], fresh, told, asked_us)


def _beside(row: Row, seq: int) -> Beside:
    asks = None if row["state"] == n.REQUESTED else (row["offer"]["id"], row["market"])
    return Beside(row["seq"] < seq, tuple(row["passed_over"] or ()), asks, row["bound_us"] or 0)


def _node(row: Row) -> NodeView:
    values = {name: row[name] for name in row if name != "seq"}
    values["offer"] = None if row["offer"] is None else msgspec.convert(row["offer"], Offer)
    values["passed_over"] = tuple(row["passed_over"] or ())
    return NodeView(**values)


def _ranks(counted: Row) -> int:
    return 0 if counted["highest"] is None else counted["highest"] + 1


_PROVIDERS = prepared(
    sa.select(
        providers.c.id,
        providers.c.name,
        providers.c.kind,
        providers.c.offers_ttl_seconds,
        providers.c.offers_fetched_us,
        providers.c.last_error,
        passes.c.due_us,
    ).outerjoin_from(providers, passes, passes.c.key == sa.literal_column("'offers/'") + providers.c.id)
)
_OFFERS = Prepared(
    lambda _, count: sa.select(offers.c.body).where(offers.c.provider_id.in_(places("ids", count))), "ids"
)
_COMPUTE = prepared(sa.select(computes).where(computes.c.id == sa.bindparam("b_id")))
_DEFINITION = prepared(
    sa.select(computes.c.spec, computes.c.state, computes.c.disks, computes.c.narrow).where(
        computes.c.id == sa.bindparam("b_id")
    )
)
_NODE_OF = nodes.c.compute_id == sa.bindparam("b_id")
_NODE = prepared(sa.select(*_NODE_COLUMNS, ACTIVE).where(nodes.c.id == sa.bindparam("b_id")))
_BESIDE = prepared(
    sa.select(
        nodes.c.seq, nodes.c.state, nodes.c.offer, nodes.c.market, nodes.c.bound_us, nodes.c.passed_over
    )
    .where(
        nodes.c.compute_id == sa.bindparam("b_compute"),
        nodes.c.id != sa.bindparam("b_id"),
        nodes.c.state.in_(literals({n.REQUESTED, n.PROVISIONING})),
    )
    .order_by(nodes.c.seq)
    .limit(BESIDE_MAX)
)
_LIVE = (_NODE_OF, nodes.c.state.not_in(literals(n.FINAL)))
_LIVE_NODES = prepared(sa.select(*_NODE_COLUMNS, ACTIVE).where(*_LIVE))
_LIVE_NODES_AT_WORK = prepared(sa.select(*_NODE_COLUMNS, ACTIVE, _ASSIGNED).where(*_LIVE))
_NEVER_READY = prepared(
    sa.select(*_NODE_COLUMNS, ACTIVE)
    .where(
        _NODE_OF,
        nodes.c.state.in_(literals(n.FINAL)),
        nodes.c.generation == sa.bindparam("b_gen"),
        nodes.c.ready_us.is_(None),
    )
    .order_by(nodes.c.seq.desc())
    .limit(sa.bindparam("b_limit"))
)
_COUNTED = (sa.func.count().label("count"), sa.func.max(executions.c.wanted_rank).label("highest"))
_NO_WORK: Row = {"count": 0, "highest": None}
_QUEUE = prepared(sa.select(*_COUNTED).where(executions.c.compute_id == sa.bindparam("b_id"), IS_WAITING))
_AT_NODES = prepared(
    sa.select(*_COUNTED)
    .select_from(executions.join(nodes, nodes.c.id == executions.c.node_id))
    .where(_NODE_OF, IS_ON_NODE)
)
_LAST_END = prepared(
    sa.select(sa.func.max(tasks.c.finished_us).label("ended_us")).where(
        tasks.c.compute_id == sa.bindparam("b_id"), tasks.c.finished_us.is_not(None)
    )
)
