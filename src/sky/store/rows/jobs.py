"""Paid jobs and their events, as rows, and the snapshot that their plan reads.

Decides: nothing. Never: moves a state (``tx`` does).
Follows: a job's events are in the order in which they were written; what is in use is counted, not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from sky.domain.account import InUse
from sky.domain.job import CONSOLE, QUEUED, Event, JobView, StepView, policy_of
from sky.domain.money import to_micro
from sky.domain.offer import whereabouts
from sky.kit import codec, ids
from sky.store.prepared import Prepared, inserted, places, prepared
from sky.store.rows import ledger, webhooks
from sky.store.schema import blobs, computes, executions, nodes, tasks
from sky.store.schema_jobs import JOB_IS_LIVE, console_orders, job_after, job_events, jobs
from sky.store.sql import Row, one, total
from sky.store.tx import Tx


def find(connection: sa.Connection, job_id: str, owner: str | None = None) -> Row | None:
    """The job with that id, if it is ``owner``'s (None: whoever's)."""
    row = one(connection, _JOB, {"b_id": job_id})
    return row if row is None or owner in (None, row["owner"]) else None


def note(tx: Tx, job_id: str, owner: str, kind: Event, data: Mapping[str, Any] | None = None) -> None:
    """Add an event to a job's log."""
    row = {
        "id": ids.new("job_event"),
        "job_id": job_id,
        "owner": owner,
        "type": kind,
        "data": dict(data or {}),
        "at_us": tx.now_us,
    }
    _NOTE.run(tx.connection, row)
    for webhook_id in webhooks.listening(tx.connection, owner):
        tx.touch(f"webhooks/{webhook_id}")
    tx.signal(f"job/{job_id}")


def in_use(connection: sa.Connection, owner: str | None = None) -> InUse:
    """What of live jobs there is: of one owner, or of all (None)."""
    active = queued = 0
    gpus: dict[str, int] = {}
    rows = _IN_USE.all(connection, {}) if owner is None else _IN_USE_OF.all(connection, {"b_owner": owner})
    for row in rows:
        active += int(row["count"])
        queued += int(row["count"]) if row["state"] == QUEUED else 0
        gpus[row["tier"]] = gpus.get(row["tier"], 0) + int(row["gpus"] or 0)
    return InUse(active, queued, gpus)


def states_of(connection: sa.Connection, owner: str, job_ids: Sequence[str]) -> dict[str, str]:
    """The states of those jobs that are an owner's, by their ids."""
    found = _STATES.all(connection, {"b_owner": owner, "ids": job_ids})
    return {row["id"]: row["state"] for row in found}


def run_after(tx: Tx, job_id: str, after: Sequence[str]) -> None:
    """Note after which jobs a job runs."""
    _AFTER.run(tx.connection, *({"after_id": one, "job_id": job_id} for one in after))


def waiting_for(connection: sa.Connection, job_id: str) -> list[str]:
    """Ids of the jobs that run after that one."""
    return [row["job_id"] for row in _WAITING.all(connection, {"b_id": job_id})]


def tasks_of(row: Mapping[str, Any]) -> list[str]:
    """Every task that a job ever had, oldest first."""
    tasks = [task for one in row["past"] or () for task in one["tasks"]]
    now = (row[name] for name in ("prepare_task", "run_task", "upload_task"))
    return tasks + [task for task in now if task is not None]


def unsettled(connection: sa.Connection) -> list[str]:
    """Ids of the jobs whose hold may stand."""
    return list(connection.scalars(sa.select(jobs.c.id).where(jobs.c.settled_us.is_(None))))


def view(connection: sa.Connection, job_id: str) -> tuple[Row, JobView] | None:
    """A job's row, and all that its plan reads, in one snapshot."""
    row = find(connection, job_id)
    if row is None:
        return None
    compute = _compute(connection, row["compute_id"])
    node = None if row["compute_id"] is None else one(connection, _NODE, {"b_compute": row["compute_id"]})
    error = None if compute is None else compute["last_error"]
    run = step_of(connection, row["run_task"])
    return row, JobView(
        id=row["id"],
        state=row["state"],
        price_micro=row["price_micro"],
        held_micro=ledger.promised(connection, job_id),
        max_runtime_seconds=row["max_runtime_seconds"],
        interruptible=row["interruptible"],
        outputs=bool(row["spec"].get("outputs")),
        compute_state=None if compute is None else compute["state"],
        compute_error=None if error is None else error["message"],
        placement=_placement(node),
        last_seen_us=None if run is None else run.seen_us,
        prepare=step_of(connection, row["prepare_task"]),
        run=run,
        upload=step_of(connection, row["upload_task"]),
        started_us=row["started_us"],
        ended_us=row["ended_us"],
        exit_code=row["exit_code"],
        exhausted_us=row["exhausted_us"],
        stop_error=row["stop_error"],
        settled_us=row["settled_us"],
        elsewhere=row["backend"] == CONSOLE,
        asking=_ASKING.scalar(connection, {"b_id": job_id}) is not None,
        after=_awaited(connection, row),
        policy=policy_of(row["retry"]),
        retries=len(row["past"] or ()),
        used_us=row["used_us"] or 0,
    )


def _awaited(connection: sa.Connection, row: Row) -> dict[str, str]:
    """The states of the jobs after which a job runs that waits, in the order in which they were named."""
    if row["state"] != QUEUED or not row["after"]:
        return {}
    states = states_of(connection, row["owner"], row["after"])
    return {one: states[one] for one in row["after"]}


def _compute(connection: sa.Connection, compute_id: str | None) -> Row | None:
    if compute_id is None:
        return None
    return one(connection, _COMPUTE, {"b_id": compute_id})


def _placement(node: Row | None) -> dict[str, Any] | None:
    """Where a job's node is, once it is ready, what it costs, and what came before it, as its seller is told
    (``reason``) and as its customer is (``plain``)."""
    if node is None or node["state"] not in ("ready", "draining") or node["offer"] is None:
        return None
    offer: Mapping[str, Any] = node["offer"]
    binding: Mapping[str, Any] = node["binding"] or {}
    where = whereabouts(node["provider_kind"], offer, binding)
    hourly: float | None = binding.get("hourly_usd")
    return {
        **{name: known or "" for name, known in where.items()},
        "bought_from": [node["provider_kind"], offer.get("provider_name"), node["provider_id"]],
        "bought_in": offer.get("region"),
        "price_micro": node["price_micro"] if hourly is None else to_micro(hourly),
        "passed_over": [
            {"reason": entry["reason"], "plain": entry.get("plain")}
            for entry in node["passed_over"] or ()
            if entry["offer"] is not None or entry.get("earlier")
        ],
    }


def step_of(connection: sa.Connection, task_id: str | None) -> StepView | None:
    """One of a job's tasks, with what it returned or why it did not."""
    if task_id is None:
        return None
    task = one(connection, _TASK, {"b_id": task_id})
    if task is None:
        return None
    result = None
    if task["result_sha256"] is not None:
        content = _CONTENT.scalar(connection, {"b_sha256": task["result_sha256"]})
        result = None if content is None else codec.loads(bytes(content))
    error: Mapping[str, Any] = task["error"] or {}
    return StepView(
        state=task["state"],
        started_us=task["started_us"],
        finished_us=task["finished_us"],
        result=result,
        failed=None if result is None else result.get("failed"),
        code=error.get("code"),
        message=error.get("message"),
        seen_us=task["last_seen_us"],
    )


_JOB = prepared(sa.select(jobs).where(jobs.c.id == sa.bindparam("b_id")))
_COMPUTE = prepared(
    sa.select(computes.c.state, computes.c.last_error).where(computes.c.id == sa.bindparam("b_id"))
)
_LIVE_ONES = (
    sa.select(
        jobs.c.tier,
        jobs.c.state,
        sa.func.count().label("count"),
        total(jobs.c.gpu_count).label("gpus"),
    )
    .where(JOB_IS_LIVE)
    .group_by(jobs.c.tier, jobs.c.state)
)
_IN_USE = prepared(_LIVE_ONES)
_IN_USE_OF = prepared(_LIVE_ONES.where(jobs.c.owner == sa.bindparam("b_owner")))
_STATES = Prepared(
    lambda _, count: sa.select(jobs.c.id, jobs.c.state).where(
        jobs.c.owner == sa.bindparam("b_owner"), jobs.c.id.in_(places("ids", count))
    ),
    "ids",
)
_AFTER = inserted(job_after, ["after_id", "job_id"])
_WAITING = prepared(sa.select(job_after.c.job_id).where(job_after.c.after_id == sa.bindparam("b_id")))
_NOTE = inserted(job_events, ["id", "job_id", "owner", "type", "data", "at_us"])
_ASKING = prepared(sa.select(console_orders.c.ordinal).where(console_orders.c.job_id == sa.bindparam("b_id")))
_NODE = prepared(
    sa.select(
        nodes.c.id,
        nodes.c.state,
        nodes.c.provider_kind,
        nodes.c.provider_id,
        nodes.c.offer,
        nodes.c.binding,
        nodes.c.passed_over,
        nodes.c.price_micro,
    )
    .where(nodes.c.compute_id == sa.bindparam("b_compute"))
    .order_by(nodes.c.seq.desc())
    .limit(1)
)
_TASK = prepared(
    sa.select(
        tasks.c.state,
        tasks.c.result_sha256,
        executions.c.finished_us,  # when it ended on its node; its task is over when that is written down
        executions.c.started_us,
        executions.c.error,
        nodes.c.last_seen_us,
    )
    .select_from(
        tasks.join(executions, executions.c.task_id == tasks.c.id).join(
            nodes, nodes.c.id == executions.c.node_id, isouter=True
        )
    )
    .where(tasks.c.id == sa.bindparam("b_id"))
    .order_by(executions.c.ordinal.desc())
    .limit(1)
)
_CONTENT = prepared(sa.select(blobs.c.content).where(blobs.c.sha256 == sa.bindparam("b_sha256")))
