"""Tasks, their executions and their items, as rows.

Decides: nothing. Never: moves a state (``tx`` does).
Follows: rows come in the order in which they were made, never by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain import task as t
from sky.store.prepared import Prepared, places, prepared
from sky.store.schema import IS_ON_NODE, executions, items, tasks
from sky.store.sql import Row, insert_ignore, many, one
from sky.store.tx import Tx


def find(connection: sa.Connection, task_id: str) -> Row | None:
    """The task with that id."""
    return one(connection, _TASK, {"b_id": task_id})


def executions_of(connection: sa.Connection, task_id: str) -> list[Row]:
    """A task's executions in the order they were made."""
    query = sa.select(executions).where(executions.c.task_id == task_id).order_by(executions.c.ordinal)
    return many(connection, query)


def executions_by_id(connection: sa.Connection, ids: Sequence[str]) -> list[Row]:
    """Those executions."""
    return many(connection, sa.select(executions).where(executions.c.id.in_(list(ids))))


def last_ordinal(connection: sa.Connection, task_id: str) -> int:
    """The ordinal of a task's newest execution."""
    query = sa.select(sa.func.max(executions.c.ordinal)).where(executions.c.task_id == task_id)
    return connection.execute(query).scalar_one()


def siblings(connection: sa.Connection, ids: Sequence[str]) -> list[Row]:
    """Every execution of the tasks that those executions belong to, by task and ordinal."""
    return many(connection, _SIBLINGS, {"ids": list(ids)})


def worlds(connection: sa.Connection, ids: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The ranks that each of those broadcast tasks was sent to, in order."""
    found: dict[str, set[int]] = {}
    for row in many(connection, _WORLDS, {"ids": list(ids)}):
        found.setdefault(row["task_id"], set()).add(row["wanted_rank"])
    return {task: tuple(sorted(ranks)) for task, ranks in found.items()}


def on_node(tx: Tx, node_id: str, limit: int) -> list[Row]:
    """What is at a node or in its mailbox, with what its agent must know of it."""
    return _remembered(tx, _ON_NODE.all(tx.connection, {"b_node": node_id, "b_limit": limit}))


def at_node(tx: Tx, node_id: str, ids: Sequence[str]) -> dict[str, Row]:
    """Those executions, as far as they are that node's."""
    rows = _ABOUT.all(tx.connection, {"ids": list(ids), "b_node": node_id})
    return {row["id"]: row for row in _remembered(tx, rows)}


def _remembered(tx: Tx, rows: list[Row]) -> list[Row]:
    """Executions that were read with their tasks: whatever moves them next need not read them again."""
    tx.remember("executions", rows)
    tx.remember("tasks", ({name: row[label] for name, label in _OF_ITS_TASK.items()} for row in rows))
    return rows


def consume(tx: Tx, task_id: str, count: int) -> bool:
    """A reader has taken the items before ``count``; False when that was known."""
    statement = sa.update(tasks).where(tasks.c.id == task_id, tasks.c.consumed < count).values(consumed=count)
    return tx.connection.execute(statement).rowcount == 1


def nodes_at_work(connection: sa.Connection, task_id: str) -> list[str]:
    """Ids of the nodes that were handed an execution of that task and have not answered."""
    query = sa.select(executions.c.node_id).where(
        executions.c.task_id == task_id, executions.c.state.in_(sorted(t.HANDED_OUT))
    )
    return [row.node_id for row in connection.execute(query)]


def add_items(tx: Tx, found: Sequence[Mapping[str, Any]]) -> None:
    """Keep what generators yielded, each place once."""
    _ADD_ITEMS.run(tx.connection, *found)


def note_late(tx: Tx, execution_id: str, note: Mapping[str, Any]) -> None:
    """Keep the first report that came after an execution was over."""
    statement = sa.update(executions).where(
        executions.c.id == execution_id, executions.c.late_report.is_(None)
    )
    tx.connection.execute(statement.values(late_report=dict(note)))


_TASK = prepared(sa.select(tasks).where(tasks.c.id == sa.bindparam("b_id")))
_ADD_ITEMS = Prepared(
    lambda dialect, _: insert_ignore(dialect, items, ["execution_id", "index", "value_sha256"])
)
_OF_TASK = sa.select(
    executions.c.task_id,
    executions.c.place,
    executions.c.state,
    executions.c.rank,
    executions.c.result_sha256,
).order_by(executions.c.task_id, executions.c.ordinal)


def _same_task(count: int) -> sa.Select[Any]:
    return sa.select(executions.c.task_id).where(executions.c.id.in_(places("ids", count)))


_SIBLINGS = Prepared(lambda _, count: _OF_TASK.where(executions.c.task_id.in_(_same_task(count))), "ids")
_PLACES = sa.select(executions.c.task_id, executions.c.wanted_rank).where(
    executions.c.wanted_rank.is_not(None)
)
_WORLDS = Prepared(lambda _, count: _PLACES.where(executions.c.task_id.in_(places("ids", count))), "ids")
_WITH_TASK = executions.join(tasks, tasks.c.id == executions.c.task_id)
_OF_ITS_TASK = {
    "id": "task_id",
    "compute_id": "compute_id",
    "state": "task_state",
    "version": "task_version",
    "seq": "task_seq",
    "owner": "owner",
    "correlation_id": "correlation_id",
}
"""What ``Tx.apply`` needs of a task, by the names under which it is read beside an execution."""
_FOR_MOVES = (
    executions.c.id,
    executions.c.seq,
    executions.c.state,
    executions.c.version,
    executions.c.compute_id,
    executions.c.task_id,
    executions.c.node_id,
    tasks.c.state.label("task_state"),
    tasks.c.version.label("task_version"),
    tasks.c.seq.label("task_seq"),
    tasks.c.owner,
    tasks.c.correlation_id,
)
_ON_NODE = prepared(
    sa.select(
        *_FOR_MOVES,
        executions.c.ordinal,
        tasks.c.function_sha256,
        tasks.c.args_sha256,
        tasks.c.dispatch,
        tasks.c.deadline_us,
        tasks.c.consumed,
    )
    .select_from(_WITH_TASK)
    .where(executions.c.node_id == sa.bindparam("b_node"), IS_ON_NODE)
    .order_by(executions.c.seq)
    .limit(sa.bindparam("b_limit"))
)
_ABOUT_COLUMNS = (
    sa.select(
        *_FOR_MOVES,
        executions.c.place,
        executions.c.started_us,
        tasks.c.dispatch,
        tasks.c.deadline_us,
        tasks.c.cancel_requested_us,
        tasks.c.safe_retries,
        tasks.c.ambiguous_retries,
    )
    .select_from(_WITH_TASK)
    .where(executions.c.node_id == sa.bindparam("b_node"))
)
_ABOUT = Prepared(lambda _, count: _ABOUT_COLUMNS.where(executions.c.id.in_(places("ids", count))), "ids")
