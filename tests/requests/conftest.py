"""Daemons for the tests of requests that others than their own user may reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import free_port
from tests.requests.remote import Reachable, certificates


@pytest.fixture(scope="session")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    """One over TLS, which also believes a proxy on this computer."""
    home = tmp_path_factory.mktemp("reachable")
    ca, cert, key = certificates(tmp_path_factory.mktemp("certificates"))
    settings = {
        "SKY_TLS_CERT": str(cert),
        "SKY_TLS_KEY": str(key),
        "SKY_BEHIND_PROXY": "true",
        "SKY_DEFAULT_ROLE": "viewer",
    }
    running = Reachable(home, free_port(), settings, ca=ca)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def beside(reachable: Reachable, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    """Another one on the same database, which says that it speaks a newer version, and believes no proxy that
    is here."""
    home = tmp_path_factory.mktemp("beside")
    settings = {
        "SKY_DATABASE": reachable.environment.get("SKY_DATABASE", str(reachable.home / "sky.db")),
        "SKY_SHARED_FOLDER": str(reachable.home),
        "SKY_BEHIND_PROXY": "true",
        "SKY_PROXIES": "10.1.2.3, fd00::/8",
        "SKY_API_VERSION": "70",
        "SKY_API_VERSION_MIN": "60",
    }
    running = Reachable(home, free_port(), settings)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def own_reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    """One behind a proxy, for one test."""
    running = Reachable(tmp_path_factory.mktemp("own"), free_port(), {"SKY_BEHIND_PROXY": "true"})
    running.start()
    yield running
    running.stop()
