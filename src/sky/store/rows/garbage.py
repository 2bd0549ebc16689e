"""What may be removed: what is over for long, and what nothing names. Found, and removed some at a time.

Decides: what names what. A column of hashes names content, and so does whatever looks like a hash in a column
of JSON, in any table: a noun that is new is safe before anybody thinks of this file. Never: removes what is
named, or what is not over. Follows: content that was used since it was found is not removed, since using
moves its moment; what belongs to something that goes is removed before it, so that nothing is left behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from sky.domain import compute as c
from sky.domain import node as n
from sky.store.schema import blobs, computes, disks, executions, functions, generations, items, nodes, tasks
from sky.store.schema_jobs import IS_OVER, deliveries, jobs, webhooks
from sky.store.schema_requests import archives, cluster_jobs, clusters, requests, storages
from sky.store.schema_users import metadata
from sky.store.sql import literals
from sky.store.tx import Tx

ROWS_MAX = 500
"""Rows that are removed at once."""
FOUND_MAX = 20_000
"""How much is found by one look."""
_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_OF_JOB, _OF_CLUSTER = "jobs/", "clusters/"
_NOT_NAMES = frozenset({"blobs", "archives", "api_keys", "user_tokens"})
"""Tables whose hashes name no content that has to stay: who has brought it, and hashes of tokens."""


class Found(Struct, frozen=True):
    """Something that may go: by which key, of which size, and its moment when it was found."""

    key: str
    size_bytes: int = 0
    seen_us: int = 0


# ── what is over ────────────────────────────────────────────────────────────────────────────────


def clusters_over(connection: sa.Connection, before_us: int) -> list[Found]:
    """Clusters that were removed before a moment, and that no request and no storage names."""
    query = sa.select(clusters.c.id).where(
        clusters.c.removed_us < before_us,
        ~sa.exists().where(requests.c.cluster_id == clusters.c.id),
        ~sa.exists().where(storages.c.cluster_id == clusters.c.id),
        ~sa.exists().where(cluster_jobs.c.cluster_id == clusters.c.id, cluster_jobs.c.ended_us.is_(None)),
    )
    return _keys(connection, query.order_by(clusters.c.removed_us))


def remove_cluster(tx: Tx, cluster_id: str) -> bool:
    """Remove some of a cluster's jobs, or, when it has none, itself; False: there is more to do."""
    own = sa.select(cluster_jobs.c.id).where(cluster_jobs.c.cluster_id == cluster_id).limit(ROWS_MAX)
    if _delete(tx, cluster_jobs.c.id, list(tx.connection.scalars(own))):
        return False
    _delete(tx, clusters.c.id, [cluster_id])
    return True


def computes_over(connection: sa.Connection, before_us: int) -> list[Found]:
    """Computes that were deleted before a moment, whose owner is gone, or has been over for as long."""
    owner = computes.c.owner
    job = sa.exists().where(
        jobs.c.id == sa.func.substr(owner, len(_OF_JOB) + 1),
        sa.or_(jobs.c.settled_us.is_(None), jobs.c.finished_us.is_(None), jobs.c.finished_us >= before_us),
    )
    cluster = sa.exists().where(clusters.c.id == sa.func.substr(owner, len(_OF_CLUSTER) + 1))
    query = sa.select(computes.c.id).where(
        computes.c.deleted_us < before_us,
        computes.c.state == c.DELETED,
        sa.or_(
            owner.is_(None),
            sa.and_(owner.startswith(_OF_JOB), ~job),
            sa.and_(owner.startswith(_OF_CLUSTER), ~cluster),
        ),
        ~sa.exists().where(disks.c.compute_id == computes.c.id),
        ~sa.exists().where(nodes.c.compute_id == computes.c.id, nodes.c.state.not_in(sorted(n.FINAL))),
    )
    return _keys(connection, query.order_by(computes.c.deleted_us))


def remove_compute(tx: Tx, compute_id: str) -> bool:
    """Remove some of a compute's calls, or, when it has none, itself; False: there is more to do."""
    own = sa.select(tasks.c.id).where(tasks.c.compute_id == compute_id).limit(ROWS_MAX)
    if remove_calls(tx, list(tx.connection.scalars(own))):
        return False
    for column in (nodes.c.compute_id, generations.c.compute_id, computes.c.id):
        _delete(tx, column, [compute_id])
    return True


def calls_over(connection: sa.Connection, before_us: int) -> list[Found]:
    """Calls that ended before a moment, of computes that are there, and of no job."""
    live = sa.select(computes.c.id).where(computes.c.state.in_(literals(c.LIVE)))
    query = sa.select(tasks.c.id).where(
        tasks.c.compute_id.in_(live), tasks.c.finished_us < before_us, tasks.c.owner.is_(None)
    )
    return _keys(connection, query)


def remove_calls(tx: Tx, ids: Sequence[str]) -> int:
    """Remove calls with their tries and items; returns how many there were."""
    if not ids:
        return 0
    tries = list(tx.connection.scalars(sa.select(executions.c.id).where(executions.c.task_id.in_(ids))))
    for start in range(0, len(tries), ROWS_MAX):
        some = tries[start : start + ROWS_MAX]
        _delete(tx, items.c.execution_id, some)
        _delete(tx, executions.c.id, some)
    return _delete(tx, tasks.c.id, ids)


def deliveries_over(connection: sa.Connection, before_us: int) -> list[Found]:
    """Messages to webhooks that were delivered or given up, and are from before a moment."""
    query = sa.select(deliveries.c.id).where(IS_OVER, deliveries.c.created_us < before_us)
    return _keys(connection, query.order_by(deliveries.c.created_us))


def remove_deliveries(tx: Tx, ids: Sequence[str]) -> int:
    """Remove what became of messages, and endpoints that are deleted and have none."""
    over = sa.delete(deliveries).where(deliveries.c.id.in_(ids), IS_OVER)  # one may be sent once more
    removed = tx.connection.execute(over).rowcount
    unused = ~sa.exists().where(deliveries.c.webhook_id == webhooks.c.id)
    tx.connection.execute(sa.delete(webhooks).where(webhooks.c.deleted_us.is_not(None), unused))
    return removed


# ── what nothing names ──────────────────────────────────────────────────────────────────────────


def functions_unnamed(connection: sa.Connection, before_us: int) -> list[Found]:
    """Functions that were last used before a moment, and that no call names."""
    return _unnamed(connection, functions, before_us, but=frozenset({"functions"}))


def content_unnamed(connection: sa.Connection, before_us: int) -> list[Found]:
    """Content that was last used before a moment, and that nothing names."""
    return _unnamed(connection, blobs, before_us, but=frozenset())


def remove_functions(tx: Tx, found: Iterable[Found]) -> int:
    """Forget functions, unless they were used meanwhile."""
    return _delete_unused(tx, functions, found)


def remove_content(tx: Tx, found: Sequence[Found]) -> int:
    """Remove content, unless it was used meanwhile, and who had brought it. Its files are for ``Blobs``."""
    removed = _delete_unused(tx, blobs, found)
    keys = [one.key for one in found]
    there = ~sa.exists().where(blobs.c.sha256 == archives.c.sha256)
    tx.connection.execute(sa.delete(archives).where(archives.c.sha256.in_(keys), there))
    return removed


def _unnamed(
    connection: sa.Connection, table: sa.Table, before_us: int, *, but: frozenset[str]
) -> list[Found]:
    used_us = _last_used(table)
    old = sa.select(table.c.sha256).where(used_us < before_us)
    named = [sa.select(column).where(column.is_not(None)) for column in _hash_columns(but)]
    candidates = set(connection.scalars(old.except_(*named)))
    for column in _json_columns(but) if candidates else ():
        query = sa.select(sa.cast(column, sa.Text)).where(column.is_not(None))
        # Of this statement only: the options of a connection stay with it.
        with connection.execute(query, execution_options={"yield_per": ROWS_MAX}) as rows:
            for (text,) in rows:
                candidates.difference_update(_HASH.findall(text))
    found: list[Found] = []
    keys = sorted(candidates)[:FOUND_MAX]
    for start in range(0, len(keys), ROWS_MAX):
        some = sa.select(table.c.sha256, table.c.size_bytes, used_us).where(
            table.c.sha256.in_(keys[start : start + ROWS_MAX]), used_us < before_us
        )
        found += [Found(*row) for row in connection.execute(some)]
    return found


def _last_used(table: sa.Table) -> sa.ColumnElement[int]:
    created_us: sa.Column[int] = table.c.created_us
    return sa.func.coalesce(table.c.used_us, created_us) if "used_us" in table.c else created_us


def _hash_columns(but: frozenset[str]) -> list[sa.Column[Any]]:
    """Every column that names content by its hash."""
    return [
        column
        for table in metadata.sorted_tables
        if table.name not in but | _NOT_NAMES
        for column in table.columns
        if column.name.endswith("sha256")
    ]


def _json_columns(but: frozenset[str]) -> list[sa.Column[Any]]:
    return [
        column
        for table in metadata.sorted_tables
        if table.name not in but
        for column in table.columns
        if isinstance(column.type, sa.JSON)
    ]


def _delete_unused(tx: Tx, table: sa.Table, found: Iterable[Found]) -> int:
    statement = sa.delete(table).where(
        table.c.sha256 == sa.bindparam("b_key"), _last_used(table) == sa.bindparam("b_seen")
    )
    return sum(
        tx.connection.execute(statement, {"b_key": one.key, "b_seen": one.seen_us}).rowcount for one in found
    )


def _keys(connection: sa.Connection, query: Any) -> list[Found]:
    return [Found(key) for key in connection.scalars(query.limit(FOUND_MAX))]


def _delete(tx: Tx, column: sa.Column[Any], keys: Sequence[str]) -> int:
    """Remove the rows with those keys; returns how many there were."""
    return tx.connection.execute(sa.delete(column.table).where(column.in_(keys))).rowcount if keys else 0
