"""One wish, three kinds of provider: hosts over SSH, then containers, then EC2, each when it comes to it.

Decides: what somebody sees who asks for more than the first kinds have: where each node is, what it costs,
and why it is not where it would have been first. Never: looks into the daemon.
Follows: the host is a real SSH server, the containers are podman's, and EC2 is a process of its own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, free_port
from tests.jobs.shop import Shop, body
from tests.providers import aws_cloud
from tests.providers.aws_cloud import KEYS, AwsCloud
from tests.providers.container_engine import Boxes
from tests.providers.sshd import Sshd, make_key, serving
from tests.providers.test_aws_node import Instances

import sky

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="accounts of its own need root"),
]
WAIT_S = 100.0
KINDS = ("ssh", "container", "aws")
HOST = "pool/near in pool, 0.25 USD an hour"
BOX = "boxes/container-1, 0 USD an hour"
CATALOGUE = """\
skus:
  - {id: anywhere, price_usd_per_hour: "3.60", tier: neocloud, vcpus: 1, memory_gb: 1,
     providers: [{cloud: ssh}, {cloud: container}, {cloud: aws, regions: [us-east-1]}]}
"""
PRICE = {"ssh": 0.25, "aws": 0.0104}


@pytest.fixture(scope="module")
def machines(boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instances]:
    one = Instances(tmp_path_factory.mktemp("disks"))
    one.environment = boxes.podman.environment
    yield one
    one.close()


@pytest.fixture(scope="module")
def cloud(machines: Instances) -> Iterator[AwsCloud]:
    with aws_cloud.running() as account:
        account.on_run, account.on_end = machines.begin, machines.end
        yield account


@pytest.fixture(scope="module")
def place(cloud: AwsCloud, boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sky]:
    """The command, at a daemon with a host of one place, an engine for one container, and an account."""
    folder = tmp_path_factory.mktemp("failover")
    host = Sshd(folder / "near", make_key(folder / "key"))
    (folder / "catalogue.yaml").write_text(CATALOGUE)
    selling = {
        "SKY_CATALOGUE": str(folder / "catalogue.yaml"),
        "SKY_UPSTREAMS": ",".join(KINDS),
    }
    daemon = RunningDaemon(folder / "state", free_port(), environment=selling)
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
        _so_does_a_paid_job(place, boxes)


def _says_why(told: str) -> None:
    """The node in the cloud tells of both that come before it, with region and cost; so do the events."""
    shown = [line for line in told.splitlines() if "is not" in line]
    assert any(HOST in line for line in shown), told
    assert any(f"{BOX}: " in line and "max_nodes is 1" in line for line in shown), told
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


def _so_does_a_paid_job(place: Sky, boxes: Boxes) -> None:
    """Its customer is told where it went and, in general words, why; who sells, what that costs too."""
    shop = Shop(place.environment["SKY_URL"])
    customer = shop.customer()
    asked = body(sku="anywhere", spec__image=boxes.pinned, spec__command=["/bin/busybox", "uname"])
    taken = customer.submit(asked)
    assert taken.status_code == 201, taken.text
    job = customer.ended(taken.json()["id"])
    assert job["status"] == "succeeded", customer("GET", f"/jobs/{job['id']}/logs").text
    events = customer("GET", f"/jobs/{job['id']}/events").text
    where = {"cloud": "aws", "region": "us-east-1"}
    data = {one["type"]: one["data"] for one in json.loads(events)["data"]}
    reason = "ssh in pool had none for it; container had none for it"
    assert data["job.failover"] == {
        "from": {"cloud": "ssh", "region": ""},
        "to": where,
        "reason": reason,
    }
    assert data["job.placed"] == {**where, "instance_type": "t3.micro"}
    assert not [word for word in ("hour", "0.25", "0.0104", "near", "max_nodes") if word in events]
    told = place("job", "events", job["id"], SKY_API_KEY=customer.key).check().out
    assert f"from=ssh to=aws/us-east-1 reason={reason}" in told
    told = place("why", job["id"], "--events", "60").check().out
    assert re.search(r"ran on +aws/t3.micro in us-east-1, costs 0.010400 USD an hour", told), told
    assert re.search(rf"not on +{HOST}: ", told), told
    assert re.search(rf"not on +{BOX}: .*max_nodes is 1", told), told
    bought = "; takes ours/t3.micro in us-east-1, 0.0104 USD an hour"
    assert any(HOST in line and bought in line for line in told.splitlines()), told
