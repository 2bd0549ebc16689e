"""A fresh database for each test: SQLite in a file of its own, and one on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests import disks
from tests.databases import fresh
from tests.store.support import wakes

from sky.kit.clock import ManualClock
from sky.store.db import Database


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of the newest schema."""
    return fresh(tmp_path / "sky.db", postgresql=request.param == "postgresql")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture
async def db(database_url: str, clock: ManualClock) -> AsyncIterator[Database]:
    """The database as a daemon has it: with its threads."""
    one = Database(database_url, clock, wakes)
    one.start()
    yield one
    one.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of four mebibytes."""
    with disks.small_disk(tmp_path / "small", "4m") as folder:
        yield folder
