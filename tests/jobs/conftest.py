"""Sellers for the tests of paid jobs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.jobs import engine, secure
from tests.jobs.engine import Podman
from tests.jobs.shop import CATALOGUE, Customer, Shop

SETTINGS = {
    "SKY_ALLOW_HOST_JOBS": "true",
    "SKY_ACCOUNT_JOBS_MAX": "1000",
    "SKY_JOB_SUBMITS_PER_HOUR": "100000",
    "SKY_JOB_READS_PER_MINUTE": "100000",
}

HOSTS_FIRST = """
  - {id: hosts, price_usd_per_hour: "3.60", tier: neocloud, vcpus: 1, memory_gb: 1,
     providers: [{cloud: ssh}, {cloud: local}]}
"""


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


@dataclass
class Boxed:
    """A seller whose node has a container engine, and an https server that its jobs may ask."""

    daemon: RunningDaemon
    shop: Shop
    podman: Podman
    inputs: str


@pytest.fixture(scope="session")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boxed]:
    """A seller with containers, for the whole session."""
    engine.missing_is_told()
    home = tmp_path_factory.mktemp("boxed")
    (home / "engine").mkdir()
    run = Path(tempfile.mkdtemp(prefix="sky-run-"))
    podman, registry = engine.make(home / "engine", run)
    server, trusted = secure.serve(home)
    (home / "catalogue.yaml").write_text(CATALOGUE.replace("templates:", HOSTS_FIRST + "templates:"))
    environment = {
        **SETTINGS,
        **podman.environment,
        "SKY_UPSTREAMS": "local,ssh",
        "SKY_CATALOGUE": str(home / "catalogue.yaml"),
        "SKY_ALLOW_PRIVATE_INPUTS": "true",
        "SSL_CERT_FILE": str(trusted),
    }
    running = RunningDaemon(home, free_port(), environment=environment)
    running.start()
    yield Boxed(running, Shop(running.url), podman, f"https://127.0.0.1:{server.server_port}")
    running.stop()
    for container in podman("ps", "--all", "--quiet").split():
        podman("rm", "--force", "--ignore", "--time", "0", container)
    server.shutdown()
    registry.terminate()
    registry.wait()
    shutil.rmtree(run, ignore_errors=True)
