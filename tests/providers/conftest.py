"""What tests of providers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.providers import container_engine
from tests.providers.container_engine import Boxes


@pytest.fixture(scope="session")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxes]:
    """A container engine, for the whole session."""
    with container_engine.running(tmp_path_factory.mktemp("boxes")) as running:
        yield running
