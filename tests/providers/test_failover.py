"""One wish, three kinds of provider: hosts over SSH, then containers, then EC2, each when it comes to it.

Decides: what somebody sees who asks for more than the first kinds have: where each node is, what it costs,
and why it is not where it would have been first. Never: looks into the daemon.
Follows: the host is a real SSH server, the containers are podman's, and EC2 is a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, free_port
from tests.providers import aws_cloud
from tests.providers.aws_cloud import KEYS, AwsCloud
from tests.providers.container_engine import Boxes
from tests.providers.sshd import Sshd, make_key, serving
from tests.providers.test_aws_node import Machines

import sky

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="accounts of its own need root"),
]
WAIT_S = 100.0
KINDS = ("ssh", "container", "aws")
HOST = "pool/near in pool, 0.25 USD an hour"
PRICE = {"ssh": 0.25, "aws": 0.0104}


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    one = Machines(tmp_path_factory.mktemp("disks"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def cloud(machines: Machines) -> Iterator[AwsCloud]:
    with aws_cloud.running() as account:
        account.on_run, account.on_end = machines.begin, machines.end
        yield account


@pytest.fixture(scope="module")
def place(cloud: AwsCloud, boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sky]:
    """The command, at a daemon with a host of one place, an engine for one container, and an account."""
    folder = tmp_path_factory.mktemp("failover")
    host = Sshd(folder / "near", make_key(folder / "key"))
    daemon = RunningDaemon(folder / "state", free_port())
    daemon.home.mkdir()
    with serving(host):
        daemon.start()
        try:
            skyc = Sky(daemon.home, folder, SKY_URL=daemon.url)
            (folder / "pool.yaml").write_text(
                f"identity_file: {folder}/key\nuser: root\nhosts:\n  - name: near\n"
                f"    address: {host.address}\n    port: {host.port}\n    cpus: 1\n    memory_gb: 1\n"
                f"    price_per_hour_usd: 0.25\n    host_key: {host.public_key}\n"
            )
            skyc("provider", "add", "pool", "--hosts", "pool.yaml").check()
            _add(daemon, kind="container", name="boxes", config={**boxes.config, "max_nodes": 1})
            settings = {
                "daemon_url": daemon.url,
                "endpoint_url": cloud.url,
                "families": ["t3.micro"],
                "regions": ["us-east-1"],
            }
            _add(daemon, kind="aws", name="ours", config=settings, credentials=KEYS)
            yield skyc
        finally:
            daemon.stop()


def _add(daemon: RunningDaemon, **provider: Any) -> None:
    with httpx2.Client(base_url=daemon.url, trust_env=False, timeout=30) as http:
        answer = http.post("/v1/providers", json=provider)
        assert answer.is_success, answer.text


@sky.function
def home() -> str:
    """Where this node's agent has its home."""
    return os.environ.get("SKY_AGENT_HOME", "") or str(Path.cwd())


def test_each_kind_takes_one_node_and_the_next_says_why(place: Sky, boxes: Boxes, cloud: AwsCloud) -> None:
    url = place.environment["SKY_URL"]
    specs = [sky.Spec(kind, cpus=1) for kind in KINDS]
    with sky.Compute(
        specs,
        nodes=3,
        selection="first",
        allocation="on_demand",
        name="mixed",
        url=url,
        quiet=True,
        delete_on_exit=True,
    ) as compute:
        assert len(set(home() @ compute)) == 3
        nodes = place.json_of("why", "mixed")["nodes"]
        found = {node["provider_binding"]["kind"]: node for node in nodes}
        assert set(found) == set(KINDS)
        assert len(boxes.containers("label=sky.deployment")) == 1
        for kind, price in PRICE.items():
            assert found[kind]["price_per_hour"] == price
        told = place("why", "mixed", "--events", "60").check().out
        _says_why(told)
        # What a full pool holds is told to whoever comes next too, in a task file as in a definition.
        _a_task_file_does_the_same(place)


def _says_why(told: str) -> None:
    """The node in the cloud tells of both that come before it, with region and cost; so do the events."""
    shown = [line for line in told.splitlines() if "is not" in line]
    assert any(HOST in line for line in shown), told
    assert any("boxes/container-1, 0 USD an hour: " in line and "max_nodes is 1" in line for line in shown), (
        told
    )
    assert any("aws/t3.micro in us-east-1, 0.0104 USD an hour" in line for line in told.splitlines()), told
    events = told.partition("last events")[2]
    assert any(f"passed over {HOST}" in line and "; takes " in line for line in events.splitlines()), events


def _a_task_file_does_the_same(place: Sky) -> None:
    wish = "".join(f"    - {{infra: {infra}, cpus: 1+}}\n" for infra in ("pool", "boxes", "ours"))
    (place.folder / "task.yaml").write_text(f"resources:\n  ordered:\n{wish}run: echo ran on $(pwd)\n")
    done = place("launch", "-c", "later", "task.yaml", "--yes", timeout_s=WAIT_S).check()
    assert "ran on" in done.out + done.err
    told = place("why", "later").check().out
    assert HOST in told
    assert "aws/t3.micro in us-east-1" in told
    place("down", "later", "--yes").check()
