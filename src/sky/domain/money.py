"""Money inside: integer micro-dollars, and rounding that has a name.

Decides: how a price in USD becomes an integer and back, and what a machine costs for a time.
Never: adds floats. Follows: a sum of costs does not depend on the order in which it is made.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

MICRO = 1_000_000
HOUR_US = 3_600 * 1_000_000
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
