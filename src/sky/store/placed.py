"""What a database says is kept in buckets, for whoever copies it or puts a copy back.

Decides: what has to be there: content whose row has a place, and the files that a paid job offers. Never:
asks a bucket. Follows: files that a job still uploads, or that are being removed, are not among it.
"""

from __future__ import annotations

import sqlalchemy as sa
from msgspec import Struct

from sky.domain.artifact import key_of
from sky.store.engine import make_engine
from sky.store.rows.artifacts import file_of
from sky.store.schema import blobs
from sky.store.schema_jobs import artifacts, jobs
from sky.store.sql import many


class Placed(Struct, frozen=True):
    """Bytes by name: of content, and by key: of the files of jobs, wherever those are kept."""

    content: dict[str, int]
    files: dict[str, int]


def placed(url: str) -> Placed:
    """What the database at ``url`` names."""
    engine = make_engine(url, writer=False)
    content = sa.select(blobs.c.place, blobs.c.size_bytes).where(blobs.c.place.is_not(None))
    files = (
        sa.select(artifacts)
        .join(jobs, jobs.c.id == artifacts.c.job_id)
        .where(artifacts.c.stored_us.is_not(None), jobs.c.manifest_us.is_not(None))
    )
    try:
        with engine.connect() as connection, connection.begin():
            named = {row.place: int(row.size_bytes) for row in connection.execute(content)}
            found = [file_of(row) for row in many(connection, files)]
            return Placed(named, {key_of(one): one.size for one in found})
    finally:
        engine.dispose()
