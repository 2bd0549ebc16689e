"""Computes and their generations as the faces show them.

Decides: what a reference (id or name) means, and what is summed: nodes, price now, cost so far.
Never: stores a sum. Follows: a price and a cost are always those of the nodes that the same read sees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from sky.domain import compute as domain
from sky.domain import node as node_domain
from sky.domain.errors import NotFound
from sky.domain.money import machine_cost_micro, to_usd
from sky.kit import ids
from sky.kit.clock import to_datetime
from sky.store.schema import computes, generations, nodes
from sky.store.views.errors import error_of, moment
from sky.store.views.paging import WHOLE_LIST_MAX, cut, place_of
from sky.wire import v1

KIND = "computes"

_BY_ID: Any = sa.select(computes).where(computes.c.id == sa.bindparam("b_ref"))
_BY_NAME: Any = sa.select(computes).where(
    computes.c.name == sa.bindparam("b_ref"), computes.c.deleted_us.is_(None)
)
_ID_BY_ID: Any = sa.select(computes.c.id).where(computes.c.id == sa.bindparam("b_ref"))
_ID_BY_NAME: Any = sa.select(computes.c.id).where(
    computes.c.name == sa.bindparam("b_ref"), computes.c.deleted_us.is_(None)
)
_COSTING: Any = sa.select(
    nodes.c.compute_id,
    nodes.c.state,
    nodes.c.price_micro,
    nodes.c.billing_unit,
    nodes.c.launched_us,
    nodes.c.terminated_us,
).where(nodes.c.compute_id.in_(sa.bindparam("ids", expanding=True)))


def missing(noun: str, ref: str) -> NotFound:
    """The refusal for a reference that names nothing."""
    shown = ref if len(ref) <= 100 else ref[:100] + "…"
    return NotFound(f"there is no {noun} {shown!r}", details={noun: shown})


def resolve(connection: sa.Connection, ref: str) -> str:
    """The id of the compute that ``ref`` (an id, or the name of one that is not deleted) names."""
    found = connection.execute(_ID_BY_ID if ids.is_id(ref) else _ID_BY_NAME, {"b_ref": ref}).scalar()
    if found is None:
        raise missing("compute", ref)
    return found


def get(connection: sa.Connection, ref: str, now_us: int) -> v1.Compute:
    """One compute, by id or name."""
    row = connection.execute(_BY_ID if ids.is_id(ref) else _BY_NAME, {"b_ref": ref}).mappings().first()
    if row is None:
        raise missing("compute", ref)
    return _shown(row, _sums(connection, [row["id"]], now_us)[row["id"]])


def page(
    connection: sa.Connection,
    now_us: int,
    *,
    cursor: str | None,
    limit: int,
    state: str | None = None,
    owned: bool | None = None,
) -> v1.ComputePage:
    """Some computes, newest first; deleted ones only by their state. ``owned``: whether somebody holds it."""
    query = sa.select(computes).order_by(computes.c.seq.desc()).limit(limit + 1)
    if (place := place_of(KIND, cursor)) is not None:
        query = query.where(computes.c.seq < place)
    there = computes.c.state != domain.DELETED
    query = query.where(there if state is None else computes.c.state == state)
    if owned is not None:
        held = sa.and_(computes.c.lease_owner.is_not(None), computes.c.lease_expires_us > now_us)
        query = query.where(held if owned else sa.not_(sa.func.coalesce(held, False)))
    rows = connection.execute(query).mappings().all()
    shown, following = cut(rows, limit, KIND, lambda row: row["seq"])
    sums = _sums(connection, [row["id"] for row in shown], now_us)
    return v1.ComputePage(items=tuple(_shown(row, sums[row["id"]]) for row in shown), next_cursor=following)


def lease(connection: sa.Connection, ref: str) -> v1.Lease:
    """Who holds a compute."""
    row = connection.execute(_BY_ID if ids.is_id(ref) else _BY_NAME, {"b_ref": ref}).mappings().first()
    if row is None:
        raise missing("compute", ref)
    return _lease(row)


# ── generations ─────────────────────────────────────────────────────────────────────────────────


def generation(connection: sa.Connection, ref: str, number: int) -> v1.Generation:
    """One definition of a compute."""
    compute_id = resolve(connection, ref)
    row = (
        connection.execute(
            sa.select(generations, computes.c.observed_generation)
            .join(computes, computes.c.id == generations.c.compute_id)
            .where(generations.c.compute_id == compute_id, generations.c.number == number)
        )
        .mappings()
        .first()
    )
    if row is None:
        raise missing("generation", str(number))
    return _generation(row)


def generation_page(
    connection: sa.Connection, ref: str, *, cursor: str | None, limit: int | None
) -> v1.GenerationPage:
    """A compute's definitions, newest first."""
    compute_id = resolve(connection, ref)
    many = limit or WHOLE_LIST_MAX
    query = (
        sa.select(generations, computes.c.observed_generation)
        .join(computes, computes.c.id == generations.c.compute_id)
        .where(generations.c.compute_id == compute_id)
        .order_by(generations.c.number.desc())
        .limit(many + 1)
    )
    if (place := place_of("generations", cursor)) is not None:
        query = query.where(generations.c.number < place)
    rows = connection.execute(query).mappings().all()
    shown, following = cut(rows, many, "generations", lambda row: row["number"])
    return v1.GenerationPage(items=tuple(map(_generation, shown)), next_cursor=following)


# ── shapes ──────────────────────────────────────────────────────────────────────────────────────


class _Sums(msgspec.Struct):
    ready: int = 0
    total: int = 0
    price_micro: int = 0
    cost_micro: int = 0


def _sums(connection: sa.Connection, compute_ids: Sequence[str], now_us: int) -> Mapping[str, _Sums]:
    found: dict[str, _Sums] = defaultdict(_Sums)
    if not compute_ids:
        return found
    for row in connection.execute(_COSTING, {"ids": list(compute_ids)}):
        sums = found[row.compute_id]
        sums.ready += row.state == node_domain.READY
        sums.total += row.state not in node_domain.FINAL
        if row.launched_us is None:
            continue
        until_us = now_us if row.terminated_us is None else row.terminated_us
        sums.price_micro += row.price_micro if row.terminated_us is None else 0
        sums.cost_micro += machine_cost_micro(row.price_micro, until_us - row.launched_us, row.billing_unit)
    return found


def _lease(row: sa.RowMapping) -> v1.Lease:
    return v1.Lease(owner=row["lease_owner"], expires_at=moment(row["lease_expires_us"]))


def _shown(row: sa.RowMapping, sums: _Sums) -> v1.Compute:
    return v1.Compute(
        id=row["id"],
        name=row["name"],
        generation=row["generation"],
        revision=row["revision"],
        spec=msgspec.convert(row["spec"], v1.ComputeSpec),
        status=v1.ComputeStatus(
            state=row["state"],
            observed_generation=row["observed_generation"],
            nodes_ready=sums.ready,
            nodes_total=sums.total,
            drift=tuple(row["drift"] or ()),
            last_error=error_of(row["last_error"]),
            price_per_hour=to_usd(sums.price_micro),
            cost=to_usd(sums.cost_micro),
        ),
        lease=_lease(row),
        created_at=to_datetime(row["created_us"]),
    )


def _generation(row: sa.RowMapping) -> v1.Generation:
    return v1.Generation(
        number=row["number"],
        spec=msgspec.convert(row["spec"], v1.ComputeSpec),
        hash=row["hash"],
        applied=row["observed_generation"] == row["number"],
        created_at=to_datetime(row["created_us"]),
    )
