"""What a cluster needs next: its state, its jobs in their order, and its end when nobody uses it.

Decides: when a job's files are brought, its setup runs and its script runs; that a node that fails ends its
job on all; when an idle cluster is stopped or taken down. Never: moves a machine.
Follows: planning twice changes nothing; a cluster whose machines cannot be reached is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sky.domain import cluster as k
from sky.domain import cluster_job as j
from sky.domain import compute as c
from sky.domain import task as t
from sky.domain.cluster import ClusterView, JobView
from sky.domain.job import StepView
from sky.domain.lifecycle import Fact
from sky.plan.decision import Decision, earliest

JOBS_AT_ONCE_MAX = 4
"""Jobs without GPUs that run on a cluster at the same time."""
UNKNOWN = "JobError"
"""What an error is called where a step ended without a word of its own."""
LOOK_AGAIN_US = 500_000
"""How soon it is looked again at what is told by no fact of a cluster's compute or of its tasks."""


class Bring(Struct, frozen=True):
    """Have a job's files brought to its nodes."""

    job_id: str


class SetUp(Struct, frozen=True):
    """Have a job's setup run on its nodes."""

    job_id: str


class Run(Struct, frozen=True):
    """Have a job's script run on its nodes."""

    job_id: str


class StopTasks(Struct, frozen=True):
    """Have a job's tasks stopped; ``error`` says why, None: somebody cancelled it."""

    job_id: str
    error: Any


class TakeDown(Struct, frozen=True):
    """Give the cluster's machines back, and its disks."""


class Stop(Struct, frozen=True):
    """Give the cluster's machines back, and keep its disks."""


class Want(Struct, frozen=True):
    """Have its compute want so many machines: somebody else has changed how many it wants."""

    count: int


Action = Bring | SetUp | Run | StopTasks | TakeDown | Stop | Want | Fact


def plan(view: ClusterView, now_us: int) -> Decision[Action]:
    """The next thing to do for ``view``: at most one."""
    if view.state == k.DOWN:
        if view.compute_state in c.ACCEPTING | {c.FAILED}:
            return _do(TakeDown(), "it is down, and its machines are there")
        return _wait("it is down")
    if view.compute_state in (None, c.DELETING, c.DELETED):
        return _gone(view, now_us)
    due = 0 if view.state in (k.STOPPING, k.STOPPED) else view.num_nodes
    if view.wanted not in (None, c.Bounds(due, due, due)):
        may = f"{view.wanted.low} to {view.wanted.high}"
        return _do(Want(due), f"its compute may have {may} nodes, and it is {view.state} with {due}")
    if view.state == k.STOPPING:
        if view.machines == 0:
            return _do(k.ClusterStopped(view.id), "its machines are gone")
        return _wait("its machines are being given back", now_us + LOOK_AGAIN_US)
    if view.state == k.STOPPED:
        return _wait("it is stopped")
    ready = view.compute_state == c.READY and view.ready >= view.num_nodes
    if view.state == k.INIT and ready:
        return _do(k.ClusterUp(view.id, now_us), "its machines are ready")
    if view.state == k.UP and not ready:
        why = f"its compute is {view.compute_state}, with {view.ready} of {view.num_nodes} nodes"
        return _do(k.ClusterImpaired(view.id), why)
    return _jobs(view, now_us)


def _gone(view: ClusterView, now_us: int) -> Decision[Action]:
    for job in view.jobs:
        error = {"type": "ClusterDoesNotExist", "message": "its cluster was taken down"}
        return _do(j.JobCancelled(job.id, now_us, error=error), "its cluster is gone")
    return _do(k.ClusterDown(view.id, now_us), "its compute is gone")


def _jobs(view: ClusterView, now_us: int) -> Decision[Action]:
    again: int | None = None
    next_one = next((job.id for job in view.jobs if job.state == j.PENDING), None)
    for job in view.jobs:
        if job.state == j.PENDING and job.id != next_one:
            continue  # those before it that wait go first
        action = _job(view, job, now_us)
        if action is not None:
            return _do(action, f"job {job.number} is {job.state}", now_us)
        if job.state in (j.SETTING_UP, j.RUNNING):
            again = now_us + LOOK_AGAIN_US if job.stopping else again
    if view.jobs and view.idling.wait != k.NOTHING:
        return _wait(f"{view.under_way} jobs are under way", again)
    return _idle(view, now_us, again)


def _job(view: ClusterView, job: JobView, now_us: int) -> Action | None:
    if job.state == j.INIT:
        if view.state != k.UP:
            return None
        if job.brings:
            return Bring(job.id)
        return SetUp(job.id) if job.sets_up else j.JobQueued(job.id)
    if job.state == j.SETTING_UP:
        return _setting_up(view, job, now_us)
    if job.state == j.PENDING:
        return Run(job.id) if view.state == k.UP and _has_room(view, job) else None
    return _running(job, now_us)


def _has_room(view: ClusterView, job: JobView) -> bool:
    """Whether a job may run now, beside those that do."""
    if job.num_nodes > view.ready:
        return False
    running = [other for other in view.jobs if other.state == j.RUNNING]
    if job.gpus:
        return job.gpus + sum(other.gpus for other in running) <= max(view.gpus, job.gpus)
    return len(running) < JOBS_AT_ONCE_MAX


def _setting_up(view: ClusterView, job: JobView, now_us: int) -> Action | None:
    setup = f"the setup of job {job.number} on cluster {view.name!r}"
    for steps, what in ((job.bring, "bringing its files"), (job.setup, setup)):
        if not steps:
            continue
        bad = _bad(steps)
        if bad is not None and not all(step.state in t.DONE for step in steps):
            return None if job.stopping else StopTasks(job.id, _of_step(view, job, bad, what))
        if not all(step.state in t.DONE for step in steps):
            return None
        if job.stopping and job.stop_error is None:
            return j.JobCancelled(job.id, now_us)
        if bad is not None or job.stopping:
            error = job.stop_error or (None if bad is None else _of_step(view, job, bad, what))
            own = steps is job.setup and not _is_unknown(error)
            kind = j.JobFailedSetup if own else j.JobFailedDriver
            return kind(job.id, now_us, _codes(steps), error)
    if job.sets_up and not job.setup:
        return SetUp(job.id)
    return j.JobQueued(job.id)


def _running(job: JobView, now_us: int) -> Action | None:
    bad = _bad(job.run)
    over = all(step.state in t.DONE for step in job.run)
    if not over:
        return StopTasks(job.id, _error(bad, "its script")) if bad is not None and not job.stopping else None
    codes = _codes(job.run)
    if job.stopping and job.stop_error is None:
        return j.JobCancelled(job.id, now_us, codes)
    error = job.stop_error or (None if bad is None else _error(bad, "its script"))
    if error is None:
        return j.JobSucceeded(job.id, now_us, codes)
    kind = j.JobFailedDriver if _is_unknown(error) else j.JobFailed
    return kind(job.id, now_us, codes, error)


def _bad(steps: Sequence[StepView]) -> StepView | None:
    """The first step that did not end with 0."""
    for step in steps:
        if step.state not in t.DONE:
            continue
        if step.state != t.SUCCEEDED or step.failed is not None or _code(step) not in (0, None):
            return step
    return None


def _code(step: StepView) -> int | None:
    return None if step.result is None else step.result.get("exit_code")


def _codes(steps: Sequence[StepView]) -> list[int | None]:
    return [_code(step) for step in steps]


def _of_step(view: ClusterView, job: JobView, step: StepView, what: str) -> dict[str, Any]:
    """The same for one whose end is told to whoever launched the job, with where its output is: what a
    setup prints is in the log of its job, and a launch that fails in it never came to follow that."""
    error = _error(step, what)
    prints = step in job.setup and not _is_unknown(error)
    more = f"; `sky logs {view.name} {job.number}` shows what it printed" if prints else ""
    return {**error, "message": f"{error['message']}{more}"}


def _error(step: StepView, what: str) -> dict[str, Any]:
    code = _code(step)
    if step.failed is not None:
        return {"type": "CommandError", "message": f"{what}: {step.failed['message']}"}
    if code is not None:
        return {"type": "CommandError", "message": f"{what} ended with {code}", "returncode": code}
    why = step.message or f"its task is {step.state}"
    return {"type": UNKNOWN, "message": f"nobody knows how {what} ended, or whether it did: {why}"}


def _is_unknown(error: dict[str, Any] | None) -> bool:
    """Whether a step has no end of its own: then the job has not failed by itself."""
    return error is not None and error["type"] == UNKNOWN


def _idle(view: ClusterView, now_us: int, again_us: int | None) -> Decision[Action]:
    idling = view.idling
    if idling.minutes < 0 or view.state != k.UP:
        return _wait(f"{view.under_way} jobs are under way" if view.jobs else "nothing runs on it", again_us)
    due_us = idling.since_us() + idling.minutes * k.MINUTE_US
    if now_us < due_us:
        return _wait("it is idle", earliest(due_us, again_us))
    return _do(TakeDown() if idling.down else Stop(), "it was idle for as long as it may")


def _do(action: Action, why: str, again_us: int | None = None) -> Decision[Action]:
    return Decision((action,), again_us, why)


def _wait(why: str, again_us: int | None = None) -> Decision[Action]:
    return Decision((), again_us, why)
