"""Some seeded histories in every run; ``scripts/soak`` tells as many as there is time for."""

from __future__ import annotations

import os

import pytest
from tests.simulation.history import tell

PARTS = 8
HISTORIES = int(os.environ.get("SKY_HISTORIES", "640"))
ON_A_SERVER = 5, 9
"""Told on PostgreSQL too, by several daemons each, where one takes seconds."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(300)
def test_every_history_ends_well(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        tell(seed)


@pytest.mark.timeout(300)
def test_they_end_well_on_postgresql_too() -> None:
    for seed in ON_A_SERVER:
        tell(seed, postgresql=True)


def test_a_seed_tells_the_same_history_again() -> None:
    told = tell(20).world.told
    assert tell(20).world.told == told
    assert len(told) > 1
