"""What a plan reads: rows as frozen values, as they were in one snapshot.

Decides: which facts a decision may depend on. Never: how they are read (``store/snapshots``).
Follows: a plan that needs to know something new says so here.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sky.domain.compute import Bounds, Wanted
from sky.domain.offer import Offer
from sky.domain.task import Tries


class NodeView(Struct, frozen=True):
    """A node as a plan sees it. ``active``: executions at it or in its mailbox, the last of which came at
    ``assigned_us``; ``worked_us``: when one last ended there. ``unwanted_us``: since when somebody wants it
    gone. The first two moments are known of nodes of computes that scale themselves."""

    id: str
    compute_id: str
    rank: int
    generation: int
    state: str
    provider_id: str | None
    market: str | None
    offer: Offer | None
    machine: str | None
    passed_over: tuple[dict[str, Any], ...]
    last_error: dict[str, Any] | None
    slots: int
    window: int
    active: int
    created_us: int
    launch_deadline_us: int | None
    connect_deadline_us: int | None
    launched_us: int | None
    ready_us: int | None
    last_seen_us: int | None
    deleting_us: int | None
    fenced_us: int | None
    unwanted_us: int | None = None
    worked_us: int | None = None
    assigned_us: int | None = None


class DiskView(Struct, frozen=True):
    """The disk of a rank, and where machines with it can be bought. ``used``: a machine has had it;
    ``going``: its provider was, or is about to be, asked to remove it."""

    name: str
    rank: int
    provider_id: str
    instance_type: str
    region: str | None
    used: bool
    going: bool = False


class ComputeView(Struct, frozen=True):
    """A compute with its nodes. ``waiting`` and ``running`` count executions; ``idle_since_us`` is when
    the last one ended; ``ranks_waited_for`` and ``ranks_at_work`` are how many ranks there must be for what
    is bound to one, and waits or runs. ``listening_us``: since when holders and agents can be heard.
    ``disks_wanted``: the disks of so many ranks stay when their machines go; ``disks``: those there are."""

    id: str
    state: str
    generation: int
    observed_generation: int
    wanted: Wanted
    bounds: Bounds
    desired: str
    target_nodes: int
    scaled_us: int | None
    ready_us: int | None
    last_error: dict[str, Any] | None
    lease_owner: str | None
    lease_expires_us: int | None
    delete_on_exit: bool
    created_us: int
    waiting: int
    running: int
    ranks_waited_for: int
    ranks_at_work: int
    idle_since_us: int
    nodes: tuple[NodeView, ...]
    listening_us: int = 0
    deleting_us: int | None = None
    disks_wanted: int = 0
    disks: tuple[DiskView, ...] = ()


class Source(Struct, frozen=True):
    """A provider that a spec names. ``fresh``: its offers were read not too long ago; ``error``: what it said
    instead of its offers when it was last asked, None: it told them, or was never asked; ``asked_us``: since
    when it is being asked anew, None: it is not."""

    id: str
    name: str
    kind: str
    fresh: bool
    error: str | None = None
    asked_us: int | None = None


class Beside(Struct, frozen=True):
    """Another node of the compute that has no machine yet. ``before``: it is older; ``passed_over``: as of
    the node itself; ``asks``: the offer and market that its provider is asked for, since ``asked_us``."""

    before: bool
    passed_over: tuple[dict[str, Any], ...] = ()
    asks: tuple[str, str] | None = None
    asked_us: int = 0


class NodeCase(Struct, frozen=True):
    """A node, what its compute wants, and what could be bought for it.

    ``sources``: the providers that the spec names, as far as there are such. ``image``, ``worker`` and
    ``plugins`` are for its agent, as they stand in the spec. ``listening_us``: since when
    agents can be heard. ``keeps_disk``: its disk is to stay when its machine goes; ``disk``: that which is
    there. ``beside``: some of those that wait for a machine too, the oldest."""

    node: NodeView
    wanted: Wanted
    accepting: bool
    ttl_us: int
    bootstrap_timeout_us: int
    connect_timeout_us: int
    offers: tuple[Offer, ...]
    image: dict[str, Any]
    worker: dict[str, Any]
    plugins: tuple[dict[str, Any], ...] = ()
    sources: tuple[Source, ...] = ()
    listening_us: int = 0
    keeps_disk: bool = False
    disk: DiskView | None = None
    beside: tuple[Beside, ...] = ()

    @property
    def answered_us(self) -> int:
        """When its launch was answered, by our own clock. ``launched_us`` may be by its provider's: it is
        for what the node costs."""
        node = self.node
        if node.connect_deadline_us is None:
            return node.launched_us or node.created_us
        return node.connect_deadline_us - self.connect_timeout_us


class Waiting(Struct, frozen=True):
    """An execution that waits for a node: any, or the one of ``wanted_rank``."""

    id: str
    wanted_rank: int | None


class Seats(Struct, frozen=True):
    """The places of one ready node. ``slots`` run at once; up to ``window`` may be there, ``active`` are."""

    id: str
    rank: int
    slots: int
    window: int
    active: int


class DispatchView(Struct, frozen=True):
    """A compute's places on nodes of its present definition, and waiting executions in their order."""

    compute_id: str
    scalable: bool
    seats: tuple[Seats, ...]
    waiting: tuple[Waiting, ...]


class AttemptView(Struct, frozen=True):
    """A live execution that its node, its task's deadline or its cancellation may end."""

    id: str
    task_id: str
    state: str
    wanted_rank: int | None
    node_id: str | None
    node_state: str | None
    node_fenced_us: int | None
    tries: Tries
    deadline_us: int | None
    cancel_deadline_us: int | None


class AttemptsView(Struct, frozen=True):
    """A compute's attempts that may have to be ended now, and when the next one may.

    ``ranks``: how many ranks the compute can have, so that one beyond them is waited for in vain.
    """

    compute_id: str
    accepting: bool
    ranks: int
    attempts: tuple[AttemptView, ...]
    next_us: int | None
