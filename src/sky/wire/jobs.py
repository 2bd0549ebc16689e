"""Paid jobs, as customers ask for them and are shown them.

Decides: every field and limit of the shapes of face 3. Never: which request is refused (``verbs/job_rules``):
a field that is wrong has a code of its own, so requests take what fits their types and are judged later.
Follows: money is a decimal string with six places; moments are whole seconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

PATHS_FROM = "/compute/v1"
METADATA_MAX = 16
KEY_CHARS_MAX = 255
RUNTIME_SECONDS_MAX = 86_400
FILE_BYTES_MAX = 5 * 1024**3
FILES_MAX = 10_000
JOB_ID = r"^job_[0-9A-HJKMNP-TV-Z]{26}$"
EVENT_ID = r"^evt_[0-9A-HJKMNP-TV-Z]{26}$"
SHA256 = r"^[0-9a-f]{64}$"
PREFIX_RESERVED = "UNIFY_COMPUTE_"
"""Names of environment variables that are ours."""

JobStatus = Literal["queued", "provisioning", "running", "succeeded", "failed", "interrupted", "cancelled"]
AccountState = Literal["active", "suspended", "closed"]
Tier = Literal["hyperscaler", "neocloud", "marketplace"]
Scope = Literal["read", "jobs"]
ErrorType = Literal[
    "invalid_request",
    "authentication_error",
    "permission_error",
    "insufficient_balance",
    "quota_exceeded",
    "not_found",
    "conflict",
    "rate_limited",
    "internal_error",
    "not_implemented",
    "console_unavailable",
    "upstream_unavailable",
    "storage_unavailable",
]
LimitName = Literal[
    "max_active_jobs", "max_queued_jobs", "max_gpus", "platform_max_active_jobs", "platform_max_gpus"
]
Overridable = Literal["sku", "providers", "spec.command", "spec.env", "spec.max_runtime_seconds"]

Usd = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+$", description="USD as a decimal string.")]
Pairs = Annotated[dict[str, str], Meta(max_length=METADATA_MAX)]
UnixSeconds = Annotated[int, Meta(description="Seconds since 1970, in UTC.")]
JobId = Annotated[str, Meta(pattern=JOB_ID)]
EventId = Annotated[str, Meta(pattern=EVENT_ID)]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Anything a customer sends: a field we do not know is refused, never ignored."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Anything we answer with. A field with a default is left out where it says nothing."""


# ── failures ────────────────────────────────────────────────────────────────────────────────────


class QuotaViolation(Answer, frozen=True):
    """One limit that a job would exceed, and what is left of it."""

    limit: LimitName
    max: int
    used: int
    requested: int
    headroom: int
    tier: Tier | msgspec.UnsetType = msgspec.UNSET


class Error(Answer, frozen=True):
    """What was wrong: ``type`` is the class, ``code`` the reason, ``param`` the field at fault."""

    type: ErrorType
    code: str
    message: str
    param: str | msgspec.UnsetType = msgspec.UNSET
    quotas: tuple[QuotaViolation, ...] | msgspec.UnsetType = msgspec.UNSET


class ErrorEnvelope(Answer, frozen=True):
    """Every failure of this face."""

    error: Error


# ── the catalogue ───────────────────────────────────────────────────────────────────────────────


class Health(Answer, frozen=True):
    """That it serves, and which build it is."""

    status: Literal["ok"]
    service: Literal["compute-api"]
    build: str


class Provider(Answer, frozen=True):
    """A place where a SKU can run."""

    cloud: str
    instance_type: str | msgspec.UnsetType = msgspec.UNSET
    context: str | msgspec.UnsetType = msgspec.UNSET
    regions: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class SKU(Answer, frozen=True):
    """A kind of machine that is sold, and its price."""

    id: str
    object: Literal["compute.sku"]
    gpu: str
    accelerator: str
    gpu_count: int
    gpu_memory_gb: int
    vcpus: int
    memory_gb: int
    price_usd_per_hour: Usd
    tier: Literal["hyperscaler", "neocloud", "marketplace", ""]
    interruptible: bool
    regions: tuple[str, ...] | None
    providers: tuple[Provider, ...] | None
    available: bool
    interconnect: Literal["pcie", "nvlink"] | msgspec.UnsetType = msgspec.UNSET
    network: Literal["ethernet", "infiniband"] | msgspec.UnsetType = msgspec.UNSET


class SKUList(Answer, frozen=True):
    """Everything that is sold, and what is listed without being sold."""

    object: Literal["list"]
    data: tuple[SKU, ...]
    note: str


class Upstream(Answer, frozen=True):
    """A cloud that SKUs name, and whether this deployment can use it."""

    object: Literal["compute.upstream"]
    cloud: str
    enabled: bool
    skus: tuple[str, ...]


class UpstreamList(Answer, frozen=True):
    """Every cloud that a SKU names."""

    object: Literal["list"]
    data: tuple[Upstream, ...]


class TemplateMount(Answer, frozen=True):
    """A folder that a template reads or writes."""

    mount: str
    description: str


class Template(Answer, frozen=True):
    """A job that is written down already, to be submitted by its name."""

    id: str
    object: Literal["compute.template"]
    title: str
    description: str
    image: str
    command: tuple[str, ...] | None
    env: dict[str, str]
    sku: str
    max_runtime_seconds: Annotated[int, Meta(ge=1, le=RUNTIME_SECONDS_MAX)]
    inputs: tuple[TemplateMount, ...] | None
    outputs: tuple[TemplateMount, ...] | None
    overridable: tuple[Overridable, ...] | None
    available: bool
    image_licence: str | msgspec.UnsetType = msgspec.UNSET
    image_source: str | msgspec.UnsetType = msgspec.UNSET
    unavailable_reason: str | msgspec.UnsetType = msgspec.UNSET


class TemplateList(Answer, frozen=True):
    """Every template, those that cannot be used included."""

    object: Literal["list"]
    data: tuple[Template, ...]


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────


class JobInput(Request, frozen=True):
    """A file to have before the command begins: downloaded from ``source`` into the folder ``mount``."""

    source: str
    mount: str


class JobOutput(Request, frozen=True):
    """A folder whose files are kept when the command has ended."""

    mount: str


class JobSpec(Request, frozen=True):
    """What to run. ``command`` is the whole argument vector; the image's entrypoint is not used."""

    image: str | msgspec.UnsetType = msgspec.UNSET
    command: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    env: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    inputs: tuple[JobInput, ...] | msgspec.UnsetType = msgspec.UNSET
    outputs: tuple[JobOutput, ...] | msgspec.UnsetType = msgspec.UNSET
    max_runtime_seconds: (
        Annotated[int, Meta(description="1 to 86400; a deployment may allow less.")] | msgspec.UnsetType
    ) = msgspec.UNSET


class JobRetry(Request, frozen=True):
    """When a job whose machine was lost is begun again: ``max`` times at most, after what ``on`` names: its
    spot machine was taken (``interrupted``), or its machine failed (``node_lost``)."""

    max: Annotated[int, Meta(description="1 to 10.")]
    on: tuple[Literal["interrupted", "node_lost"], ...] = ("interrupted",)


class SubmitJobRequest(Request, frozen=True):
    """A job to run: a SKU and a spec, or a template that brings both."""

    template: str | msgspec.UnsetType = msgspec.UNSET
    sku: str | msgspec.UnsetType = msgspec.UNSET
    providers: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    spec: JobSpec | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    after: (
        Annotated[
            tuple[str, ...], Meta(description="Jobs of yours that must have succeeded before: 16 at most.")
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    retry: JobRetry | msgspec.UnsetType = msgspec.UNSET


class JobUsage(Answer, frozen=True):
    """What a job has used and costs. ``settled_cost_usd`` is 0 until it is settled."""

    gpu_seconds: int
    estimated_cost_usd: Usd
    settled_cost_usd: Usd
    hold_usd: Usd


class JobPlacement(Answer, frozen=True):
    """Where a job landed."""

    cloud: str
    region: str
    instance_type: str


class JobError(Answer, frozen=True):
    """Why a job ended without success."""

    code: str
    message: str


class Job(Answer, frozen=True):
    """A job, with its cost so far."""

    id: JobId
    object: Literal["compute.job"]
    status: JobStatus
    sku: str
    created_at: UnixSeconds
    started_at: UnixSeconds | None
    finished_at: UnixSeconds | None
    spec: JobSpec
    usage: JobUsage
    error: JobError | None
    placement: JobPlacement | None
    metadata: dict[str, str]
    after: tuple[JobId, ...] | msgspec.UnsetType = msgspec.UNSET
    retry: JobRetry | msgspec.UnsetType = msgspec.UNSET
    retries: Annotated[int, Meta(ge=0, description="How often it was begun again.")] = 0


class JobList(Answer, frozen=True):
    """Some of an owner's jobs, newest first."""

    object: Literal["list"]
    data: tuple[Job, ...]
    has_more: bool
    next: str | msgspec.UnsetType | None = msgspec.UNSET


class Event(Answer, frozen=True):
    """Something that happened to a job. Also the body of a webhook."""

    id: EventId
    object: Literal["compute.event"]
    job_id: str
    type: str
    created_at: UnixSeconds
    data: dict[str, Any]


class EventList(Answer, frozen=True):
    """Some of a job's events, oldest first."""

    object: Literal["list"]
    data: tuple[Event, ...]
    has_more: bool
    next: str | msgspec.UnsetType = msgspec.UNSET


class Artifact(Answer, frozen=True):
    """A file that a job wrote, and where it can be had for a while."""

    object: Literal["compute.artifact"]
    path: str
    size: Annotated[int, Meta(ge=0)]
    sha256: str
    url: str
    expires_at: UnixSeconds


class ArtifactList(Answer, frozen=True):
    """A job's files. ``complete`` is false until its upload has ended."""

    object: Literal["list"]
    data: tuple[Artifact, ...]
    complete: bool
    truncated: bool


class UploadWish(Request, frozen=True):
    """A file that a job's node wants to upload."""

    path: str
    size: Annotated[int, Meta(ge=0, le=FILE_BYTES_MAX)]
    sha256: Annotated[str, Meta(pattern=SHA256)]


class ManifestWritten(Answer, frozen=True):
    """The list of a job's files was written."""

    object: Literal["compute.artifact_manifest"]
    files: Annotated[int, Meta(ge=0)]
    truncated: bool
