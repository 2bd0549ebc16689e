"""Requests and what they said, as rows.

Decides: nothing. Never: moves a state (``tx`` does). Follows: the lines of a request are numbered from 1
without a gap, so that a reader goes on behind the last one it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain.request import PENDING
from sky.store.prepared import inserted, prepared
from sky.store.schema_requests import request_lines, requests
from sky.store.sql import Row, literals, many, one
from sky.store.tx import Tx

PENDING_MAX = 1_000
ID_CHARS = 40


def find(connection: sa.Connection, request_id: str) -> Row | None:
    """The request with that id."""
    return one(connection, _REQUEST, {"b_id": request_id})


def matching(connection: sa.Connection, prefix: str, owner: str | None = None) -> list[Row]:
    """Requests without their bodies, or those of one owner, whose id begins so: two at most, for one must be
    told from several."""
    query = sa.select(*_SHOWN).where(*_begins(prefix)).limit(2)
    if owner is not None:
        query = query.where(requests.c.owner == owner)
    return many(connection, query)


def page(
    connection: sa.Connection,
    *,
    owner: str | None,
    limit: int,
    all_status: bool = False,
    cluster: str | None = None,
    ids: Sequence[str] = (),
) -> list[Row]:
    """Requests without their bodies, newest first: those that are open, or all of them."""
    query = sa.select(*_SHOWN).order_by(requests.c.seq.desc()).limit(limit)
    if owner is not None:
        query = query.where(requests.c.owner == owner)
    if ids:
        query = query.where(sa.or_(*(sa.and_(*_begins(one_id)) for one_id in ids)))
    elif not all_status:
        query = query.where(requests.c.finished_us.is_(None))
    if cluster is not None:
        query = query.where(requests.c.cluster_name == cluster)
    return many(connection, query)


def open_of(connection: sa.Connection, cluster_id: str) -> list[str]:
    """Ids of the requests that wait for a cluster."""
    return [row["id"] for row in _OPEN_OF.all(connection, {"b_cluster": cluster_id})]


def waiting_for(connection: sa.Connection, cluster_id: str, number: int) -> list[str]:
    """Ids of the requests that wait for a job of a cluster."""
    asked = {"b_cluster": cluster_id, "b_number": number}
    return [row["id"] for row in _WAITING_FOR.all(connection, asked)]


def unbegun(connection: sa.Connection, cluster_name: str) -> list[Row]:
    """Id, name and seq of the requests about a cluster of that name that are yet to begin, oldest first."""
    return _UNBEGUN.all(connection, {"b_name": cluster_name})


def say(tx: Tx, request_id: str, *texts: str) -> None:
    """Add lines to what a request says."""
    last = _LAST.scalar(tx.connection, {"b_id": request_id}) or 0
    rows = [
        {"request_id": request_id, "index": last + place, "text": text, "at_us": tx.now_us}
        for place, text in enumerate(texts, 1)
    ]
    _SAY.run(tx.connection, *rows)
    tx.signal(f"request/{request_id}")


def pending(connection: sa.Connection, limit: int = PENDING_MAX) -> list[str]:
    """Requests that were not begun yet, oldest first."""
    query = (
        sa.select(requests.c.id)
        .where(requests.c.finished_us.is_(None), requests.c.state == PENDING)
        .order_by(requests.c.seq)
        .limit(limit)
    )
    return [row["id"] for row in many(connection, query)]


def lines(connection: sa.Connection, request_id: str, after: int, limit: int) -> list[tuple[int, str]]:
    """What a request said behind its line ``after``."""
    query = (
        sa.select(request_lines.c.index, request_lines.c.text)
        .where(request_lines.c.request_id == request_id, request_lines.c.index > after)
        .order_by(request_lines.c.index)
        .limit(limit)
    )
    return [(row["index"], row["text"]) for row in many(connection, query)]


def ended_before(before_us: int, limit: int) -> sa.Select[tuple[str]]:
    """Ids of requests that ended before a moment."""
    return sa.select(requests.c.id).where(requests.c.finished_us < before_us).limit(limit)


def forget(tx: Tx, before_us: int, limit: int) -> int:
    """Remove requests that ended before a moment; returns how many."""
    found: list[Any] = list(tx.connection.scalars(ended_before(before_us, limit)))
    if found:
        tx.connection.execute(sa.delete(request_lines).where(request_lines.c.request_id.in_(found)))
        tx.connection.execute(sa.delete(requests).where(requests.c.id.in_(found)))
    return len(found)


def _begins(prefix: str) -> tuple[sa.ColumnElement[bool], ...]:
    """That an id begins so; the bounds, between which the index finds all that do, are for its sake."""
    last = prefix + "z" * max(0, ID_CHARS - len(prefix))
    return requests.c.id.startswith(prefix, autoescape=True), requests.c.id >= prefix, requests.c.id <= last


_SHOWN = [column for column in requests.columns if column.name != "body"]
_IS_OPEN = requests.c.finished_us.is_(None)
_OPEN_OF = prepared(
    sa.select(requests.c.id).where(_IS_OPEN, requests.c.cluster_id == sa.bindparam("b_cluster"))
)
_WAITING_FOR = prepared(
    sa.select(requests.c.id).where(
        _IS_OPEN,
        requests.c.cluster_id == sa.bindparam("b_cluster"),
        requests.c.job_number == sa.bindparam("b_number"),
    )
)
_UNBEGUN = prepared(
    sa.select(requests.c.id, requests.c.name, requests.c.seq)
    .where(
        _IS_OPEN,
        requests.c.cluster_name == sa.bindparam("b_name"),
        requests.c.state.in_(literals([PENDING])),
    )
    .order_by(requests.c.seq)
)
_SAY = inserted(request_lines, ["request_id", "index", "text", "at_us"])
_REQUEST = prepared(sa.select(requests).where(requests.c.id == sa.bindparam("b_id")))
_LAST = prepared(
    sa.select(sa.func.max(request_lines.c.index)).where(request_lines.c.request_id == sa.bindparam("b_id"))
)
