"""Computes and clusters of containers, from a provider that is added to what is left when they are gone.

Decides: what somebody has who uses a daemon whose nodes are containers. Never: looks into the provider.
Follows: the engine tells what is there, and in the end that is nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon
from tests.providers.container_engine import IMAGE, Boxes
from tests.requests.test_requests import Api

import sky

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
WAIT_S = 100.0


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
    assert answer.is_success, answer.text


def until(look: Callable[[], Any]) -> Any:
    """Look until there is something; returns it."""
    deadline = time.monotonic() + WAIT_S
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


@sky.function
def place() -> tuple[int, int, bool]:
    """The rank of a call's node, its memory in bytes, and whether it is in a container."""
    names = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    limit = next(path for path in map(Path, names) if path.exists())
    return sky.instance_info().rank, int(limit.read_text()), Path("/sky/start").exists()


def test_calls_run_in_containers_and_a_killed_one_is_replaced(api: Api, boxes: Boxes) -> None:
    url = str(api.http.base_url)
    with sky.Compute(
        "boxes", nodes=2, memory_gb=1, name="boxed", url=url, delete_on_exit=True, quiet=True
    ) as compute:
        assert place() @ compute == [(rank, 1024**3, True) for rank in range(2)]
        before = set(boxes.containers("label=sky.deployment"))
        assert len(before) == 2
        killed = min(before)
        boxes.podman("kill", killed)
        nodes = until(lambda: [one for one in _nodes(api) if "killed" in str(one.get("last_error"))])
        assert [one["machine"] for one in nodes] == [killed]
        until(lambda: len([one for one in _nodes(api) if one["state"] == "ready"]) == 2)
        assert [rank for rank, _, _ in place() @ compute] == [0, 1]
        until(lambda: killed not in boxes.containers())
    until(lambda: not boxes.containers())


def _nodes(api: Api) -> list[dict[str, Any]]:
    return api.http.get("/v1/computes/boxed/nodes", params={"include_terminal": True}).json()["items"]


def test_a_cluster_of_an_image_stops_and_starts_with_its_disk(api: Api, boxes: Boxes) -> None:
    name = f"c-{secrets.token_hex(4)}"
    machine = {"infra": "boxes", "image": f"docker:{IMAGE}", "cpus": 1, "memory_gb": 1}
    task = {"run": "echo kept > ~/mine; test -e /bin/busybox && echo inside", "machines": [machine]}
    job = api.do("launch", task=task, cluster_name=name)["job_id"]
    lines, end = api.logs(name, job)
    assert (end["end"], any("inside" in line for line in lines)) == ("SUCCEEDED", True), lines
    api.do("stop", cluster_name=name)
    until(lambda: not boxes.containers())
    assert len(boxes.volumes()) == 1
    api.do("start", cluster_name=name)
    job = api.do("exec", task={"run": "cat ~/mine"}, cluster_name=name)["job_id"]
    lines, end = api.logs(name, job)
    assert (end["end"], any("kept" in line for line in lines)) == ("SUCCEEDED", True), lines
    api.do("down", cluster_name=name)
    until(lambda: not boxes.containers() and not boxes.volumes())
