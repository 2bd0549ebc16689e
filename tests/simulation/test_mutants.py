"""Planted bugs are found: each within so many histories."""

from __future__ import annotations

import pytest
from tests.simulation.history import tell
from tests.simulation.mutants import MUTANTS, Mutant

HISTORIES_MAX = 60


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.what for mutant in MUTANTS])
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    for seed in range(mutant.seed, mutant.seed + HISTORIES_MAX):
        try:
            tell(seed, mutant.faces, rough=mutant.rough, profile=mutant.profile)
        except Exception:
            return
    pytest.fail(f"not found in {HISTORIES_MAX} histories: {mutant.what}")
