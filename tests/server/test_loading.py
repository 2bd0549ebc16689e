"""What a daemon loads: no more than what it was asked for needs."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.conftest import free_port
from tests.waiting import until

RARE = {"aiohttp", "asyncssh", "botocore", "httpx2", "psycopg", "pygments", "rich"}
"""Slow to load; needed by who has clusters, hosts, buckets, another database, or an address to tell."""

FIRST_USE = """
import asyncio, sys, threading
from pathlib import Path
from sky.kit.clock import SystemClock
from sky.providers.base import Context
from sky.providers.registry import standard
from sky.reconcile.pool import RowPool

class Onlooker:
    def find_spec(self, name, path=None, target=None):
        if name == "aiohttp":
            by_the_loop = threading.current_thread() is threading.main_thread()
            print("by the loop" if by_the_loop else "beside it")

sys.meta_path.insert(0, Onlooker())
row = {"id": "prv_1", "name": "one", "credentials": None, "version": 1}
row |= {"kind": sys.argv[1], "config": {"endpoint": sys.argv[2]} if sys.argv[2:] else {}}
pool = RowPool(None, standard({}), Context(Path("/nowhere"), "test", SystemClock()), lambda _: {})

async def twice():
    made = await asyncio.gather(pool.of("prv_1", row), pool.of("prv_1", row))
    assert made[0] is made[1], "those who ask at once have the same"

asyncio.run(twice())
"""


@pytest.mark.parametrize("words", [("kubernetes",), ("skypilot", "https://sky.example.com")])
def test_what_takes_long_to_load_is_loaded_while_the_daemon_goes_on(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", FIRST_USE, *words]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "beside it\n"), ended.stderr


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
