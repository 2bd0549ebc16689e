"""Functions as the faces show them.

Decides: their order, newest first. Never: reads their code.
Follows: a function is found by its hash alone; its name is for people.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.kit.clock import to_datetime
from sky.store.schema import functions
from sky.store.views.computes import missing
from sky.store.views.paging import cut, place_of
from sky.wire import v1

KIND = "functions"


def get(connection: sa.Connection, sha256: str) -> v1.Function:
    """One function."""
    row = connection.execute(sa.select(functions).where(functions.c.sha256 == sha256)).mappings().first()
    if row is None:
        raise missing("function", sha256)
    return _shown(row)


def page(connection: sa.Connection, *, cursor: str | None, limit: int) -> v1.FunctionPage:
    """Some functions, newest first."""
    query = sa.select(functions).order_by(functions.c.seq.desc()).limit(limit + 1)
    if (place := place_of(KIND, cursor)) is not None:
        query = query.where(functions.c.seq < place)
    rows = connection.execute(query).mappings().all()
    shown, following = cut(rows, limit, KIND, lambda row: row["seq"])
    return v1.FunctionPage(items=tuple(map(_shown, shown)), next_cursor=following)


def _shown(row: sa.RowMapping) -> v1.Function:
    return v1.Function(
        sha256=row["sha256"],
        codec=row["codec"],
        size_bytes=row["size_bytes"],
        created_at=to_datetime(row["created_us"]),
        name=row["name"],
    )
