"""A task is one call, wanted once; its executions are the physical attempts.

Decides: the facts and tables of both, how executions decide their task's outcome, and whether a lost
attempt may be tried again. Never: which node runs what (``plan/dispatch``).
Follows: a task has exactly one outcome, and when it cannot be known the outcome is ``indeterminate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from sky.domain.lifecycle import Fact, Move, Table

QUEUED, RUNNING = "queued", "running"
CREATED, ASSIGNED, DISPATCHING = "created", "assigned", "dispatching"
ACCEPTED, STARTED, CANCEL_REQUESTED = "accepted", "started", "cancel_requested"
SUCCEEDED, FAILED, CANCELLED = "succeeded", "failed", "cancelled"
TIMED_OUT, INDETERMINATE = "timed_out", "indeterminate"

DONE = frozenset({SUCCEEDED, FAILED, CANCELLED, TIMED_OUT, INDETERMINATE})
UNDONE = frozenset({QUEUED, RUNNING})
WAITING = frozenset({CREATED, ASSIGNED})
HANDED_OUT = frozenset({DISPATCHING, ACCEPTED, STARTED, CANCEL_REQUESTED})
AT_WORK = HANDED_OUT - {CANCEL_REQUESTED}
ON_NODE = HANDED_OUT | {ASSIGNED}
DEADLINE_GRACE_US = 15_000_000
"""After a deadline, how long the node that enforces it has to say so."""
CANCEL_CONFIRM_US = 60_000_000
"""How long a node has to confirm that it stopped something, unless a setting says otherwise for calls."""
EXECUTION_LIVE = WAITING | HANDED_OUT

TASK_STATES: dict[str, str] = {
    QUEUED: "Admitted; none of its executions has been handed to a node.",
    RUNNING: "An execution is at a node.",
    SUCCEEDED: "The function returned; the result is stored. Final.",
    FAILED: "The function raised, its worker died, or it could not be run. Final, unless a person retries.",
    CANCELLED: "Somebody cancelled it, and it is certain that it does not run. Final.",
    TIMED_OUT: "Its deadline passed. Final.",
    INDETERMINATE: "It may have run, wholly or in part, and nobody can know. Final, unless a person retries.",
}
EXECUTION_STATES: dict[str, str] = {
    CREATED: "Waits for a node.",
    ASSIGNED: "In a node's mailbox, which its agent has not read yet: it has certainly not begun.",
    DISPATCHING: "Handed to the agent: from here on it may have begun.",
    ACCEPTED: "The agent has it and has not begun it.",
    STARTED: "The agent says that it runs.",
    CANCEL_REQUESTED: "The agent was asked to stop it and has not confirmed.",
    SUCCEEDED: "It returned. Final.",
    FAILED: "It raised, or was lost before it began. Final.",
    CANCELLED: "It surely does not run. Final.",
    TIMED_OUT: "It was stopped at its deadline. Final.",
    INDETERMINATE: "Contact was lost after it may have begun. Final.",
}


class TaskStarted(Fact, frozen=True):
    """One of its executions is at a node."""


class TaskSucceeded(Fact, frozen=True):
    """It has its result."""

    result_sha256: str | None
    finished_us: int


class TaskFailed(Fact, frozen=True):
    """It will not succeed."""

    finished_us: int


class TaskCancelled(Fact, frozen=True):
    """It was cancelled."""

    finished_us: int


class TaskTimedOut(Fact, frozen=True):
    """Its deadline passed."""

    finished_us: int


class TaskIndeterminate(Fact, frozen=True):
    """It cannot be known whether it ran."""

    finished_us: int


class TaskRetried(Fact, frozen=True):
    """A person wants it tried once more."""

    finished_us: int | None = None
    outcome_seq: int | None = None
    result_sha256: str | None = None
    cancel_requested_us: int | None = None
    deadline_us: int | None = None


class TaskCancelRequested(Fact, frozen=True):
    """Somebody wants it stopped."""

    cancel_requested_us: int


TASK_MOVES: Table = {
    TaskStarted: Move(frozenset({QUEUED}), RUNNING, "task.started"),
    TaskSucceeded: Move(UNDONE, SUCCEEDED, "task.succeeded"),
    TaskFailed: Move(UNDONE, FAILED, "task.failed"),
    TaskCancelled: Move(UNDONE, CANCELLED, "task.cancelled"),
    TaskTimedOut: Move(UNDONE, TIMED_OUT, "task.timed_out"),
    TaskIndeterminate: Move(UNDONE, INDETERMINATE, "task.indeterminate"),
    TaskRetried: Move(frozenset({FAILED, CANCELLED, TIMED_OUT, INDETERMINATE}), QUEUED, "task.queued"),
    TaskCancelRequested: Move(UNDONE, None, None),
}


class ExecutionAssigned(Fact, frozen=True):
    """It is in this node's mailbox."""

    node_id: str
    rank: int
    assigned_us: int


class ExecutionDispatched(Fact, frozen=True):
    """Its node's agent was handed it."""


class ExecutionAccepted(Fact, frozen=True):
    """The agent named it among what it has."""


class ExecutionStarted(Fact, frozen=True):
    """The agent says that it runs, since ``started_us``."""

    started_us: int


class ExecutionCancelRequested(Fact, frozen=True):
    """Its agent is to stop it, and to say so before ``cancel_deadline_us``."""

    cancel_deadline_us: int


class Ending(Fact, frozen=True):
    """How an execution ended. Moments are in microseconds; ``error`` is JSON."""

    finished_us: int
    started_us: int | None = None
    result_sha256: str | None = None
    error: Any = None
    console_lines: int = 0
    items: int = 0


class ExecutionSucceeded(Ending, frozen=True):
    """It returned."""


class ExecutionFailed(Ending, frozen=True):
    """It raised, its worker died, or it was lost before it began."""


class ExecutionCancelled(Ending, frozen=True):
    """It surely does not run."""


class ExecutionTimedOut(Ending, frozen=True):
    """It was stopped at its deadline."""


class ExecutionIndeterminate(Ending, frozen=True):
    """Contact was lost after it may have begun."""


EXECUTION_MOVES: Table = {
    ExecutionAssigned: Move(frozenset({CREATED}), ASSIGNED, None),
    ExecutionDispatched: Move(frozenset({ASSIGNED}), DISPATCHING, None),
    ExecutionAccepted: Move(frozenset({DISPATCHING}), ACCEPTED, None),
    ExecutionStarted: Move(frozenset({DISPATCHING, ACCEPTED}), STARTED, None),
    ExecutionCancelRequested: Move(frozenset({DISPATCHING, ACCEPTED, STARTED}), CANCEL_REQUESTED, None),
    ExecutionSucceeded: Move(EXECUTION_LIVE, SUCCEEDED, None),
    ExecutionFailed: Move(EXECUTION_LIVE, FAILED, None),
    ExecutionCancelled: Move(EXECUTION_LIVE, CANCELLED, None),
    ExecutionTimedOut: Move(EXECUTION_LIVE, TIMED_OUT, None),
    ExecutionIndeterminate: Move(EXECUTION_LIVE, INDETERMINATE, None),
}

ENDINGS: dict[str, type[Ending]] = {
    SUCCEEDED: ExecutionSucceeded,
    FAILED: ExecutionFailed,
    CANCELLED: ExecutionCancelled,
    TIMED_OUT: ExecutionTimedOut,
    INDETERMINATE: ExecutionIndeterminate,
}

# The worst outcome of a task on several ranks is the task's: what is unknown outweighs what is known.
_WORST_FIRST = (INDETERMINATE, FAILED, TIMED_OUT, CANCELLED)
_TASK_ENDINGS: dict[str, type[TaskFailed | TaskIndeterminate | TaskTimedOut | TaskCancelled]] = {
    INDETERMINATE: TaskIndeterminate,
    FAILED: TaskFailed,
    TIMED_OUT: TaskTimedOut,
    CANCELLED: TaskCancelled,
}


class Attempt(Struct, frozen=True):
    """The newest execution for one of a task's places, as far as it decides the task."""

    state: str
    rank: int
    result_sha256: str | None = None


def ended_as(fact: Ending, rank: int = 0) -> Attempt:
    """What an ending makes of its execution."""
    return Attempt(EXECUTION_MOVES[type(fact)].target or "", rank, fact.result_sha256)


def outcome(task_id: str, attempts: Sequence[Attempt], now_us: int) -> Fact | None:
    """The task's outcome once the newest attempt of every place is done; None while one is not."""
    if not attempts or any(a.state not in DONE for a in attempts):
        return None
    found = {a.state for a in attempts}
    for state in _WORST_FIRST:
        if state in found:
            return _TASK_ENDINGS[state](task_id, now_us)
    first = min(attempts, key=lambda a: a.rank)
    return TaskSucceeded(task_id, first.result_sha256, now_us)


class Tries(Struct, frozen=True):
    """How often a task may be tried again, and how often it has been."""

    safe_allowed: int
    ambiguous_allowed: int
    safe_used: int
    ambiguous_used: int


def after_loss(state: str, tries: Tries) -> tuple[str, bool]:
    """How an attempt on a lost node ends, and whether another one follows.

    One that was never handed out has certainly not begun: it failed, and is safe to repeat. Any other
    may have begun: it is indeterminate, and repeated only where the caller allowed that.
    """
    if state in WAITING:
        return FAILED, tries.safe_used < tries.safe_allowed
    if state == CANCEL_REQUESTED:
        return INDETERMINATE, False
    return INDETERMINATE, tries.ambiguous_used < tries.ambiguous_allowed
