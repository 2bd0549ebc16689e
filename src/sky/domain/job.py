"""A paid job: a command that a customer prepaid, run once on machines of one SKU.

Decides: its states, the facts that move them, and what its end costs. Never: where it runs (the engine does),
or what an account has (``ledger``).
Follows: a job has one end, which is final; it is settled once, after that end; provisioning, pulling and
what is our fault are free. A job that is begun again is one job: what it ran before counts once, and with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct, field

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
Event = Literal[
    "job.queued",
    "job.provisioning",
    "job.failover",
    "job.placed",
    "job.running",
    "job.retried",
    "billing.hold_extended",
    "billing.balance_exhausted",
    "job.succeeded",
    "job.failed",
    "job.preempted",
    "job.cancelled",
]
"""What its customer is told of a job, in its log and to webhooks."""
EVENTS: tuple[Event, ...] = get_args(Event)

STATES: dict[str, str] = {
    QUEUED: "Its hold is placed; it waits for a machine, or for the jobs that it runs after.",
    PROVISIONING: "A machine is bought, made ready, and given the image and the inputs.",
    RUNNING: "Its command runs, and is metered; or its outputs are uploaded, which is free.",
    SUCCEEDED: "The command ended with 0. Final.",
    FAILED: "The command ended otherwise, could not be run, or was stopped. Final.",
    INTERRUPTED: "Its machine was taken back. Final.",
    CANCELLED: "The customer ended it. Final.",
}


class JobProvisioning(Fact, frozen=True):
    """A compute was asked for; None: that was refused, and the job ends for it."""

    compute_id: str | None


class JobPlaced(Fact, frozen=True):
    """Its machine is up: where it is and what it costs its seller, as JSON, and the task that pulls the image
    and the inputs."""

    placement: Any
    prepare_task: str


class JobLaunched(Fact, frozen=True):
    """Image and inputs are there; the task that runs the command was submitted."""

    run_task: str


class JobRunning(Fact, frozen=True):
    """The command runs, since ``started_us``: metering begins."""

    started_us: int


class JobExhausted(Fact, frozen=True):
    """The balance cannot cover its next extension."""

    exhausted_us: int


class JobExtended(Fact, frozen=True):
    """More is held for it."""

    holds: int
    exhausted_us: int | None = None


class JobStopping(Fact, frozen=True):
    """It is to be stopped by us; ``error`` says why, as JSON."""

    stop_error: Any


class JobRan(Fact, frozen=True):
    """The command is over: metering ended at ``ended_us``. A task uploads its outputs, if there are any."""

    ended_us: int
    exit_code: int | None
    upload_task: str | None = None


class JobRetried(Fact, frozen=True):
    """Its machine was lost, and it is begun again on another. ``past`` has each beginning before, as JSON,
    and ``used_us`` is how long they were metered together."""

    past: Any
    used_us: int
    compute_id: None = None
    prepare_task: None = None
    run_task: None = None
    upload_task: None = None
    placement: None = None
    started_us: None = None
    ended_us: None = None
    exit_code: None = None


class Ended(Fact, frozen=True):
    """It is over. ``ended_us`` is when metering ended; None: it never ran."""

    finished_us: int
    ended_us: int | None = None
    error: Any = None


class JobSucceeded(Ended, frozen=True):
    """The command ended with 0."""


class JobFailed(Ended, frozen=True):
    """The command ended otherwise, could not be run, or was stopped."""


class JobInterrupted(Ended, frozen=True):
    """Its machine was taken back."""


class JobCancelled(Ended, frozen=True):
    """The customer ended it."""


class JobSettled(Fact, frozen=True):
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
    JobRetried: Move(frozenset({PROVISIONING, RUNNING}), QUEUED, None),
    JobFailed: Move(LIVE, FAILED, None),
    JobInterrupted: Move(frozenset({PROVISIONING, RUNNING}), INTERRUPTED, None),
    JobCancelled: Move(LIVE, CANCELLED, None),
    JobSettled: Move(TERMINAL, None, None),
}


class Meter(Struct, frozen=True):
    """What decides a job's cost. Moments in microseconds; None: not yet. ``used_us``: how long it ran before
    it was begun again."""

    price_micro_per_hour: int
    gpu_count: int
    started_us: int | None
    ended_us: int | None
    used_us: int = 0

    def seconds(self, now_us: int) -> int:
        """Seconds that count, up to ``now_us`` while it runs."""
        if self.started_us is None:
            return seconds_begun(self.used_us)
        ran_us = (now_us if self.ended_us is None else self.ended_us) - self.started_us
        return seconds_begun(self.used_us + max(0, ran_us))

    def gpu_seconds(self, now_us: int) -> int:
        """Seconds that count, times the SKU's GPUs."""
        return self.seconds(now_us) * self.gpu_count

    def cost_micro(self, now_us: int, held_micro: int) -> int:
        """What it costs so far, never more than is held for it."""
        return min(charge_micro(self.price_micro_per_hour, self.seconds(now_us)), held_micro)


def meter_of(row: Mapping[str, Any], ended_us: int | None) -> Meter:
    """The meter of a job's row that ends, or has ended, at ``ended_us``."""
    return Meter(row["price_micro"], row["gpu_count"], row["started_us"], ended_us, row["used_us"] or 0)


def seconds_left(max_runtime_seconds: int, used_us: int) -> int:
    """For how long a job may still run, in whole seconds."""
    return max_runtime_seconds - seconds_begun(used_us)


def first_hold_seconds(max_runtime_seconds: int) -> int:
    """How much runtime the hold at submit covers."""
    return min(max_runtime_seconds, HOLD_SECONDS)


class RetryPolicy(Struct, frozen=True):
    """How often a job is begun again (``most``), and after which of the codes that tell of a lost machine."""

    most: int
    codes: frozenset[str]


PREEMPTED, NODE_LOST, DEPENDENCY_FAILED = "preempted", "node_lost", "dependency_failed"
RETRY_CODES = {"interrupted": PREEMPTED, "node_lost": NODE_LOST}
"""The code that a job ends with, by the name of what happened in a policy."""
RETRIES_MAX = 10
AFTER_MAX = 16


CAUSE = "cause"
"""Of a job's error, what the engine says: it may name what machines cost, and is for the seller alone."""


def customers(error: Mapping[str, Any]) -> dict[str, Any]:
    """A job's error as its customer is told."""
    return {name: value for name, value in error.items() if name != CAUSE}


def policy_of(kept: Mapping[str, Any] | None) -> RetryPolicy:
    """A policy as it is kept; None: nothing is begun again."""
    if kept is None:
        return RetryPolicy(0, frozenset())
    return RetryPolicy(kept["max"], frozenset(RETRY_CODES[name] for name in kept["on"]))


# ── what a plan reads ───────────────────────────────────────────────────────────────────────────


class StepView(Struct, frozen=True):
    """One of a job's tasks: pulling, running or uploading. ``result``: what it returned; ``failed``: the part
    of it that says why it could not be done; ``code`` and ``message`` are the engine's reason where it did
    not return; ``seen_us``: when the node that it is on was last heard."""

    state: str
    started_us: int | None
    finished_us: int | None
    result: dict[str, Any] | None
    failed: dict[str, Any] | None
    code: str | None
    message: str | None
    seen_us: int | None = None


class JobView(Struct, frozen=True):
    """A job with its compute and its tasks. ``last_seen_us``: when its node was last heard; ``elsewhere``: a
    console keeps its money; ``asking``: that console is being asked for more. ``after`` has the state of each
    job that it runs after, while it is queued; ``retries`` is how often it was begun again, for ``used_us``
    together."""

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
    after: Mapping[str, str] = field(default_factory=dict[str, str])
    policy: RetryPolicy = RetryPolicy(0, frozenset())
    retries: int = 0
    used_us: int = 0
