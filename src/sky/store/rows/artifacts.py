"""The files that jobs wrote, as rows.

Decides: nothing. Never: keeps content (``blobs`` does). Follows: a file that has arrived whole is never
replaced.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.store.schema_jobs import artifacts, jobs
from sky.store.sql import Row, many, one
from sky.store.tx import Tx


def find(connection: sa.Connection, job_id: str, path: str) -> Row | None:
    """One of a job's files, whether or not it has arrived."""
    query = sa.select(artifacts).where(artifacts.c.job_id == job_id, artifacts.c.path == path)
    return one(connection, query)


def count(connection: sa.Connection, job_id: str) -> int:
    """How many files a job was allowed to upload."""
    query = sa.select(sa.func.count()).select_from(artifacts).where(artifacts.c.job_id == job_id)
    return int(connection.execute(query).scalar_one())


def allow(tx: Tx, job_id: str, path: str, size: int, sha256: str) -> None:
    """A job may upload this file; said again before it arrived, the last word counts."""
    values = {"size_bytes": size, "sha256": sha256, "allowed_us": tx.now_us}
    if find(tx.connection, job_id, path) is None:
        tx.connection.execute(sa.insert(artifacts).values(job_id=job_id, path=path, **values))
        return
    tx.connection.execute(
        sa.update(artifacts)
        .where(artifacts.c.job_id == job_id, artifacts.c.path == path, artifacts.c.stored_us.is_(None))
        .values(**values)
    )


def arrived(tx: Tx, job_id: str, path: str, sha256: str) -> bool:
    """A file has arrived whole; False when one had before, or another one was allowed meanwhile."""
    statement = (
        sa.update(artifacts)
        .where(
            artifacts.c.job_id == job_id,
            artifacts.c.path == path,
            artifacts.c.sha256 == sha256,
            artifacts.c.stored_us.is_(None),
        )
        .values(stored_us=tx.now_us)
    )
    return tx.connection.execute(statement).rowcount == 1


def stored(connection: sa.Connection, job_id: str, limit: int) -> list[Row]:
    """A job's files that arrived whole, by path."""
    query = (
        sa.select(artifacts)
        .where(artifacts.c.job_id == job_id, artifacts.c.stored_us.is_not(None))
        .order_by(artifacts.c.path)
        .limit(limit)
    )
    return many(connection, query)


def refused_one(tx: Tx, job_id: str) -> None:
    """A job had more files than it may have."""
    tx.connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(truncated=True))


def complete(tx: Tx, job_id: str) -> None:
    """A job's upload has ended; said again, the last word counts."""
    tx.connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(manifest_us=tx.now_us))
