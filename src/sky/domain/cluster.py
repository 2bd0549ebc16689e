"""A cluster: a compute with a name and an owner, on which jobs are queued.

Decides: its states and facts, and what counts as use of it. Never: buys or ends a machine (its compute
does). Follows: a cluster that is down is gone for good, and its name is free; one that is stopped has no
machines, and what was on their disks comes back with it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sky.domain.compute import Bounds
from sky.domain.job import StepView
from sky.domain.lifecycle import Fact, Move, Table

INIT, UP, STOPPING, STOPPED, DOWN = "INIT", "UP", "STOPPING", "STOPPED", "DOWN"
LIVE = frozenset({INIT, UP, STOPPING, STOPPED})
MINUTE_US = 60_000_000
JOBS, JOBS_AND_SSH, NOTHING = "jobs", "jobs_and_ssh", "none"
"""What keeps a cluster from being idle: its jobs; those and open shells; nothing at all."""

STATES: dict[str, str] = {
    INIT: "Its machines are bought or made ready, or some of them are gone.",
    UP: "All its machines are ready.",
    STOPPING: "Its machines are being given back; what is on its disks stays.",
    STOPPED: "It has no machines; its disks are kept, and it can be started.",
    DOWN: "It is gone. Final.",
}


class ClusterUp(Fact, frozen=True):
    """All its machines are ready."""

    up_us: int
    last_error: Any = None


class ClusterImpaired(Fact, frozen=True):
    """It was up, and machines of it are gone."""


class ClusterRelaunched(Fact, frozen=True):
    """Another compute was asked for in place of one that could not be had."""

    compute_id: str
    launched_us: int
    last_error: Any = None


class ClusterStopping(Fact, frozen=True):
    """Its machines are to be given back, and its disks kept."""


class ClusterStopped(Fact, frozen=True):
    """It has no machines any more."""


class ClusterStarting(Fact, frozen=True):
    """Its machines are asked for again."""

    launched_us: int


class ClusterAutostopSet(Fact, frozen=True):
    """What happens when it has been idle for so long, from now on; -1 minutes: nothing."""

    autostop_minutes: int
    autostop_down: bool
    autostop_wait: str
    autostop_us: int


class ClusterResized(Fact, frozen=True):
    """Another number of machines is wanted."""

    num_nodes: int


class ClusterUsed(Fact, frozen=True):
    """A job was submitted: the next one gets ``next_job``."""

    next_job: int
    last_use: str | None
    busy_us: int


class ClusterDown(Fact, frozen=True):
    """It is gone."""

    removed_us: int


_ANY = frozenset({INIT, UP, STOPPING, STOPPED})
MOVES: Table = {
    ClusterUp: Move(frozenset({INIT}), UP, None),
    ClusterImpaired: Move(frozenset({UP}), INIT, None),
    ClusterRelaunched: Move(frozenset({INIT}), None, None),
    ClusterStopping: Move(frozenset({INIT, UP}), STOPPING, None),
    ClusterStopped: Move(frozenset({STOPPING}), STOPPED, None),
    ClusterStarting: Move(frozenset({STOPPED}), INIT, None),
    ClusterAutostopSet: Move(_ANY, None, None),
    ClusterResized: Move(_ANY, None, None),
    ClusterUsed: Move(_ANY, None, None),
    ClusterDown: Move(_ANY, DOWN, None),
}


# ── what a plan reads ───────────────────────────────────────────────────────────────────────────


class JobView(Struct, frozen=True):
    """An open job of a cluster. ``bring``, ``setup`` and ``run`` are its tasks so far, one per node and
    thing; ``brings`` and ``sets_up`` say whether it has such steps at all."""

    id: str
    number: int
    state: str
    num_nodes: int
    gpus: int
    brings: bool
    sets_up: bool
    bring: tuple[StepView, ...]
    setup: tuple[StepView, ...]
    run: tuple[StepView, ...]
    stopping: bool
    stop_error: dict[str, Any] | None


class Idling(Struct, frozen=True):
    """What decides for how long a cluster was not used. Moments in microseconds, 0: never. ``session_us``:
    until when a shell on it is open, as far as is known."""

    minutes: int = -1
    down: bool = False
    wait: str = JOBS_AND_SSH
    set_us: int = 0
    up_us: int = 0
    used_us: int = 0
    ended_us: int = 0
    session_us: int = 0

    def since_us(self) -> int:
        """Since when nothing that counts has used it."""
        moments = [self.set_us, self.up_us]
        if self.wait != NOTHING:
            moments += [self.used_us, self.ended_us]
        if self.wait == JOBS_AND_SSH:
            moments.append(self.session_us)
        return max(moments)


class Buying(Struct, frozen=True):
    """How far a cluster's machines have come. ``coming``: one is bought or made ready; ``moved_us``: when a
    node last began or ended; ``refused_until_us``: until when the offer is left alone that was refused last.
    """

    coming: bool
    moved_us: int
    refused_until_us: int


class ClusterView(Struct, frozen=True):
    """A cluster with its compute and its open jobs, oldest first: of those that wait in one state the first,
    and ``waiting_more`` that it is not alone. ``gpus``: on each node; ``machines``: nodes that are not over;
    ``ready``: those that take work; ``wanted``: how many nodes its compute may have,
    unless it ends or that cannot be read."""

    id: str
    name: str
    state: str
    num_nodes: int
    gpus: int
    compute_state: str | None
    machines: int
    ready: int
    jobs: tuple[JobView, ...]
    idling: Idling
    waiting_more: int = 0
    wanted: Bounds | None = None

    @property
    def under_way(self) -> int:
        """How many jobs are open."""
        return len(self.jobs) + self.waiting_more
