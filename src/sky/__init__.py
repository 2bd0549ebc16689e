"""Skyfleet: turn any machines into compute that can be called, scripted and sold.

Decides: the public names, and that each is loaded when it is first used.
Never: imports anything of its own at import, because every process of the product begins with this line.
Follows: ``import sky`` costs a few milliseconds on nodes, in commands and in the daemon alike.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sky import exceptions as exceptions
    from sky.client import errors as errors
    from sky.client import plugins as plugins
    from sky.client.app import App as App
    from sky.client.app import app as app
    from sky.client.asynchronous import AsyncCompute as AsyncCompute
    from sky.client.compute import Compute as Compute
    from sky.client.enums import ClusterStatus as ClusterStatus
    from sky.client.enums import JobStatus as JobStatus
    from sky.client.enums import OptimizeTarget as OptimizeTarget
    from sky.client.enums import RequestStatus as RequestStatus
    from sky.client.enums import StatusRefreshMode as StatusRefreshMode
    from sky.client.errors import AccessDenied as AccessDenied
    from sky.client.errors import ApiError as ApiError
    from sky.client.errors import CallError as CallError
    from sky.client.errors import CapabilityMismatch as CapabilityMismatch
    from sky.client.errors import ComputeFailed as ComputeFailed
    from sky.client.errors import Conflict as Conflict
    from sky.client.errors import DaemonError as DaemonError
    from sky.client.errors import DaemonStartFailed as DaemonStartFailed
    from sky.client.errors import DaemonStopFailed as DaemonStopFailed
    from sky.client.errors import DaemonUnreachable as DaemonUnreachable
    from sky.client.errors import DuplicationNotAcknowledged as DuplicationNotAcknowledged
    from sky.client.errors import InsufficientBalance as InsufficientBalance
    from sky.client.errors import InvalidRequest as InvalidRequest
    from sky.client.errors import JobFailed as JobFailed
    from sky.client.errors import JobNotFound as JobNotFound
    from sky.client.errors import JobRefused as JobRefused
    from sky.client.errors import LeaseHeld as LeaseHeld
    from sky.client.errors import NotEntered as NotEntered
    from sky.client.errors import NotFound as NotFound
    from sky.client.errors import NotInCall as NotInCall
    from sky.client.errors import PackError as PackError
    from sky.client.errors import QuotaExceeded as QuotaExceeded
    from sky.client.errors import RateLimited as RateLimited
    from sky.client.errors import SkyError as SkyError
    from sky.client.errors import TaskCancelled as TaskCancelled
    from sky.client.errors import TaskFailed as TaskFailed
    from sky.client.errors import TaskIndeterminate as TaskIndeterminate
    from sky.client.errors import TaskTimedOut as TaskTimedOut
    from sky.client.errors import TransferFailed as TransferFailed
    from sky.client.function import Function as Function
    from sky.client.function import Pending as Pending
    from sky.client.function import function as function
    from sky.client.handles import Future as Future
    from sky.client.inside import InstanceInfo as InstanceInfo
    from sky.client.inside import instance_info as instance_info
    from sky.client.inside import is_head as is_head
    from sky.client.inside import shard as shard
    from sky.client.items import Items as Items
    from sky.client.job_webhooks import AsyncJobWebhooks as AsyncJobWebhooks
    from sky.client.job_webhooks import JobWebhooks as JobWebhooks
    from sky.client.joblib_backend import joblib_backend as joblib_backend
    from sky.client.jobs import Artifact as Artifact
    from sky.client.jobs import Job as Job
    from sky.client.jobs import Jobs as Jobs
    from sky.client.jobs_async import AsyncArtifact as AsyncArtifact
    from sky.client.jobs_async import AsyncJob as AsyncJob
    from sky.client.jobs_async import AsyncJobs as AsyncJobs
    from sky.client.records import RequestId as RequestId
    from sky.client.resources import Image as Image
    from sky.client.resources import Local as Local
    from sky.client.resources import Options as Options
    from sky.client.resources import PipIndex as PipIndex
    from sky.client.resources import Plugin as Plugin
    from sky.client.resources import Provider as Provider
    from sky.client.resources import Retry as Retry
    from sky.client.resources import Spec as Spec
    from sky.client.resources import Volume as Volume
    from sky.client.resources import Worker as Worker
    from sky.client.sdk import api_cancel as api_cancel
    from sky.client.sdk import api_info as api_info
    from sky.client.sdk import api_login as api_login
    from sky.client.sdk import api_logout as api_logout
    from sky.client.sdk import api_server_logs as api_server_logs
    from sky.client.sdk import api_start as api_start
    from sky.client.sdk import api_status as api_status
    from sky.client.sdk import api_stop as api_stop
    from sky.client.sdk import autostop as autostop
    from sky.client.sdk import cancel as cancel
    from sky.client.sdk import check as check
    from sky.client.sdk import cost_report as cost_report
    from sky.client.sdk import dashboard as dashboard
    from sky.client.sdk import down as down
    from sky.client.sdk import download_logs as download_logs
    from sky.client.sdk import enabled_clouds as enabled_clouds
    from sky.client.sdk import endpoints as endpoints
    from sky.client.sdk import exec as exec
    from sky.client.sdk import get as get
    from sky.client.sdk import job_status as job_status
    from sky.client.sdk import launch as launch
    from sky.client.sdk import list_accelerator_counts as list_accelerator_counts
    from sky.client.sdk import list_accelerators as list_accelerators
    from sky.client.sdk import optimize as optimize
    from sky.client.sdk import queue as queue
    from sky.client.sdk import start as start
    from sky.client.sdk import status as status
    from sky.client.sdk import stop as stop
    from sky.client.sdk import storage_delete as storage_delete
    from sky.client.sdk import storage_ls as storage_ls
    from sky.client.sdk import stream_and_get as stream_and_get
    from sky.client.sdk import tail_logs as tail_logs
    from sky.client.sdk import validate as validate
    from sky.client.tasks.clouds import AWS as AWS
    from sky.client.tasks.clouds import GCP as GCP
    from sky.client.tasks.clouds import SSH as SSH
    from sky.client.tasks.clouds import Azure as Azure
    from sky.client.tasks.clouds import K8s as K8s
    from sky.client.tasks.clouds import Kubernetes as Kubernetes
    from sky.client.tasks.dag import Dag as Dag
    from sky.client.tasks.resources import Resources as Resources
    from sky.client.tasks.storage import Storage as Storage
    from sky.client.tasks.task import Task as Task
    from sky.client.together import gather as gather
    from sky.client.together import mapped as map

__version__: str

_WHERE = {
    "app": "App app",
    "asynchronous": "AsyncCompute",
    "compute": "Compute",
    "enums": "ClusterStatus JobStatus OptimizeTarget RequestStatus StatusRefreshMode",
    "errors": (
        "AccessDenied ApiError CallError CapabilityMismatch ComputeFailed Conflict DaemonError "
        "DaemonStartFailed DaemonStopFailed DaemonUnreachable DuplicationNotAcknowledged "
        "InsufficientBalance InvalidRequest "
        "JobFailed JobNotFound JobRefused LeaseHeld NotEntered NotFound NotInCall PackError "
        "QuotaExceeded RateLimited SkyError TaskCancelled TaskFailed TaskIndeterminate TaskTimedOut "
        "TransferFailed"
    ),
    "function": "Function Pending function",
    "handles": "Future",
    "joblib_backend": "joblib_backend",
    "job_webhooks": "AsyncJobWebhooks JobWebhooks",
    "jobs": "Artifact Job Jobs",
    "jobs_async": "AsyncArtifact AsyncJob AsyncJobs",
    "inside": "InstanceInfo instance_info is_head shard",
    "items": "Items",
    "records": "RequestId",
    "sdk": (
        "api_cancel api_info api_login api_logout api_server_logs api_start api_status api_stop "
        "autostop cancel check cost_report dashboard down download_logs enabled_clouds endpoints "
        "exec get job_status launch list_accelerator_counts list_accelerators optimize queue "
        "start status stop storage_delete storage_ls stream_and_get tail_logs validate"
    ),
    "resources": "Image Local Options PipIndex Plugin Provider Retry Spec Volume Worker",
    "tasks.clouds": "AWS Azure GCP K8s Kubernetes SSH",
    "tasks.dag": "Dag",
    "tasks.resources": "Resources",
    "tasks.storage": "Storage",
    "tasks.task": "Task",
    "together": "gather",
}
_HOMES = {name: (f"sky.client.{module}", name) for module, names in _WHERE.items() for name in names.split()}
_HOMES["exceptions"] = ("sky.exceptions", "")
_HOMES["errors"] = ("sky.client.errors", "")
_HOMES["plugins"] = ("sky.client.plugins", "")
_HOMES["map"] = ("sky.client.together", "mapped")
_HOMES["__version__"] = ("sky.kit.version", "VERSION")

__all__ = [
    "AWS",
    "GCP",
    "SSH",
    "AccessDenied",
    "ApiError",
    "App",
    "Artifact",
    "AsyncArtifact",
    "AsyncCompute",
    "AsyncJob",
    "AsyncJobWebhooks",
    "AsyncJobs",
    "Azure",
    "CallError",
    "CapabilityMismatch",
    "ClusterStatus",
    "Compute",
    "ComputeFailed",
    "Conflict",
    "DaemonError",
    "DaemonStartFailed",
    "DaemonStopFailed",
    "DaemonUnreachable",
    "Dag",
    "DuplicationNotAcknowledged",
    "Function",
    "Future",
    "Image",
    "InstanceInfo",
    "InsufficientBalance",
    "InvalidRequest",
    "Items",
    "Job",
    "JobFailed",
    "JobNotFound",
    "JobRefused",
    "JobStatus",
    "JobWebhooks",
    "Jobs",
    "K8s",
    "Kubernetes",
    "LeaseHeld",
    "Local",
    "NotEntered",
    "NotFound",
    "NotInCall",
    "OptimizeTarget",
    "Options",
    "PackError",
    "Pending",
    "PipIndex",
    "Plugin",
    "Provider",
    "QuotaExceeded",
    "RateLimited",
    "RequestId",
    "RequestStatus",
    "Resources",
    "Retry",
    "SkyError",
    "Spec",
    "StatusRefreshMode",
    "Storage",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskIndeterminate",
    "TaskTimedOut",
    "TransferFailed",
    "Volume",
    "Worker",
    "__version__",
    "api_cancel",
    "api_info",
    "api_login",
    "api_logout",
    "api_server_logs",
    "api_start",
    "api_status",
    "api_stop",
    "app",
    "autostop",
    "cancel",
    "check",
    "cost_report",
    "dashboard",
    "down",
    "download_logs",
    "enabled_clouds",
    "endpoints",
    "errors",
    "exceptions",
    "exec",
    "function",
    "gather",
    "get",
    "instance_info",
    "is_head",
    "job_status",
    "joblib_backend",
    "launch",
    "list_accelerator_counts",
    "list_accelerators",
    "map",
    "optimize",
    "plugins",
    "queue",
    "shard",
    "start",
    "status",
    "stop",
    "storage_delete",
    "storage_ls",
    "stream_and_get",
    "tail_logs",
    "validate",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'sky' has no attribute {name!r}")
    module, attribute = home
    value: object = importlib.import_module(module)
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
