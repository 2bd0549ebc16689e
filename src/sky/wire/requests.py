"""Requests, as the SDK and the commands send them and are answered.

Decides: every field of their bodies, the records of their results, and the versions of this interface.
Never: what a request leads to. Follows: a field that is not known is refused; versions travel in headers.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from sky.wire.v1.base import NAME_PATTERN

API_VERSION = 56
"""What this release speaks: raised whenever something is added that an older side does not know."""
MIN_COMPATIBLE_API_VERSION = 40
VERSION_HEADER = "x-skypilot-api-version"
RELEASE_HEADER = "x-skypilot-version"
REQUEST_HEADER = "x-skypilot-request-id"
USER_HEADER = "x-sky-user"
LINES_MAX = 1_000
NODES_MAX = 1_000

RequestStatus = Literal["PENDING", "RUNNING", "WAITING", "SUCCEEDED", "FAILED", "CANCELLED"]
JobState = Literal[
    "INIT",
    "PENDING",
    "SETTING_UP",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "FAILED_SETUP",
    "FAILED_DRIVER",
    "CANCELLED",
]
ClusterName = Annotated[str, Meta(pattern=NAME_PATTERN)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, Meta(max_length=1_000_000)]
Env = dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], Text]
Named = Annotated[str, Meta(max_length=64)]
"""What names a cluster, an infra or a cloud that may be there or not."""
JobNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]
JobNumbers = Annotated[tuple[JobNumber, ...], Meta(max_length=1_000)]
Names = Annotated[tuple[Named, ...], Meta(max_length=1_000)]
Place = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""Where a reader of lines goes on."""
RequestPrefix = Annotated[str, Meta(min_length=4, max_length=64)]
"""A request's id, or how it begins."""
TAIL_LINES_MAX = 100_000


AutostopWait = Literal["jobs", "jobs_and_ssh", "none"]
"""What keeps an idle cluster from being stopped."""


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a request asks for."""


class Machine(Body, frozen=True):
    """One kind of machine that would do."""

    infra: Annotated[str, Meta(max_length=64)] | None = None
    region: Annotated[str, Meta(max_length=64)] | None = None
    zone: Annotated[str, Meta(max_length=64)] | None = None
    instance_type: Annotated[str, Meta(max_length=64)] | None = None
    cpus: Annotated[float, Meta(gt=0, le=4096)] | None = None
    cpus_exact: bool = False
    memory_gb: Annotated[float, Meta(gt=0, le=65536)] | None = None
    memory_exact: bool = False
    accelerator: Annotated[str, Meta(max_length=64)] | None = None
    accelerator_count: Annotated[int, Meta(ge=1, le=64)] = 1
    use_spot: bool = False
    max_hourly_cost: Annotated[float, Meta(ge=0)] | None = None
    disk_gb: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    disk_tier: Literal["low", "medium", "high", "ultra", "best"] | None = None
    network_tier: Literal["standard", "best"] | None = None
    image: Annotated[str, Meta(max_length=512)] | None = None
    ports: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?$")], ...], Meta(max_length=64)
    ] = ()
    labels: dict[Annotated[str, Meta(max_length=256)], Annotated[str, Meta(max_length=256)]] = {}


class Archive(Body, frozen=True):
    """Files that were uploaded as one archive, and where they go on each node."""

    target: Annotated[str, Meta(min_length=1, max_length=1024)]
    sha256: Sha256
    single: bool = False
    clear: bool = False


class StorageUse(Body, frozen=True):
    """A storage by its name, and where its files go on each node. ``sha256``: an archive that was uploaded
    becomes its content; None: as it is. ``persistent``: kept when the cluster is gone."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    target: Annotated[str, Meta(min_length=1, max_length=1024)]
    sha256: Sha256 | None = None
    persistent: bool = True


class TaskConfig(Body, frozen=True):
    """What a task is, once its file was read: its machines are alternatives, in order of preference."""

    name: Annotated[str, Meta(max_length=256)] | None = None
    num_nodes: Annotated[int, Meta(ge=1, le=NODES_MAX)] = 1
    machines: Annotated[tuple[Machine, ...], Meta(min_length=1, max_length=32)] = (Machine(),)
    ordered: bool = False
    envs: Env = {}
    secrets: Env = {}
    setup: Text | None = None
    run: Text | None = None
    files: Annotated[tuple[Archive, ...], Meta(max_length=100)] = ()
    storages: Annotated[tuple[StorageUse, ...], Meta(max_length=100)] = ()


class LaunchBody(Body, frozen=True):
    """Have a task run on a cluster, which is made if there is none of that name."""

    task: TaskConfig
    cluster_name: ClusterName | None = None
    retry_until_up: bool = False
    idle_minutes_to_autostop: Annotated[int, Meta(ge=-1, le=525_600)] | None = None
    down: bool = False
    dryrun: bool = False
    optimize_target: Literal["COST", "TIME"] = "COST"
    no_setup: bool = False
    fast: bool = False
    resize: bool = False
    wait_for: AutostopWait | None = None


class ExecBody(Body, frozen=True):
    """Have a task run on a cluster that is there, without its setup."""

    task: TaskConfig
    cluster_name: ClusterName
    dryrun: bool = False
    down: bool = False


class StatusBody(Body, frozen=True):
    """Which clusters to show; none named: all of the caller's."""

    cluster_names: Names | None = None
    refresh: Literal["NONE", "AUTO", "FORCE"] = "NONE"
    all_users: bool = False


class ClusterBody(Body, frozen=True):
    """Something about one cluster. ``all_users``: also of somebody else's, which is for admins."""

    cluster_name: Named
    purge: bool = False
    graceful: bool = False
    graceful_timeout: Annotated[int, Meta(ge=0, le=31_536_000)] | None = None
    all_users: bool = False


class StartBody(Body, frozen=True):
    """Start a stopped cluster."""

    cluster_name: Named
    idle_minutes_to_autostop: Annotated[int, Meta(ge=-1, le=525_600)] | None = None
    wait_for: AutostopWait | None = None
    retry_until_up: bool = False
    down: bool = False
    force: bool = False
    all_users: bool = False


class AutostopBody(Body, frozen=True):
    """What is to happen to a cluster when it is idle; below 0: nothing."""

    cluster_name: Named
    idle_minutes: Annotated[int, Meta(ge=-1, le=525_600)]
    wait_for: AutostopWait | None = None
    down: bool = False
    all_users: bool = False


class QueueBody(Body, frozen=True):
    """Which jobs of a cluster to show."""

    cluster_name: Named
    skip_finished: bool = False
    all_users: bool = False


class JobStatusBody(Body, frozen=True):
    """Which jobs' states to tell; none named: the newest."""

    cluster_name: Named
    job_ids: JobNumbers | None = None


class CancelBody(Body, frozen=True):
    """Which jobs to cancel; none named and not all: the newest that is under way."""

    cluster_name: Named
    job_ids: JobNumbers | None = None
    all: bool = False
    all_users: bool = False


class CheckBody(Body, frozen=True):
    """Which clouds to try out; none named: all."""

    infra_list: Names | None = None
    verbose: bool = False


class EnabledCloudsBody(Body, frozen=True):
    """``expand``: with the places within each cloud."""

    expand: bool = False


class CostReportBody(Body, frozen=True):
    """Clusters of the last so many days; None: of the last 30."""

    days: Annotated[int, Meta(ge=1, le=3_650)] | None = None


class OptimizeBody(Body, frozen=True):
    """Which machines would do for these tasks, and which one is best."""

    tasks: Annotated[tuple[TaskConfig, ...], Meta(min_length=1, max_length=64)]
    minimize: Literal["COST", "TIME"] = "COST"


class ValidateBody(Body, frozen=True):
    """Whether these tasks could be launched here."""

    tasks: Annotated[tuple[TaskConfig, ...], Meta(min_length=1, max_length=64)]


class EndpointsBody(Body, frozen=True):
    """Where a cluster's open ports can be reached; None: all of them."""

    cluster_name: Named
    port: Annotated[str, Meta(pattern=r"^[0-9]{1,5}$")] | None = None


class AcceleratorsBody(Body, frozen=True):
    """Which accelerators to list. ``name_filter`` and ``region_filter`` are regular expressions."""

    gpus_only: bool = True
    name_filter: Annotated[str, Meta(max_length=256)] | None = None
    region_filter: Annotated[str, Meta(max_length=256)] | None = None
    quantity_filter: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    clouds: Names | None = None
    all_regions: bool = False
    require_price: bool = True
    case_sensitive: bool = True


class StorageLsBody(Body, frozen=True):
    """All of the caller's storages."""


class StorageDeleteBody(Body, frozen=True):
    """Delete a storage and what is in it."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]


BODIES: dict[str, type[Body]] = {
    "launch": LaunchBody,
    "exec": ExecBody,
    "status": StatusBody,
    "start": StartBody,
    "stop": ClusterBody,
    "down": ClusterBody,
    "autostop": AutostopBody,
    "queue": QueueBody,
    "job_status": JobStatusBody,
    "cancel": CancelBody,
    "check": CheckBody,
    "enabled_clouds": EnabledCloudsBody,
    "cost_report": CostReportBody,
    "optimize": OptimizeBody,
    "validate": ValidateBody,
    "endpoints": EndpointsBody,
    "list_accelerators": AcceleratorsBody,
    "list_accelerator_counts": AcceleratorsBody,
    "storage_ls": StorageLsBody,
    "storage_delete": StorageDeleteBody,
}


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request failed: the name of the error's class, its message, and what else it carries."""

    type: str
    message: str
    details: dict[str, Any] = {}


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is."""

    request_id: str
    name: str
    status: RequestStatus
    created_at: float
    user: str
    started_at: float | None = None
    finished_at: float | None = None
    cluster_name: str | None = None
    result: Any = None
    error: ErrorRecord | None = None


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """That a request is written down; with its result where it has that already."""

    request_id: str
    record: RequestRecord


class RequestList(msgspec.Struct, frozen=True, kw_only=True):
    """Some requests, newest first."""

    items: tuple[RequestRecord, ...]


class CancelRequests(Body, frozen=True):
    """Which requests to cancel, by ids or what they begin with; none named: all of the caller's."""

    request_ids: Annotated[tuple[RequestPrefix, ...], Meta(max_length=500)] | None = None
    all_users: bool = False


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests were cancelled now."""

    request_ids: tuple[str, ...]


class LogsBody(Body, frozen=True):
    """Which job's output to send: ``job_id`` None: the newest's. ``tail``: only so many of the last lines."""

    cluster_name: Named
    job_id: JobNumber | None = None
    follow: bool = True
    tail: Annotated[int, Meta(ge=0, le=TAIL_LINES_MAX)] = 0
    all_users: bool = False


class ServerLogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the server's own log, and the place behind it."""

    place: int
    text: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """That a server is there, and what it speaks."""

    status: Literal["healthy"]
    api_version: str
    min_compatible_api_version: str
    version: str
    commit: str
    user: dict[str, str] | None
    basic_auth_enabled: bool
