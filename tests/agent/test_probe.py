"""What a node's gauges measure, of commands that are really run."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sky.agent.probe import Probe
from sky.wire.v1 import MetricSpec

INTERVAL_S = 600.0


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.timeout(120)
async def test_a_gauge_is_read_at_the_end_of_its_command_whatever_that_has_left_running(
    tmp_path: Path,
) -> None:
    probe = Probe(tmp_path)
    leaves = MetricSpec("left", "sleep 900 & echo $!", INTERVAL_S)
    watching = asyncio.create_task(probe.watch(leaves, os.environ, tmp_path))
    try:
        while "left" not in probe.metrics():
            await asyncio.sleep(0.05)
        while is_there(int(probe.metrics()["left"])):
            await asyncio.sleep(0.05)
    finally:
        watching.cancel()


@pytest.mark.timeout(120)
async def test_a_command_that_says_too_much_is_read_and_means_nothing(tmp_path: Path) -> None:
    probe = Probe(tmp_path)
    many = MetricSpec("many", f"head -c 1000000 /dev/zero; touch {tmp_path}/over", INTERVAL_S)
    watching = asyncio.create_task(probe.watch(many, os.environ, tmp_path))
    try:
        while not (tmp_path / "over").exists():
            await asyncio.sleep(0.05)
        assert "many" not in probe.metrics()
    finally:
        watching.cancel()
