"""Money inside: integer micro-dollars, and rounding that has a name.

Decides: how a price in USD becomes an integer and back, and what a machine costs for a time.
Never: adds floats. Follows: a sum of costs does not depend on the order in which it is made.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

MICRO = 1_000_000
HOUR_US = 3_600 * 1_000_000
_USD = re.compile(r"(?P<whole>[0-9]{1,12})(?:\.(?P<part>[0-9]{1,6}))?")
BILLING_UNIT_US = {"second": 1_000_000, "minute": 60_000_000, "hour": HOUR_US}


def to_micro(usd: float | str | Decimal) -> int:
    """USD as micro-dollars, half a micro rounded up."""
    return int((Decimal(str(usd)) * MICRO).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def to_usd(micro: int) -> float:
    """Micro-dollars as USD, for people and for JSON numbers."""
    return micro / MICRO


def machine_cost_micro(price_micro_per_hour: int, used_us: int, billing_unit: str | None) -> int:
    """What a machine costs for ``used_us`` microseconds: every begun billing unit counts whole."""
    unit = BILLING_UNIT_US.get(billing_unit or "second", 1_000_000)
    units = -(-max(0, used_us) // unit)
    return -(-price_micro_per_hour * units * unit // HOUR_US)


def hold_micro(price_micro_per_hour: int, seconds: int) -> int:
    """What ``seconds`` can cost at most: rounded up, so that a hold always covers its charge."""
    return -(-price_micro_per_hour * max(0, seconds) // 3_600)


def charge_micro(price_micro_per_hour: int, seconds: int) -> int:
    """What ``seconds`` cost: once, on the whole of them, half a micro rounded up."""
    return (2 * price_micro_per_hour * max(0, seconds) + 3_600) // 7_200


def seconds_begun(used_us: int) -> int:
    """Whole seconds of a time in microseconds; one that has begun counts."""
    return -(-max(0, used_us) // 1_000_000)


def covered_us(price_micro_per_hour: int, held_micro: int) -> int | None:
    """For how long a hold pays, in microseconds, rounded down to whole seconds; None: for ever."""
    if price_micro_per_hour <= 0:
        return None
    return held_micro * 3_600 // price_micro_per_hour * 1_000_000


def usd_text(micro: int) -> str:
    """Micro-dollars as a decimal string with six places, never a float."""
    sign = "-" if micro < 0 else ""
    whole, part = divmod(abs(micro), MICRO)
    return f"{sign}{whole}.{part:06d}"


def parse_usd(text: str) -> int:
    """A decimal string such as ``12.50`` as micro-dollars. Raises ValueError for anything else."""
    found = _USD.fullmatch(text)
    if found is None:
        msg = f"{text[:40]!r} is no amount in USD; write it like 12.50, with six decimals at most"
        raise ValueError(msg)
    return int(found["whole"]) * MICRO + int((found["part"] or "").ljust(6, "0"))
