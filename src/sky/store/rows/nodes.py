"""Nodes, as rows.

Decides: nothing. Never: moves a state (``tx`` does); what is written here is when an agent was last heard.
Follows: hearing from an agent wakes no loop and makes no client's revision stale.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from sky.domain import node as n
from sky.store.prepared import LIST_MAX, Prepared, places, prepared
from sky.store.schema import IS_ON_NODE, executions, nodes, passes
from sky.store.sql import Row, literals, many, one
from sky.store.tx import Tx


def find(connection: sa.Connection, compute_id: str, node_id: str) -> Row | None:
    """A node of that compute."""
    return one(connection, sa.select(nodes).where(nodes.c.id == node_id, nodes.c.compute_id == compute_id))


def news(connection: sa.Connection, node_id: str) -> Row | None:
    """What a report of a node's agent is held against."""
    return one(connection, _NEWS, {"b_id": node_id})


def ready_ranks(connection: sa.Connection, compute_id: str) -> list[int]:
    """The ranks that take work now, lowest first."""
    query = sa.select(nodes.c.rank).where(nodes.c.compute_id == compute_id, nodes.c.state == n.READY)
    return [row.rank for row in connection.execute(query.order_by(nodes.c.rank))]


def wanted(connection: sa.Connection, compute_id: str) -> list[Row]:
    """Id and generation of the nodes of that compute that are there, or are to come."""
    query = sa.select(nodes.c.id, nodes.c.generation).where(
        nodes.c.compute_id == compute_id, nodes.c.state.in_(literals(n.WANTED))
    )
    return many(connection, query)


def unbound(connection: sa.Connection, compute_id: str, rank: int) -> list[Row]:
    """Id and last error of the nodes of a rank for which no offer is chosen yet."""
    query = sa.select(nodes.c.id, nodes.c.last_error).where(
        nodes.c.compute_id == compute_id, nodes.c.rank == rank, nodes.c.state == n.REQUESTED
    )
    return many(connection, query)


def is_at_work(connection: sa.Connection, node_id: str) -> bool:
    """Whether an execution is at that node, or in its mailbox."""
    query = sa.select(executions.c.id).where(executions.c.node_id == node_id, IS_ON_NODE).limit(1)
    return connection.execute(query).first() is not None


def any_bound(connection: sa.Connection, compute_id: str) -> bool:
    """Whether an offer was ever chosen for a node of that compute."""
    return _ANY_BOUND.first(connection, {"b_compute": compute_id}) is not None


def addresses(connection: sa.Connection, compute_id: str, total: int) -> tuple[str, ...]:
    """Where the nodes of a compute can be reached, by rank; empty text where there is none."""
    found = {row["rank"]: row["address"] for row in _ADDRESSES.all(connection, {"b_compute": compute_id})}
    return tuple(found.get(rank) or "" for rank in range(total))


def owners(connection: sa.Connection, tags: Sequence[str]) -> dict[str, Row]:
    """Compute, state and provider of the nodes that machines with those tags belong to."""
    found: dict[str, Row] = {}
    for first in range(0, len(tags), LIST_MAX):
        some = _OWNERS.all(connection, {"ids": tags[first : first + LIST_MAX]})
        found |= {row["id"]: row for row in some}
    return found


def sellers(connection: sa.Connection, compute_ids: Sequence[str]) -> list[str]:
    """The providers from which these computes have nodes that are not over."""
    query = (
        sa.select(nodes.c.provider_id)
        .where(
            nodes.c.compute_id.in_(list(compute_ids)),
            nodes.c.provider_id.is_not(None),
            nodes.c.state.not_in(literals(n.FINAL)),
        )
        .distinct()
    )
    return [row["provider_id"] for row in many(connection, query)]


def machines_of(connection: sa.Connection, provider_id: str) -> int:
    """How many nodes that are not over have, or may have, a machine of that provider."""
    query = sa.select(sa.func.count()).where(
        nodes.c.provider_id == provider_id, nodes.c.state.not_in(literals(n.FINAL))
    )
    return connection.execute(query).scalar_one()


def silent(connection: sa.Connection, heard_us: int, limit: int) -> list[str]:
    """Nodes that serve, were not heard since that moment, and wait for no look of their own."""
    return [row["id"] for row in _SILENT.all(connection, {"b_heard": heard_us, "b_limit": limit})]


def any_serving(connection: sa.Connection) -> bool:
    """Whether any node serves."""
    return _ANY_SERVING.first(connection, {}) is not None


def bought_of(connection: sa.Connection, provider_id: str, before_us: int) -> dict[str, str]:
    """State, by id, of the nodes that have a machine of that provider, launched before that moment."""
    found = _BOUGHT_OF.all(connection, {"b_provider": provider_id, "b_before": before_us})
    return {row["id"]: row["state"] for row in found}


def seen(tx: Tx, node_id: str, window: int) -> None:
    """Its agent is there, and would hold that many executions."""
    _SEEN.run(tx.connection, {"b_id": node_id, "b_now": tx.now_us, "b_window": window})


def heard(tx: Tx, node_id: str, number: int, window: int, *, worked: bool) -> None:
    """Its agent's report of that number is written. ``worked``: it told how something ended."""
    values = {"b_id": node_id, "b_now": tx.now_us, "b_window": window, "b_number": number}
    (_WORKED if worked else _HEARD).run(tx.connection, values)


_NEWS = prepared(
    sa.select(
        nodes.c.id,
        nodes.c.compute_id,
        nodes.c.rank,
        nodes.c.state,
        nodes.c.boot,
        nodes.c.heard,
        nodes.c.window,
    ).where(nodes.c.id == sa.bindparam("b_id"))
)
_OWNERS = Prepared(
    lambda _, count: sa.select(nodes.c.id, nodes.c.compute_id, nodes.c.state, nodes.c.provider_id).where(
        nodes.c.id.in_(places("ids", count))
    ),
    "ids",
)
_LIVE = nodes.c.state.not_in([sa.literal_column(f"'{x}'") for x in ("lost", "deleting", "deleted", "failed")])
"""As the partial index of live ranks says it, and in its order: so it is found by that index."""
_BY_RANK = (nodes.c.compute_id, nodes.c.rank)
_SERVES = nodes.c.state.in_(literals(n.SERVING))
_SILENT = prepared(
    sa.select(nodes.c.id)
    .where(
        _LIVE,
        _SERVES,
        nodes.c.last_seen_us < sa.bindparam("b_heard"),
        ~sa.exists().where(
            passes.c.key == sa.literal_column("'nodes/'") + nodes.c.id, passes.c.due_us.is_not(None)
        ),
    )
    .order_by(*_BY_RANK)
    .limit(sa.bindparam("b_limit"))
)
_ANY_BOUND = prepared(
    sa.select(nodes.c.id)
    .where(nodes.c.compute_id == sa.bindparam("b_compute"), nodes.c.bound_us.is_not(None))
    .limit(1)
)
_ANY_SERVING = prepared(sa.select(nodes.c.id).where(_LIVE, _SERVES).order_by(*_BY_RANK).limit(1))
_BOUGHT_OF = prepared(
    sa.select(nodes.c.id, nodes.c.state)
    .where(
        _LIVE,
        nodes.c.provider_id == sa.bindparam("b_provider"),
        nodes.c.machine.is_not(None),
        nodes.c.launched_us < sa.bindparam("b_before"),
    )
    .order_by(*_BY_RANK)
)
_SET_SEEN = (
    sa.update(nodes)
    .where(nodes.c.id == sa.bindparam("b_id"))
    .values(last_seen_us=sa.bindparam("b_now"), window=sa.bindparam("b_window"))
)
_SEEN = prepared(_SET_SEEN)
_SET_HEARD = _SET_SEEN.values(heard=sa.bindparam("b_number"))
_HEARD = prepared(_SET_HEARD)
_WORKED = prepared(_SET_HEARD.values(worked_us=sa.bindparam("b_now")))
_ADDRESSES = prepared(
    sa.select(nodes.c.rank, nodes.c.address).where(
        nodes.c.compute_id == sa.bindparam("b_compute"), nodes.c.state.in_(literals(n.SERVING))
    )
)
