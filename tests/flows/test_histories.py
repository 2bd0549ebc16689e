"""Random histories. Whatever happened, the books are right, and all is well once everything is well.

A seed that fails is named in the failure; ``SKY_SEED=n`` tells that history alone, and ``SKY_SEEDS=n`` tells
so many of them; ``SKY_TESTS_ALL_POINTS=1`` tells three times as many as a run does otherwise.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
import structlog.typing
from tests.flows.history import History
from tests.flows.places import ALL_POINTS
from tests.proof import record

PARTS = 4
"""The histories are shared out, so that they can be told beside each other."""
SEEDS = int(os.environ.get("SKY_SEEDS", "120" if ALL_POINTS else "40"))
ONE = os.environ.get("SKY_SEED")


async def tell(seed: int, folder: Path, logs: list[structlog.typing.EventDict]) -> History:
    """Tell one history; whatever fails in it names its seed and what had happened."""
    folder.mkdir()
    logs.clear()
    history = History(seed, folder)
    try:
        await history.tell()
        assert not [line for line in logs if line["event"] == "pass.failed"], "no pass failed"
    except (AssertionError, Exception) as error:
        error.add_note(f"SKY_SEED={seed} tells this history again. It went: {'; '.join(history.log)}")
        raise
    return history


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(600)
async def test_histories_end_well(tmp_path: Path, logs: list[structlog.typing.EventDict], part: int) -> None:
    seeds = list(range(SEEDS))[part::PARTS] if ONE is None else [int(ONE)] * (part == 0)
    for seed in seeds:
        await tell(seed, tmp_path / str(seed), logs)
    record(histories=len(seeds))


async def test_a_seed_tells_the_same_history_twice(
    tmp_path: Path, logs: list[structlog.typing.EventDict]
) -> None:
    seed = random.randrange(10_000)
    first = await tell(seed, tmp_path / "first", logs)
    second = await tell(seed, tmp_path / "second", logs)
    assert first.log == second.log
