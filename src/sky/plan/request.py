"""What a request that takes its time needs next.

Decides: when it has its result, or its error. Never: writes either.
Follows: a request waits for the facts of its cluster and of its job, and for nothing else; a launch that
finds no machines fails with the reason, or waits and is tried again where that was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sky.domain import cluster as k
from sky.domain import cluster_job as j
from sky.domain import compute as c
from sky.domain import request as r
from sky.domain.lifecycle import Fact
from sky.plan.decision import Decision

RETRY_US = 30_000_000
"""How long a launch waits before it looks for machines again."""


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request that was begun, with its cluster and its job as they are now."""

    id: str
    name: str
    state: str
    again_us: int | None
    retry: bool
    cluster_state: str | None
    compute_state: str | None
    compute_error: str | None
    job_number: int | None
    job_state: str | None
    job_error: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Finish:
    """It has what it wanted."""


@dataclass(frozen=True, slots=True)
class Relaunch:
    """Ask for other machines in place of those that could not be had."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No machines can be had: the cluster goes, and the request fails."""

    error: dict[str, Any]


Action = Finish | Relaunch | GiveUp | Fact


def plan(view: RequestView, now_us: int) -> Decision[Action]:
    """The next thing to do for ``view``: at most one."""
    if view.name == "down":
        if view.cluster_state in (None, k.DOWN):
            return _do(Finish(), "its cluster is down")
        return _wait("its cluster is being taken down")
    if view.cluster_state in (None, k.DOWN):
        error = failure("ClusterDoesNotExist", "the cluster was taken down before this was done")
        return _do(r.RequestFailed(view.id, error, now_us), "its cluster is gone")
    if view.name == "stop":
        if view.cluster_state == k.STOPPED:
            return _do(Finish(), "its cluster is stopped")
        return _wait("its cluster is being stopped")
    if view.state == r.WAITING:
        if view.again_us is not None and now_us < view.again_us:
            return _wait("it waits for machines", view.again_us)
        return _do(Relaunch(), "machines are looked for again")
    if view.compute_state == c.FAILED and view.cluster_state == k.INIT:
        return _no_machines(view, now_us)
    if view.job_number is None:
        if view.cluster_state == k.UP:
            return _do(Finish(), "its cluster is up")
        return _wait(f"its cluster is {view.cluster_state}")
    return _job(view, now_us)


def _no_machines(view: RequestView, now_us: int) -> Decision[Action]:
    if view.retry:
        return _do(r.RequestWaiting(view.id, now_us + RETRY_US), "no machines; it is tried again")
    why = view.compute_error or "no provider has such machines now"
    return _do(GiveUp(failure("ResourcesUnavailableError", why)), "no machines can be had")


def _job(view: RequestView, now_us: int) -> Decision[Action]:
    if view.job_state in (j.FAILED_SETUP, j.FAILED_DRIVER) and view.job_error is not None:
        return _do(r.RequestFailed(view.id, view.job_error, now_us), f"its job is {view.job_state}")
    if view.job_state in (j.INIT, j.SETTING_UP):
        return _wait(f"its job is {view.job_state}")
    return _do(Finish(), "its job is queued")


def failure(kind: str, message: str, **details: Any) -> dict[str, Any]:
    """An error as it is kept."""
    return {"type": kind, "message": message, **({"details": details} if details else {})}


def _do(action: Action, why: str) -> Decision[Action]:
    return Decision((action,), None, why)


def _wait(why: str, again_us: int | None = None) -> Decision[Action]:
    return Decision((), again_us, why)
