"""What a reader of events asks for, as rows know it.

Decides: what a filter's references mean, and whether a cursor can still be served.
Never: follows the stream (``store/events`` does). Follows: a reader is told at once when it cannot be served.
"""

from __future__ import annotations

import sqlalchemy as sa

from sky.domain.errors import CursorExpired, InvalidRequest
from sky.store.events import Filter, first_seq, last_seq
from sky.store.schema import tasks
from sky.store.views.computes import missing, resolve


def filter_of(
    connection: sa.Connection, compute: str | None, task: str | None, names: frozenset[str]
) -> Filter:
    """The filter, with a compute's name resolved. Raises NotFound."""
    compute_id = None if compute is None else resolve(connection, compute)
    if task is not None:
        found = connection.execute(sa.select(tasks.c.id).where(tasks.c.id == task)).scalar()
        if found is None:
            raise missing("task", task)
    return Filter(compute_id, task, names)


def start_of(connection: sa.Connection, after: int | None, wanted: Filter) -> int:
    """The cursor to replay after.

    Without one: everything that is kept for a reader of one compute or task, and only what is new for a
    reader of all. Raises InvalidRequest for a cursor from the future, CursorExpired for one whose events
    are gone.
    """
    last = last_seq(connection)
    if after is None:
        return max(0, first_seq(connection) - 1) if wanted.compute_id or wanted.task_id else last
    if after > last:
        raise InvalidRequest(
            f"the cursor {after} is ahead of the newest event, {last}",
            details={"field": "after", "value": after, "expected": f"0 to {last}"},
        )
    first = first_seq(connection) or last + 1
    if first > after + 1:
        raise CursorExpired(
            f"events after {after} are no longer kept; the oldest cursor that can be served is {first - 1}",
            details={"after": after, "oldest": first - 1},
        )
    return after
