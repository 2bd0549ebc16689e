"""A customer's account: whether it may spend, and how much at once.

Decides: its states, the facts that move them, and its limits. Never: holds money (``ledger``) or a key.
Follows: a suspended account keeps its running jobs and its balance, and submits nothing; a closed one
is final.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sky.domain.lifecycle import Fact, Move, Table

ACTIVE, SUSPENDED, CLOSED = "active", "suspended", "closed"
STATES: dict[str, str] = {
    ACTIVE: "May submit jobs, once it is enabled.",
    SUSPENDED: "Submits nothing; what runs goes on. May become active again.",
    CLOSED: "Submits nothing, ever. Final.",
}
READ, JOBS = "read", "jobs"
SCOPES = (READ, JOBS)
TIERS = ("hyperscaler", "neocloud", "marketplace")


class AccountEnabled(Fact, frozen=True):
    """Whether it may submit jobs at all; an operator turns that on."""

    enabled: bool


class AccountLimited(Fact, frozen=True):
    """It has limits of its own, as JSON; what they do not name is the deployment's."""

    limits: Any


class AccountCapped(Fact, frozen=True):
    """It has budgets, as JSON; None: none."""

    caps: Any


class AccountSuspended(Fact, frozen=True):
    """An operator stopped it from submitting."""


class AccountResumed(Fact, frozen=True):
    """An operator lets it submit again."""


class AccountClosed(Fact, frozen=True):
    """It is over."""


_OPEN = frozenset({ACTIVE, SUSPENDED})
MOVES: Table = {
    AccountEnabled: Move(_OPEN, None, None),
    AccountLimited: Move(_OPEN, None, None),
    AccountCapped: Move(_OPEN, None, None),
    AccountSuspended: Move(frozenset({ACTIVE}), SUSPENDED, None),
    AccountResumed: Move(frozenset({SUSPENDED}), ACTIVE, None),
    AccountClosed: Move(_OPEN, CLOSED, None),
}


class Limits(Struct, frozen=True):
    """How much of an account may be under way at once. ``gpus`` is by tier; None: no limit."""

    active_jobs: int | None
    queued_jobs: int | None
    gpus: dict[str, int | None]


class InUse(Struct, frozen=True):
    """What of it is under way. ``gpus`` is by tier."""

    active_jobs: int
    queued_jobs: int
    gpus: dict[str, int]


class Violation(Struct, frozen=True):
    """One limit that a submit would exceed."""

    limit: str
    maximum: int
    used: int
    requested: int
    tier: str | None = None

    @property
    def headroom(self) -> int:
        """The most that could be asked for now."""
        return max(0, self.maximum - self.used)


def violations(
    own: Limits, used: InUse, platform: Limits, in_all: InUse, *, tier: str, gpu_count: int
) -> list[Violation]:
    """The limits that one more job would exceed: the account's first, then those of the whole deployment."""
    wanted = [
        Violation("max_active_jobs", _or_none(own.active_jobs), used.active_jobs, 1),
        Violation("max_queued_jobs", _or_none(own.queued_jobs), used.queued_jobs, 1),
        Violation("max_gpus", _or_none(own.gpus.get(tier)), used.gpus.get(tier, 0), gpu_count, tier),
        Violation("platform_max_active_jobs", _or_none(platform.active_jobs), in_all.active_jobs, 1),
        Violation(
            "platform_max_gpus",
            _or_none(platform.gpus.get("all")),
            sum(in_all.gpus.values()),
            gpu_count,
        ),
    ]
    return [v for v in wanted if v.maximum >= 0 and v.requested and v.used + v.requested > v.maximum]


def _or_none(limit: int | None) -> int:
    return -1 if limit is None else limit
