"""What a paid job needs next.

Decides: when a machine is asked for, when each step begins, when more is held, and how the job ends.
Never: moves money or reads a clock. Follows: planning twice changes nothing; a job whose machine cannot be
reached is left alone; what is held always covers what has run.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sky.domain import compute as c
from sky.domain import job as j
from sky.domain import task as t
from sky.domain.job import JobView, StepView
from sky.domain.money import covered_us, hold_micro
from sky.plan.decision import Decision

EXTEND_AHEAD_US = 120_000_000
"""How long before a hold is used up more is held."""
STOP_AHEAD_US = 35_000_000
"""How long before a hold is used up a job is stopped that cannot be extended: a command gets 30 s to end."""
EXTEND_AGAIN_US = 10_000_000
AWAIT_AGAIN_US = 60_000_000
"""How soon a job that waits for others is looked at again if nobody tells of their end."""
BEGIN_AGAIN_US = 500_000
"""How soon it is looked at again whether a command has begun: that is told of an execution, which knows no
owner."""


class Provision(Struct, frozen=True):
    """Ask for a compute."""


class Prepare(Struct, frozen=True):
    """Have the node pull the image and the inputs."""

    placement: Any


class Run(Struct, frozen=True):
    """Have the node run the command."""


class Upload(Struct, frozen=True):
    """Have the node upload the outputs; the command ended at ``ended_us``."""

    ended_us: int
    exit_code: int | None


class Extend(Struct, frozen=True):
    """Hold so much more, for the time until ``covers_us``."""

    amount_micro: int


class Stop(Struct, frozen=True):
    """Cancel the command; the job then ends with ``error``."""

    error: Any


class Retry(Struct, frozen=True):
    """Begin again on another machine: this one was lost for ``error``. ``ended_us`` is when its meter
    stopped; None: the command had not begun."""

    ended_us: int | None
    error: Any


class Settle(Struct, frozen=True):
    """Resolve the hold."""


class TearDown(Struct, frozen=True):
    """Give the compute back."""


Action = (
    Provision
    | Prepare
    | Run
    | Upload
    | Extend
    | Stop
    | Retry
    | Settle
    | TearDown
    | j.JobRunning
    | j.JobRan
    | j.JobExhausted
    | j.Ended
)


def error(
    code: str, message: str, exit_code: int | None = None, *, cause: str | None = None
) -> dict[str, Any]:
    """Why a job ended, as it is kept and told; ``cause``: what its seller alone is told."""
    more = {"exit_code": exit_code, j.CAUSE: cause}
    return {"code": code, "message": message} | {
        name: value for name, value in more.items() if value is not None
    }


def plan(view: JobView, now_us: int) -> Decision[Action]:
    """The next thing to do for ``view`` at ``now_us``: at most one."""
    if view.state in j.TERMINAL:
        return _after(view)
    if view.state == j.QUEUED:
        return _queued(view, now_us)
    if view.compute_state not in c.ACCEPTING and view.ended_us is None:
        return _machine_gone(view, now_us)
    if view.state == j.PROVISIONING:
        return _provisioning(view, now_us)
    return _running(view, now_us)


def _queued(view: JobView, now_us: int) -> Decision[Action]:
    for job_id, state in view.after.items():
        if state in j.TERMINAL and state != j.SUCCEEDED:
            told = error(j.DEPENDENCY_FAILED, f"{job_id}, after which it was to run, is {state}")
            return _do(j.JobFailed(view.id, now_us, None, told), f"{job_id} is {state}")
    waited = [job_id for job_id, state in view.after.items() if state != j.SUCCEEDED]
    if waited:
        return _wait(f"it runs after {', '.join(waited)}", now_us + AWAIT_AGAIN_US)
    return _do(Provision(), "a compute is asked for")


def _provisioning(view: JobView, now_us: int) -> Decision[Action]:
    if view.prepare is None:
        if view.placement is None:
            return _wait(f"its compute is {view.compute_state}")
        return _do(Prepare(view.placement), "its machine is ready")
    if view.run is None:
        if view.prepare.state not in t.DONE:
            return _wait("image and inputs are pulled")
        if view.prepare.state == t.SUCCEEDED and not view.prepare.failed:
            return _do(Run(), "image and inputs are there")
        return _do(_unprepared(view, view.prepare, now_us), "image or inputs cannot be had")
    if view.run.started_us is not None:
        return _do(j.JobRunning(view.id, view.run.started_us), "its command runs")
    if view.run.state in t.DONE:
        return _do(_broken(view, view.run, now_us), "its command could not be started")
    return _wait("its command is about to run", now_us + BEGIN_AGAIN_US)


def _running(view: JobView, now_us: int) -> Decision[Action]:
    run = view.run
    if run is None or view.started_us is None:
        msg = f"job {view.id} runs, and has no task that does"
        raise RuntimeError(msg)
    if view.ended_us is not None:
        return _uploading(view, now_us)
    if run.state not in t.DONE:
        return _metered(view, view.started_us, now_us)
    ended_us = min(run.finished_us or now_us, now_us)
    if run.state != t.SUCCEEDED or run.result is None:
        return _do(_broken(view, run, now_us), f"its command is {run.state}")
    if run.failed:
        return _do(
            j.JobFailed(view.id, now_us, view.started_us, run.failed), "its command could not be started"
        )
    exit_code = run.result.get("exit_code")
    if run.result.get("timed_out"):
        told = error("max_runtime_exceeded", f"it ran for {view.max_runtime_seconds} s, as long as it may")
        return _do(j.JobFailed(view.id, now_us, ended_us, told), "it ran as long as it may")
    if view.outputs:
        return _do(Upload(ended_us, exit_code), "its command is over")
    return _do(_ended(view, exit_code, ended_us, now_us), "its command is over")


def _uploading(view: JobView, now_us: int) -> Decision[Action]:
    upload = view.upload
    if upload is not None and upload.state not in t.DONE and view.compute_state in c.ACCEPTING:
        return _wait("its outputs are uploaded")
    return _do(
        _ended(view, view.exit_code, view.ended_us, now_us), "its outputs are up, as far as they can be"
    )


def _ended(view: JobView, exit_code: int | None, ended_us: int | None, now_us: int) -> j.Ended:
    if view.stop_error is not None:
        return j.JobFailed(view.id, now_us, ended_us, view.stop_error)
    if exit_code == 0:
        lost = _lost_outputs(view.upload)
        if lost is not None:
            return j.JobFailed(view.id, now_us, ended_us, lost)
        return j.JobSucceeded(view.id, now_us, ended_us)
    why = ", for it used more memory than its machine has" if _out_of_memory(view.run) else ""
    told = error("command_failed", f"the command ended with {exit_code}{why}", exit_code)
    return j.JobFailed(view.id, now_us, ended_us, told)


def _lost_outputs(upload: StepView | None) -> Any:
    """Why outputs were not kept whole; None when they were, or there are none."""
    if upload is None or (upload.state == t.SUCCEEDED and not upload.failed):
        return None
    return upload.failed or error("upload_failed", upload.message or f"the upload is {upload.state}")


def _out_of_memory(run: StepView | None) -> bool:
    return run is not None and run.result is not None and bool(run.result.get("out_of_memory"))


def _metered(view: JobView, started_us: int, now_us: int) -> Decision[Action]:
    covered = covered_us(view.price_micro, view.held_micro)
    if view.stop_error is not None:
        return _wait("it is being stopped")
    if covered is None or view.held_micro >= hold_micro(view.price_micro, view.max_runtime_seconds):
        return _wait("its command runs, and all of it is held")
    until_us = started_us + covered - view.used_us
    if now_us >= until_us - STOP_AHEAD_US and view.exhausted_us is not None:
        return _do(
            Stop(error("balance_exhausted", "the balance could not cover more of its runtime")), "unpaid"
        )
    if view.asking:
        return _asking(until_us - STOP_AHEAD_US, now_us)
    if now_us < until_us - EXTEND_AHEAD_US:
        return _wait("its command runs", until_us - EXTEND_AHEAD_US)
    if view.exhausted_us is not None and now_us < view.exhausted_us + EXTEND_AGAIN_US:
        return _wait(
            "its balance is used up", min(view.exhausted_us + EXTEND_AGAIN_US, until_us - STOP_AHEAD_US)
        )
    left_micro = hold_micro(view.price_micro, view.max_runtime_seconds) - view.held_micro
    chunk_micro = hold_micro(view.price_micro, j.HOLD_SECONDS)
    return _do(Extend(min(left_micro, chunk_micro)), "more is held", now_us + EXTEND_AGAIN_US)


def _asking(stop_us: int, now_us: int) -> Decision[Action]:
    """The console that keeps its money has not said yet whether it holds more."""
    if now_us < stop_us:
        return _wait("its console is asked to hold more", stop_us)
    told = error("billing_unavailable", "whoever keeps its balance could not be asked to hold more in time")
    return _do(Stop(told), "its console does not answer")


def _machine_gone(view: JobView, now_us: int) -> Decision[Action]:
    """Its compute is over although the job is not."""
    if view.stop_error is not None:
        return _do(j.JobFailed(view.id, now_us, _alive(view, now_us), view.stop_error), "it was stopped")
    if view.state == j.RUNNING:
        gone = "its machine is gone"
        return _do(_lost(view, now_us, gone, view.compute_error), gone)
    told = error("placement_failed", "no machine could be had for it", cause=view.compute_error)
    return _do(j.JobFailed(view.id, now_us, None, told), "no machine can be had")


def _broken(view: JobView, step: StepView, now_us: int) -> j.Ended | Retry:
    """The command's task ended, and not by telling how the command went."""
    if view.stop_error is not None:
        ended = _alive(view, min(step.finished_us or now_us, now_us)) if view.started_us is not None else None
        return j.JobFailed(view.id, now_us, ended, view.stop_error)
    if step.state in (t.INDETERMINATE, t.FAILED) and step.code == "node_lost":
        return _lost(view, now_us, step.message or "its machine was lost")
    told = error("run_failed", step.message or f"the command's task is {step.state}")
    return j.JobFailed(view.id, now_us, _alive(view, min(step.finished_us or now_us, now_us)), told)


def _lost(view: JobView, now_us: int, why: str, cause: str | None = None) -> j.Ended | Retry:
    """Its machine is gone: begin again, where that was asked for and time is left, or end."""
    ended_us = _alive(view, now_us)
    told = error(j.PREEMPTED if view.interruptible else j.NODE_LOST, why, cause=cause)
    ran_us = 0 if view.started_us is None or ended_us is None else ended_us - view.started_us
    left_s = j.seconds_left(view.max_runtime_seconds, view.used_us + ran_us)
    if told["code"] in view.policy.codes and view.retries < view.policy.most and left_s > 0:
        return Retry(ended_us, told)
    if view.interruptible:
        return j.JobInterrupted(view.id, now_us, ended_us, told)
    return j.JobFailed(view.id, now_us, ended_us, told)


def _alive(view: JobView, now_us: int) -> int | None:
    """Until when a job that ran is metered: the last proof that its machine lived."""
    if view.started_us is None:
        return None
    return max(view.started_us, min(now_us, view.last_seen_us or view.started_us))


def _unprepared(view: JobView, step: StepView, now_us: int) -> j.Ended | Retry:
    if step.failed:
        return j.JobFailed(view.id, now_us, None, step.failed)
    if step.code == "node_lost":
        return _lost(view, now_us, step.message or "its machine was lost")
    told = error("placement_failed", step.message or f"pulling is {step.state}")
    return j.JobFailed(view.id, now_us, None, told)


def _after(view: JobView) -> Decision[Action]:
    if view.settled_us is None and not view.elsewhere:
        return _do(Settle(), "it is over, and its hold stands")
    if view.compute_state not in (None, c.DELETING, c.DELETED):
        return _do(TearDown(), "it is over, and its machine is there")
    if view.settled_us is None:
        return _wait("it is over; its console is told what it cost")
    return _wait("it is over and settled")


def _do(action: Action, why: str, again_us: int | None = None) -> Decision[Action]:
    return Decision((action,), again_us, why)


def _wait(why: str, again_us: int | None = None) -> Decision[Action]:
    return Decision((), again_us, why)
