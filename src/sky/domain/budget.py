"""How much an account or a key may spend in a day or a month, as its operator set it.

Decides: when a window begins (in UTC). What counts in it is what was charged, and all that jobs under way may
still cost. Never: stops a job. Follows: since the whole of a job counts when it is submitted, no window is
ever charged more than its budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

DAY, MONTH = "day", "month"
KEY, ACCOUNT = "key", "account"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Budget(Struct, frozen=True):
    """The most that may be spent: by a key or by its account (``of``), in a day or a month (``window``)."""

    of: str
    window: str
    micro: int


def budgets(of: str, caps: Mapping[str, Any] | None) -> Iterable[Budget]:
    """What is kept of the budgets of a key or an account, as budgets. ValueError: it cannot be read."""
    names = {f"{window}_micro": window for window in (DAY, MONTH)}
    for name, micro in (caps or {}).items():
        if name not in names or not (micro is None or isinstance(micro, int)):
            raise ValueError(f"{name}={micro!r} is no part of a budget")
        if micro is not None:
            yield Budget(of, names[name], micro)


def begun_us(window: str, now_us: int) -> int:
    """When the day or the month of a moment began."""
    begun = (_EPOCH + timedelta(microseconds=now_us)).replace(hour=0, minute=0, second=0, microsecond=0)
    if window == MONTH:
        begun = begun.replace(day=1)
    return (begun - _EPOCH) // timedelta(microseconds=1)
