"""Clusters that stop, start, stop by themselves, and change their size.

Decides: what may be stopped, and what each of these writes. Never: gives a machine back or removes a disk;
the cluster's compute is asked for none, or for as many as before, and its disks stay meanwhile.
Follows: what cannot be done is refused before anything happens, with the provider and the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sky.domain import cluster as k
from sky.domain import cluster_job as j
from sky.domain import compute as c
from sky.domain import request as r
from sky.domain.provider import Rules
from sky.domain.request_errors import RequestFailure
from sky.store.rows import clusters, computes, providers, requests
from sky.store.sql import Row
from sky.store.tx import Tx
from sky.verbs import tasks
from sky.wire import requests as wire
from sky.wire import v1

NEVER = -1
SESSION_US = 60_000_000
"""How long a shell counts as open after it was last said that it is."""


def stop(tx: Tx, row: Row, rules: Rules) -> None:
    """Give a cluster's machines back and keep its disks. Raises RequestFailure."""
    if row["state"] in (k.STOPPING, k.STOPPED):
        return
    check_stoppable(tx, row, rules)
    let_go(tx, row, "its cluster was stopped")


def check_stoppable(tx: Tx, row: Row, rules: Rules) -> None:
    """Refuse a stop that would lose what is on the disks, or has nothing to stop."""
    if row["state"] in (k.STOPPING, k.STOPPED):
        return
    check_keeps_disks(tx, row, rules, f"take it down with `sky down {row['name']}`")
    if computes.state_of(tx.connection, row["compute_id"]) not in c.ACCEPTING:
        msg = f"cluster {row['name']!r} has no machines; take it down with `sky down {row['name']}`"
        raise RequestFailure("ClusterNotUpError", msg, cluster=row["name"])


def let_go(tx: Tx, row: Row, why: str) -> None:
    """End a cluster's jobs and want no machines for it, whose disks stay."""
    end_jobs(tx, row, {"type": "ClusterNotUpError", "message": why})
    tx.apply(k.ClusterStopping(row["id"]))
    want(tx, row["compute_id"], 0)


def start(tx: Tx, row: Row) -> None:
    """Ask for the machines of a cluster that is stopped."""
    tx.apply(k.ClusterStarting(row["id"], tx.now_us))
    want(tx, row["compute_id"], row["num_nodes"])


def begin_start(tx: Tx, request: Row, row: Row, body: wire.StartBody, rules: Rules) -> None:
    """Begin a start. A cluster that is not stopped has nothing to start; who asks waits for it to be up."""
    autostop_if_asked(tx, row, body, rules)
    tx.apply(r.RequestStarted(request["id"], tx.now_us, row["id"]))
    if row["state"] in (k.STOPPING, k.STOPPED):
        tx.apply(r.RequestWaiting(request["id"], tx.now_us))
    else:
        requests.say(
            tx, request["id"], f"cluster {row['name']!r} is {row['state']}; there is nothing to start"
        )


def resize(tx: Tx, row: Row, num_nodes: int) -> None:
    """Want another number of machines. Raises RequestFailure where jobs need those that would go."""
    if num_nodes == row["num_nodes"]:
        return
    found = clusters.open_jobs(tx.connection, row["id"])
    wide = sorted(job["number"] for job in found if job["num_nodes"] > num_nodes)
    if wide:
        msg = (
            f"cluster {row['name']!r} cannot have {num_nodes} nodes now: jobs {', '.join(map(str, wide))} "
            f"need more; wait for them, or cancel them with `sky cancel {row['name']} ...`"
        )
        raise RequestFailure("ResourcesMismatchError", msg, cluster=row["name"])
    tx.apply(k.ClusterResized(row["id"], num_nodes))
    tx.apply(c.ComputeDisksKept(row["compute_id"], num_nodes))
    if row["state"] in (k.INIT, k.UP):
        want(tx, row["compute_id"], num_nodes)


def autostop(tx: Tx, row: Row, minutes: int, rules: Rules, *, down: bool, wait: str | None = None) -> None:
    """What happens to a cluster when it is idle, from now on. Raises RequestFailure."""
    if minutes >= 0 and not down:
        check_keeps_disks(tx, row, rules, "use --down to have it taken down instead")
    minutes = max(minutes, NEVER)
    down = down and minutes != NEVER
    tx.apply(k.ClusterAutostopSet(row["id"], minutes, down, wait or k.JOBS_AND_SSH, tx.now_us))


def autostop_if_asked(tx: Tx, row: Row, body: wire.LaunchBody | wire.StartBody, rules: Rules) -> None:
    """What a launch or a start says of an idle cluster, if anything; ``down`` alone: at once when idle."""
    minutes = body.idle_minutes_to_autostop
    if minutes is None and body.down:
        minutes = 0
    if minutes is not None:
        autostop(tx, row, minutes, rules, down=body.down, wait=body.wait_for)


def check_keeps_disks(tx: Tx, row: Row, rules: Rules, way_out: str) -> None:
    """Refuse what would lose what is on a cluster's disks: where they cannot outlive their machines."""
    if row["state"] in (k.STOPPING, k.STOPPED):
        return
    compute = computes.find(tx.connection, row["compute_id"])
    if compute is not None and compute["disks"] is None:
        msg = f"cluster {row['name']!r} was launched by a release that keeps no disks; {way_out}"
        raise RequestFailure("NotSupportedError", msg, cluster=row["name"])
    bought = clusters.bought(tx.connection, row["compute_id"])
    machines = {(kind, market) for kind, market in bought if kind is not None}
    if (None, None) in bought or len(bought) < row["num_nodes"]:
        machines |= _to_be_bought(tx, row, rules)
    for kind, market in sorted(machines, key=str):
        known = rules.kinds.get(kind)
        if known is None or not known.abilities.keeps_disk_of(market):
            what = "spot machines" if known is not None and known.abilities.keeps_disks else "machines"
            msg = (
                f"cluster {row['name']!r} is on {what} of {kind!r}, which keep nothing when they are "
                f"stopped; {way_out}"
            )
            raise RequestFailure("NotSupportedError", msg, cluster=row["name"], provider=kind)
        setting = known.abilities.disk_setting
        if setting is None or all(one.get(setting) for one in providers.configs(tx.connection, kind)):
            continue
        msg = (
            f"cluster {row['name']!r} is on machines of {kind!r}, which keep nothing when they are stopped "
            f"unless the provider's setting {setting} says so; {way_out}"
        )
        raise RequestFailure("NotSupportedError", msg, cluster=row["name"], provider=kind)


def _to_be_bought(tx: Tx, row: Row, rules: Rules) -> set[tuple[str, str | None]]:
    """The kinds and markets that a cluster may yet get machines of."""
    resources: Mapping[str, Any] = row["resources"]
    narrow: list[dict[str, Any]] = resources.get("narrow") or []
    markets: set[str | None] = {one.get("market") for one in narrow} or {None}
    named = [spec["provider"]["kind"] for spec in row["specs"]]
    kinds = clusters.kinds_named(tx.connection, named) | {name for name in named if name in rules.kinds}
    return {(kind, market) for kind in kinds for market in markets}


def end_jobs(tx: Tx, row: Row, error: dict[str, Any]) -> None:
    """Cancel every job of a cluster that is not over, and have its nodes stop it."""
    for job in clusters.open_jobs(tx.connection, row["id"]):
        tx.apply(j.JobCancelled(job["id"], tx.now_us, error=error))
        for task_id in clusters.tasks_of(job):
            tasks.cancel(tx, task_id)


def want(tx: Tx, compute_id: str, count: int) -> None:
    """Want so many machines of a cluster's compute, none included."""
    compute = computes.find(tx.connection, compute_id)
    if compute is None or compute["state"] not in c.ACCEPTING:
        return
    bounds = msgspec.to_builtins(v1.NodeBounds(desired=count))
    tx.apply(c.ComputeResized(compute_id, {**compute["spec"], "nodes": bounds}))
    tx.apply(c.ComputeScaled(compute_id, count, tx.now_us))


def in_session(tx: Tx, compute_id: str, *, more: bool) -> None:
    """A shell on a cluster's machine is open, or (not ``more``) was closed just now."""
    clusters.session(tx, compute_id, tx.now_us + (SESSION_US if more else 0))
    row = None if more else clusters.of_compute(tx.connection, compute_id)
    if row is not None:
        tx.touch(f"clusters/{row['id']}")  # it was put off for as long as the shell might have been open
