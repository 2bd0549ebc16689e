"""A cluster: a compute with a name and an owner, on which jobs are queued.

Decides: its states and facts, and when it is idle for too long. Never: buys or ends a machine (its compute
does). Follows: a cluster that is down is gone for good, and its name is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sky.domain.job import StepView
from sky.domain.lifecycle import Fact, Move, Table

INIT, UP, STOPPING, STOPPED, DOWN = "INIT", "UP", "STOPPING", "STOPPED", "DOWN"
LIVE = frozenset({INIT, UP, STOPPING, STOPPED})
MINUTE_US = 60_000_000

STATES: dict[str, str] = {
    INIT: "Its machines are bought or made ready, or some of them are gone.",
    UP: "All its machines are ready.",
    STOPPING: "Its machines are being given back; what is on its disks stays.",
    STOPPED: "It has no machines, and can be started.",
    DOWN: "It is gone. Final.",
}


@dataclass(frozen=True, slots=True)
class ClusterUp(Fact):
    """All its machines are ready."""

    up_us: int
    last_error: Any = None


@dataclass(frozen=True, slots=True)
class ClusterImpaired(Fact):
    """It was up, and machines of it are gone."""


@dataclass(frozen=True, slots=True)
class ClusterRelaunched(Fact):
    """Another compute was asked for in place of one that could not be had."""

    compute_id: str
    launched_us: int
    last_error: Any = None


@dataclass(frozen=True, slots=True)
class ClusterStopping(Fact):
    """Its machines are to be given back, and its disks kept."""


@dataclass(frozen=True, slots=True)
class ClusterStopped(Fact):
    """It has no machines any more."""


@dataclass(frozen=True, slots=True)
class ClusterStarting(Fact):
    """Its machines are asked for again."""

    launched_us: int


@dataclass(frozen=True, slots=True)
class ClusterAutostopSet(Fact):
    """What happens when it is idle; -1 minutes: nothing."""

    autostop_minutes: int
    autostop_down: bool


@dataclass(frozen=True, slots=True)
class ClusterUsed(Fact):
    """A job was submitted: the next one gets ``next_job``."""

    next_job: int
    last_use: str | None
    busy_us: int


@dataclass(frozen=True, slots=True)
class ClusterDown(Fact):
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
    ClusterUsed: Move(_ANY, None, None),
    ClusterDown: Move(_ANY, DOWN, None),
}


# ── what a plan reads ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class JobView:
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


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster with its compute and its open jobs, oldest first. ``gpus``: on each node; ``running``: jobs
    that run; ``machines``: nodes that are not over."""

    id: str
    state: str
    num_nodes: int
    gpus: int
    compute_state: str | None
    machines: int
    jobs: tuple[JobView, ...]
    autostop_minutes: int
    busy_us: int
