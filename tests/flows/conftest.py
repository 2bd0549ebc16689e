"""A world for each test, whose books are checked when the test is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.flows.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One daemon, cloud and agents; every wake is heard."""
    one = World(tmp_path)
    yield one
    one.check_books()
    one.close()
