"""A PostgreSQL that is restarted under a daemon: whoever asks is told to come again, and all goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.postgresql import Server
from tests.waiting import until

import sky

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
SOON_S = 60.0
CONNECTIONS_MAX = 6
"""Of one daemon, as docs/howto/postgresql.md says."""


@sky.function
def wait_for(path: str) -> int:
    """Say that it runs, once for each run, and end once there is a file."""
    import pathlib
    import time

    with open(f"{path}-ran", "a") as file:
        file.write("ran\n")
    while not pathlib.Path(path).exists():
        time.sleep(0.02)
    return 7


@pytest.fixture
def database() -> Iterator[Server]:
    """One that this test may end."""
    one = Server()
    yield one
    one.stop()


@pytest.fixture
def daemon_there(tmp_path: Path, database: Server) -> Iterator[RunningDaemon]:
    """A daemon with that database."""
    home = tmp_path / "home"
    home.mkdir()
    one = RunningDaemon(home, free_port(), {"SKY_DATABASE": database.empty()})
    one.start()
    yield one
    one.stop()


def test_a_daemon_whose_database_is_restarted_says_so_and_goes_on(
    database: Server, daemon_there: RunningDaemon, tmp_path: Path
) -> None:
    token = (daemon_there.home / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    http = httpx2.Client(base_url=daemon_there.url, headers=headers, timeout=30)
    go = tmp_path / "go"

    def asked(method: str, path: str, **more: Any) -> httpx2.Response:
        return http.request(method, path, **more)

    with sky.Compute(sky.Local(), nodes=1, url=daemon_there.url, quiet=True) as compute:
        running = wait_for(str(go)) > compute
        until(Path(f"{go}-ran").exists, "the call runs", SOON_S)
        database.end()
        answers = [asked("GET", "/v1/computes") for _ in range(4)]
        answers.append(asked("GET", "/v1/tasks?limit=1"))
        answers.append(asked("PUT", f"/v1/blobs/{hashlib.sha256(b'x').hexdigest()}", content=b"x"))
        told = [(one.status_code, one.json()["code"], one.json()["retryable"]) for one in answers]
        assert told == [(503, "busy", True)] * 6
        assert all(int(one.headers["Retry-After"]) > 0 for one in answers)
        assert asked("GET", "/v1/health/ready").status_code == 503
        assert asked("GET", "/v1/health/live").status_code == 200
        database.begin()
        until(lambda: asked("GET", "/v1/health/ready").status_code == 200, "it is ready again", SOON_S)
        for _ in range(4):
            until(lambda: asked("GET", "/v1/computes").status_code == 200, "it reads again", SOON_S)
        there = database.do("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'skyfleet'")
        assert 0 < int(str(there[0][0])) <= CONNECTIONS_MAX
        go.touch()
        assert running.result(timeout=SOON_S) == 7
        assert (wait_for(str(go)) >> compute) == 7
    assert Path(f"{go}-ran").read_text() == "ran\nran\n", "each ran once"
    http.close()
