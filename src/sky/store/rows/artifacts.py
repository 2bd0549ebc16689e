"""The files that jobs wrote, as rows, and how long they and what jobs printed are kept.

Decides: nothing. Never: keeps content (a folder or a bucket does). Follows: a file that has arrived whole is
never replaced.
"""

from __future__ import annotations

import sqlalchemy as sa
from msgspec import Struct

from sky.domain.artifact import StoredFile
from sky.domain.job import TERMINAL
from sky.store.rows.jobs import tasks_of
from sky.store.schema import events
from sky.store.schema_jobs import artifacts, jobs
from sky.store.sql import ByBytes, Row, many, one
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
    """A file has arrived whole; False when one had before, another one was allowed meanwhile, or its job is
    over."""
    statement = (
        sa.update(artifacts)
        .where(
            artifacts.c.job_id == job_id,
            artifacts.c.path == path,
            artifacts.c.sha256 == sha256,
            artifacts.c.stored_us.is_(None),
            sa.exists().where(jobs.c.id == artifacts.c.job_id, jobs.c.finished_us.is_(None)),
        )
        .values(stored_us=tx.now_us)
    )
    return tx.connection.execute(statement).rowcount == 1


def stored(connection: sa.Connection, job_id: str, limit: int) -> list[Row]:
    """A job's files that arrived whole, by path."""
    query = (
        sa.select(artifacts)
        .where(artifacts.c.job_id == job_id, artifacts.c.stored_us.is_not(None))
        .order_by(ByBytes(artifacts.c.path))
        .limit(limit)
    )
    return many(connection, query)


def awaited(connection: sa.Connection, job_id: str, limit: int) -> list[StoredFile]:
    """Files that a job may upload and that have not arrived, by path."""
    query = (
        sa.select(artifacts)
        .where(artifacts.c.job_id == job_id, artifacts.c.stored_us.is_(None))
        .order_by(ByBytes(artifacts.c.path))
        .limit(limit)
    )
    return [file_of(row) for row in many(connection, query)]


def file_of(row: Row) -> StoredFile:
    """A file as its row knows it."""
    return StoredFile(row["job_id"], row["path"], row["size_bytes"], row["sha256"])


def refused_one(tx: Tx, job_id: str) -> None:
    """A job had more files than it may have."""
    tx.connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(truncated=True))


def complete(tx: Tx, job_id: str) -> None:
    """A job's upload has ended; said again, the last word counts."""
    tx.connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(manifest_us=tx.now_us))


# ── how long they are kept ──────────────────────────────────────────────────────────────────────


class Kept(Struct, frozen=True):
    """What is kept of a job: ``finished_us`` (None: it is not over), the moment of its last upload (None: it
    has no files), whether its files are listed, and whether there are lines that it printed."""

    finished_us: int | None
    uploaded_us: int | None
    listed: bool
    lines: bool


def kept(connection: sa.Connection, job_id: str) -> Kept | None:
    """What is kept of a job; None: there is no such job."""
    row = one(connection, sa.select(jobs).where(jobs.c.id == job_id))
    if row is None:
        return None
    newest = sa.func.max(sa.func.coalesce(artifacts.c.stored_us, artifacts.c.allowed_us))
    uploaded = connection.execute(sa.select(newest).where(artifacts.c.job_id == job_id)).scalar()
    line = connection.execute(sa.select(events.c.seq).where(_printed(row)).limit(1)).scalar()
    over = row["state"] in TERMINAL
    return Kept(
        (row["finished_us"] or row["created_us"]) if over else None,
        uploaded,
        row["manifest_us"] is not None,
        line is not None,
    )


def hide(tx: Tx, job_id: str) -> None:
    """A job's files are no longer to be had."""
    tx.connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(manifest_us=None))


def forget(tx: Tx, job_id: str) -> None:
    """A job's files are gone."""
    tx.connection.execute(sa.delete(artifacts).where(artifacts.c.job_id == job_id))


def forget_lines(tx: Tx, job_id: str, limit: int) -> int:
    """Drop lines that a job printed, oldest first; returns how many."""
    row = one(tx.connection, sa.select(jobs).where(jobs.c.id == job_id))
    if row is None:
        return 0
    oldest = sa.select(events.c.seq).where(_printed(row)).order_by(events.c.seq).limit(limit)
    found = list(tx.connection.scalars(oldest))
    if found:
        tx.connection.execute(
            sa.delete(events).where(_printed(row), events.c.seq.between(found[0], found[-1]))
        )
    return len(found)


def _printed(job: Row) -> sa.ColumnElement[bool]:
    """What the tasks of a job printed."""
    return sa.and_(events.c.task_id.in_(tasks_of(job)), events.c.name == "node.console")
