"""Tasks and their executions as the faces show them.

Decides: which execution speaks for a task, and what is told of its outcome. Never: reads a payload.
Follows: outcomes are ordered by the event that told them, so a reader that goes on from the last one it has
seen misses none and sees none twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain.task import DONE, SUCCEEDED, UNDONE
from sky.kit import codec
from sky.kit.clock import SECOND_US, to_datetime
from sky.store.prepared import prepared
from sky.store.schema import TASK_HAS_NO_RESULT, TASK_IS_UNDONE, executions, tasks
from sky.store.views.computes import missing
from sky.store.views.errors import error_of, moment
from sky.store.views.paging import WHOLE_LIST_MAX, cut, place_of
from sky.wire import v1
from sky.wire.error import Error

KIND = "tasks"

Row = Mapping[Any, Any]

_ATTEMPT = (
    *(c for c in executions.columns if c.name not in {"seq", "error", "late_report", "version"}),
    sa.cast(executions.c.error, sa.Text).label("error"),
)
_TASK = prepared(sa.select(tasks).where(tasks.c.id == sa.bindparam("b_id")))
_ATTEMPTS_OF_ONE = prepared(
    sa.select(*_ATTEMPT).where(executions.c.task_id == sa.bindparam("b_id")).order_by(executions.c.ordinal)
)
_ATTEMPTS_OF_MANY: Any = (
    sa.select(*_ATTEMPT)
    .where(executions.c.task_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(executions.c.ordinal)
)


def get(connection: sa.Connection, task_id: str) -> v1.Task:
    """One task with its executions."""
    row = task_row(connection, task_id)
    return _shown(row, attempts(connection, [task_id])[task_id])


def task_row(connection: sa.Connection, task_id: str) -> Row:
    """The row of a task, or NotFound."""
    found = _TASK.all(connection, {"b_id": task_id})
    if not found:
        raise missing("task", task_id)
    return found[0]


def attempts(connection: sa.Connection, task_ids: Sequence[str]) -> Mapping[str, list[Row]]:
    """The executions of tasks, each task's in the order they were made."""
    found: dict[str, list[Row]] = defaultdict(list)
    if len(task_ids) == 1:
        found[task_ids[0]] = [*_ATTEMPTS_OF_ONE.all(connection, {"b_id": task_ids[0]})]
    elif task_ids:
        for row in connection.execute(_ATTEMPTS_OF_MANY, {"ids": list(task_ids)}).mappings():
            found[row["task_id"]].append(row)
    return found


def page(
    connection: sa.Connection,
    *,
    cursor: str | None,
    limit: int,
    compute_id: str | None = None,
    state: str | None = None,
    correlation_id: str | None = None,
) -> v1.TaskPage:
    """Some tasks, newest first."""
    query = sa.select(tasks).order_by(tasks.c.seq.desc()).limit(limit + 1)
    if (place := place_of(KIND, cursor)) is not None:
        query = query.where(tasks.c.seq < place)
    for column, wanted in (
        (tasks.c.compute_id, compute_id),
        (tasks.c.state, state),
        (tasks.c.correlation_id, correlation_id),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    if state in UNDONE:  # and an index has them
        query = query.where(TASK_IS_UNDONE)
    elif state is not None and state != SUCCEEDED:
        query = query.where(TASK_HAS_NO_RESULT)
    rows = connection.execute(query).mappings().all()
    shown, following = cut(rows, limit, KIND, lambda row: row["seq"])
    found = attempts(connection, [row["id"] for row in shown])
    return v1.TaskPage(items=tuple(_shown(row, found[row["id"]]) for row in shown), next_cursor=following)


def execution(connection: sa.Connection, task_id: str, ordinal: int) -> v1.Execution:
    """One attempt of a task."""
    task_row(connection, task_id)
    row = (
        connection.execute(
            sa.select(*_ATTEMPT).where(executions.c.task_id == task_id, executions.c.ordinal == ordinal)
        )
        .mappings()
        .first()
    )
    if row is None:
        raise missing("execution", str(ordinal))
    return _attempt(row)


def execution_page(
    connection: sa.Connection, task_id: str, *, cursor: str | None, limit: int | None
) -> v1.ExecutionPage:
    """A task's attempts, in the order they were made."""
    task_row(connection, task_id)
    many = limit or WHOLE_LIST_MAX
    query = (
        sa.select(*_ATTEMPT)
        .where(executions.c.task_id == task_id)
        .order_by(executions.c.ordinal)
        .limit(many + 1)
    )
    if (place := place_of("executions", cursor)) is not None:
        query = query.where(executions.c.ordinal > place)
    rows = connection.execute(query).mappings().all()
    shown, following = cut(rows, many, "executions", lambda row: row["ordinal"])
    return v1.ExecutionPage(items=tuple(map(_attempt, shown)), next_cursor=following)


def deciding(task: Row, tried: Sequence[Row]) -> Row | None:
    """The execution that speaks for an ended task: the newest of its lowest rank in the task's state."""
    same = [row for row in tried if row["state"] == task["state"]] or list(tried)
    if not same:
        return None
    return min(same, key=lambda row: (row["rank"], -row["ordinal"]))


def console_lines(tried: Sequence[Row]) -> int:
    """How many lines of output all attempts wrote."""
    return sum(row["console_lines"] or 0 for row in tried)


# ── shapes ──────────────────────────────────────────────────────────────────────────────────────


def _shown(row: Row, tried: Sequence[Row]) -> v1.Task:
    return v1.Task(
        id=row["id"],
        compute_id=row["compute_id"],
        generation=row["generation"],
        function=row["function_sha256"],
        args_sha256=row["args_sha256"],
        dispatch=row["dispatch"],
        state=row["state"],
        retry=v1.RetryPolicy(safe_retries=row["safe_retries"], ambiguous_retries=row["ambiguous_retries"]),
        executions=tuple(map(_attempt, tried)),
        submitted_at=to_datetime(row["submitted_us"]),
        result_sha256=row["result_sha256"],
        correlation_id=row["correlation_id"],
        deadline_at=moment(row["deadline_us"]),
        finished_at=moment(row["finished_us"]),
    )


def _attempt(row: Row) -> v1.Execution:
    return v1.Execution(
        id=row["id"],
        ordinal=row["ordinal"],
        rank=row["rank"],
        state=row["state"],
        node_id=row["node_id"],
        retry_of=row["retry_of"],
        started_at=moment(row["started_us"]),
        finished_at=moment(row["finished_us"]),
        result_sha256=row["result_sha256"],
        error=error_in(row),
    )


def error_in(row: Row | None) -> Error | None:
    """Why an execution did not succeed."""
    if row is None or row["error"] is None:
        return None
    lost = row["state"] == "indeterminate"
    return error_of(codec.loads(row["error"]), "task_indeterminate" if lost else "task_failed")


def seconds(row: Row | None) -> float:
    """How long an execution ran."""
    if row is None or row["started_us"] is None or row["finished_us"] is None:
        return 0.0
    return max(0, row["finished_us"] - row["started_us"]) / SECOND_US


def ended(task: Row) -> bool:
    """Whether a task has its outcome."""
    return task["state"] in DONE


def succeeded(task: Row) -> bool:
    """Whether that outcome is a result."""
    return task["state"] == SUCCEEDED
