"""Face 1's shapes: what ``/v1`` takes and answers with.

Decides: every field, default, enumeration and limit of the control plane's JSON.
Never: what a field leads to; and no shape here is read by the database.
Follows: the OpenAPI document is generated from these structs, so a change here is a change of interface.
Requests refuse unknown fields. Moments are UTC; prices are USD per hour; sizes name their unit.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from sky.wire.error import Error

NODES_MAX = 10_000
INLINE_ARGUMENT_BYTES_MAX = 256 * 1024
BATCH_TASKS_MAX = 1_000
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"

ComputeState = Literal[
    "requested", "provisioning", "recovering", "ready", "degraded", "deleting", "deleted", "failed"
]
NodeState = Literal[
    "requested",
    "provisioning",
    "connecting",
    "bootstrapping",
    "ready",
    "draining",
    "lost",
    "deleting",
    "deleted",
    "failed",
]
TaskState = Literal["queued", "running", "succeeded", "failed", "cancelled", "timed_out", "indeterminate"]
ExecutionState = Literal[
    "created",
    "assigned",
    "dispatching",
    "accepted",
    "started",
    "cancel_requested",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
    "indeterminate",
]
TaskEventState = Literal[
    "queued", "started", "succeeded", "failed", "cancelled", "timed_out", "indeterminate"
]
Dispatch = Literal["one", "all", "stream"]
Allocation = Literal["spot", "on_demand", "spot_if_available", "cheapest"]
Selection = Literal["cheapest", "first"]
BillingUnit = Literal["second", "minute", "hour"]
Market = Literal["spot", "on_demand"]
Architecture = Literal["x86_64", "arm64"]
DependencyState = Literal["ok", "unreachable"]

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
ShortText = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=4096)]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, le=NODES_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
WholeSeconds = Annotated[int, Meta(ge=0, le=31_536_000)]
Retries = Annotated[int, Meta(ge=0, le=100)]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Anything a caller sends: a field we do not know is refused, never ignored."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Anything we answer with."""


# ── computes ────────────────────────────────────────────────────────────────────────────────────


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
    """Times and thresholds of a compute. Seconds unless the name says otherwise; 0 means none."""

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
    """A plugin by kind, with its parameters."""

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
    """The part of a compute that changes in place: its number of nodes."""

    nodes: NodeBounds


class GenerationCreate(Request, frozen=True):
    """A new generation: of the spec as it stands, or of an earlier one (``source``)."""

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
    """What has been observed of a compute."""

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
    """One machine of a compute, from the asking to the giving back."""

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


class NodePage(Answer, frozen=True):
    """A compute's nodes, by rank."""

    items: tuple[Node, ...]
    next_cursor: str | None = None


class Result(Answer, frozen=True):
    """What a command left behind on one node. 127: no such command; 128 + n: ended by signal n."""

    exit_code: int
    stdout: str
    stderr: str


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────


class TaskCreate(Request, frozen=True):
    """One call to make. Its arguments travel inline (base64 in JSON) or as a stored blob: one of both."""

    compute: ShortText
    function: Sha256
    dispatch: Dispatch = "one"
    args_sha256: Sha256 | None = None
    args_inline: bytes | None = None
    rank: Annotated[int, Meta(ge=0, le=NODES_MAX)] | None = None
    retry: RetryPolicy | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    correlation_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None


class BatchCall(Request, frozen=True):
    """The arguments of one call of a batch, inline or stored."""

    args_sha256: Sha256 | None = None
    args_inline: bytes | None = None


class TaskBatchCreate(Request, frozen=True):
    """Many calls of one function, admitted together or not at all. Each is a task of its own."""

    compute: ShortText
    function: Sha256
    calls: Annotated[tuple[BatchCall, ...], Meta(min_length=1, max_length=BATCH_TASKS_MAX)]
    correlation_id: Annotated[str, Meta(min_length=1, max_length=256)]
    retry: RetryPolicy | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None


class TaskBatch(Answer, frozen=True):
    """The tasks of a batch, in the order of their calls."""

    tasks: tuple[str, ...]


class Execution(Answer, frozen=True):
    """One physical attempt of a task, on one node."""

    id: str
    ordinal: int
    rank: int
    state: ExecutionState
    node_id: str | None = None
    retry_of: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result_sha256: str | None = None
    error: Error | None = None


class ExecutionPage(Answer, frozen=True):
    """A task's executions, in the order they were made."""

    items: tuple[Execution, ...]
    next_cursor: str | None = None


class ExecutionCreate(Request, frozen=True):
    """A person's retry of a task: of all its ranks, or of some."""

    acknowledge_duplication: bool = False
    ranks: tuple[Annotated[int, Meta(ge=0, le=NODES_MAX)], ...] | None = None


class Task(Answer, frozen=True):
    """One call, wanted once, with exactly one outcome."""

    id: str
    compute_id: str
    generation: int
    function: str
    args_sha256: str
    dispatch: Dispatch
    state: TaskState
    retry: RetryPolicy
    executions: tuple[Execution, ...]
    submitted_at: datetime
    result_sha256: str | None = None
    correlation_id: str | None = None
    deadline_at: datetime | None = None
    finished_at: datetime | None = None


class TaskPage(Answer, frozen=True):
    """Some tasks, newest first."""

    items: tuple[Task, ...]
    next_cursor: str | None = None


class TaskOutcome(Answer, frozen=True):
    """How one task of a correlation ended. A small result is inline; a large one is named by its hash.

    ``console_lines`` is how many lines of output its executions wrote, so that a reader of the event
    stream knows when it has seen all of them.
    """

    task: str
    state: TaskState
    seq: int
    result: bytes | None = None
    result_sha256: str | None = None
    error: Error | None = None
    node_id: str | None = None
    seconds: float = 0.0
    console_lines: int = 0


class TaskOutcomePage(Answer, frozen=True):
    """The outcomes after a cursor, in the order they came; ``next_cursor`` is where to go on from."""

    items: tuple[TaskOutcome, ...]
    next_cursor: int
    open: int


# ── code and content ────────────────────────────────────────────────────────────────────────────


class FunctionCreate(Request, frozen=True):
    """Registers a blob that is already stored as a function."""

    codec: Annotated[str, Meta(min_length=1, max_length=64)]
    name: ShortText | None = None


class Function(Answer, frozen=True):
    """A piece of code, named by its hash."""

    sha256: str
    codec: str
    size_bytes: int
    created_at: datetime
    name: str | None = None


class FunctionPage(Answer, frozen=True):
    """Some functions, newest first."""

    items: tuple[Function, ...]
    next_cursor: str | None = None


# ── providers and offers ────────────────────────────────────────────────────────────────────────


class ProviderCreate(Request, frozen=True):
    """A place to get machines from. ``credentials`` are kept encrypted and never served back."""

    kind: ShortText
    name: Name
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    credentials: dict[str, str] = field(default_factory=dict[str, str])


class Provider(Answer, frozen=True):
    """A place to get machines from."""

    id: str
    name: str
    kind: str
    config: dict[str, Any]
    offers_ttl_seconds: int
    created_at: datetime
    offers_count: int = 0
    offers_fetched_at: datetime | None = None
    last_error: Error | None = None


class ProviderPage(Answer, frozen=True):
    """The providers that were added, by name."""

    items: tuple[Provider, ...]
    next_cursor: str | None = None


class ProviderKind(Answer, frozen=True):
    """A kind of provider this build knows, and the credentials it takes."""

    kind: str
    credential_fields: tuple[str, ...]
    offers_ttl_seconds: int


class Offer(Answer, frozen=True):
    """A machine that a provider would sell now. Prices are USD per hour."""

    id: str
    provider_id: str
    provider_name: str
    kind: str
    instance_type: str
    cpus: int
    memory_gb: float
    accelerator_count: int
    fetched_at: datetime
    expires_at: datetime
    accelerator: str | None = None
    vram: float | None = None
    disk_gb: float | None = None
    architecture: str | None = None
    region: str | None = None
    available: int | None = None
    price: float | None = None
    on_demand_price: float | None = None
    spot_price: float | None = None
    billing_unit: BillingUnit = "hour"
    specific: dict[str, Any] = field(default_factory=dict[str, Any])


class OfferPage(Answer, frozen=True):
    """Offers, cheapest first."""

    items: tuple[Offer, ...]
    next_cursor: str | None = None


# ── health and loops ────────────────────────────────────────────────────────────────────────────


class Liveness(Answer, frozen=True):
    """The process answers."""

    live: bool


class Readiness(Answer, frozen=True):
    """The process can serve: its database answers and its loops run."""

    ready: bool


class Decision(Answer, frozen=True):
    """What a loop last decided about one key, when, and when it will look again (null: settled)."""

    loop: str
    key: str
    decision: str
    decided_at: datetime | None = None
    next_at: datetime | None = None
    failures: int = 0
    error: str | None = None


class DecisionPage(Answer, frozen=True):
    """What the loops last decided, most recent first."""

    items: tuple[Decision, ...]
    next_cursor: str | None = None


# ── events ──────────────────────────────────────────────────────────────────────────────────────


class ComputeEvent(Answer, frozen=True, tag="compute.state", tag_field="type"):
    """A compute moved, or something was noted about it."""

    compute: str
    state: ComputeState
    error: str | None = None
    generation: int | None = None
    owner: str | None = None
    count: int | None = None


class ComputeAbandoned(Answer, frozen=True, tag="compute.abandoned", tag_field="type"):
    """Nobody holds this compute any more, and it asked to be deleted when that happens."""

    compute: str


class CostEvent(Answer, frozen=True, tag="compute.cost", tag_field="type"):
    """What a compute has cost so far in USD. Published, not recorded."""

    compute: str
    cost: float
    nodes: int
    at: datetime


class NodeEvent(Answer, frozen=True, tag="node.state", tag_field="type"):
    """A node moved."""

    compute: str
    node: str
    state: NodeState
    error: str | None = None
    rank: int | None = None


class ConsoleEvent(Answer, frozen=True, tag="node.console", tag_field="type"):
    """Output of a node: whole lines, in the order they were written there."""

    compute: str
    node: str
    content: str
    task: str | None = None
    stream: Literal["stdout", "stderr"] = "stdout"
    rank: int | None = None


class PhaseEvent(Answer, frozen=True, tag="node.phase", tag_field="type"):
    """A step of making a node ready began or ended."""

    compute: str
    node: str
    phase: str
    event: Literal["started", "completed", "failed"]
    at: datetime
    error: str | None = None


class MetricEvent(Answer, frozen=True, tag="node.metrics", tag_field="type"):
    """A gauge of a node. Published, not recorded."""

    compute: str
    node: str
    name: str
    value: float


class TaskEvent(Answer, frozen=True, tag="task.state", tag_field="type"):
    """A task moved."""

    compute: str
    task: str
    state: TaskEventState
    error: str | None = None


Event = (
    ComputeEvent
    | ComputeAbandoned
    | CostEvent
    | NodeEvent
    | ConsoleEvent
    | PhaseEvent
    | MetricEvent
    | TaskEvent
)
"""What ``data:`` of a message of ``GET /v1/events`` is, told apart by ``type``."""


# ── generator items ─────────────────────────────────────────────────────────────────────────────


class Chunk(Answer, frozen=True, tag="chunk", tag_field="status"):
    """One item of a generator: a payload in the codec of its function."""

    value: bytes


class Failed(Answer, frozen=True, tag="failed", tag_field="status"):
    """The generator raised. The last frame of its stream; ``payload`` is the pickled error, if any."""

    error: str
    traceback: str = ""
    payload: bytes | None = None


Frame = Chunk | Failed
"""One frame of ``GET /v1/tasks/{id}/stream``: msgpack behind its length in four big-endian bytes."""
