"""When the windows of budgets begin."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sky.domain.budget import DAY, MONTH, Budget, begun_us, budgets
from sky.kit.clock import to_datetime


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("now", "day", "month"),
    [
        ("2026-03-01T00:00:00", "2026-03-01", "2026-03-01"),
        ("2026-02-28T23:59:59.999999", "2026-02-28", "2026-02-01"),
        ("2024-02-29T12:00:00", "2024-02-29", "2024-02-01"),
        ("2026-12-31T23:59:59", "2026-12-31", "2026-12-01"),
    ],
)
def test_windows_begin_at_midnight_in_utc(now: str, day: str, month: str) -> None:
    assert to_datetime(begun_us(DAY, us(now))) == datetime.fromisoformat(f"{day}T00:00:00+00:00")
    assert to_datetime(begun_us(MONTH, us(now))) == datetime.fromisoformat(f"{month}T00:00:00+00:00")


def test_what_is_not_set_is_no_budget() -> None:
    assert list(budgets("key", None)) == []
    assert list(budgets("key", {"day_micro": 0, "month_micro": None})) == [Budget("key", DAY, 0)]
