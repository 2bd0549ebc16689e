"""Some seeded histories in every run; ``scripts/soak`` tells as many as there is time for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.history import tell

HISTORIES = int(os.environ.get("SKY_HISTORIES", "2000"))
PARTS = 20
"""One after another, so that a process that has the time takes one, and each is short."""
ON_A_SERVER = 5, 9
"""Told on PostgreSQL too, by several daemons each, where one takes seconds."""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(300)
def test_every_history_ends_well(part: int) -> None:
    """By the command, whose seeds tell the same wherever they are told again."""
    count = HISTORIES // PARTS
    command = [sys.executable, "-m", "tests.simulation.soak", "--seed", str(part * count)]
    told = subprocess.run(
        [*command, "--histories", str(count)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout[-4_000:] + told.stderr[-2_000:]
    assert f"clean: {count:,};" in told.stdout


@pytest.mark.timeout(300)
def test_they_end_well_on_postgresql_too() -> None:
    for seed in ON_A_SERVER:
        tell(seed, postgresql=True)


def test_a_seed_tells_the_same_history_again() -> None:
    told = tell(20).world.told
    assert tell(20).world.told == told
    assert len(told) > 1
