"""A node: one machine a compute asked for, from the asking to the giving back.

Decides: its facts and the table of its legal moves. Never: talks to a provider.
Follows: the row exists before money is spent; ``deleted`` is said only on the provider's word, and a
rank is bought again only when the machine that had it is gone or has surely ended itself (is fenced).
"""

from __future__ import annotations

from typing import Any, ClassVar

from sky.domain.lifecycle import Fact, Move, Table

REQUESTED, PROVISIONING, CONNECTING = "requested", "provisioning", "connecting"
BOOTSTRAPPING, READY, DRAINING = "bootstrapping", "ready", "draining"
LOST, DELETING, DELETED, FAILED = "lost", "deleting", "deleted", "failed"

COMING = frozenset({REQUESTED, PROVISIONING, CONNECTING, BOOTSTRAPPING})
SERVING = frozenset({READY, DRAINING})
WANTED = COMING | SERVING
ENDING = frozenset({LOST, DELETING})
FINAL = frozenset({DELETED, FAILED})
STATES: dict[str, str] = {
    REQUESTED: "A row, and no machine: an offer has yet to be chosen.",
    PROVISIONING: "An offer was chosen and written down; its machine is being bought.",
    CONNECTING: "The provider has a machine; its agent has not called yet.",
    BOOTSTRAPPING: "The agent has called and is making the environment.",
    READY: "It takes work.",
    DRAINING: "It finishes what it has and takes no more.",
    LOST: "The machine is gone, or was unreachable for so long that it has ended itself.",
    DELETING: "The machine is being given back; it costs until the provider says it is gone.",
    DELETED: "The provider says the machine is gone. Final.",
    FAILED: "No machine was bought, and none will be for this row. Final.",
}


class NodeBound(Fact, frozen=True):
    """This offer will be bought for it, and why not others. Prices in micro-dollars per hour."""

    provider_id: str
    provider_kind: str
    offer: Any
    market: str
    price_micro: int
    billing_unit: str
    accelerator: str | None
    passed_over: Any
    bound_us: int
    launch_deadline_us: int


class NodePassedOver(Fact, frozen=True):
    """The chosen offer was refused; nothing was bought, and others are tried."""

    passed_over: Any
    last_error: Any
    provider_id: None = None


class NodeNoted(Fact, frozen=True):
    """Nothing could be bought, there was no answer, or the machine does not run yet; it is tried again."""

    last_error: Any


class NodeLaunched(Fact, frozen=True):
    """The provider has a machine for it."""

    machine: str
    address: str | None
    binding: Any
    launched_us: int
    connect_deadline_us: int


class NodeConnected(Fact, frozen=True):
    """Its agent called for the first time."""

    boot: str
    python: str
    slots: int
    window: int
    last_seen_us: int


class NodeReconnected(Fact, frozen=True):
    """Its agent called again, perhaps a new one on the same machine (another boot)."""

    boot: str
    slots: int
    window: int
    last_seen_us: int
    heard: int


class NodeReady(Fact, frozen=True):
    """The environment is there; it takes work."""

    ready_us: int


class NodeUnwanted(Fact, frozen=True):
    """Somebody wants this one gone, whatever its compute wants: it finishes what it has first."""

    intent: ClassVar[bool] = True
    unwanted_us: int


class NodeRetained(Fact, frozen=True):
    """What it was made as is wanted again, under another number."""

    generation: int


class NodeDraining(Fact, frozen=True):
    """It is to be given back once it has nothing to do."""

    intent: ClassVar[bool] = True


class NodeRecalled(Fact, frozen=True):
    """Its provider is about to take the machine back: it finishes what it can, and takes no more. Why."""

    unwanted_us: int
    last_error: Any


class NodeDrainAborted(Fact, frozen=True):
    """It is wanted after all."""

    intent: ClassVar[bool] = True


class NodeLost(Fact, frozen=True):
    """Gone, or silent beyond its lease. ``fenced_us``: from when on it surely runs nothing."""

    last_error: Any
    fenced_us: int


class NodeDeleting(Fact, frozen=True):
    """It is to be given back."""

    intent: ClassVar[bool] = True
    deleting_us: int


class NodeBroken(Fact, frozen=True):
    """It never became ready, and its machine is to be given back: why."""

    deleting_us: int
    last_error: Any


class NodeDeletionFailed(Fact, frozen=True):
    """Giving it back failed this time."""

    last_error: Any


class NodeDeleted(Fact, frozen=True):
    """The provider says that the machine is gone."""

    terminated_us: int


class NodeFailed(Fact, frozen=True):
    """No offer is left for it."""

    last_error: Any
    terminated_us: int


_BOUGHT = frozenset({PROVISIONING, CONNECTING, BOOTSTRAPPING, READY, DRAINING})
MOVES: Table = {
    NodeBound: Move(frozenset({REQUESTED}), PROVISIONING, "node.provisioning"),
    NodePassedOver: Move(frozenset({PROVISIONING}), REQUESTED, "node.requested"),
    NodeNoted: Move(frozenset({REQUESTED, PROVISIONING, CONNECTING}), None, None),
    NodeLaunched: Move(frozenset({PROVISIONING}), CONNECTING, "node.connecting"),
    NodeConnected: Move(frozenset({PROVISIONING, CONNECTING}), BOOTSTRAPPING, "node.bootstrapping"),
    NodeReconnected: Move(_BOUGHT, None, None),
    NodeReady: Move(frozenset({BOOTSTRAPPING}), READY, "node.ready"),
    NodeUnwanted: Move(WANTED, None, None),
    NodeRetained: Move(WANTED, None, None),
    NodeDraining: Move(frozenset({READY}), DRAINING, "node.draining"),
    NodeRecalled: Move(frozenset({READY}), DRAINING, "node.draining"),
    NodeDrainAborted: Move(frozenset({DRAINING}), READY, "node.ready"),
    NodeLost: Move(_BOUGHT, LOST, "node.lost"),
    NodeDeleting: Move(WANTED | {LOST}, DELETING, "node.deleting"),
    NodeBroken: Move(COMING, DELETING, "node.deleting"),
    NodeDeletionFailed: Move(ENDING, None, None),
    NodeDeleted: Move(ENDING, DELETED, "node.deleted"),
    NodeFailed: Move(frozenset({REQUESTED}), FAILED, "node.failed"),
}
