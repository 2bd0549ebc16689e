"""Some seeded histories in every run; ``scripts/soak`` tells as many as there is time for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.history import tell

PARTS = 3
HISTORIES = int(os.environ.get("SKY_HISTORIES", "12"))
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(300)
def test_every_history_ends_well(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        tell(seed)


@pytest.mark.timeout(120)
def test_a_seed_tells_the_same_history_in_another_process() -> None:
    seed = 20
    command = [sys.executable, "-m", "tests.simulation.soak", "--replay", str(seed)]
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    told = tell(seed).world.told
    assert again.stdout.splitlines() == [*told, f"history {seed} ends well"]
    assert len(told) > 1
