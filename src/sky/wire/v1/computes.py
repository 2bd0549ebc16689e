"""Computes, their generations and their nodes, as they are asked for and shown.

Decides: every field, default and limit of them. Never: what a field leads to.
Follows: ``spec`` is what somebody wants, ``status`` what was observed, and only the first is ever sent.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from sky.wire.error import Error
from sky.wire.v1.base import (
    Allocation,
    Answer,
    Architecture,
    BillingUnit,
    ComputeState,
    Count,
    Market,
    Name,
    NodeState,
    Request,
    Retries,
    Seconds,
    Selection,
    Sha256,
    ShortText,
    Text,
    WholeSeconds,
)


class ProviderRef(Request, frozen=True):
    """Which provider may serve a spec: the kind, or the name or id of one that was added."""

    kind: ShortText


class Spec(Request, frozen=True):
    """One kind of machine that would do. Several are alternatives, in order of preference."""

    provider: ProviderRef
    accelerator: ShortText | None = None
    accelerator_count: Annotated[int, Meta(ge=0, le=64)] = 1
    cpus: Annotated[int, Meta(ge=1, le=4096)] | None = None
    memory_gb: Annotated[int, Meta(ge=1, le=65536)] | None = None
    disk_gb: Annotated[int, Meta(ge=1, le=1_048_576)] | None = None
    region: ShortText | None = None
    architecture: Architecture | None = None
    max_hourly_cost: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None


class NodeBounds(Request, frozen=True):
    """How many nodes: ``desired`` now, within ``min`` and ``max`` when the compute may scale itself."""

    desired: Count
    min: Count | None = None
    max: Count | None = None


class PipIndex(Request, frozen=True):
    """A package index, and the packages that may come only from it (none named: any)."""

    url: Text
    packages: tuple[ShortText, ...] = ()


class MetricSpec(Request, frozen=True):
    """A gauge of the user's own: a command whose output is a number, run every ``interval`` seconds."""

    name: ShortText
    command: Text
    interval: Annotated[float, Meta(ge=1, le=3600)]


class Image(Request, frozen=True):
    """What must be on a node before a call can run there."""

    base: ShortText | None = None
    python: ShortText | None = None
    pip: tuple[Text, ...] = ()
    pip_indexes: tuple[PipIndex, ...] = ()
    apt: tuple[ShortText, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    shell_vars: dict[str, str] = field(default_factory=dict[str, str])
    includes: tuple[Text, ...] = ()
    includes_sha256: Sha256 | None = None
    excludes: tuple[Text, ...] = ()
    metrics: tuple[MetricSpec, ...] | None = None
    skyward: Literal["auto", "local", "github", "pypi"] = "auto"
    warm: bool = False
    bootstrap_timeout: Annotated[int, Meta(ge=1, le=86_400)] = 900


class Worker(Request, frozen=True):
    """How a node runs calls: in which kind of process, and how many at once (None: one per CPU)."""

    executor: Literal["thread", "process", "loky"] = "thread"
    concurrency: Annotated[int, Meta(ge=1, le=1024)] | None = None
    buffer: Annotated[int, Meta(ge=0, le=10_000)] = 0
    reuse: bool = True


class RetryPolicy(Request, frozen=True):
    """How often a call is tried again: when it never began, and when it may have begun."""

    safe_retries: Retries = 3
    ambiguous_retries: Retries = 0


class Options(Request, frozen=True):
    """Times and thresholds of a compute. Seconds unless the name says otherwise; 0 means none.

    ``ssh_connect_timeout``: how long a machine's agent may take to call, however the machine is reached.
    ``ssh_retry_delay``, ``ssh_reconnect_attempts``: of machines that are reached over SSH; others call by
    themselves, until their lease is over. ``worker_timeout``: of machines whose workers are waited for from
    here; an agent makes its own. ``cluster``: true asks for machines that can reach each other. The other
    ``health_`` numbers are of the check that ``health_command`` or ``health_function`` names.
    """

    provision_timeout: Seconds = 300.0
    ssh_connect_timeout: Seconds = 240.0
    ssh_retry_delay: Seconds = 2.0
    ssh_reconnect_attempts: Annotated[int, Meta(ge=0, le=10_000)] = 30
    worker_timeout: Seconds = 60.0
    default_compute_timeout: Seconds = 0.0
    autoscale_idle_timeout: Seconds = 30.0
    autoscale_cooldown: Seconds = 0.0
    cluster: bool | None = None
    health_command: Text | None = None
    health_function: Sha256 | None = None
    health_interval: Seconds = 30.0
    health_timeout: Seconds = 15.0
    health_failures: Annotated[int, Meta(ge=1, le=1000)] = 3
    health_initial_delay: Seconds = 0.0


class PluginRef(Request, frozen=True):
    """A plugin by kind (``torch``, ``jax``, ``joblib``, ``sklearn``), with its parameters."""

    kind: ShortText
    params: dict[str, Any] = field(default_factory=dict[str, Any])


class Volume(Request, frozen=True):
    """A bucket mounted on every node."""

    bucket: ShortText
    mount: Text
    prefix: Text = ""
    read_only: bool = True
    storage_sha256: Sha256 | None = None


class ComputeSpec(Request, frozen=True):
    """What somebody wants: machines, what is on them, and how calls run there."""

    specs: Annotated[tuple[Spec, ...], Meta(max_length=32)]
    nodes: NodeBounds
    selection: Selection = "cheapest"
    allocation: Allocation = "spot_if_available"
    image: Image = Image()
    worker: Worker = Worker()
    options: Options = Options()
    plugins: Annotated[tuple[PluginRef, ...], Meta(max_length=32)] = ()
    retry: RetryPolicy = RetryPolicy()
    volumes: Annotated[tuple[Volume, ...], Meta(max_length=32)] = ()
    delete_on_exit: bool = False
    desired: Literal["running", "deleted"] = "running"
    ttl: WholeSeconds = 600


class ComputeCreate(Request, frozen=True):
    """A compute to create, with a name of its own or none."""

    spec: ComputeSpec
    name: Name | None = None


class ComputeSpecPatch(Request, frozen=True):
    """What is wanted otherwise: ``nodes`` at once, the rest with the next generation. null: as it is.

    A field that is named replaces the whole of it.
    """

    nodes: NodeBounds | None = None
    specs: Annotated[tuple[Spec, ...], Meta(max_length=32)] | None = None
    selection: Selection | None = None
    allocation: Allocation | None = None
    image: Image | None = None
    worker: Worker | None = None
    options: Options | None = None
    plugins: Annotated[tuple[PluginRef, ...], Meta(max_length=32)] | None = None
    retry: RetryPolicy | None = None
    volumes: Annotated[tuple[Volume, ...], Meta(max_length=32)] | None = None
    delete_on_exit: bool | None = None
    ttl: WholeSeconds | None = None


class GenerationCreate(Request, frozen=True):
    """A new generation: of the spec as it stands, drift included, or of an earlier one (``source``)."""

    source: Annotated[int, Meta(ge=1)] | None = None
    force: bool = False


class LeaseClaim(Request, frozen=True):
    """Who holds a compute, and for how many seconds from now."""

    owner: Annotated[str, Meta(min_length=1, max_length=256)]
    ttl_seconds: Annotated[int, Meta(ge=1, le=86_400)]


class Lease(Answer, frozen=True):
    """Who holds a compute, and until when; both null when nobody does."""

    owner: str | None = None
    expires_at: datetime | None = None


class ComputeStatus(Answer, frozen=True):
    """What has been observed of a compute. ``drift``: what of its spec waits for a new generation."""

    state: ComputeState
    observed_generation: int
    nodes_ready: int
    nodes_total: int
    drift: tuple[str, ...] = ()
    last_error: Error | None = None
    price_per_hour: float = 0.0
    cost: float = 0.0


class Compute(Answer, frozen=True):
    """A compute: what was asked for (``spec``) and what is there (``status``)."""

    id: str
    name: str | None
    generation: int
    revision: int
    spec: ComputeSpec
    status: ComputeStatus
    lease: Lease
    created_at: datetime


class ComputePage(Answer, frozen=True):
    """Some computes, newest first, and where the next page begins."""

    items: tuple[Compute, ...]
    next_cursor: str | None = None


class Generation(Answer, frozen=True):
    """One frozen definition of a compute."""

    number: int
    spec: ComputeSpec
    hash: str
    applied: bool
    created_at: datetime


class GenerationPage(Answer, frozen=True):
    """A compute's generations, newest first."""

    items: tuple[Generation, ...]
    next_cursor: str | None = None


class Node(Answer, frozen=True):
    """One machine of a compute, from the asking to the giving back.

    ``metrics`` are the gauges that it told last, while it tells: shares in percent, amounts in bytes.
    """

    id: str
    compute_id: str
    rank: int
    generation: int
    revision: int
    state: NodeState
    desired: Literal["present", "deleted"]
    provider_binding: dict[str, Any]
    created_at: datetime
    machine: str | None = None
    address: str | None = None
    accelerator: str | None = None
    market: Market | None = None
    price_per_hour: float | None = None
    billing_unit: BillingUnit | None = None
    launched_at: datetime | None = None
    terminated_at: datetime | None = None
    last_error: Error | None = None
    metrics: dict[str, float] = field(default_factory=dict[str, float])


class NodePage(Answer, frozen=True):
    """A compute's nodes, by rank."""

    items: tuple[Node, ...]
    next_cursor: str | None = None


class Result(Answer, frozen=True):
    """What a command left behind on one node. 127: no such command; 128 + n: ended by signal n."""

    exit_code: int
    stdout: str
    stderr: str


class ShellExit(Answer, frozen=True):
    """How a shell ended. ``lost``: the connection to its node broke, and the node has ended it."""

    state: Literal["open", "ended", "lost"]
    exit_code: int | None = None
    error: str | None = None
