"""Nodes as the faces show them, and which of them can be reached.

Decides: what a choice of nodes (``all``, a rank, an id) means. Never: talks to one.
Follows: a node's token leaves this module only as the hash that it is stored as.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import sqlalchemy as sa
from msgspec import Struct

from sky.domain import node as domain
from sky.domain.errors import ComputeNotConnected
from sky.domain.money import to_usd
from sky.kit.clock import to_datetime
from sky.store.prepared import prepared
from sky.store.schema import nodes
from sky.store.views.computes import missing, resolve
from sky.store.views.errors import error_of, moment
from sky.store.views.paging import WHOLE_LIST_MAX, cut, place_of
from sky.wire import v1

ALL = "all"

_AGENT = prepared(
    sa.select(nodes.c.token, nodes.c.state, nodes.c.compute_id, nodes.c.rank).where(
        nodes.c.id == sa.bindparam("b_id")
    )
)


class AgentRow(Struct, frozen=True):
    """What is held against an agent's claim to be a node. ``token_sha256``: of the token it must bring."""

    token_sha256: str
    final: bool
    compute_id: str
    rank: int


class Reachable(Struct, frozen=True):
    """A node that serves now."""

    id: str
    rank: int


def agent(connection: sa.Connection, node_id: str) -> AgentRow | None:
    """The node that an agent says it is of."""
    row = _AGENT.first(connection, {"b_id": node_id})
    if row is None:
        return None
    return AgentRow(row["token"], row["state"] in domain.FINAL, row["compute_id"], row["rank"])


def reachable(connection: sa.Connection, ref: str, choice: str) -> Sequence[Reachable]:
    """The serving nodes of a compute that ``choice`` means, by rank.

    Raises NotFound for a compute, rank or id that is not there, ComputeNotConnected when it is there and
    cannot be reached now.
    """
    compute_id = resolve(connection, ref)
    rows = connection.execute(
        sa.select(nodes.c.id, nodes.c.rank, nodes.c.state)
        .where(nodes.c.compute_id == compute_id, nodes.c.state.not_in(domain.FINAL))
        .order_by(nodes.c.rank, nodes.c.seq)
    ).all()
    if choice != ALL:
        rank = int(choice) if choice.isascii() and choice.isdigit() else None
        rows = [r for r in rows if (r.id == choice if rank is None else r.rank == rank)]
        if not rows:
            raise missing("node", choice)
    serving = [Reachable(r.id, r.rank) for r in rows if r.state in domain.SERVING]
    if not serving:
        states = {r.id: r.state for r in rows[:10]}
        told = ", ".join(f"{name} is {state}" for name, state in states.items()) or "it has none"
        msg = f"no node of compute {ref} can be reached now: {told}; try again once one is ready"
        raise ComputeNotConnected(msg, details={"compute": compute_id, "nodes": states}, after_s=1.0)
    return serving


def get(connection: sa.Connection, ref: str, node_id: str) -> v1.Node:
    """One node of a compute."""
    compute_id = resolve(connection, ref)
    row = (
        connection.execute(sa.select(nodes).where(nodes.c.id == node_id, nodes.c.compute_id == compute_id))
        .mappings()
        .first()
    )
    if row is None:
        raise missing("node", node_id)
    return _shown(row)


def page(
    connection: sa.Connection,
    ref: str,
    *,
    include_terminal: bool,
    generation: int | None,
    cursor: str | None,
    limit: int | None,
) -> v1.NodePage:
    """A compute's nodes, by rank and then by age."""
    compute_id = resolve(connection, ref)
    many = limit or WHOLE_LIST_MAX
    place = sa.cast(nodes.c.rank, sa.BigInteger) * _PLACES + nodes.c.seq
    query = (
        sa.select(nodes, place.label("place"))
        .where(nodes.c.compute_id == compute_id)
        .order_by(nodes.c.rank, nodes.c.seq)
        .limit(many + 1)
    )
    if not include_terminal:
        query = query.where(nodes.c.state.not_in(domain.FINAL))
    if generation is not None:
        query = query.where(nodes.c.generation == generation)
    if (after := place_of("nodes", cursor)) is not None:
        rank, seq = divmod(after, _PLACES)
        query = query.where(sa.or_(nodes.c.rank > rank, sa.and_(nodes.c.rank == rank, nodes.c.seq > seq)))
    rows = connection.execute(query).mappings().all()
    shown, following = cut(rows, many, "nodes", lambda row: row["place"])
    return v1.NodePage(items=tuple(map(_shown, shown)), next_cursor=following)


_PLACES = 10**13


def _shown(row: sa.RowMapping) -> v1.Node:
    bought = row["provider_id"] is not None
    return v1.Node(
        id=row["id"],
        compute_id=row["compute_id"],
        rank=row["rank"],
        generation=row["generation"],
        revision=row["revision"],
        state=row["state"],
        desired=_desired(row),
        provider_binding=_binding(row),
        created_at=to_datetime(row["created_us"]),
        machine=row["machine"],
        address=row["address"],
        accelerator=row["accelerator"],
        market=row["market"],
        price_per_hour=to_usd(row["price_micro"]) if bought else None,
        billing_unit=row["billing_unit"],
        launched_at=moment(row["launched_us"]),
        terminated_at=moment(row["terminated_us"]),
        last_error=error_of(row["last_error"]),
    )


def _desired(row: sa.RowMapping) -> Literal["present", "deleted"]:
    wanted = row["state"] in domain.WANTED and row["unwanted_us"] is None
    return "present" if wanted else "deleted"


def _binding(row: sa.RowMapping) -> dict[str, Any]:
    """Where the node is bought, why not elsewhere, and what the provider says about its machine."""
    out: dict[str, Any] = {}
    if row["passed_over"]:
        out["passed_over"] = [entry["reason"] for entry in row["passed_over"]]
    if row["provider_id"] is not None:
        out["provider_id"] = row["provider_id"]
        out["kind"] = row["provider_kind"]
    offer: dict[str, Any] = row["offer"] or {}
    for name in ("instance_type", "region"):
        if offer.get(name) is not None:
            out[name] = offer[name]
    return {**out, **(row["binding"] or {})}
