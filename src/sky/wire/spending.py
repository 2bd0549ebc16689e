"""What customers are shown of their money: balance, what jobs cost, what one would cost.

Decides: the fields of these shapes. Never: a sum. Follows: money is a decimal string with six places; days
are those of UTC.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from sky.wire.jobs import Usd
from sky.wire.v1.base import Answer

Day = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]


class Budget(Answer, frozen=True):
    """The most that a key or its account may spend in a day or a month, and what of it is left for further
    jobs."""

    of: Literal["key", "account"]
    window: Literal["day", "month"]
    limit_usd: Usd
    charged_usd: Usd
    under_way_usd: Usd
    left_usd: Usd


class Balance(Answer, frozen=True):
    """What may be spent, and what is held for jobs; with the budgets that an operator set."""

    object: Literal["compute.balance"]
    available_usd: Usd
    held_usd: Usd
    budgets: tuple[Budget, ...]


class UsageLine(Answer, frozen=True):
    """What the jobs of one group cost. ``key``: the day, the sku, or the value of the metadata; null: those
    without one."""

    key: str | None
    jobs: int
    seconds: int
    gpu_seconds: int
    charged_usd: Usd


class Usage(Answer, frozen=True):
    """What the jobs cost that ended in a window of days, ``until`` not among them. ``truncated``: there are
    more groups than are shown, and they are part of no sum."""

    object: Literal["compute.usage"]
    by: str
    since: Day
    until: Day
    data: tuple[UsageLine, ...]
    total: UsageLine
    truncated: bool


class Estimate(Answer, frozen=True):
    """What a job would hold at its submit, and cost at most. It was checked as a submit is, and would be
    taken now."""

    object: Literal["compute.estimate"]
    sku: str
    providers: tuple[str, ...]
    max_runtime_seconds: int
    price_usd_per_hour: Usd
    hold_usd: Usd
    ceiling_usd: Usd
