"""A world for each test, whose books are checked when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import structlog.testing
import structlog.typing
from tests.flows.world import World


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[structlog.typing.EventDict]]:
    """What the daemon logs is kept, not printed."""
    with structlog.testing.capture_logs() as kept:
        yield kept


@pytest.fixture
def world(tmp_path: Path, logs: list[structlog.typing.EventDict]) -> Iterator[World]:
    """One daemon, cloud and agents; every wake is heard, and no pass fails."""
    one = World(tmp_path)
    yield one
    one.check_books()
    failed = [line for line in logs if line["event"] == "pass.failed" and line["key"] not in one.poisoned]
    assert not failed
    one.close()
