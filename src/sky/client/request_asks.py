"""What can be asked for, each by its name and parameters, for the SDK that waits and the one that awaits.

Decides: how parameters become the body of a request. Never: sends or waits (they are flows).
Follows: what cannot be sent as it was given is refused here, by name; what a server must judge, it judges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sky.client import request_flows as flows
from sky.client.enums import JobStatus, OptimizeTarget, StatusRefreshMode, word_of
from sky.client.exceptions import InvalidArgument, NotSupportedError
from sky.client.flows import Flow
from sky.client.lists import names, numbers
from sky.client.progress import lasting
from sky.client.records import ClusterHandle, ClusterRecord, CostRecord, JobRecord, Record, RequestId
from sky.client.tasks import known
from sky.wire import requests as wire

if TYPE_CHECKING:
    from sky.client.tasks.wire import Autostop

Launched = tuple[int | None, ClusterHandle | None]
E = TypeVar("E", OptimizeTarget, StatusRefreshMode)


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────


def launch(
    task: Any,
    cluster_name: str | None,
    *,
    retry_until_up: bool,
    idle_minutes_to_autostop: int | None,
    wait_for: Any,
    dryrun: bool,
    down: bool,
    optimize_target: OptimizeTarget | str,
    no_setup: bool,
    fast: bool,
    resize: bool = False,
) -> Flow[RequestId[Launched]]:
    """Have a task run on a cluster, which is made if there is none of that name."""
    config = yield from _task(task, dryrun=dryrun)
    told = None if idle_minutes_to_autostop is not None or down else _told_autostop(task)
    if told is not None:
        idle_minutes_to_autostop, down = told.idle_minutes, told.down
        wait_for = wait_for or told.wait_for
    body = wire.LaunchBody(
        task=config,
        cluster_name=cluster_name,
        retry_until_up=retry_until_up,
        idle_minutes_to_autostop=idle_minutes_to_autostop,
        down=down,
        dryrun=dryrun,
        optimize_target=_member(OptimizeTarget, optimize_target, "optimize_target").value,
        no_setup=no_setup,
        fast=fast,
        resize=resize,
        wait_for=cast("Any", word_of(wait_for)),
    )
    return (yield from flows.submit("launch", body))


def execute(task: Any, cluster_name: str | None, *, dryrun: bool, down: bool) -> Flow[RequestId[Launched]]:
    """Have a task run on a cluster that is up."""
    if cluster_name is None:
        msg = "exec needs a cluster_name; sky.status() lists the clusters, sky.launch() makes one"
        raise InvalidArgument(msg)
    config = yield from _task(task, dryrun=dryrun)
    body = wire.ExecBody(task=config, cluster_name=cluster_name, dryrun=dryrun, down=down)
    return (yield from flows.submit("exec", body))


def optimize(dag: Any, minimize: OptimizeTarget | str) -> Flow[RequestId[list[Record]]]:
    """Which machines would do for tasks, and which one is best."""
    target = _member(OptimizeTarget, minimize, "minimize").value
    configs = yield from _tasks(dag)
    return (yield from flows.submit("optimize", wire.OptimizeBody(tasks=configs, minimize=target)))


def validate(dag: Any) -> Flow[None]:
    """Whether tasks could be launched. Raises what a launch would."""
    configs = yield from _tasks(dag)
    yield from flows.get((yield from flows.submit("validate", wire.ValidateBody(tasks=configs))))


def validate_files(dag: Any) -> None:
    """Check the files of tasks, here. Raises what a launch would."""
    for task in getattr(dag, "tasks", None) or [dag]:
        task.validate(workdir_only=True)


def _task(task: Any, *, dryrun: bool) -> Flow[wire.TaskConfig]:
    from sky.client.tasks.wire import task_config

    with lasting("looking at the files of the task …" if dryrun else "sending the files of the task …"):
        return (yield from task_config(task, upload=not dryrun))


def _told_autostop(task: Any) -> Autostop | None:
    from sky.client.tasks.wire import autostop_of

    return autostop_of(task)


def _tasks(dag: Any) -> Flow[tuple[wire.TaskConfig, ...]]:
    found: tuple[wire.TaskConfig, ...] = ()
    for task in getattr(dag, "tasks", None) or [dag]:
        found = (*found, (yield from _task(task, dryrun=True)))
    return found


# ── clusters ────────────────────────────────────────────────────────────────────────────────────


def status(
    cluster_names: Sequence[str] | str | None, refresh: StatusRefreshMode | str, *, all_users: bool
) -> Flow[RequestId[list[ClusterRecord]]]:
    """Show clusters."""
    mode = _member(StatusRefreshMode, refresh, "refresh").value
    body = wire.StatusBody(
        cluster_names=names("cluster_names", cluster_names), refresh=mode, all_users=all_users
    )
    return (yield from flows.submit("status", body))


def start(
    cluster_name: str,
    idle_minutes_to_autostop: int | None,
    wait_for: Any,
    *,
    retry_until_up: bool,
    down: bool,
    force: bool,
) -> Flow[RequestId[ClusterHandle]]:
    """Start a stopped cluster."""
    body = wire.StartBody(
        cluster_name=cluster_name,
        idle_minutes_to_autostop=idle_minutes_to_autostop,
        wait_for=cast("Any", word_of(wait_for)),
        retry_until_up=retry_until_up,
        down=down,
        force=force,
    )
    return (yield from flows.submit("start", body))


def end(
    name: str, cluster_name: str, *, purge: bool, graceful: bool, graceful_timeout: int | None
) -> Flow[RequestId[None]]:
    """``stop`` a cluster, or take it ``down``."""
    body = wire.ClusterBody(
        cluster_name=cluster_name, purge=purge, graceful=graceful, graceful_timeout=graceful_timeout
    )
    return (yield from flows.submit(name, body))


def autostop(cluster_name: str, idle_minutes: int, wait_for: Any, *, down: bool) -> Flow[RequestId[None]]:
    """Say what happens to a cluster when it is idle."""
    body = wire.AutostopBody(
        cluster_name=cluster_name,
        idle_minutes=idle_minutes,
        wait_for=cast("Any", word_of(wait_for)),
        down=down,
    )
    return (yield from flows.submit("autostop", body))


def endpoints(cluster: str, port: int | str | None) -> Flow[RequestId[dict[int, str]]]:
    """Where a cluster's open ports can be reached."""
    body = wire.EndpointsBody(cluster_name=cluster, port=None if port is None else str(port))
    return (yield from flows.submit("endpoints", body))


def cost_report(days: int | None = None) -> Flow[RequestId[list[CostRecord]]]:
    """Show what clusters have cost."""
    return (yield from flows.submit("cost_report", wire.CostReportBody(days=days)))


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────


def queue(cluster_name: str, *, skip_finished: bool, all_users: bool) -> Flow[RequestId[list[JobRecord]]]:
    """Show the jobs of a cluster."""
    body = wire.QueueBody(cluster_name=cluster_name, skip_finished=skip_finished, all_users=all_users)
    return (yield from flows.submit("queue", body))


def job_status(
    cluster_name: str, job_ids: Sequence[int] | None
) -> Flow[RequestId[dict[int, JobStatus | None]]]:
    """Tell the states of jobs."""
    body = wire.JobStatusBody(cluster_name=cluster_name, job_ids=numbers("job_ids", job_ids))
    return (yield from flows.submit("job_status", body))


def cancel(
    cluster_name: str, *, every: bool, all_users: bool, job_ids: Sequence[int] | None
) -> Flow[RequestId[list[int]]]:
    """Cancel jobs of a cluster."""
    body = wire.CancelBody(
        cluster_name=cluster_name, job_ids=numbers("job_ids", job_ids), all=every, all_users=all_users
    )
    return (yield from flows.submit("cancel", body))


# ── clouds, accelerators, storages ──────────────────────────────────────────────────────────────


def check(
    infra_list: Sequence[str] | str | None, *, verbose: bool, workspace: str | None
) -> Flow[RequestId[Any]]:
    """Look which clouds can be used."""
    _no_workspace(workspace)
    named = names("infra_list", infra_list)
    clouds = None if named is None else tuple(map(_cloud, named))
    body = wire.CheckBody(infra_list=clouds, verbose=verbose)
    return (yield from flows.submit("check", body))


def enabled_clouds(workspace: str | None, *, expand: bool) -> Flow[RequestId[list[Any]]]:
    """List the clouds that can be used."""
    _no_workspace(workspace)
    return (yield from flows.submit("enabled_clouds", wire.EnabledCloudsBody(expand=expand)))


def accelerators(
    name: str,
    *,
    gpus_only: bool,
    name_filter: str | None,
    region_filter: str | None,
    quantity_filter: int | None,
    clouds: Sequence[str] | str | None,
    all_regions: bool = False,
    require_price: bool = True,
    case_sensitive: bool = True,
) -> Flow[RequestId[dict[str, list[Any]]]]:
    """``list_accelerators`` with their machines, or ``list_accelerator_counts``."""
    body = wire.AcceleratorsBody(
        gpus_only=gpus_only,
        name_filter=name_filter,
        region_filter=region_filter,
        quantity_filter=quantity_filter,
        clouds=names("clouds", clouds),
        all_regions=all_regions,
        require_price=require_price,
        case_sensitive=case_sensitive,
    )
    return (yield from flows.submit(name, body))


def storage_ls() -> Flow[RequestId[list[Record]]]:
    """List storages."""
    return (yield from flows.submit("storage_ls", wire.StorageLsBody()))


def storage_delete(name: str) -> Flow[RequestId[None]]:
    """Delete a storage and what is in it."""
    return (yield from flows.submit("storage_delete", wire.StorageDeleteBody(name=name)))


# ── parameters ──────────────────────────────────────────────────────────────────────────────────


def _member(kind: type[E], given: E | str, name: str) -> E:
    word = str(word_of(given)).upper()
    if word not in kind.__members__:
        raise InvalidArgument(f"{name} must be one of {', '.join(kind.__members__)}; it is {given!r}")
    return kind(word)


def _cloud(infra: str) -> str:
    """An infra whose cloud has the name that servers know: ``k8s/here`` is ``kubernetes/here``."""
    first, slash, rest = infra.partition("/")
    return known.CLOUDS.get(first.lower(), first) + slash + rest


def _no_workspace(workspace: str | None) -> None:
    if workspace not in (None, "default"):
        msg = f"there are no workspaces here, and {workspace!r} was named; leave workspace out"
        raise NotSupportedError(msg)
