"""Storages as rows: a name of its owner, and the archive that is its content.

Decides: nothing. Never: holds content; that is a blob. Follows: who uses a storage is read from the jobs that
are under way, so that no count of users can be wrong.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from sky.store.schema_requests import archives, cluster_jobs, storages
from sky.store.sql import ByBytes, Row, insert_ignore, many, one
from sky.store.tx import Tx

STORAGES_MAX = 1_000
JOBS_AT_ONCE = 1_000
"""How many rows are in memory while all are looked through."""


def find(connection: sa.Connection, owner: str, name: str) -> Row | None:
    """An owner's storage of that name."""
    return one(connection, sa.select(storages).where(storages.c.owner == owner, storages.c.name == name))


def of(connection: sa.Connection, owner: str | None) -> list[Row]:
    """Storages by name: of one owner, or of all (None)."""
    ordered = sa.select(storages).order_by(ByBytes(storages.c.name), ByBytes(storages.c.owner))
    query = ordered.limit(STORAGES_MAX)
    return many(connection, query if owner is None else query.where(storages.c.owner == owner))


def used(connection: sa.Connection, owner: str | None) -> set[tuple[str, str]]:
    """(owner, name) of each storage that a job under way names: of one owner, or of all (None)."""
    uses = cluster_jobs.c.body["storages"].label("uses")
    query = sa.select(cluster_jobs.c.owner, uses).where(cluster_jobs.c.ended_us.is_(None))
    if owner is not None:
        query = query.where(cluster_jobs.c.owner == owner)
    with connection.execute(query, execution_options={"yield_per": JOBS_AT_ONCE}) as rows:
        return {(whose, use["name"]) for whose, used_here in rows for use in used_here or ()}


def write(tx: Tx, owner: str, name: str, **values: Any) -> None:
    """Add a storage, or change one."""
    changed = tx.connection.execute(
        sa.update(storages).where(storages.c.owner == owner, storages.c.name == name).values(**values)
    )
    if changed.rowcount == 0:
        row = {"owner": owner, "name": name, "created_us": tx.now_us, "cluster_id": None, **values}
        tx.connection.execute(sa.insert(storages), row)


def remove(tx: Tx, owner: str, name: str) -> None:
    """Forget a storage."""
    tx.connection.execute(sa.delete(storages).where(storages.c.owner == owner, storages.c.name == name))


def remove_of_cluster(tx: Tx, cluster_id: str) -> None:
    """Forget the storages that go with a cluster."""
    tx.connection.execute(sa.delete(storages).where(storages.c.cluster_id == cluster_id))


def brought(connection: sa.Connection, owner: str, sha256: str) -> bool:
    """Whether somebody has had that content."""
    query = sa.select(archives.c.owner).where(archives.c.owner == owner, archives.c.sha256 == sha256)
    return connection.execute(query).first() is not None


def bring(tx: Tx, owner: str, sha256: str) -> None:
    """Note that somebody has had that content."""
    names = [column.name for column in archives.columns]
    row = {"owner": owner, "sha256": sha256, "created_us": tx.now_us}
    tx.connection.execute(insert_ignore(tx.connection.dialect.name, archives, names), row)
