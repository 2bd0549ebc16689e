"""A request: something that was asked for by name, and answers under its id for as long as it is kept.

Decides: its states and the facts that move them. Never: does what is asked; it names verbs and follows facts.
Follows: a request has one end, which is final, and keeps its result or its error.
"""

from __future__ import annotations

from typing import Any

from sky.domain.lifecycle import Fact, Move, Table

PENDING, RUNNING, WAITING = "PENDING", "RUNNING", "WAITING"
SUCCEEDED, FAILED, CANCELLED = "SUCCEEDED", "FAILED", "CANCELLED"
DONE = frozenset({SUCCEEDED, FAILED, CANCELLED})
OPEN = frozenset({PENDING, RUNNING, WAITING})

STATES: dict[str, str] = {
    PENDING: "Written down; no loop has looked yet.",
    RUNNING: "What it asks for is under way.",
    WAITING: "Its launch found no machines and is tried again later.",
    SUCCEEDED: "It has its result. Final.",
    FAILED: "It has its error. Final.",
    CANCELLED: "Somebody cancelled it. Final.",
}


class RequestStarted(Fact, frozen=True):
    """What it asks for is under way, on a cluster and as a job of it where it has those."""

    started_us: int
    cluster_id: str | None = None
    job_number: int | None = None


class RequestWaiting(Fact, frozen=True):
    """It is tried again at ``again_us``."""

    again_us: int


class RequestResumed(Fact, frozen=True):
    """It is tried again now."""


class RequestSucceeded(Fact, frozen=True):
    """It has its result, as JSON."""

    result: Any
    finished_us: int


class RequestFailed(Fact, frozen=True):
    """It has its error, as JSON."""

    error: Any
    finished_us: int


class RequestCancelled(Fact, frozen=True):
    """Somebody cancelled it."""

    error: Any
    finished_us: int


MOVES: Table = {
    RequestStarted: Move(frozenset({PENDING}), RUNNING, None),
    RequestWaiting: Move(frozenset({RUNNING}), WAITING, None),
    RequestResumed: Move(frozenset({WAITING}), RUNNING, None),
    RequestSucceeded: Move(OPEN, SUCCEEDED, None),
    RequestFailed: Move(OPEN, FAILED, None),
    RequestCancelled: Move(OPEN, CANCELLED, None),
}
