"""The SDK of requests: ask for things by name, and have their results by the id of the request.

Decides: names, parameters and defaults of what can be asked for. Never: does what is asked (a server does).
Follows: a function that submits answers at once with a RequestId, which ``get`` turns into the result; a
request goes on whatever happens to this program.
"""

from __future__ import annotations

from typing import Any

from sky.client import request_asks as asks
from sky.client.enums import JobStatus, OptimizeTarget, StatusRefreshMode
from sky.client.outermost import outermost_names
from sky.client.records import ClusterHandle, ClusterRecord, CostRecord, JobRecord, Record, RequestId
from sky.client.request_asks import Launched
from sky.client.request_link import link
from sky.client.sdk_server import (
    api_cancel,
    api_info,
    api_login,
    api_logout,
    api_server_logs,
    api_start,
    api_status,
    api_stop,
    dashboard,
    download_logs,
)
from sky.client.sdk_waiting import get, stream_and_get, tail_logs

__all__ = [
    "api_cancel",
    "api_info",
    "api_login",
    "api_logout",
    "api_server_logs",
    "api_start",
    "api_status",
    "api_stop",
    "autostop",
    "cancel",
    "check",
    "cost_report",
    "dashboard",
    "down",
    "download_logs",
    "enabled_clouds",
    "endpoints",
    "exec",
    "get",
    "job_status",
    "launch",
    "list_accelerator_counts",
    "list_accelerators",
    "optimize",
    "queue",
    "start",
    "status",
    "stop",
    "storage_delete",
    "storage_ls",
    "stream_and_get",
    "tail_logs",
    "validate",
]

# ── tasks ───────────────────────────────────────────────────────────────────────────────────────


def launch(
    task: Any,
    cluster_name: str | None = None,
    retry_until_up: bool = False,
    idle_minutes_to_autostop: int | None = None,
    wait_for: Any = None,
    dryrun: bool = False,
    down: bool = False,
    optimize_target: OptimizeTarget = OptimizeTarget.COST,
    no_setup: bool = False,
    fast: bool = False,
    resize: bool = False,
) -> RequestId[Launched]:
    """Have a task run on a cluster, which is made if there is none of that name.

    The result is the number of the job and the handle of the cluster; both None for a ``dryrun``.
    """
    return link().run(
        asks.launch(
            task,
            cluster_name,
            retry_until_up=retry_until_up,
            idle_minutes_to_autostop=idle_minutes_to_autostop,
            wait_for=wait_for,
            dryrun=dryrun,
            down=down,
            optimize_target=optimize_target,
            no_setup=no_setup,
            fast=fast,
            resize=resize,
        )
    )


def exec(
    task: Any, cluster_name: str | None = None, dryrun: bool = False, down: bool = False
) -> RequestId[Launched]:
    """Have a task run on a cluster that is up, without its setup. The result is as for ``launch``."""
    return link().run(asks.execute(task, cluster_name, dryrun=dryrun, down=down))


def optimize(dag: Any, minimize: OptimizeTarget = OptimizeTarget.COST) -> RequestId[list[Record]]:
    """Which machines would do for tasks, and which one is best: one record for each task."""
    return link().run(asks.optimize(dag, minimize))


def validate(dag: Any, workdir_only: bool = False) -> None:
    """Check that tasks could be launched. ``workdir_only``: look at their files only, and ask no server.

    Raises what a launch would.
    """
    if workdir_only:
        asks.validate_files(dag)
    else:
        link().run(asks.validate(dag))


# ── clusters ────────────────────────────────────────────────────────────────────────────────────


def status(
    cluster_names: list[str] | None = None,
    refresh: StatusRefreshMode = StatusRefreshMode.NONE,
    all_users: bool = False,
) -> RequestId[list[ClusterRecord]]:
    """Show clusters: those of these names, or all of one's own. A name that is not there has no record."""
    return link().run(asks.status(cluster_names, refresh, all_users=all_users))


def start(
    cluster_name: str,
    idle_minutes_to_autostop: int | None = None,
    wait_for: Any = None,
    retry_until_up: bool = False,
    down: bool = False,
    force: bool = False,
) -> RequestId[ClusterHandle]:
    """Start a stopped cluster; the result is its handle."""
    return link().run(
        asks.start(
            cluster_name,
            idle_minutes_to_autostop,
            wait_for,
            retry_until_up=retry_until_up,
            down=down,
            force=force,
        )
    )


def stop(
    cluster_name: str, purge: bool = False, graceful: bool = False, graceful_timeout: int | None = None
) -> RequestId[None]:
    """Stop a cluster, and keep its disks. ``graceful`` waits for its jobs, up to so many seconds."""
    return link().run(
        asks.end("stop", cluster_name, purge=purge, graceful=graceful, graceful_timeout=graceful_timeout)
    )


def down(
    cluster_name: str, purge: bool = False, graceful: bool = False, graceful_timeout: int | None = None
) -> RequestId[None]:
    """Take a cluster down. ``purge``: forget it although its machines cannot be given back."""
    return link().run(
        asks.end("down", cluster_name, purge=purge, graceful=graceful, graceful_timeout=graceful_timeout)
    )


def autostop(
    cluster_name: str, idle_minutes: int, wait_for: Any = None, down: bool = False
) -> RequestId[None]:
    """Say what happens to a cluster when it was idle for so many minutes; below 0: nothing."""
    return link().run(asks.autostop(cluster_name, idle_minutes, wait_for, down=down))


def endpoints(cluster: str, port: int | str | None = None) -> RequestId[dict[int, str]]:
    """Where a cluster's open ports can be reached: addresses by the port."""
    return link().run(asks.endpoints(cluster, port))


def cost_report(days: int | None = None) -> RequestId[list[CostRecord]]:
    """Show what the clusters of the last so many days (None: 30) have cost."""
    return link().run(asks.cost_report(days))


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────


def queue(
    cluster_name: str, skip_finished: bool = False, all_users: bool = False
) -> RequestId[list[JobRecord]]:
    """Show the jobs of a cluster, newest first."""
    return link().run(asks.queue(cluster_name, skip_finished=skip_finished, all_users=all_users))


def job_status(cluster_name: str, job_ids: list[int] | None = None) -> RequestId[dict[int, JobStatus | None]]:
    """Tell the states of jobs by their numbers; None named: the newest's. A job that is not there: None."""
    return link().run(asks.job_status(cluster_name, job_ids))


def cancel(
    cluster_name: str,
    all: bool = False,
    all_users: bool = False,
    job_ids: list[int] | None = None,
) -> RequestId[list[int]]:
    """Cancel jobs of a cluster; none named and not ``all``: the newest that is under way.

    The result is the numbers of those that were under way.
    """
    return link().run(asks.cancel(cluster_name, every=all, all_users=all_users, job_ids=job_ids))


# ── clouds, accelerators, storages ──────────────────────────────────────────────────────────────


def check(infra_list: tuple[str, ...] | None, verbose: bool, workspace: str | None = None) -> RequestId[Any]:
    """Look which clouds can be used: these, or all."""
    return link().run(asks.check(infra_list, verbose=verbose, workspace=workspace))


def enabled_clouds(workspace: str | None = None, expand: bool = False) -> RequestId[list[Any]]:
    """List the clouds that can be used; with the places within each where ``expand`` says so."""
    return link().run(asks.enabled_clouds(workspace, expand=expand))


def list_accelerators(
    gpus_only: bool = True,
    name_filter: str | None = None,
    region_filter: str | None = None,
    quantity_filter: int | None = None,
    clouds: list[str] | str | None = None,
    all_regions: bool = False,
    require_price: bool = True,
    case_sensitive: bool = True,
) -> RequestId[dict[str, list[Any]]]:
    """List accelerators with their machines and prices, by the accelerator. Filters are regular
    expressions."""
    return link().run(
        asks.accelerators(
            "list_accelerators",
            gpus_only=gpus_only,
            name_filter=name_filter,
            region_filter=region_filter,
            quantity_filter=quantity_filter,
            clouds=clouds,
            all_regions=all_regions,
            require_price=require_price,
            case_sensitive=case_sensitive,
        )
    )


def list_accelerator_counts(
    gpus_only: bool = True,
    name_filter: str | None = None,
    region_filter: str | None = None,
    quantity_filter: int | None = None,
    clouds: list[str] | str | None = None,
) -> RequestId[dict[str, list[Any]]]:
    """List how many of each accelerator one machine can have."""
    return link().run(
        asks.accelerators(
            "list_accelerator_counts",
            gpus_only=gpus_only,
            name_filter=name_filter,
            region_filter=region_filter,
            quantity_filter=quantity_filter,
            clouds=clouds,
        )
    )


def storage_ls() -> RequestId[list[Record]]:
    """List storages."""
    return link().run(asks.storage_ls())


def storage_delete(name: str) -> RequestId[None]:
    """Delete a storage and what is in it."""
    return link().run(asks.storage_delete(name))


outermost_names(globals(), __all__)
