"""Waiting and running work as the frozen values that plans read.

Decides: which executions a plan is shown, by indexes that cost by how many those are.
Never: writes, or judges how anything ends. Follows: what is shown of attempts can be acted on now, so that a
page of them that is full is followed by another, and none hides behind others that have to wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain import node as n
from sky.domain import task as t
from sky.domain.compute import ACCEPTING
from sky.domain.snapshots import AttemptsView, AttemptView, DispatchView, Seats, Waiting
from sky.domain.task import Tries
from sky.store.prepared import Prepared, places, prepared
from sky.store.schema import IS_ON_NODE, IS_WAITING, computes, executions, nodes, tasks
from sky.store.snapshots import ACTIVE
from sky.store.specs import bounds_of, spec_of
from sky.store.sql import Row, literals
from sky.store.tx import Tx

ASSIGNMENTS_MAX = 1_000
ATTEMPTS_MAX = 1_000

_COMPUTE = computes.c.id == sa.bindparam("b_compute")
_HAS = executions.c.compute_id == sa.bindparam("b_compute")


# ── what could be handed out ────────────────────────────────────────────────────────────────────


def dispatch_view(tx: Tx, compute_id: str) -> DispatchView | None:
    """A compute's places, and the executions that wait: one more than fit, so that a lack shows."""
    connection = tx.connection
    asked = {"b_compute": compute_id}
    compute = _SCALE.first(connection, asked)
    if compute is None:
        return None
    seats = tuple(Seats(**row) for row in _SEATS.all(connection, {**asked, "b_gen": compute["generation"]}))
    free = [x for x in seats if x.window > x.active]
    limit = min(sum(x.window - x.active for x in free), ASSIGNMENTS_MAX) + 1
    bounds = bounds_of(spec_of(compute))
    rows = [
        *_ANY_RANK.all(connection, {**asked, "b_limit": limit}),
        *_THESE_RANKS.all(connection, {**asked, "b_limit": limit, "ranks": [x.rank for x in free]}),
    ]
    rows.sort(key=lambda row: row["seq"])
    tx.remember("executions", rows)
    return DispatchView(
        compute_id=compute_id,
        scalable=bounds.low != bounds.high,
        seats=seats,
        waiting=tuple(Waiting(row["id"], row["wanted_rank"]) for row in rows),
    )


_SCALE = prepared(
    sa.select(computes.c.spec, computes.c.state, computes.c.generation).where(
        _COMPUTE, computes.c.state.in_(literals(ACCEPTING))
    )
)
_SEATS = prepared(
    sa.select(nodes.c.id, nodes.c.rank, nodes.c.slots, nodes.c.window, ACTIVE)
    .where(
        nodes.c.compute_id == sa.bindparam("b_compute"),
        nodes.c.generation == sa.bindparam("b_gen"),
        nodes.c.state == n.READY,
    )
    .order_by(nodes.c.rank)
)
_WAITING = (
    sa.select(
        executions.c.id,
        executions.c.seq,
        executions.c.state,
        executions.c.version,
        executions.c.compute_id,
        executions.c.task_id,
        executions.c.node_id,
        executions.c.wanted_rank,
    )
    .where(_HAS, IS_WAITING)
    .order_by(executions.c.seq)
    .limit(sa.bindparam("b_limit"))
)
_ANY_RANK = prepared(_WAITING.where(executions.c.wanted_rank.is_(None)))
_THESE_RANKS = Prepared(
    lambda _, count: _WAITING.where(executions.c.wanted_rank.in_(places("ranks", count))), "ranks"
)


_ON_NODES = executions.join(nodes, nodes.c.id == executions.c.node_id)
_NODE_OF = nodes.c.compute_id == sa.bindparam("b_compute")


# ── what nobody will report ─────────────────────────────────────────────────────────────────────


def attempts_view(connection: sa.Connection, compute_id: str, now_us: int) -> AttemptsView | None:
    """A compute's attempts that may be ended now, and when the next one may."""
    asked = {"b_compute": compute_id}
    compute = _STATE.first(connection, asked)
    if compute is None:
        return None
    accepting, ranks = compute["state"] in ACCEPTING, bounds_of(spec_of(compute)).high
    asked = {
        **asked,
        "b_now": now_us,
        "b_grace": now_us - t.DEADLINE_GRACE_US,
        "b_limit": ATTEMPTS_MAX,
        "b_rank": ranks if accepting else -1,
    }
    found: dict[str, Row] = {}
    open_ends = (_PLACELESS,) if accepting else (_QUEUED, _RUNNING)
    for query in (_ON_ENDING_NODES, _UNCONFIRMED, _OVERDUE, *open_ends):
        found.update((row["id"], row) for row in query.all(connection, asked))
    rows = sorted(found.values(), key=lambda row: row["seq"])[:ATTEMPTS_MAX]
    used = tries_used(connection, [(row["task_id"], row["place"]) for row in rows])
    moments = [query.scalar(connection, asked) for query in _COMING]
    coming = [moment for moment in moments if moment is not None]
    return AttemptsView(
        compute_id=compute_id,
        accepting=accepting,
        ranks=ranks,
        attempts=tuple(_attempt(row, used) for row in rows),
        next_us=now_us if len(rows) == ATTEMPTS_MAX else min(coming, default=None),
    )


def tries_used(
    connection: sa.Connection, of: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """For each (task, place): how many safe and how many ambiguous retries it has had."""
    rows = _TRIES.all(connection, {"ids": sorted({task for task, _ in of})})
    used: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        key = (row["task_id"], row["place"])
        safe, ambiguous = used.get(key, (0, 0))
        used[key] = (row["count"], ambiguous) if row["retry_kind"] == "safe" else (safe, row["count"])
    return used


def _attempt(row: Row, used: Mapping[tuple[str, int], tuple[int, int]]) -> AttemptView:
    safe, ambiguous = used.get((row["task_id"], row["place"]), (0, 0))
    return AttemptView(
        id=row["id"],
        task_id=row["task_id"],
        state=row["state"],
        wanted_rank=row["wanted_rank"],
        node_id=row["node_id"],
        node_state=row["node_state"],
        node_fenced_us=row["fenced_us"],
        tries=Tries(row["safe_retries"], row["ambiguous_retries"], safe, ambiguous),
        deadline_us=row["deadline_us"],
        cancel_deadline_us=row["cancel_deadline_us"],
    )


_STATE = prepared(sa.select(computes.c.state, computes.c.spec).where(_COMPUTE))
_BY_A_PERSON = executions.alias("by_a_person")
_LAST_BY_A_PERSON = (
    sa.select(sa.func.coalesce(sa.func.max(_BY_A_PERSON.c.ordinal), 0))
    .where(
        _BY_A_PERSON.c.task_id == executions.c.task_id,
        _BY_A_PERSON.c.place == executions.c.place,
        _BY_A_PERSON.c.retry_kind.in_(literals({"person"})),
    )
    .correlate(executions)
    .scalar_subquery()
)
"""A person's retry begins the count anew."""
_RETRIES = (
    sa.select(
        executions.c.task_id, executions.c.place, executions.c.retry_kind, sa.func.count().label("count")
    )
    .where(
        executions.c.retry_kind.in_(literals({"safe", "ambiguous"})),
        executions.c.ordinal > _LAST_BY_A_PERSON,
    )
    .group_by(executions.c.task_id, executions.c.place, executions.c.retry_kind)
)
_TRIES = Prepared(lambda _, count: _RETRIES.where(executions.c.task_id.in_(places("ids", count))), "ids")


def _attempts(*conditions: sa.ColumnElement[bool]) -> sa.Select[*tuple[Any, ...]]:
    joined = executions.join(tasks, tasks.c.id == executions.c.task_id).outerjoin(
        nodes, nodes.c.id == executions.c.node_id
    )
    return (
        sa.select(
            executions.c.id,
            executions.c.seq,
            executions.c.task_id,
            executions.c.state,
            executions.c.place,
            executions.c.wanted_rank,
            executions.c.node_id,
            executions.c.cancel_deadline_us,
            nodes.c.state.label("node_state"),
            nodes.c.fenced_us,
            tasks.c.deadline_us,
            tasks.c.safe_retries,
            tasks.c.ambiguous_retries,
        )
        .select_from(joined)
        .where(*conditions)
        .limit(sa.bindparam("b_limit"))
    )


_NOW = sa.bindparam("b_now", type_=sa.BigInteger)
_GRACE = sa.bindparam("b_grace", type_=sa.BigInteger)
_IS_AT_WORK = executions.c.state.in_(literals(t.AT_WORK))
_HANDED_OUT = executions.c.state.in_(literals(t.HANDED_OUT))
_STOPPING = executions.c.state == sa.literal_column(f"'{t.CANCEL_REQUESTED}'")
_IS_GONE = sa.or_(nodes.c.state.in_(literals(n.FINAL)), nodes.c.fenced_us <= _NOW)
_IS_ENDING = nodes.c.state.in_(literals(n.ENDING | n.FINAL))
_TASK_OF = tasks.c.compute_id == sa.bindparam("b_compute")
_OPEN = tasks.c.finished_us.is_(None)
_ON_ENDING_NODES = prepared(
    _attempts(_NODE_OF, IS_ON_NODE, _IS_ENDING, sa.or_(executions.c.state == t.ASSIGNED, _IS_GONE))
)
_UNCONFIRMED = prepared(_attempts(_NODE_OF, IS_ON_NODE, _STOPPING, executions.c.cancel_deadline_us <= _NOW))
_OVERDUE = prepared(
    _attempts(
        _TASK_OF,
        _OPEN,
        tasks.c.deadline_us <= _NOW,
        sa.or_(
            executions.c.state.in_(literals(t.WAITING)),
            sa.and_(_IS_AT_WORK, tasks.c.deadline_us <= _GRACE),
        ),
    )
)
_QUEUED = prepared(_attempts(_HAS, IS_WAITING))
_RUNNING = prepared(_attempts(_NODE_OF, IS_ON_NODE, _IS_AT_WORK, nodes.c.state.in_(literals(n.SERVING))))
_PLACELESS = prepared(_attempts(_HAS, IS_WAITING, executions.c.wanted_rank >= sa.bindparam("b_rank")))


def _first(moment: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(sa.func.min(moment).label("first_us")).where(*conditions)


_COMING = (
    prepared(_first(tasks.c.deadline_us, _TASK_OF, _OPEN, tasks.c.deadline_us > _NOW)),
    prepared(
        _first(
            tasks.c.deadline_us + t.DEADLINE_GRACE_US,
            _TASK_OF,
            _OPEN,
            tasks.c.deadline_us <= _NOW,
            tasks.c.deadline_us > _GRACE,
        )
    ),
    prepared(
        _first(
            executions.c.cancel_deadline_us,
            _NODE_OF,
            IS_ON_NODE,
            _STOPPING,
            executions.c.cancel_deadline_us > _NOW,
        ).select_from(_ON_NODES)
    ),
    prepared(
        _first(
            nodes.c.fenced_us, _NODE_OF, _IS_ENDING, IS_ON_NODE, _HANDED_OUT, nodes.c.fenced_us > _NOW
        ).select_from(_ON_NODES)
    ),
)
"""When an attempt that cannot be ended yet may be."""
