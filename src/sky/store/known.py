"""Whether what is kept somewhere without a mark is what a database names.

Decides: which row each key in a bucket, and each path in a folder, belongs to. Never: asks a bucket or a
folder. Follows: a place of somebody else's is told from one of an older release of this installation, which
marked none: of that one the rows were there before the installation had a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from sky.domain.artifact import JOBS
from sky.store.schema import blobs
from sky.store.schema_jobs import jobs

CONTENT = "blobs/"


def are_its_own(connection: sa.Connection, keys: Sequence[str], named_us: int) -> bool:
    """Whether things with those keys are those of a database that got its name then: all of them are, or
    some have been before that."""
    wanted = {_thing(key) for key in keys}
    found = {
        (kind, name): created_us
        for kind, name_of in ((CONTENT, blobs.c.place), ("", blobs.c.sha256), (JOBS, jobs.c.id))
        for name, created_us in _rows(connection, name_of, [one for of, one in wanted if of == kind])
    }
    return wanted <= found.keys() or any(created_us < named_us for created_us in found.values())


def _thing(key: str) -> tuple[str, str]:
    """What a key of a bucket, or a path in a folder, is of: content in a bucket, in a folder, or a job."""
    if key.startswith(CONTENT):
        return CONTENT, key.removeprefix(CONTENT)
    if key.startswith(JOBS):
        return JOBS, key.removeprefix(JOBS).partition("/")[0]
    first, _, last = key.rpartition("/")
    if first and first == f"{last[:2]}/{last[2:4]}":
        return "", last
    return JOBS, key.partition("/")[0]


def _rows(
    connection: sa.Connection, name_of: sa.Column[str], names: Sequence[str]
) -> Iterable[tuple[str, int]]:
    if not names:
        return ()
    query = sa.select(name_of, name_of.table.c.created_us).where(name_of.in_(names))
    if name_of is blobs.c.sha256:
        query = query.where(blobs.c.place.is_(None), blobs.c.content.is_(None))
    return [(name, created_us) for name, created_us in connection.execute(query)]
