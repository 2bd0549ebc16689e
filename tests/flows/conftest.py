"""A world for each test, whose books are checked when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
import structlog.testing
import structlog.typing
from tests.databases import ON_POSTGRESQL
from tests.flows.world import World

POSTGRESQL_S = 600
"""A test takes three times as long there: what is enough for a SQLite on a busy computer is not."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder their time."""
    here = Path(__file__).parent
    for item in items if ON_POSTGRESQL else ():
        if item.path.parent == here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(POSTGRESQL_S))


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
