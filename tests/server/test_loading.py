"""What a daemon loads: no more than what it was asked for needs."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.conftest import free_port
from tests.waiting import until

RARE = {"aiohttp", "asyncssh", "botocore", "httpx2", "psycopg", "pygments", "rich"}
"""Slow to load; needed by who has clusters, hosts, buckets, another database, or an address to tell."""


def test_a_daemon_that_serves_has_loaded_nothing_rare(tmp_path: Path) -> None:
    port = free_port()
    daemon = subprocess.Popen(
        [sys.executable, "-c", "import sys; from sky.server.main import main; main([]); print(*sys.modules)"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SKY_HOME": str(tmp_path), "SKY_PORT": str(port), "SKY_LOG_LEVEL": "error"},
    )
    try:
        until(lambda: (tmp_path / "daemon.json").exists() or daemon.poll() is not None, "it serves", 120)
        for path in ("/v1/computes", "/v1/providers", "/v1/offers", "/metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                assert answer.status == 200, path
        daemon.terminate()
        said, _ = daemon.communicate(timeout=120)
    finally:
        daemon.kill()
        daemon.wait()
    loaded = {name.partition(".")[0] for name in said.splitlines()[-1].split()}
    assert "litestar" in loaded
    assert sorted(loaded & RARE) == []
