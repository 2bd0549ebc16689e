"""Computes and clusters of containers, from a provider that is added to what is left when they are gone.

Decides: what somebody has who uses a daemon whose nodes are containers. Never: looks into the provider. Follows: the
engine tells what is there, and in the end that is nothing.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest
from tests.conftest import RunningDaemon
from tests.providers.container_engine import IMAGE, Boxes
from tests.requests.test_requests import Api

import sky

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def api(daemon: RunningDaemon, boxes: Boxes) -> Iterator[Api]:
    """A daemon that has the engine as its provider ``boxes``."""
    one = Api(daemon.url)
    body = {"kind": "container", "name": "boxes", "config": boxes.config}
    answer = one.http.post("/v1/providers", json=body, headers={"Idempotency-Key": secrets.token_hex(8)})
    assert answer.status_code == 201, answer.text
    yield one
    until(lambda: not boxes.containers())
    until(lambda: not boxes.volumes())
    answer = one.http.delete("/v1/providers/boxes", headers={"If-Match": "*"})
    assert answer.status_code < 300, answer.text


def until(done: Callable[[], object]) -> None:
    """Look until it holds."""
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@sky.function
def surroundings() -> tuple[int, int, bool, str | None]:
    """Where a call runs."""
    info = sky.instance_info()
    limit = next(
        path
        for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
        if Path(path).exists()
    )
    return (
        info.rank,
        int(Path(limit).read_text()),
        Path("/bin/busybox").exists(),
        os.environ.get("FROM_IMAGE"),
    )


def test_calls_run_in_containers_and_a_killed_one_is_replaced(api: Api, boxes: Boxes) -> None:
    url = str(api.http.base_url)
    with sky.Compute(provider="boxes", nodes=2, memory_gb=1, url=url, quiet=True) as compute:
        told = surroundings() @ compute
        print(told)
    until(lambda: not boxes.containers())
