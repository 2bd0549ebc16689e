"""How many connections a daemon holds open."""

from __future__ import annotations

import contextlib
import resource
import socket
import urllib.request
from pathlib import Path

from tests.conftest import RunningDaemon, free_port

FEW = 100
MANY = 300


def test_more_connections_than_the_usual_limit_are_served(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    daemon = RunningDaemon(tmp_path, free_port())
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        daemon.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(MANY):
                opened.enter_context(socket.create_connection(("127.0.0.1", daemon.port), timeout=60))
            with urllib.request.urlopen(f"{daemon.url}/v1/health/live", timeout=60) as answer:
                assert answer.status == 200
    finally:
        daemon.stop()
