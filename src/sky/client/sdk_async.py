"""The SDK of requests for programs that live in an event loop: the same names, and results instead of ids.

Decides: that each function submits, streams what the request says (``stream_logs``), and returns the result.
Never: blocks the loop; starting a server and reading a task's files happen beside it. Follows: what goes on
is what ``sky.client.sdk`` does; who stops waiting leaves the request as it is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sky.client import request_asks as asks
from sky.client import sdk
from sky.client.aside import aside
from sky.client.enums import JobStatus, OptimizeTarget, StatusRefreshMode
from sky.client.outermost import outermost_names
from sky.client.records import ClusterHandle, ClusterRecord, CostRecord, JobRecord, Record
from sky.client.request_asks import Launched
from sky.client.sdk_async_server import (
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
from sky.client.sdk_async_waiting import (
    DEFAULT_STREAM_CONFIG,
    StreamConfig,
    final,
    get,
    stream_and_get,
    tail_logs,
)

__all__ = [
    "DEFAULT_STREAM_CONFIG",
    "StreamConfig",
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


async def launch(
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
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> Launched:
    """Have a task run on a cluster; the number of its job, and the handle of the cluster."""
    flow = asks.launch(
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
    return await final(flow, stream_logs, files=True)


async def exec(
    task: Any,
    cluster_name: str | None = None,
    dryrun: bool = False,
    down: bool = False,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> Launched:
    """Have a task run on a cluster that is up, without its setup."""
    flow = asks.execute(task, cluster_name, dryrun=dryrun, down=down)
    return await final(flow, stream_logs, files=True)


async def optimize(
    dag: Any,
    minimize: OptimizeTarget = OptimizeTarget.COST,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> list[Record]:
    """Which machines would do for tasks, and which one is best."""
    return await final(asks.optimize(dag, minimize), stream_logs, files=True)


async def validate(dag: Any, workdir_only: bool = False) -> None:
    """Check that tasks could be launched. Raises what a launch would."""
    await aside(partial(sdk.validate, dag, workdir_only))


# ── clusters ────────────────────────────────────────────────────────────────────────────────────


async def status(
    cluster_names: list[str] | None = None,
    refresh: StatusRefreshMode = StatusRefreshMode.NONE,
    all_users: bool = False,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> list[ClusterRecord]:
    """Clusters: those of these names, or all of one's own."""
    return await final(asks.status(cluster_names, refresh, all_users=all_users), stream_logs)


async def start(
    cluster_name: str,
    idle_minutes_to_autostop: int | None = None,
    wait_for: Any = None,
    retry_until_up: bool = False,
    down: bool = False,
    force: bool = False,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> ClusterHandle:
    """Start a stopped cluster; its handle."""
    flow = asks.start(
        cluster_name,
        idle_minutes_to_autostop,
        wait_for,
        retry_until_up=retry_until_up,
        down=down,
        force=force,
    )
    return await final(flow, stream_logs)


async def stop(
    cluster_name: str,
    purge: bool = False,
    graceful: bool = False,
    graceful_timeout: int | None = None,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> None:
    """Stop a cluster, and keep its disks."""
    flow = asks.end("stop", cluster_name, purge=purge, graceful=graceful, graceful_timeout=graceful_timeout)
    await final(flow, stream_logs)


async def down(
    cluster_name: str,
    purge: bool = False,
    graceful: bool = False,
    graceful_timeout: int | None = None,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> None:
    """Take a cluster down."""
    flow = asks.end("down", cluster_name, purge=purge, graceful=graceful, graceful_timeout=graceful_timeout)
    await final(flow, stream_logs)


async def autostop(
    cluster_name: str,
    idle_minutes: int,
    wait_for: Any = None,
    down: bool = False,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> None:
    """Say what happens to a cluster when it was idle for so many minutes; below 0: nothing."""
    await final(asks.autostop(cluster_name, idle_minutes, wait_for, down=down), stream_logs)


async def endpoints(
    cluster: str,
    port: int | str | None = None,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> dict[int, str]:
    """Where a cluster's open ports can be reached: addresses by the port."""
    return await final(asks.endpoints(cluster, port), stream_logs)


async def cost_report(
    days: int | None = None, stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG
) -> list[CostRecord]:
    """What the clusters of the last so many days (None: 30) have cost."""
    return await final(asks.cost_report(days), stream_logs)


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────


async def queue(
    cluster_name: str,
    skip_finished: bool = False,
    all_users: bool = False,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> list[JobRecord]:
    """The jobs of a cluster, newest first."""
    flow = asks.queue(cluster_name, skip_finished=skip_finished, all_users=all_users)
    return await final(flow, stream_logs)


async def job_status(
    cluster_name: str,
    job_ids: list[int] | None = None,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> dict[int, JobStatus | None]:
    """The states of jobs by their numbers; None named: the newest's."""
    return await final(asks.job_status(cluster_name, job_ids), stream_logs)


async def cancel(
    cluster_name: str,
    all: bool = False,
    all_users: bool = False,
    job_ids: list[int] | None = None,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> list[int]:
    """Cancel jobs of a cluster; the numbers of those that were under way."""
    flow = asks.cancel(cluster_name, every=all, all_users=all_users, job_ids=job_ids)
    return await final(flow, stream_logs)


# ── clouds, accelerators, storages ──────────────────────────────────────────────────────────────


async def check(
    infra_list: tuple[str, ...] | None,
    verbose: bool,
    workspace: str | None = None,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> Any:
    """Which clouds can be used: of these, or of all."""
    return await final(asks.check(infra_list, verbose=verbose, workspace=workspace), stream_logs)


async def enabled_clouds(
    workspace: str | None = None,
    expand: bool = False,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> list[Any]:
    """The clouds that can be used."""
    return await final(asks.enabled_clouds(workspace, expand=expand), stream_logs)


async def list_accelerators(
    gpus_only: bool = True,
    name_filter: str | None = None,
    region_filter: str | None = None,
    quantity_filter: int | None = None,
    clouds: list[str] | str | None = None,
    all_regions: bool = False,
    require_price: bool = True,
    case_sensitive: bool = True,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> dict[str, list[Any]]:
    """Accelerators with their machines and prices, by the accelerator."""
    flow = asks.accelerators(
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
    return await final(flow, stream_logs)


async def list_accelerator_counts(
    gpus_only: bool = True,
    name_filter: str | None = None,
    region_filter: str | None = None,
    quantity_filter: int | None = None,
    clouds: list[str] | str | None = None,
    stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG,
) -> dict[str, list[Any]]:
    """How many of each accelerator one machine can have."""
    flow = asks.accelerators(
        "list_accelerator_counts",
        gpus_only=gpus_only,
        name_filter=name_filter,
        region_filter=region_filter,
        quantity_filter=quantity_filter,
        clouds=clouds,
    )
    return await final(flow, stream_logs)


async def storage_ls(stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG) -> list[Record]:
    """Storages."""
    return await final(asks.storage_ls(), stream_logs)


async def storage_delete(name: str, stream_logs: StreamConfig | None = DEFAULT_STREAM_CONFIG) -> None:
    """Delete a storage and what is in it."""
    await final(asks.storage_delete(name), stream_logs)


outermost_names(globals(), __all__)
