"""How attempts end, and what that means for their tasks.

Decides: the writing side of an ending: the execution's fact, another attempt where one was granted, and the
task's outcome, all in one transaction. Never: whether an ending is due (a report, a plan or a person
says so).
Follows: a task's state always agrees with its newest attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sky.domain import task as t
from sky.domain.task import Ending
from sky.kit import ids
from sky.store.rows import tasks
from sky.store.tx import Tx


def error_value(code: str, message: str, *, retryable: bool = False, **details: Any) -> dict[str, Any]:
    """An error as it is stored on a row and served back."""
    return {"code": code, "message": message, "retryable": retryable, "details": details or None}


def new_execution(
    tx: Tx,
    task_id: str,
    compute_id: str,
    *,
    ordinal: int = 1,
    place: int = 0,
    wanted_rank: int | None = None,
    retry_of: str | None = None,
    retry_kind: str | None = None,
) -> dict[str, Any]:
    """The row of an attempt that waits for a node."""
    return {
        "id": ids.new("execution"),
        "task_id": task_id,
        "compute_id": compute_id,
        "ordinal": ordinal,
        "place": place,
        "rank": wanted_rank or 0,
        "wanted_rank": wanted_rank,
        "state": t.CREATED,
        "version": 1,
        "retry_of": retry_of,
        "retry_kind": retry_kind,
        "console_lines": 0,
        "items": 0,
        "created_us": tx.now_us,
    }


def end(
    tx: Tx,
    endings: Sequence[Ending],
    retries: Iterable[tuple[str, str]] = (),
    alone: Mapping[str, str] | None = None,
) -> None:
    """Apply ``endings`` (facts of executions); ``retries``: (execution id, kind) that get another attempt.

    ``alone``: tasks by those of their executions that are the only ones that count, so that nothing has to
    be read: the newest of a task that has one place.
    """
    tx.apply(*endings)
    again = dict(retries)
    if again:
        for row in tasks.executions_by_id(tx.connection, list(again)):
            # One after the other: several of one task's places may be lost at once, and each is counted.
            tx.add("executions", [retry_row(tx, row, again[row["id"]])])
    alone = {key: task for key, task in (alone or {}).items() if key not in again}
    single = [fact for fact in endings if fact.id in alone]
    outcomes = [t.outcome(alone[fact.id], [t.ended_as(fact)], tx.now_us) for fact in single]
    tx.apply(*(fact for fact in outcomes if fact is not None))
    settle(tx, [fact.id for fact in endings if fact.id not in alone])


def retry_row(tx: Tx, row: Any, kind: str) -> dict[str, Any]:
    """Another attempt at the place of an ended one."""
    last = tasks.last_ordinal(tx.connection, row["task_id"])
    return new_execution(
        tx,
        row["task_id"],
        row["compute_id"],
        ordinal=last + 1,
        place=row["place"],
        wanted_rank=row["wanted_rank"],
        retry_of=row["id"],
        retry_kind=kind,
    )


def settle(tx: Tx, execution_ids: Sequence[str]) -> None:
    """Give every task of those executions its outcome, if it has one now."""
    if not execution_ids:
        return
    newest: dict[tuple[str, int], t.Attempt] = {}
    for row in tasks.siblings(tx.connection, execution_ids):  # by ordinal: the newest of a place comes last
        attempt = t.Attempt(row["state"], row["rank"], row["result_sha256"])
        newest[row["task_id"], row["place"]] = attempt
    attempts: dict[str, list[t.Attempt]] = {}
    for (task_id, _place), attempt in newest.items():
        attempts.setdefault(task_id, []).append(attempt)
    facts = [t.outcome(task_id, found, tx.now_us) for task_id, found in attempts.items()]
    tx.apply(*(fact for fact in facts if fact is not None))


def end_indeterminate(tx: Tx, execution_ids: Sequence[str], message: str) -> None:
    """End attempts of which nobody can know any more how they went."""
    error = error_value("task_indeterminate", message)
    end(tx, [t.ExecutionIndeterminate(x, tx.now_us, error=error) for x in execution_ids])
