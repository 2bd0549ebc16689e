"""Computes and their generations, as rows.

Decides: which row a reference means. Never: moves a state (``tx`` does).
Follows: a name means a live compute; an id means that compute for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa

from sky.domain.compute import LIVE
from sky.store.prepared import inserted, prepared
from sky.store.schema import IS_ON_NODE, IS_WAITING, computes, executions, generations, nodes, tasks
from sky.store.sql import Row, many, one
from sky.store.tx import Tx


def find(connection: sa.Connection, ref: str) -> Row | None:
    """The compute with that id, or the live one with that name."""
    by_id = one(connection, _BY_ID, {"b_id": ref})
    return by_id if by_id is not None else one(connection, _BY_NAME, {"b_name": ref})


def live_named(connection: sa.Connection, name: str) -> Row | None:
    """The live compute that has that name."""
    query = sa.select(computes.c.id, computes.c.state).where(
        computes.c.name == name, computes.c.deleted_us.is_(None)
    )
    return one(connection, query)


def spec_of(connection: sa.Connection, compute_id: str) -> Mapping[str, Any]:
    """The stored spec of a compute that exists."""
    return _SPEC.scalar(connection, {"b_id": compute_id})


def state_of(connection: sa.Connection, compute_id: str) -> str | None:
    """The state of a compute, if there is one."""
    return connection.execute(sa.select(computes.c.state).where(computes.c.id == compute_id)).scalar()


def scale_of(connection: sa.Connection, compute_id: str) -> Row | None:
    """The spec and the present target of a compute."""
    return one(connection, _SCALE, {"b_id": compute_id})


def live_specs(connection: sa.Connection) -> list[Row]:
    """Ids and specs of every compute that is not over."""
    query = sa.select(computes.c.id, computes.c.spec).where(computes.c.state.in_(sorted(LIVE)))
    return many(connection, query)


def generation_spec(connection: sa.Connection, compute_id: str, number: int) -> Mapping[str, Any] | None:
    """The spec that was frozen under that number."""
    query = sa.select(generations.c.spec).where(
        generations.c.compute_id == compute_id, generations.c.number == number
    )
    return connection.execute(query).scalar()


def freeze(tx: Tx, compute_id: str, number: int, spec: Mapping[str, Any], digest: str) -> None:
    """Keep a definition for good."""
    row = {"compute_id": compute_id, "number": number, "spec": spec, "hash": digest, "created_us": tx.now_us}
    _FREEZE.run(tx.connection, row)


def at_nodes(connection: sa.Connection, compute_id: str, *, but: Collection[str] = ()) -> list[str]:
    """Ids of the executions that are at a node of that compute, or in its mailbox; not those at ``but``."""
    query = (
        sa.select(executions.c.id, executions.c.node_id)
        .select_from(executions.join(nodes, nodes.c.id == executions.c.node_id))
        .where(nodes.c.compute_id == compute_id, IS_ON_NODE)
    )
    return [row.id for row in connection.execute(query) if row.node_id not in but]


def broadcasts(connection: sa.Connection, compute_id: str) -> bool:
    """Whether a call that runs on several ranks of that compute is not over."""
    open_ones = (
        sa.select(tasks.c.id)
        .select_from(executions.join(tasks, tasks.c.id == executions.c.task_id))
        .where(
            executions.c.compute_id == compute_id, tasks.c.dispatch == "all", tasks.c.finished_us.is_(None)
        )
        .limit(1)
    )
    queries = (open_ones.where(IS_WAITING), open_ones.where(IS_ON_NODE))
    return any(connection.execute(query).first() is not None for query in queries)


_ID = computes.c.id == sa.bindparam("b_id")
_LIVE_NAME = sa.and_(computes.c.name == sa.bindparam("b_name"), computes.c.deleted_us.is_(None))
_FREEZE = inserted(generations, ["compute_id", "number", "spec", "hash", "created_us"])
_BY_ID = prepared(sa.select(computes).where(_ID))
_BY_NAME = prepared(sa.select(computes).where(_LIVE_NAME))
_SPEC = prepared(sa.select(computes.c.spec).where(_ID))
_SCALE = prepared(sa.select(computes.c.spec, computes.c.target_nodes).where(_ID))
