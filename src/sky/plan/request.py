"""What a request that takes its time needs next.

Decides: when it begins, where it has to wait for that; when it has its result, or its error. Never: writes
either. Follows: a request waits for the facts of its cluster and of its job, and for nothing else; a launch
or a start that finds no machines fails with the reason, or waits and is tried again where that was asked for.
What was begun is not begun again: a cluster that somebody else stops meanwhile stays stopped.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sky.domain import cluster as k
from sky.domain import cluster_job as j
from sky.domain import compute as c
from sky.domain import request as r
from sky.domain.cluster import Buying
from sky.domain.lifecycle import Fact
from sky.plan.decision import Decision
from sky.plan.node import PASSED_OVER_US

RETRY_US = 30_000_000
"""How long a launch waits before it looks for machines again."""
NOTHING_COMES_US = 5_000_000
"""How long nothing may be on its way before that means that there is nothing to be had. An offer that is
refused is followed by the next one within this time."""
GIVING_BACK_US = 60_000_000
"""How long a provider may refuse to take machines back before the one who asked is told."""


_UNDER_WAY = Buying(coming=True, moved_us=0, refused_until_us=0)


class RequestView(Struct, frozen=True):
    """A request that was begun, with its cluster and its job as they are now.

    ``jobs_running``: jobs of the cluster that were submitted before the request, and are at work;
    ``graceful_us``: for how long it waits for those, None: not at all. ``refused``: why a machine could not
    be given back.
    """

    id: str
    name: str
    state: str
    started_us: int
    again_us: int | None
    retry: bool
    cluster_state: str | None
    compute_state: str | None
    compute_error: str | None
    job_number: int | None
    job_state: str | None
    job_error: dict[str, Any] | None
    buying: Buying = _UNDER_WAY
    jobs_running: int = 0
    graceful_us: int | None = None
    purge: bool = False
    refused: str | None = None


class Finish(Struct, frozen=True):
    """It has what it wanted."""


class Relaunch(Struct, frozen=True):
    """Ask for other machines in place of those that could not be had."""


class Start(Struct, frozen=True):
    """Ask for the machines of a cluster that is stopped."""


class End(Struct, frozen=True):
    """Stop the cluster, or take it down, as the request says."""


class GiveUp(Struct, frozen=True):
    """No machines can be had: a cluster that was made for this goes, one that was started is stopped, and the
    request fails."""

    error: dict[str, Any]


Action = Finish | Relaunch | Start | End | GiveUp | Fact
NO_TIME = 10**18
"""A graceful time without an end, in microseconds."""


def plan(view: RequestView, now_us: int) -> Decision[Action]:
    """The next thing to do for ``view``: at most one."""
    if view.name in ("stop", "down"):
        return _ending(view, now_us)
    if view.cluster_state in (None, k.DOWN):
        error = failure("ClusterDoesNotExist", "the cluster was taken down before this was done")
        return _do(r.RequestFailed(view.id, error, now_us), "its cluster is gone")
    if view.state == r.WAITING:
        return _waiting(view, now_us)
    if view.job_number is not None and view.job_state in j.DONE:
        return _job(view, now_us)
    if view.cluster_state in (k.STOPPING, k.STOPPED):
        error = failure("ClusterNotUpError", "the cluster was stopped before this was done")
        return _do(r.RequestFailed(view.id, error, now_us), "its cluster was stopped")
    if view.cluster_state == k.INIT:
        if view.compute_state == c.FAILED:
            return _no_machines(view, now_us)
        if view.compute_state == c.DEGRADED:
            return _short(view, now_us)
    if view.job_number is None:
        if view.cluster_state == k.UP:
            return _do(Finish(), "its cluster is up")
        return _wait(f"its cluster is {view.cluster_state}")
    return _job(view, now_us)


# ── stop and down ───────────────────────────────────────────────────────────────────────────────


def _ending(view: RequestView, now_us: int) -> Decision[Action]:
    over = (None, k.DOWN) if view.name == "down" else (None, k.DOWN, k.STOPPED)
    if view.state == r.WAITING and view.cluster_state not in over:
        until_us = view.started_us + (view.graceful_us or 0)
        if view.jobs_running and now_us < until_us:
            again_us = until_us if until_us < NO_TIME else None
            return _wait(f"waits for {view.jobs_running} jobs", again_us)
        return _do(End(), "it is begun")
    if view.name == "stop":
        return _stopping(view, now_us)
    if view.cluster_state not in over:
        return _wait("its cluster is being taken down")
    if view.compute_state in (None, c.DELETED):
        return _do(Finish(), "its cluster is down, and nothing of it is left")
    return _given_back(view, now_us)


def _stopping(view: RequestView, now_us: int) -> Decision[Action]:
    if view.cluster_state in (None, k.DOWN):
        error = failure("ClusterDoesNotExist", "the cluster was taken down before it was stopped")
        return _do(r.RequestFailed(view.id, error, now_us), "its cluster is gone")
    if view.cluster_state == k.STOPPED:
        return _do(Finish(), "its cluster is stopped")
    if view.cluster_state != k.STOPPING:
        return _do(Finish(), "its cluster was stopped, and was started since")
    return _given_back(view, now_us)


def _given_back(view: RequestView, now_us: int) -> Decision[Action]:
    if view.purge:
        return _do(Finish(), "what is left of it is given back in the background")
    told_us = view.started_us + GIVING_BACK_US
    if view.refused is None:
        return _wait("its machines are being given back")
    if now_us < told_us:
        return _wait(f"its machines are being given back: {view.refused}", told_us)
    message = (
        f"{view.refused}; it is tried again until it is done, and costs until then. With --purge nobody "
        "waits for that"
    )
    return _do(r.RequestFailed(view.id, failure("CloudError", message), now_us), "it could not be given back")


# ── launch, start and exec ──────────────────────────────────────────────────────────────────────


def _waiting(view: RequestView, now_us: int) -> Decision[Action]:
    if view.cluster_state == k.STOPPING:
        return _wait("its cluster is being stopped, and is started again after that")
    if view.cluster_state == k.STOPPED:
        return _do(Start(), "its cluster is started")
    if view.again_us is not None and now_us < view.again_us:
        return _wait("it waits for machines", view.again_us)
    if view.compute_state == c.FAILED and view.cluster_state == k.INIT:
        return _do(Relaunch(), "machines are looked for again")
    return _do(r.RequestResumed(view.id), "its cluster has been started")


def _no_machines(view: RequestView, now_us: int) -> Decision[Action]:
    if view.retry:
        return _do(r.RequestWaiting(view.id, now_us + RETRY_US), "no machines; it is tried again")
    why = view.compute_error or "no provider has such machines now"
    return _do(GiveUp(failure("ResourcesUnavailableError", why)), "no machines can be had")


def _short(view: RequestView, now_us: int) -> Decision[Action]:
    """Machines are missing. Its compute goes on trying by itself, so that who may wait has nothing to do."""
    if view.retry:
        return _wait(f"no machines now; it is tried again: {view.compute_error}")
    buying = view.buying
    if buying.coming:
        return _wait("machines are on their way", now_us + NOTHING_COMES_US)
    since_us = max(view.started_us, buying.moved_us, buying.refused_until_us - PASSED_OVER_US)
    if now_us < since_us + NOTHING_COMES_US:
        return _wait("no machine is on its way", since_us + NOTHING_COMES_US)
    why = view.compute_error or "no provider has such machines now"
    return _do(GiveUp(failure("ResourcesUnavailableError", why)), "no machines can be had")


def _job(view: RequestView, now_us: int) -> Decision[Action]:
    told = view.job_state in (j.FAILED_SETUP, j.FAILED_DRIVER, j.CANCELLED) and view.job_error is not None
    if told and view.job_error is not None:
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
