"""A job of a cluster: a script that runs on its nodes, after its files are there and its setup has run.

Decides: its states and facts. Never: which job is next (``plan/cluster``). Follows: one node that fails
ends the job on all; what ended stays ended.
"""

from __future__ import annotations

from typing import Any

from sky.domain.lifecycle import Fact, Move, Table

INIT, SETTING_UP, PENDING, RUNNING = "INIT", "SETTING_UP", "PENDING", "RUNNING"
SUCCEEDED, FAILED, FAILED_SETUP = "SUCCEEDED", "FAILED", "FAILED_SETUP"
FAILED_DRIVER, CANCELLED = "FAILED_DRIVER", "CANCELLED"
DONE = frozenset({SUCCEEDED, FAILED, FAILED_SETUP, FAILED_DRIVER, CANCELLED})
OPEN = frozenset({INIT, SETTING_UP, PENDING, RUNNING})

STATES: dict[str, str] = {
    INIT: "Waits for its cluster's machines.",
    SETTING_UP: "Its files are brought to the nodes, and its setup runs.",
    PENDING: "Waits for room on the nodes.",
    RUNNING: "Its script runs.",
    SUCCEEDED: "Its script ended with 0 on every node. Final.",
    FAILED: "Its script ended otherwise on a node. Final.",
    FAILED_SETUP: "Its setup ended otherwise than with 0 on a node. Final.",
    FAILED_DRIVER: "It could not be run, or nobody knows how it ended, for a reason not its own. Final.",
    CANCELLED: "Somebody cancelled it, or its cluster was stopped or went. Final.",
}


class JobSettingUp(Fact, frozen=True):
    """Its files are brought by these tasks: ``{"bring": [...], "setup": [...]}``, one per node and thing."""

    setup_tasks: Any


class JobSetupRuns(Fact, frozen=True):
    """Its files are there; its setup runs."""

    setup_tasks: Any


class JobQueued(Fact, frozen=True):
    """Its files are there and its setup has run."""


class JobLaunched(Fact, frozen=True):
    """Its script runs as these tasks, one per node."""

    run_tasks: Any
    started_us: int


class Ended(Fact, frozen=True):
    """It is over. ``exit_codes`` are by rank, as far as they are known."""

    ended_us: int
    exit_codes: Any = None
    error: Any = None


class JobSucceeded(Ended, frozen=True):
    """Its script ended with 0 on every node."""


class JobFailed(Ended, frozen=True):
    """Its script ended otherwise on a node."""


class JobFailedSetup(Ended, frozen=True):
    """Its setup ended otherwise than with 0 on a node."""


class JobFailedDriver(Ended, frozen=True):
    """It could not be run, or nobody knows how it ended, for a reason that is not its own."""


class JobCancelled(Ended, frozen=True):
    """Somebody cancelled it, or its cluster was stopped or went."""


class JobStopAsked(Fact, frozen=True):
    """Its tasks were asked to stop: it ends as cancelled, or as failed where ``stop_error`` says why."""

    stop_us: int
    stop_error: Any = None


MOVES: Table = {
    JobSettingUp: Move(frozenset({INIT}), SETTING_UP, None),
    JobSetupRuns: Move(frozenset({SETTING_UP}), None, None),
    JobQueued: Move(frozenset({INIT, SETTING_UP}), PENDING, None),
    JobLaunched: Move(frozenset({PENDING}), RUNNING, None),
    JobStopAsked: Move(frozenset({SETTING_UP, RUNNING}), None, None),
    JobSucceeded: Move(frozenset({RUNNING}), SUCCEEDED, None),
    JobFailed: Move(frozenset({RUNNING}), FAILED, None),
    JobFailedSetup: Move(frozenset({SETTING_UP}), FAILED_SETUP, None),
    JobFailedDriver: Move(OPEN, FAILED_DRIVER, None),
    JobCancelled: Move(OPEN, CANCELLED, None),
}
