"""Money: integers inside, and rounding that has a name."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sky.domain import money
from sky.domain.money import HOUR_US, MICRO


@pytest.mark.parametrize(
    ("usd", "micro"),
    [
        (0, 0),
        (1, MICRO),
        (0.1, 100_000),
        (0.1 + 0.2, 300_000),
        ("0.0000005", 1),
        ("0.0000004999", 0),
        ("-0.0000005", -1),
        (Decimal("2.6755555"), 2_675_556),
        (1e-9, 0),
        (1_000_000, 10**12),
    ],
)
def test_dollars_become_micro_dollars_half_up(usd: float | str | Decimal, micro: int) -> None:
    assert money.to_micro(usd) == micro


@given(st.integers(0, 10**12))
def test_micro_dollars_survive_being_shown(micro: int) -> None:
    assert money.to_micro(money.to_usd(micro)) == micro


@pytest.mark.parametrize(
    ("used_us", "unit", "micro"),
    [
        (0, "second", 0),
        (-5, "second", 0),
        (1, "second", 1_000),
        (1_000_000, "second", 1_000),
        (1_000_001, "second", 2_000),
        (1, "minute", 60_000),
        (60_000_001, "minute", 120_000),
        (1, "hour", 3_600_000),
        (HOUR_US, "hour", 3_600_000),
        (HOUR_US + 1, "hour", 7_200_000),
        (1, None, 1_000),
        (1, "fortnight", 1_000),
    ],
)
def test_every_begun_unit_counts_whole(used_us: int, unit: str | None, micro: int) -> None:
    assert money.machine_cost_micro(3_600_000, used_us, unit) == micro


@given(st.integers(0, 10**9), st.integers(0, 10**13), st.sampled_from(["second", "minute", "hour"]))
def test_a_cost_is_never_below_what_was_used_nor_a_whole_unit_and_a_micro_above(
    price: int, used_us: int, unit: str
) -> None:
    cost = money.machine_cost_micro(price, used_us, unit)
    fair = Decimal(price) * used_us / HOUR_US
    step = Decimal(price) * money.BILLING_UNIT_US[unit] / HOUR_US
    assert fair <= cost <= fair + step + 1


@given(st.integers(0, 10**9), st.integers(0, 10**12), st.integers(0, 10**12))
def test_using_longer_never_costs_less(price: int, first: int, more: int) -> None:
    assert money.machine_cost_micro(price, first, "second") <= money.machine_cost_micro(
        price, first + more, "second"
    )
