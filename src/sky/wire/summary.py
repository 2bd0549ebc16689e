"""What there is at a glance, and what it costs.

Decides: the fields of this record. Never: how they are found. Follows: money is in USD, times in seconds
since 1970, days and months are those of UTC.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

DAYS_MAX = 92
Day = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]


class DayCost(msgspec.Struct, frozen=True, kw_only=True):
    """What machines have cost on one day."""

    day: Day
    cost: float


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that failed. ``cluster``: whose job it is; ``id`` is then the job's number. ``sold``: a job
    that somebody bought."""

    kind: Literal["job", "request", "task", "sold"]
    id: str
    name: str
    at: float
    message: str | None = None
    cluster: str | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, what it costs, and what failed within a week, the latest first.

    ``everybody``: whether that is of all users; else of the caller's clusters, jobs and requests alone, and
    ``tasks_`` are 0. ``failures`` are looked for among what was asked for last.
    """

    everybody: bool
    month: Day
    price_per_hour: float
    month_cost: float
    days: tuple[DayCost, ...]
    nodes_ready: int
    nodes_total: int
    jobs_running: int
    jobs_queued: int
    tasks_running: int
    tasks_queued: int
    failed_day: int
    failures: tuple[Failure, ...]
