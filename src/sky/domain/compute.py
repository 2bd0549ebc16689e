"""A compute: how many nodes somebody wants, of which kind, and whether they are there.

Decides: its facts, the table of its legal moves, and the values a plan reads.
Never: which nodes to ask for (``plan/compute``). Follows: ``deleted`` is final, and so is ``failed``
but for its deletion.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from sky.domain.lifecycle import Fact, Move, Table
from sky.domain.offer import Market

REQUESTED, PROVISIONING, RECOVERING = "requested", "provisioning", "recovering"
READY, DEGRADED, FAILED = "ready", "degraded", "failed"
DELETING, DELETED = "deleting", "deleted"

ACCEPTING = frozenset({REQUESTED, PROVISIONING, RECOVERING, READY, DEGRADED})
LIVE = ACCEPTING | {FAILED, DELETING}
STATES: dict[str, str] = {
    REQUESTED: "Asked for; no loop has looked yet. Left within a tick.",
    PROVISIONING: "Nodes are being bought or made ready, and it has never been ready as it is now wanted.",
    RECOVERING: "It was ready, nodes were lost, and others are being bought in their place.",
    READY: "As many nodes as wanted are ready.",
    DEGRADED: "Nodes are missing and the last try to buy them failed; it is tried again.",
    FAILED: "Nothing that its spec allows can ever be bought. Left only by deletion.",
    DELETING: "Its machines are being given back.",
    DELETED: "Every machine is gone, on its provider's word. Final.",
}


class Bounds(Struct, frozen=True):
    """How many nodes are wanted; ``low`` and ``high`` differ only when the compute scales itself."""

    desired: int
    low: int
    high: int


class Alternative(Struct, frozen=True):
    """One kind of machine that would do. Costs in micro-dollars per hour.

    ``market``: the only one on which it may be bought, whatever the spec says of all. ``place``: its place
    in the order of preference, where that is not its place in the spec.
    """

    provider: str
    accelerator: str | None
    accelerator_count: int
    cpus: int | None
    memory_gb: float | None
    disk_gb: float | None
    region: str | None
    architecture: str | None
    max_hourly_micro: int | None
    instance_type: str | None = None
    cpus_exact: bool = False
    memory_exact: bool = False
    market: Market | None = None
    place: int | None = None


class Wanted(Struct, frozen=True):
    """The part of a spec that decides what to buy."""

    alternatives: tuple[Alternative, ...]
    selection: str
    allocation: str
    provision_timeout_us: int
    idle_timeout_us: int
    cooldown_us: int
    concurrency: int | None


class ComputeBound(Fact, frozen=True):
    """An offer was chosen for its first node: from here on it is known what it will cost."""


class ComputeProvisioning(Fact, frozen=True):
    """Nodes are missing and being bought."""


class ComputeRecovering(Fact, frozen=True):
    """Nodes that were there are gone and being replaced."""


class ComputeReady(Fact, frozen=True):
    """All wanted nodes are ready."""

    ready_us: int
    last_error: Any = None


class ComputeDegraded(Fact, frozen=True):
    """Nodes are missing and could not be bought just now."""

    last_error: Any


class ComputeNoted(Fact, frozen=True):
    """They still cannot be bought, and the reason is another one."""

    last_error: Any


class ComputeFailed(Fact, frozen=True):
    """Nothing the spec allows can be bought, now or later."""

    last_error: Any


class ComputeResized(Fact, frozen=True):
    """Somebody wants another number of nodes."""

    intent: ClassVar[bool] = True
    spec: Any


class ComputeScaled(Fact, frozen=True):
    """The compute scaled itself, within its bounds, to ``target_nodes``."""

    target_nodes: int
    scaled_us: int


class ComputeDisksKept(Fact, frozen=True):
    """The disks of so many ranks, from 0 on, stay when their machines go; those of others are removed."""

    intent: ClassVar[bool] = True
    disks: int


class ComputeDrifted(Fact, frozen=True):
    """Somebody wants it otherwise. ``pending``: those fields of its spec; ``drift``: what of them differs.

    Both are None when it is wanted again as it is. Nothing of it is applied before a new generation.
    """

    intent: ClassVar[bool] = True
    pending: Any
    drift: Any


class GenerationCreated(Fact, frozen=True):
    """Somebody froze a new definition, and what was pending is part of it or is forgotten."""

    intent: ClassVar[bool] = True
    generation: int
    spec: Any
    pending: None = None
    drift: None = None


class GenerationApplied(Fact, frozen=True):
    """As many nodes as wanted are there and of this generation."""

    observed_generation: int


class LeaseClaimed(Fact, frozen=True):
    """A process holds this compute until a moment."""

    lease_owner: str
    lease_expires_us: int


class ComputeAdopted(Fact, frozen=True):
    """Another process holds it now; the one before let its lease lapse."""

    lease_owner: str
    lease_expires_us: int


class LeaseRenewed(Fact, frozen=True):
    """The holder is still there."""

    lease_expires_us: int


class LeaseReleased(Fact, frozen=True):
    """The holder let go, at ``lease_expires_us``."""

    lease_expires_us: int
    lease_owner: str | None = None


class ComputeAbandoned(Fact, frozen=True):
    """Nobody holds it, and it asked to be deleted when that happens."""

    lease_owner: str | None = None
    lease_expires_us: int | None = None


class ComputeDeleting(Fact, frozen=True):
    """Somebody wants it gone."""

    intent: ClassVar[bool] = True
    deleting_us: int


class DeletionFailed(Fact, frozen=True):
    """A machine could not be given back; it keeps costing and is tried again."""

    last_error: Any


class StraysTerminated(Fact, frozen=True):
    """Machines that no row owned were found under this compute's name and ended."""


class ComputeDeleted(Fact, frozen=True):
    """Every machine is gone."""

    deleted_us: int
    lease_owner: str | None = None
    lease_expires_us: int | None = None


_ANY = ACCEPTING | {FAILED}
MOVES: Table = {
    ComputeBound: Move(ACCEPTING, None, "compute.bound"),
    ComputeProvisioning: Move(ACCEPTING, PROVISIONING, "compute.provisioning"),
    ComputeRecovering: Move(ACCEPTING, RECOVERING, "compute.recovering"),
    ComputeReady: Move(ACCEPTING, READY, "compute.ready"),
    ComputeDegraded: Move(ACCEPTING, DEGRADED, "compute.degraded"),
    ComputeNoted: Move(frozenset({DEGRADED}), None, None),
    ComputeFailed: Move(ACCEPTING, FAILED, "compute.failed"),
    ComputeResized: Move(ACCEPTING, None, "compute.resized"),
    ComputeScaled: Move(ACCEPTING, None, "compute.resized"),
    ComputeDisksKept: Move(ACCEPTING, None, None),
    ComputeDrifted: Move(ACCEPTING, None, None),
    GenerationCreated: Move(ACCEPTING, None, "compute.generation.created"),
    GenerationApplied: Move(ACCEPTING, None, "compute.generation.applied"),
    LeaseClaimed: Move(_ANY, None, "compute.lease.claimed"),
    ComputeAdopted: Move(_ANY, None, "compute.adopted"),
    LeaseRenewed: Move(_ANY, None, None),
    LeaseReleased: Move(LIVE, None, "compute.lease.released"),
    ComputeAbandoned: Move(_ANY, None, "compute.abandoned"),
    ComputeDeleting: Move(_ANY, DELETING, "compute.deleting"),
    DeletionFailed: Move(frozenset({DELETING}), None, "compute.deletion_failed"),
    StraysTerminated: Move(LIVE, None, "compute.strays_terminated"),
    ComputeDeleted: Move(frozenset({DELETING}), DELETED, "compute.deleted"),
}
