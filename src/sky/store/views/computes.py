"""Computes and their generations as the faces show them.

Decides: what a reference (id or name) means, and what is summed: nodes, price now, cost so far.
Never: stores a sum. Follows: a price and a cost are always those of the nodes that the same read sees.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from sky.domain import compute as domain
from sky.domain import node as node_domain
from sky.domain.errors import NotFound
from sky.domain.money import machine_cost_micro, to_usd
from sky.kit import codec, ids
from sky.kit.clock import to_datetime
from sky.store.prepared import prepared
from sky.store.schema import computes, generations, nodes
from sky.store.views.errors import error_of, moment
from sky.store.views.paging import WHOLE_LIST_MAX, cut, place_of
from sky.wire import v1
from sky.wire.error import Error

KIND = "computes"

_SHOWN = (
    computes.c.id,
    computes.c.name,
    computes.c.generation,
    computes.c.revision,
    sa.cast(computes.c.spec, sa.Text).label("spec"),
    computes.c.state,
    computes.c.observed_generation,
    sa.cast(computes.c.drift, sa.Text).label("drift"),
    sa.cast(computes.c.pending, sa.Text).label("pending"),
    sa.cast(computes.c.last_error, sa.Text).label("last_error"),
    computes.c.lease_owner,
    computes.c.lease_expires_us,
    computes.c.created_us,
)
_MEANT_BY_ID = computes.c.id == sa.bindparam("b_ref")
_MEANT_BY_NAME = sa.and_(computes.c.name == sa.bindparam("b_ref"), computes.c.deleted_us.is_(None))
_BY_ID = prepared(sa.select(*_SHOWN).where(_MEANT_BY_ID))
_BY_NAME = prepared(sa.select(*_SHOWN).where(_MEANT_BY_NAME))
_ID_BY_ID = prepared(sa.select(computes.c.id).where(_MEANT_BY_ID))
_ID_BY_NAME = prepared(sa.select(computes.c.id).where(_MEANT_BY_NAME))
_COST = (
    nodes.c.compute_id,
    nodes.c.state,
    nodes.c.price_micro,
    nodes.c.billing_unit,
    nodes.c.launched_us,
    nodes.c.terminated_us,
)
_COST_OF_ONE = prepared(sa.select(*_COST).where(nodes.c.compute_id == sa.bindparam("b_id")))
_COST_OF_MANY: Any = sa.select(*_COST).where(nodes.c.compute_id.in_(sa.bindparam("ids", expanding=True)))
_STILL_COSTS = sa.select(computes.c.id).where(computes.c.state.in_(sorted(domain.LIVE)))
_COST_OF_LIVE = sa.select(*_COST).where(nodes.c.compute_id.in_(_STILL_COSTS))


def missing(noun: str, ref: str) -> NotFound:
    """The refusal for a reference that names nothing."""
    shown = ref if len(ref) <= 100 else ref[:100] + "…"
    return NotFound(f"there is no {noun} {shown!r}", details={noun: shown})


def resolve(connection: sa.Connection, ref: str) -> str:
    """The id of the compute that ``ref`` (an id, or the name of one that is not deleted) names."""
    found = (_ID_BY_ID if ids.is_id(ref) else _ID_BY_NAME).rows(connection, {"b_ref": ref})
    if not found:
        raise missing("compute", ref)
    return found[0][0]


def get(connection: sa.Connection, ref: str, now_us: int) -> v1.Compute:
    """One compute, by id or name."""
    row = _row(connection, ref)
    return _shown(row, _sums(_COST_OF_ONE.rows(connection, {"b_id": row.id}), now_us)[row.id])


def _row(connection: sa.Connection, ref: str) -> _Row:
    found = (_BY_ID if ids.is_id(ref) else _BY_NAME).rows(connection, {"b_ref": ref})
    if not found:
        raise missing("compute", ref)
    return _Row(*found[0])


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
    query = sa.select(*_SHOWN, computes.c.seq).order_by(computes.c.seq.desc()).limit(limit + 1)
    if (place := place_of(KIND, cursor)) is not None:
        query = query.where(computes.c.seq < place)
    there = computes.c.state != domain.DELETED
    query = query.where(there if state is None else computes.c.state == state)
    if owned is not None:
        held = sa.and_(computes.c.lease_owner.is_not(None), computes.c.lease_expires_us > now_us)
        query = query.where(held if owned else sa.not_(sa.func.coalesce(held, False)))
    rows = connection.execute(query).all()
    shown, following = cut(rows, limit, KIND, lambda row: row.seq)
    found = [_Row._make(tuple(row)[:-1]) for row in shown]
    costs = connection.execute(_COST_OF_MANY, {"ids": [row.id for row in found]}).all() if found else ()
    sums = _sums(costs, now_us)
    return v1.ComputePage(items=tuple(_shown(row, sums[row.id]) for row in found), next_cursor=following)


def running_costs(connection: sa.Connection, now_us: int) -> Sequence[tuple[str, float, int]]:
    """(id, USD so far, machines) of every compute that costs something now."""
    sums = _sums(connection.execute(_COST_OF_LIVE).all(), now_us)
    return [(key, to_usd(x.cost_micro), x.total) for key, x in sums.items() if x.price_micro]


def lease(connection: sa.Connection, ref: str) -> v1.Lease:
    """Who holds a compute."""
    return _lease(_row(connection, ref))


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
        last = connection.execute(sa.select(computes.c.generation).where(computes.c.id == compute_id))
        raise no_generation(ref, number, last.scalar_one())
    return _generation(row)


def no_generation(ref: str, number: int, last: int) -> NotFound:
    """The refusal for a definition that a compute has not had."""
    msg = f"compute {ref} has no generation {number}; it has 1 to {last}"
    return NotFound(msg, details={"generation": number})


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


class _Row(NamedTuple):
    """The columns of ``_SHOWN``; those of JSON as text."""

    id: str
    name: str | None
    generation: int
    revision: int
    spec: str
    state: v1.ComputeState
    observed_generation: int
    drift: str | None
    pending: str | None
    last_error: str | None
    lease_owner: str | None
    lease_expires_us: int | None
    created_us: int


class _Sums(msgspec.Struct):
    ready: int = 0
    total: int = 0
    price_micro: int = 0
    cost_micro: int = 0


def _sums(rows: Sequence[Sequence[Any]], now_us: int) -> Mapping[str, _Sums]:
    found: dict[str, _Sums] = defaultdict(_Sums)
    for compute_id, state, price_micro, billing_unit, launched_us, terminated_us in rows:
        sums = found[compute_id]
        sums.ready += state == node_domain.READY
        sums.total += state not in node_domain.FINAL
        if launched_us is None:
            continue
        until_us = now_us if terminated_us is None else terminated_us
        sums.price_micro += price_micro if terminated_us is None else 0
        sums.cost_micro += machine_cost_micro(price_micro, until_us - launched_us, billing_unit)
    return found


def _lease(row: _Row) -> v1.Lease:
    if row.lease_owner is None:
        return v1.Lease()
    return v1.Lease(owner=row.lease_owner, expires_at=moment(row.lease_expires_us))


def _shown(row: _Row, sums: _Sums) -> v1.Compute:
    try:
        spec = _spec.decode(row.spec) if row.pending is None else _wanted(row.spec, row.pending)
        drift = () if row.drift is None else _drift.decode(row.drift) or ()
        error = None if row.last_error is None else error_of(codec.loads(row.last_error))
    except (msgspec.MsgspecError, KeyError, TypeError) as unreadable:
        spec, drift, error = _UNREADABLE, (), _unreadable(row, unreadable)
    return v1.Compute(
        id=row.id,
        name=row.name,
        generation=row.generation,
        revision=row.revision,
        spec=spec,
        status=v1.ComputeStatus(
            state=row.state,
            observed_generation=row.observed_generation,
            nodes_ready=sums.ready,
            nodes_total=sums.total,
            drift=drift,
            last_error=error,
            price_per_hour=to_usd(sums.price_micro),
            cost=to_usd(sums.cost_micro),
        ),
        lease=_lease(row),
        created_at=to_datetime(row.created_us),
    )


def _wanted(spec: str, pending: str) -> v1.ComputeSpec:
    return msgspec.convert({**codec.loads(spec), **(codec.loads(pending) or {})}, v1.ComputeSpec)


def _unreadable(row: _Row, why: Exception) -> Error:
    """What stands in place of a row that cannot be shown, so that the others can."""
    message = (
        f"what is kept of compute {row.id} cannot be read ({type(why).__name__}: {why}); its machines stay "
        "as they are until its row is repaired, or it is deleted"
    )
    return Error(code="internal", message=message, retryable=False)


_UNREADABLE = v1.ComputeSpec(specs=(), nodes=v1.NodeBounds(desired=0, min=0))
_spec = msgspec.json.Decoder(v1.ComputeSpec)
_drift = msgspec.json.Decoder(tuple[str, ...] | None)


def _generation(row: sa.RowMapping) -> v1.Generation:
    try:
        spec = msgspec.convert(row["spec"], v1.ComputeSpec)
    except msgspec.ValidationError:
        spec = _UNREADABLE
    return v1.Generation(
        number=row["number"],
        spec=spec,
        hash=row["hash"],
        applied=row["observed_generation"] == row["number"],
        created_at=to_datetime(row["created_us"]),
    )
