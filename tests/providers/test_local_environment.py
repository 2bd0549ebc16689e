"""What a node's agent sees of the daemon's environment: what its installers need, and no other secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from sky.providers.base import AgentSetup, LaunchOrder
from sky.providers.local.environment import node_environment
from sky.providers.local.offers import offers_of, this_computer

DAEMON = {
    "PATH": "/usr/bin",
    "HTTPS_PROXY": "http://me:word@proxy.invalid:3128",
    "no_proxy": "localhost",
    "SSL_CERT_FILE": "/there/roots.pem",
    "REQUESTS_CA_BUNDLE": "/there/roots.pem",
    "NETRC": "/there/netrc",
    "PYENV_ROOT": "/there/pyenv",
    "PIP_DEFAULT_TIMEOUT": "9",
    "UV_INDEX": "mine=https://index.invalid/simple",
    "UV_INDEX_MINE_USERNAME": "me",
    "UV_INDEX_MINE_PASSWORD": "word",
}
KEPT_BACK = {
    "UV_PUBLISH_PASSWORD": "word",
    "UV_PUBLISH_TOKEN": "word",
    "AWS_SECRET_ACCESS_KEY": "word",
    "DATABASE_URL": "postgresql://me:word@db.invalid/x",
    "SKY_TOKEN": "word",
    "HTTPS_PROXY_PASSWORD": "word",
}


@pytest.fixture
def seen(tmp_path: Path) -> dict[str, str]:
    [offer, *_] = offers_of(this_computer(), "prv_1", "local", 0.0)
    order = LaunchOrder("nod_1", offer, "on_demand", AgentSetup("http://127.0.0.1:9", "the-token"), 60)
    return node_environment(order, tmp_path, 7, None, DAEMON | KEPT_BACK)


def test_installers_can_reach_what_the_daemon_can(seen: dict[str, str]) -> None:
    assert {name: seen.get(name) for name in DAEMON} == DAEMON


def test_nothing_else_that_is_secret_passes(seen: dict[str, str]) -> None:
    assert not KEPT_BACK.keys() & seen.keys()
    assert "the-token" not in seen.values()
