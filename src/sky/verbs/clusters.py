"""Clusters as requests ask for them: launch, start, stop, take down; and their jobs: submit, cancel.

Decides: what each writes. Never: chooses a machine or runs a script; a cluster's compute and tasks are
those of the engine. Follows: whatever holds for computes and calls holds for clusters and their jobs.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec

from sky.domain import cluster as k
from sky.domain import cluster_job as j
from sky.domain import compute as c
from sky.domain import request as r
from sky.domain.errors import SkyError
from sky.domain.nearby import hint
from sky.domain.provider import Rules
from sky.domain.request_errors import RequestFailure
from sky.kit import ids
from sky.store.rows import clusters, requests
from sky.store.sql import Row, Snapshot
from sky.store.tx import Tx
from sky.verbs import cluster_power, computes, machines, storages, tasks
from sky.wire import requests as wire
from sky.wire import v1

JOBS_AT_ONCE = 4
NAME_BYTES = (2, 4, 16)
"""How much chance there is in the name of a cluster that was given none, and where that is taken."""
CLUSTERS_MAX = 10_000
DAYS_OF_LEASE_S = 7 * 24 * 3600
"""How long a cluster's nodes work on although no daemon can be reached."""


_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9._-]")


def owner_key(cluster_id: str) -> str:
    """The key under which a cluster's compute and tasks wake its loop."""
    return f"clusters/{cluster_id}"


def found(tx: Tx, name: str, user: str, *, all_users: bool = False) -> Row:
    """``seen``, in a transaction that goes on to change it."""
    return seen(tx.connection, name, user, all_users=all_users)


def seen(connection: Snapshot, name: str, user: str, *, all_users: bool = False) -> Row:
    """The live cluster with that name: the user's own, or with ``all_users`` anybody's (whether they may say
    that was decided when they asked). Raises RequestFailure."""
    row = clusters.named(connection, name)
    if row is None:
        known = clusters.names_in_use(connection, CLUSTERS_MAX)
        msg = f"there is no cluster {name!r}; {hint(name, known)}. `sky launch -c {name} ...` makes one"
        raise RequestFailure("ClusterDoesNotExist", msg, cluster=name)
    if row["owner"] != user and not all_users:
        msg = (
            f"cluster {name!r} belongs to {row['owner']}, not to {user}; with --all-users anybody may look "
            "at it, and an admin change it"
        )
        raise RequestFailure(
            "ClusterOwnerIdentityMismatchError", msg, cluster=name, owner=row["owner"], user=user
        )
    return row


def usable(
    tx: Tx, name: str, user: str, task: wire.TaskConfig, *, up: bool = False, resize: bool = False
) -> Row:
    """The user's live cluster of that name, on which a task fits (``resize``: whatever its size; ``up``: and
    is UP). Raises RequestFailure."""
    row = found(tx, name, user)
    if up and row["state"] != k.UP:
        msg = f"cluster {name!r} is {row['state']}; jobs are submitted to one that is UP{_way_up(row)}"
        raise RequestFailure("ClusterNotUpError", msg, cluster=name, cluster_status=row["state"])
    _fits(row, task, resize=resize)
    return row


def _way_up(row: Row) -> str:
    if row["state"] in (k.STOPPING, k.STOPPED):
        return f": `sky start {row['name']}` starts it, and `sky launch -c {row['name']} ...` as well"
    return f"; `sky status {row['name']}` tells how far it is"


def launch(
    tx: Tx, request: Row, body: wire.LaunchBody, rules: Rules, asked: machines.Asked | None = None
) -> None:
    """Begin a launch: a cluster where there is none, and a job on it. ``asked``: for its machines; None:
    what its task says."""
    user = request["owner"]
    name = body.cluster_name or _fresh_name(tx, user)
    row = clusters.named(tx.connection, name)
    if row is None:
        row = _make(tx, name, user, body, rules, asked or machines.asked(tx, body.task, rules))
        requests.say(tx, request["id"], f"launching cluster {name!r} with {_nodes(body.task.num_nodes)}")
    else:
        row = usable(tx, name, user, body.task, resize=body.resize)
        if body.resize:
            cluster_power.resize(tx, row, body.task.num_nodes)
        requests.say(tx, request["id"], f"using cluster {name!r}")
        cluster_power.autostop_if_asked(tx, row, body, rules)
    number = None
    if body.task.run or body.task.setup or body.task.files or body.task.storages:
        number = submit(tx, row, user, body.task, setup=not body.no_setup)
    tx.apply(r.RequestStarted(request["id"], tx.now_us, row["id"], number))
    if row["state"] in (k.STOPPING, k.STOPPED):
        requests.say(tx, request["id"], f"cluster {name!r} is {row['state']}, and is started again")
        tx.apply(r.RequestWaiting(request["id"], tx.now_us))


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"


def _fresh_name(tx: Tx, user: str) -> str:
    """A name that no live cluster has: whoever names none wants one of their own."""
    tail = _NOT_OF_A_NAME.sub("-", user)
    names = [f"sky-{secrets.token_hex(size)}-{tail}"[:60] for size in NAME_BYTES]
    return next((name for name in names if clusters.named(tx.connection, name) is None), names[-1])


def execute(tx: Tx, request: Row, body: wire.ExecBody, rules: Rules) -> None:
    """Begin an exec: a job on a cluster that is up, without a setup."""
    row = usable(tx, body.cluster_name, request["owner"], body.task, up=True)
    number = submit(tx, row, request["owner"], body.task, setup=False)
    if body.down:
        cluster_power.autostop(tx, row, 0, rules, down=True)
    tx.apply(r.RequestStarted(request["id"], tx.now_us, row["id"], number))


def relaunch(tx: Tx, row: Row, rules: Rules) -> None:
    """Ask for other machines in place of those that could not be had."""
    computes.delete(tx, row["compute_id"], None)
    compute_id = _compute(tx, machines.kept(row), row["num_nodes"], row["id"], rules)
    tx.apply(k.ClusterRelaunched(row["id"], compute_id, tx.now_us))


def take_down(tx: Tx, row: Row) -> None:
    """A cluster ends: its jobs, its machines, its name."""
    for job in clusters.open_jobs(tx.connection, row["id"]):
        error = {"type": "ClusterDoesNotExist", "message": "its cluster was taken down"}
        tx.apply(j.JobCancelled(job["id"], tx.now_us, error=error))
    tx.apply(k.ClusterDown(row["id"], tx.now_us))


def undo_launch(tx: Tx, request: Row, row: Row) -> None:
    """Leave no machine of a launch or a start that comes to nothing: a cluster that never was up goes, and
    one that was started for it is stopped again. One that was there before stays as it is."""
    if row["up_us"] is None:
        take_down(tx, row)
    elif row["state"] == k.INIT and row["launched_us"] >= (request["started_us"] or tx.now_us):
        cluster_power.let_go(tx, row, "it could not be started, or its start was cancelled")


def give_back(tx: Tx, row: Row) -> None:
    """Give the machines of a cluster back."""
    computes.delete(tx, row["compute_id"], None)


def submit(tx: Tx, row: Row, user: str, task: wire.TaskConfig, *, setup: bool) -> int:
    """Queue a job on a cluster; returns its number."""
    number = row["next_job"]
    body = msgspec.to_builtins(task)
    body["files"] = [*body.get("files", ()), *storages.take_in(tx, user, task.storages, row["id"])]
    if not setup:
        body.pop("setup", None)
    machine = task.machines[0]
    tx.add(
        "cluster_jobs",
        [
            {
                "id": ids.new("cluster_job"),
                "cluster_id": row["id"],
                "number": number,
                "name": task.name,
                "owner": user,
                "state": j.INIT,
                "version": 1,
                "body": body,
                "num_nodes": task.num_nodes,
                "gpus": machine.accelerator_count if machine.accelerator else 0,
                "submitted_us": tx.now_us,
            }
        ],
    )
    tx.apply(k.ClusterUsed(row["id"], number + 1, task.name, tx.now_us))
    return number


def cancel_jobs(tx: Tx, row: Row, body: wire.CancelBody) -> list[int]:
    """Cancel jobs of a cluster; returns the numbers of those that were under way."""
    if body.job_ids is not None:
        for number in body.job_ids:
            if clusters.job(tx.connection, row["id"], number) is None:
                msg = f"cluster {row['name']!r} has no job {number}; `sky queue {row['name']}` lists them"
                raise RequestFailure("JobNotFoundError", msg, job_id=number)
        there = [job for job in clusters.open_jobs(tx.connection, row["id"]) if job["number"] in body.job_ids]
    elif body.all:
        there = list(clusters.open_jobs(tx.connection, row["id"]))
    else:
        newest = clusters.newest_open(tx.connection, row["id"])
        there = [] if newest is None else [newest]
    for job in there:
        cancel_job(tx, job)
    return sorted(job["number"] for job in there)


def cancel_job(tx: Tx, job: Row, error: Any = None) -> None:
    """End a job: at once where nothing of it is on a node, else when its nodes have stopped it."""
    if job["state"] in (j.INIT, j.PENDING):
        tx.apply(j.JobCancelled(job["id"], tx.now_us, error=error))
        return
    if job["stop_us"] is None:
        tx.apply(j.JobStopAsked(job["id"], tx.now_us, error))
    for task_id in clusters.tasks_of(job):
        tasks.cancel(tx, task_id)


def _fits(row: Row, task: wire.TaskConfig, *, resize: bool) -> None:
    if task.num_nodes > row["num_nodes"] and not resize:
        msg = (
            f"cluster {row['name']!r} has {_nodes(row['num_nodes'])}, and the task wants {task.num_nodes}; "
            "launch it on another cluster, or launch it with resize, which changes the number of nodes"
        )
        raise RequestFailure("ResourcesMismatchError", msg, cluster=row["name"])
    wanted = {(m.accelerator or "").lower() for m in task.machines} - {""}
    there = {str(spec.get("accelerator") or "").lower() for spec in row["specs"]} - {""}
    if wanted and not wanted & there:
        has, wants = ", ".join(sorted(there)) or "no", ", ".join(sorted(wanted))
        msg = f"cluster {row['name']!r} has {has} GPUs, and the task wants {wants}"
        raise RequestFailure("ResourcesMismatchError", msg, cluster=row["name"])


def _make(tx: Tx, name: str, user: str, body: wire.LaunchBody, rules: Rules, asked: machines.Asked) -> Row:
    task = body.task
    cluster_id = ids.new("cluster")
    compute_id = _compute(tx, asked, task.num_nodes, cluster_id, rules)
    row = {
        "id": cluster_id,
        "name": name,
        "state": k.INIT,
        "version": 1,
        "owner": user,
        "compute_id": compute_id,
        "num_nodes": task.num_nodes,
        "resources": {
            "machines": [msgspec.to_builtins(m) for m in task.machines],
            "ordered": asked.ordered,
            "narrow": list(asked.narrow),
            "image": asked.image,
        },
        "specs": [msgspec.to_builtins(spec) for spec in asked.specs],
        "autostop_minutes": cluster_power.NEVER,
        "autostop_down": False,
        "next_job": 1,
        "created_us": tx.now_us,
        "launched_us": tx.now_us,
        "busy_us": tx.now_us,
    }
    tx.add("clusters", [row])
    made = clusters.find(tx.connection, cluster_id)
    if made is None:
        msg = f"cluster {cluster_id} was written in this transaction and is not there"
        raise RuntimeError(msg)
    cluster_power.autostop_if_asked(tx, made, body, rules)
    return made


def spec_of(asked: machines.Asked, num_nodes: int) -> v1.ComputeSpec:
    """What the engine is asked for."""
    return v1.ComputeSpec(
        specs=asked.specs,
        nodes=v1.NodeBounds(desired=num_nodes),
        image=v1.Image(base=asked.image),
        selection="first" if asked.ordered else "cheapest",
        allocation="on_demand",
        worker=v1.Worker(concurrency=JOBS_AT_ONCE, executor="process"),
        ttl=DAYS_OF_LEASE_S,
    )


def _compute(tx: Tx, asked: machines.Asked, num_nodes: int, cluster_id: str, rules: Rules) -> str:
    body, owner = v1.ComputeCreate(spec=spec_of(asked, num_nodes)), owner_key(cluster_id)
    try:
        compute_id = computes.create(tx, body, rules, owner=owner, narrow=asked.narrow)
    except SkyError as refused:
        raise RequestFailure("ResourcesUnavailableError", refused.message) from refused
    tx.apply(c.ComputeDisksKept(compute_id, num_nodes))
    return compute_id
