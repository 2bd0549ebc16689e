"""A paid job: a command that a customer prepaid, run once on machines of one SKU.

Decides: its states, the facts that move them, and what its end costs. Never: where it runs (the engine does),
or what an account has (``ledger``).
Follows: a job has one end, which is final; it is settled once, after that end; provisioning, pulling and
what is our fault are free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sky.domain.lifecycle import Fact, Move, Table
from sky.domain.money import charge_micro, seconds_begun

QUEUED, PROVISIONING, RUNNING = "queued", "provisioning", "running"
SUCCEEDED, FAILED, INTERRUPTED, CANCELLED = "succeeded", "failed", "interrupted", "cancelled"
TERMINAL = frozenset({SUCCEEDED, FAILED, INTERRUPTED, CANCELLED})
LIVE = frozenset({QUEUED, PROVISIONING, RUNNING})
LOCAL, CONSOLE = "local", "console"
"""Who keeps the money of a job: this deployment, or a console."""
HOLD_SECONDS = 7_200
"""How much of a job's runtime one hold covers at most."""

STATES: dict[str, str] = {
    QUEUED: "Its hold is placed; it waits for a machine.",
    PROVISIONING: "A machine is bought, made ready, and given the image and the inputs.",
    RUNNING: "Its command runs, and is metered; or its outputs are uploaded, which is free.",
    SUCCEEDED: "The command ended with 0. Final.",
    FAILED: "The command ended otherwise, could not be run, or was stopped. Final.",
    INTERRUPTED: "Its machine was taken back. Final.",
    CANCELLED: "The customer ended it. Final.",
}


@dataclass(frozen=True, slots=True)
class JobProvisioning(Fact):
    """A compute was asked for; None: that was refused, and the job ends for it."""

    compute_id: str | None


@dataclass(frozen=True, slots=True)
class JobPlaced(Fact):
    """Its machine is up: where it is, as JSON, and the task that pulls the image and the inputs."""

    placement: Any
    prepare_task: str


@dataclass(frozen=True, slots=True)
class JobLaunched(Fact):
    """Image and inputs are there; the task that runs the command was submitted."""

    run_task: str


@dataclass(frozen=True, slots=True)
class JobRunning(Fact):
    """The command runs, since ``started_us``: metering begins."""

    started_us: int


@dataclass(frozen=True, slots=True)
class JobExhausted(Fact):
    """The balance cannot cover its next extension."""

    exhausted_us: int


@dataclass(frozen=True, slots=True)
class JobExtended(Fact):
    """More is held for it."""

    holds: int
    exhausted_us: int | None = None


@dataclass(frozen=True, slots=True)
class JobStopping(Fact):
    """It is to be stopped by us; ``error`` says why, as JSON."""

    stop_error: Any


@dataclass(frozen=True, slots=True)
class JobRan(Fact):
    """The command is over: metering ended at ``ended_us``. A task uploads its outputs, if there are any."""

    ended_us: int
    exit_code: int | None
    upload_task: str | None = None


@dataclass(frozen=True, slots=True)
class Ended(Fact):
    """It is over. ``ended_us`` is when metering ended; None: it never ran."""

    finished_us: int
    ended_us: int | None = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class JobSucceeded(Ended):
    """The command ended with 0."""


@dataclass(frozen=True, slots=True)
class JobFailed(Ended):
    """The command ended otherwise, could not be run, or was stopped."""


@dataclass(frozen=True, slots=True)
class JobInterrupted(Ended):
    """Its machine was taken back."""


@dataclass(frozen=True, slots=True)
class JobCancelled(Ended):
    """The customer ended it."""


@dataclass(frozen=True, slots=True)
class JobSettled(Fact):
    """Its hold is resolved: ``settled_micro`` was charged and the rest returned."""

    settled_micro: int
    settled_us: int


_BEFORE_RUN = frozenset({PROVISIONING})
MOVES: Table = {
    JobProvisioning: Move(frozenset({QUEUED}), PROVISIONING, None),
    JobPlaced: Move(_BEFORE_RUN, None, None),
    JobLaunched: Move(_BEFORE_RUN, None, None),
    JobRunning: Move(_BEFORE_RUN, RUNNING, None),
    JobExhausted: Move(frozenset({RUNNING}), None, None),
    JobExtended: Move(frozenset({RUNNING}), None, None),
    JobStopping: Move(frozenset({PROVISIONING, RUNNING}), None, None),
    JobRan: Move(frozenset({RUNNING}), None, None),
    JobSucceeded: Move(frozenset({RUNNING}), SUCCEEDED, None),
    JobFailed: Move(frozenset({PROVISIONING, RUNNING}), FAILED, None),
    JobInterrupted: Move(frozenset({PROVISIONING, RUNNING}), INTERRUPTED, None),
    JobCancelled: Move(LIVE, CANCELLED, None),
    JobSettled: Move(TERMINAL, None, None),
}


@dataclass(frozen=True, slots=True)
class Meter:
    """What decides a job's cost. Moments in microseconds; None: not yet."""

    price_micro_per_hour: int
    gpu_count: int
    started_us: int | None
    ended_us: int | None

    def seconds(self, now_us: int) -> int:
        """Seconds that count, up to ``now_us`` while it runs."""
        if self.started_us is None:
            return 0
        return seconds_begun((now_us if self.ended_us is None else self.ended_us) - self.started_us)

    def gpu_seconds(self, now_us: int) -> int:
        """Seconds that count, times the SKU's GPUs."""
        return self.seconds(now_us) * self.gpu_count

    def cost_micro(self, now_us: int, held_micro: int) -> int:
        """What it costs so far, never more than is held for it."""
        return min(charge_micro(self.price_micro_per_hour, self.seconds(now_us)), held_micro)


def first_hold_seconds(max_runtime_seconds: int) -> int:
    """How much runtime the hold at submit covers."""
    return min(max_runtime_seconds, HOLD_SECONDS)


# ── what a plan reads ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StepView:
    """One of a job's tasks: pulling, running or uploading. ``result``: what it returned; ``failed``: the part
    of it that says why it could not be done; ``code`` and ``message`` are the engine's reason where it did
    not return."""

    state: str
    started_us: int | None
    finished_us: int | None
    result: dict[str, Any] | None
    failed: dict[str, Any] | None
    code: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with its compute and its tasks. ``last_seen_us``: when its node was last heard; ``elsewhere``: a
    console keeps its money; ``asking``: that console is being asked for more."""

    id: str
    state: str
    price_micro: int
    held_micro: int
    max_runtime_seconds: int
    interruptible: bool
    outputs: bool
    compute_state: str | None
    compute_error: str | None
    placement: dict[str, Any] | None
    last_seen_us: int | None
    prepare: StepView | None
    run: StepView | None
    upload: StepView | None
    started_us: int | None
    ended_us: int | None
    exit_code: int | None
    exhausted_us: int | None
    stop_error: dict[str, Any] | None
    settled_us: int | None
    elsewhere: bool = False
    asking: bool = False
