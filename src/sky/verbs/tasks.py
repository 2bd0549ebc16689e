"""Tasks as they are asked for: submit one or many, cancel, try again, read on.

Decides: what an ask writes. Never: chooses a node. Follows: an accepted call is a row with its first attempt,
its arguments and its event, or nothing at all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sky.domain import task as t
from sky.domain.errors import (
    ComputeNotConnected,
    DuplicationNotAcknowledged,
    NotFound,
    PayloadTooLarge,
    TaskNotRetryable,
)
from sky.kit import codec, ids
from sky.kit.clock import SECOND_US
from sky.store import blobs
from sky.store.rows import functions, nodes, tasks
from sky.store.specs import bounds_of
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import attempts, lookup
from sky.verbs.spec_rules import invalid
from sky.wire import v1


def submit(tx: Tx, body: v1.TaskCreate, *, owner: str | None = None) -> str:
    """Admit one call; returns its task's id. ``owner`` is an opaque key of whatever asked from inside."""
    compute = lookup.accepting_compute(tx, body.compute)
    _check_function(tx, body.function)
    args = _arguments(tx, [body], "args_inline")[0]
    ranks = _ranks(tx, compute, body)
    row = _row(tx, compute, body, args, rank=body.rank, dispatch=body.dispatch, owner=owner)
    tx.add("tasks", [row], event="task.queued")
    tx.add(
        "executions",
        [
            attempts.new_execution(
                tx, row["id"], compute["id"], ordinal=place + 1, place=place, wanted_rank=rank
            )
            for place, rank in enumerate(ranks)
        ],
    )
    if row["deadline_us"] is not None:
        tx.touch(f"attempts/{compute['id']}")
    return row["id"]


def submit_batch(tx: Tx, body: v1.TaskBatchCreate) -> list[str]:
    """Admit many calls of one function, all or none; returns their tasks' ids in order."""
    compute = lookup.accepting_compute(tx, body.compute)
    _check_function(tx, body.function)
    arguments = _arguments(tx, body.calls, "calls[{}].args_inline")
    rows = [_row(tx, compute, body, args) for args in arguments]
    tx.add("tasks", rows, event="task.queued")
    tx.add("executions", [attempts.new_execution(tx, row["id"], compute["id"]) for row in rows])
    if body.timeout_seconds is not None:
        tx.touch(f"attempts/{compute['id']}")
    return [row["id"] for row in rows]


def cancel(tx: Tx, task_id: str, confirm_us: int = t.CANCEL_CONFIRM_US) -> str:
    """Ask for a task's end; returns its id. What is over stays as it is.

    ``confirm_us``: how long the node of one that may have begun has to say that it stopped it.
    """
    task = lookup.task(tx, task_id)
    if task["state"] in t.DONE:
        return task_id
    tx.apply(t.TaskCancelRequested(task_id, tx.now_us))
    rows = tasks.executions_of(tx.connection, task_id)
    asked = [row["id"] for row in rows if row["state"] in t.AT_WORK]
    tx.apply(*(t.ExecutionCancelRequested(x, tx.now_us + confirm_us) for x in asked))
    error = attempts.error_value("cancelled", "it was cancelled before it began")
    certain = [row["id"] for row in rows if row["state"] in t.WAITING]
    attempts.end(tx, [t.ExecutionCancelled(x, tx.now_us, error=error) for x in certain])
    if asked:
        tx.touch(f"attempts/{task['compute_id']}")
    return task_id


def retry(tx: Tx, task_id: str, body: v1.ExecutionCreate) -> str:
    """A person's retry of a task that did not succeed: another attempt at each of its places, or at some."""
    task = lookup.task(tx, task_id)
    compute = lookup.accepting_compute(tx, task["compute_id"])
    if task["state"] not in t.DONE or task["state"] == t.SUCCEEDED:
        msg = f"task {task_id} is {task['state']}; only one that is over without success can be retried"
        raise TaskNotRetryable(msg, details={"state": task["state"]})
    newest = _newest(tx, task_id)
    chosen = [row for row in newest if row["state"] != t.SUCCEEDED]
    if body.ranks is not None:
        unknown = sorted(set(body.ranks) - {row["rank"] for row in newest})
        if unknown or not body.ranks:
            raise invalid(
                "ranks", unknown or [], f"ranks that the task ran on: {sorted({r['rank'] for r in newest})}"
            )
        chosen = [row for row in newest if row["rank"] in body.ranks]
    doubtful = [row["rank"] for row in chosen if row["state"] == t.INDETERMINATE]
    if doubtful and not body.acknowledge_duplication:
        msg = f"task {task_id} may have run already; to run it anyway, send acknowledge_duplication: true"
        raise DuplicationNotAcknowledged(msg, details={"ranks": doubtful})
    deadline = _deadline(tx, task["timeout_seconds"])
    tx.apply(t.TaskRetried(task_id, deadline_us=deadline))
    ordinal = max(row["ordinal"] for row in newest)
    tx.add(
        "executions",
        [
            attempts.new_execution(
                tx,
                task_id,
                compute["id"],
                ordinal=ordinal + 1 + index,
                place=row["place"],
                wanted_rank=row["wanted_rank"],
                retry_of=row["id"],
                retry_kind="person",
            )
            for index, row in enumerate(chosen)
        ],
    )
    if deadline is not None:
        tx.touch(f"attempts/{compute['id']}")
    return task_id


def consume(tx: Tx, task_id: str, count: int) -> None:
    """Note that a reader has taken the items before ``count``, so that the generator may go on."""
    if tasks.consume(tx, task_id, count):
        for node_id in tasks.nodes_at_work(tx.connection, task_id):
            tx.signal(f"mail/{node_id}")


def _check_function(tx: Tx, sha256: str) -> None:
    if not functions.use(tx, sha256):
        msg = f"no function {sha256} is registered; upload it with PUT /v1/functions/{sha256}"
        raise NotFound(msg, details={"function": sha256})


def _arguments(tx: Tx, calls: Sequence[v1.TaskCreate | v1.BatchCall], field: str) -> list[str]:
    """The hashes of the calls' arguments; inline ones are stored."""
    inline: list[tuple[str, bytes]] = []
    named: list[str] = []
    hashes: list[str] = []
    for index, call in enumerate(calls):
        where = field.format(index)
        if (call.args_inline is None) == (call.args_sha256 is None):
            given = "neither" if call.args_inline is None else "both"
            raise invalid(where, given, "exactly one of args_inline and args_sha256")
        if call.args_inline is not None:
            if len(call.args_inline) > v1.INLINE_ARGUMENT_BYTES_MAX:
                msg = (
                    f"{where}: {len(call.args_inline)} bytes, of {v1.INLINE_ARGUMENT_BYTES_MAX} at most; "
                    "upload them with PUT /v1/blobs/{sha256} and name them as args_sha256"
                )
                raise PayloadTooLarge(
                    msg, details={"field": where, "limit_bytes": v1.INLINE_ARGUMENT_BYTES_MAX}
                )
            sha256 = codec.sha256_hex(call.args_inline)
            inline.append((sha256, call.args_inline))
            hashes.append(sha256)
        elif call.args_sha256 is not None:
            named.append(call.args_sha256)
            hashes.append(call.args_sha256)
    for sha256 in dict.fromkeys(named):
        if blobs.use(tx, sha256) is None:
            msg = f"no blob {sha256} is stored; upload it with PUT /v1/blobs/{sha256}"
            raise NotFound(msg, details={"blob": sha256})
    blobs.store_inline(tx, inline)
    return hashes


def _ranks(tx: Tx, compute: Mapping[str, Any], body: v1.TaskCreate) -> list[int | None]:
    """Where the first attempts go: any node, one rank, or every rank that is ready now."""
    high = bounds_of(compute["spec"]).high
    if body.rank is not None and body.rank >= high:
        raise invalid("rank", body.rank, f"a rank of compute {compute['id']}: 0 to {high - 1}")
    if body.dispatch != "all":
        return [body.rank]
    if body.rank is not None:
        raise invalid("rank", body.rank, "no rank with dispatch: all, which goes to every node")
    ranks: list[int | None] = [*nodes.ready_ranks(tx.connection, compute["id"])]
    if not ranks:
        msg = f"compute {compute['id']} has no ready node to send the call to; wait until it is ready"
        raise ComputeNotConnected(msg, details={"compute": compute["id"], "state": compute["state"]})
    return ranks


def _row(
    tx: Tx,
    compute: Mapping[str, Any],
    body: v1.TaskCreate | v1.TaskBatchCreate,
    args_sha256: str,
    *,
    rank: int | None = None,
    dispatch: str = "one",
    owner: str | None = None,
) -> dict[str, Any]:
    spec = compute["spec"]
    default = spec["retry"]
    timeout = body.timeout_seconds or math.ceil(spec["options"]["default_compute_timeout"]) or None
    return {
        "id": ids.new("task"),
        "compute_id": compute["id"],
        "generation": compute["generation"],
        "function_sha256": body.function,
        "args_sha256": args_sha256,
        "dispatch": dispatch,
        "state": t.QUEUED,
        "version": 1,
        "rank": rank,
        "safe_retries": default["safe_retries"] if body.retry is None else body.retry.safe_retries,
        "ambiguous_retries": default["ambiguous_retries"]
        if body.retry is None
        else body.retry.ambiguous_retries,
        "timeout_seconds": timeout,
        "correlation_id": body.correlation_id,
        "owner": owner,
        "consumed": 0,
        "submitted_us": tx.now_us,
        "deadline_us": _deadline(tx, timeout),
    }


def _deadline(tx: Tx, timeout_seconds: int | None) -> int | None:
    return None if timeout_seconds is None else tx.now_us + timeout_seconds * SECOND_US


def _newest(tx: Tx, task_id: str) -> list[Row]:
    rows = tasks.executions_of(tx.connection, task_id)
    return list({row["place"]: row for row in rows}.values())
