"""What requests that ask something are answered with, and what is sent beside requests.

Decides: the fields of these records. Never: how they are found. Follows: a record has everything that a table
of it shows, as numbers; money is in USD, times in seconds since 1970.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sky.wire.requests import Body, JobNumbers, Named


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that would do for a task. ``hourly_cost`` of one in USD, ``total_cost`` of all its nodes."""

    infra: str
    instance_type: str
    cpus: float
    memory_gb: float
    hourly_cost: float
    total_cost: float
    region: str | None = None
    zone: str | None = None
    accelerator: str | None = None
    accelerator_count: int = 0
    use_spot: bool = False
    chosen: bool = False


class PassedOver(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, or what a task asked for, that is not to be had, and why."""

    what: str
    reason: str


class Optimized(msgspec.Struct, frozen=True, kw_only=True):
    """Which machines would do for one task, the best first, and which one is taken."""

    name: str | None
    num_nodes: int
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    passed_over: tuple[PassedOver, ...] = ()


class AcceleratorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with accelerators. Prices in USD an hour, memory in GB.

    ``source``: ``list`` are list prices of ``as_of``; ``live`` is what a provider of this server offers now.
    """

    cloud: str
    instance_type: str
    accelerator_name: str
    accelerator_count: float
    cpu_count: float | None
    device_memory: float | None
    memory: float | None
    price: float | None
    spot_price: float | None
    region: str | None
    source: Literal["list", "live"] = "list"
    as_of: str | None = None


class InfraRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Whether machines of an infra can be had, and if not why, and what to do. ``name``: of its provider."""

    infra: str
    enabled: bool
    name: str | None = None
    reason: str | None = None
    hint: str | None = None
    offers: int = 0
    regions: tuple[str, ...] = ()
    checked_at: float | None = None


class StorageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A storage. ``persistent``: it stays when the cluster is gone that it was made for."""

    name: str
    owner: str
    sha256: str
    size_bytes: int
    created_at: float
    last_used_at: float
    persistent: bool
    in_use: bool


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, each as the request shows it that asks the same."""

    items: tuple[dict[str, Any], ...]


class DownloadLogsBody(Body, frozen=True):
    """Which jobs' logs to send; none named: those of all jobs."""

    cluster_name: Named
    job_ids: JobNumbers | None = None
    all_users: bool = False


class Uploaded(msgspec.Struct, frozen=True, kw_only=True):
    """That an archive is there, under its hash."""

    sha256: str
