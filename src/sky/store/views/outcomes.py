"""How tasks ended: one task's result, a correlation's outcomes, and a generator's items.

Decides: what travels inline (small results) and what is named by its hash. Never: waits.
Follows: whoever waits asks again after each knock, from the place where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from sky.domain.task import UNDONE
from sky.store.blobs import inline_of
from sky.store.schema import executions, items, tasks
from sky.store.views import tasks as views
from sky.wire import v1
from sky.wire.error import Error

OUTCOMES_MAX = 1_000

_OUTCOMES: Any = (
    sa.select(tasks.c.id, tasks.c.state, tasks.c.outcome_seq, tasks.c.result_sha256)
    .where(
        tasks.c.correlation_id == sa.bindparam("b_correlation"), tasks.c.outcome_seq > sa.bindparam("b_after")
    )
    .order_by(tasks.c.outcome_seq)
    .limit(sa.bindparam("b_limit"))
)
_OPEN: Any = sa.select(sa.func.count()).where(
    tasks.c.correlation_id == sa.bindparam("b_correlation"), tasks.c.outcome_seq.is_(None)
)


class Ended(Struct, frozen=True):
    """How a task ended. ``sha256`` names its result, or the pickled exception of one that failed."""

    task_id: str
    state: str
    sha256: str | None
    content: bytes | None
    error: Error | None
    node_id: str | None
    console_lines: int


def ending(connection: sa.Connection, task_id: str) -> Ended | None:
    """How a task ended; None while it has not. Raises NotFound."""
    task = views.task_row(connection, task_id)
    if not views.ended(task):
        return None
    tried = views.attempts(connection, [task_id])[task_id]
    speaker = views.deciding(task, tried)
    sha256 = _hash(task, speaker)
    content = inline_of(connection, [sha256]).get(sha256) if sha256 else None
    return Ended(
        task_id=task_id,
        state=task["state"],
        sha256=sha256,
        content=content,
        error=views.error_in(speaker),
        node_id=None if speaker is None else speaker["node_id"],
        console_lines=views.console_lines(tried),
    )


def page(connection: sa.Connection, correlation_id: str, after: int, limit: int) -> v1.TaskOutcomePage:
    """The outcomes of a correlation after a cursor, in the order they came."""
    asked = {"b_correlation": correlation_id, "b_after": after, "b_limit": limit}
    rows = connection.execute(_OUTCOMES, asked).mappings().all()
    left = connection.execute(_OPEN, {"b_correlation": correlation_id}).scalar_one()
    if not rows:
        return v1.TaskOutcomePage(items=(), next_cursor=after, open=left)
    tried = views.attempts(connection, [row["id"] for row in rows])
    spoken = {row["id"]: views.deciding(row, tried[row["id"]]) for row in rows}
    hashes = {row["id"]: _hash(row, spoken[row["id"]]) for row in rows}
    contents = inline_of(connection, [name for name in hashes.values() if name])
    found = tuple(
        v1.TaskOutcome(
            task=row["id"],
            state=row["state"],
            seq=row["outcome_seq"],
            result=contents.get(hashes[row["id"]] or ""),
            result_sha256=hashes[row["id"]],
            error=views.error_in(speaker := spoken[row["id"]]),
            node_id=None if speaker is None else speaker["node_id"],
            seconds=views.seconds(speaker),
            console_lines=views.console_lines(tried[row["id"]]),
        )
        for row in rows
    )
    return v1.TaskOutcomePage(items=found, next_cursor=found[-1].seq, open=left)


def _hash(task: views.Row, speaker: views.Row | None) -> str | None:
    """The content that tells the outcome: the result, or the pickled exception of a failure."""
    if task["result_sha256"] is not None:
        return task["result_sha256"]
    error = views.error_in(speaker)
    return None if error is None else (error.details or {}).get("payload_sha256")


# ── generators ──────────────────────────────────────────────────────────────────────────────────


class StreamRow(Struct, frozen=True):
    """A generator's task: whether it has one, and how far it is."""

    dispatch: str
    done: bool
    execution_id: str | None
    consumed: int


class ItemRow(Struct, frozen=True):
    """One item: its place, its hash, and its bytes where they are small."""

    index: int
    sha256: str
    content: bytes | None


def stream(connection: sa.Connection, task_id: str) -> StreamRow:
    """What is known of a task as a stream. Raises NotFound."""
    task = views.task_row(connection, task_id)
    newest = connection.execute(
        sa.select(executions.c.id)
        .where(executions.c.task_id == task_id)
        .order_by(executions.c.ordinal.desc())
        .limit(1)
    ).scalar()
    return StreamRow(task["dispatch"], task["state"] not in UNDONE, newest, task["consumed"])


def stream_items(connection: sa.Connection, execution_id: str, start: int, limit: int) -> Sequence[ItemRow]:
    """Items of an execution from the place ``start``, in order."""
    rows = connection.execute(
        sa.select(items.c.index.label("place"), items.c.value_sha256)
        .where(items.c.execution_id == execution_id, items.c.index >= start)
        .order_by(items.c.index)
        .limit(limit)
    ).all()
    contents = inline_of(connection, [row.value_sha256 for row in rows])
    return [ItemRow(row.place, row.value_sha256, contents.get(row.value_sha256)) for row in rows]
