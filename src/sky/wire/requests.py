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
ClusterState = Literal["INIT", "UP", "STOPPED", "AUTOSTOPPING"]
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


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a request asks for."""


class Machine(Body, frozen=True):
    """One kind of machine that would do."""

    infra: Annotated[str, Meta(max_length=64)] | None = None
    region: Annotated[str, Meta(max_length=64)] | None = None
    instance_type: Annotated[str, Meta(max_length=64)] | None = None
    cpus: Annotated[int, Meta(ge=1, le=4096)] | None = None
    memory_gb: Annotated[int, Meta(ge=1, le=65536)] | None = None
    accelerator: Annotated[str, Meta(max_length=64)] | None = None
    accelerator_count: Annotated[int, Meta(ge=1, le=64)] = 1
    use_spot: bool = False
    max_hourly_cost: Annotated[float, Meta(ge=0)] | None = None


class Archive(Body, frozen=True):
    """Files that were uploaded as one archive, and where they go on each node."""

    target: Annotated[str, Meta(min_length=1, max_length=1024)]
    sha256: Sha256
    single: bool = False
    clear: bool = False


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


class ExecBody(Body, frozen=True):
    """Have a task run on a cluster that is there, without its setup."""

    task: TaskConfig
    cluster_name: ClusterName
    dryrun: bool = False
    down: bool = False


class StatusBody(Body, frozen=True):
    """Which clusters to show; none named: all of the caller's."""

    cluster_names: tuple[str, ...] | None = None
    refresh: Literal["NONE", "AUTO", "FORCE"] = "NONE"
    all_users: bool = False


class ClusterBody(Body, frozen=True):
    """Something about one cluster."""

    cluster_name: str
    purge: bool = False
    graceful: bool = False
    graceful_timeout: Annotated[int, Meta(ge=0)] | None = None


class StartBody(Body, frozen=True):
    """Start a stopped cluster."""

    cluster_name: str
    idle_minutes_to_autostop: Annotated[int, Meta(ge=-1, le=525_600)] | None = None
    retry_until_up: bool = False
    down: bool = False
    force: bool = False


class AutostopBody(Body, frozen=True):
    """What is to happen to a cluster when it is idle; below 0: nothing."""

    cluster_name: str
    idle_minutes: Annotated[int, Meta(ge=-1, le=525_600)]
    down: bool = False


class QueueBody(Body, frozen=True):
    """Which jobs of a cluster to show."""

    cluster_name: str
    skip_finished: bool = False
    all_users: bool = False


class JobStatusBody(Body, frozen=True):
    """Which jobs' states to tell; none named: the newest."""

    cluster_name: str
    job_ids: tuple[int, ...] | None = None


class CancelBody(Body, frozen=True):
    """Which jobs to cancel; none named and not all: the newest that is under way."""

    cluster_name: str
    job_ids: tuple[int, ...] | None = None
    all: bool = False
    all_users: bool = False


class NothingBody(Body, frozen=True):
    """A request that says it all with its name."""


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
    "check": NothingBody,
    "enabled_clouds": NothingBody,
    "cost_report": NothingBody,
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

    request_ids: tuple[str, ...] | None = None
    all_users: bool = False


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests were cancelled now."""

    request_ids: tuple[str, ...]


class LogsBody(Body, frozen=True):
    """Which job's output to send: ``job_id`` None: the newest's. ``tail``: only so many of the last lines."""

    cluster_name: str
    job_id: int | None = None
    follow: bool = True
    tail: Annotated[int, Meta(ge=0)] = 0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """That a server is there, and what it speaks."""

    status: Literal["healthy"]
    api_version: str
    min_compatible_api_version: str
    version: str
    commit: str
    user: dict[str, str] | None
    basic_auth_enabled: bool
