"""Sellers for the tests of paid jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs.shop import CATALOGUE, Customer, Shop

SETTINGS = {
    "SKY_ALLOW_HOST_JOBS": "true",
    "SKY_ACCOUNT_JOBS_MAX": "1000",
    "SKY_JOB_SUBMITS_PER_HOUR": "100000",
    "SKY_JOB_READS_PER_MINUTE": "100000",
}


@pytest.fixture(scope="session")
def selling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that sells, for the whole session."""
    home = tmp_path_factory.mktemp("selling")
    (home / "catalogue.yaml").write_text(CATALOGUE)
    running = RunningDaemon(
        home, free_port(), environment={**SETTINGS, "SKY_CATALOGUE": str(home / "catalogue.yaml")}
    )
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def shop(selling: RunningDaemon) -> Shop:
    """Its operator."""
    return Shop(selling.url)


@pytest.fixture
def customer(shop: Shop) -> Customer:
    """A customer with a hundred dollars."""
    return shop.customer()
