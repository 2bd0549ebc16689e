"""A real daemon whose machines are clusters of a SkyPilot server beside it: each runs its task's program.

Decides: that tasks and paid jobs run on what SkyPilot finds, that where that is and what it costs is told to
whom it concerns, and that nothing is left. Never: installs the agent's package, which these machines have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest
from tests import waiting
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, free_port
from tests.jobs.shop import Customer, Shop, body
from tests.providers.beside import running_beside
from tests.providers.container_engine import Boxes
from tests.providers.machines import Machines
from tests.providers.skypilot_server import Failure, SkypilotServer

from sky.providers.skypilot.clusters import NODE

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
WAIT_S = 100.0
until = partial(waiting.until, within_s=WAIT_S)
FOUND = {"cloud": "gcp", "region": "us-central1", "instance_type": "a2-highgpu-1g"}
CATALOGUE = """\
skus:
  - {id: found, price_usd_per_hour: "3.60", tier: neocloud, vcpus: 1, memory_gb: 1,
     providers: [{cloud: skypilot}]}
  - {id: named, price_usd_per_hour: "3.60", tier: neocloud, vcpus: 1, memory_gb: 1,
     providers: [{cloud: gcp, context: skypilot}]}
"""


@pytest.fixture(scope="module")
def server(boxes: Boxes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SkypilotServer]:
    machines = Machines(tmp_path_factory.mktemp("disks"))
    machines.environment = boxes.podman.environment
    one = SkypilotServer()
    one.on_up = lambda name, task: machines.run(
        name, task["envs"][NODE], ["sh", "-c", task["run"]], {**task["envs"], **task["secrets"]}
    )
    one.on_end = machines.end
    with running_beside(one):
        yield one
    machines.close()


@pytest.fixture(scope="module")
def skyc(server: SkypilotServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sky]:
    """The command, at a daemon that sells, and that has the server as its only provider but this computer."""
    folder = tmp_path_factory.mktemp("folder")
    (folder / "catalogue.yaml").write_text(CATALOGUE)
    selling = {"SKY_CATALOGUE": str(folder / "catalogue.yaml"), "SKY_UPSTREAMS": "skypilot,gcp"}
    daemon = RunningDaemon(tmp_path_factory.mktemp("daemon"), free_port(), environment=selling)
    daemon.start()
    try:
        command = Sky(daemon.home, folder, SKY_URL=daemon.url)
        command(
            *("provider", "add", "found", "--kind", "skypilot", "--config", f"endpoint={server.url}"),
            *("--config", f"daemon_url={daemon.url}"),
        ).check()
        yield command
    finally:
        daemon.stop()


@pytest.fixture
def customer(skyc: Sky) -> Customer:
    return Shop(skyc.environment["SKY_URL"]).customer()


def test_a_cluster_on_what_skypilot_finds_is_launched_used_and_ended(
    server: SkypilotServer, skyc: Sky
) -> None:
    launch = ("launch", "-y", "-c", "far", "--infra", "skypilot", "--cpus", "2", "echo first-word")
    assert "first-word" in skyc(*launch, timeout_s=WAIT_S).check().out
    [cluster] = server.clusters.values()
    [record] = skyc.json_of("status", "far")
    assert (record["cloud"], record["region"]) == ("skypilot", FOUND["region"])
    told = skyc("why", "far", "--events", "60").check().out
    assert "is gcp/a2-highgpu-1g in us-central1, 29.39 USD an hour" in told
    assert cluster["name"] in json.dumps(skyc.json_of("why", "far"))
    assert "first-word" in skyc("logs", "far", "1").check().out
    skyc("exec", "-d", "far", "sleep 600").check()
    skyc("cancel", "-y", "far", "2").check()
    ended = ["CANCELLED", "SUCCEEDED"]
    until(lambda: [job["status"] for job in skyc.json_of("queue", "far")] == ended, "it is cancelled")
    skyc("down", "-y", "far").check()
    until(lambda: not server.clusters, "its cluster is gone")


def test_a_paid_job_is_launched_by_skypilot(
    server: SkypilotServer, skyc: Sky, customer: Customer, boxes: Boxes
) -> None:
    """SkyPilot finds no place for the first size, and one for the next. The SKU names the cloud, and SkyPilot
    as what it is had from."""
    server.launch_fails = [Failure("ResourcesUnavailableError", "no a2-highgpu-1g for 29.39 USD anywhere")]
    asked = body(sku="named", spec__image=boxes.pinned, spec__command=["/bin/busybox", "echo", "ran"])
    taken = customer.submit(asked)
    assert taken.status_code == 201, taken.text
    job = customer.ended(taken.json()["id"])
    log = customer("GET", f"/jobs/{job['id']}/logs").text
    assert job["status"] == "succeeded", log
    assert log.endswith(" is here already\nran\n")
    assert job["placement"] == FOUND
    events = customer("GET", f"/jobs/{job['id']}/events").text
    data = {one["type"]: one["data"] for one in json.loads(events)["data"]}
    assert data["job.placed"] == FOUND
    assert "job.failover" not in data, "where SkyPilot looks is its own business"
    assert "29.39" not in events
    shop = Shop(skyc.environment["SKY_URL"])
    [sold] = shop.operate("GET", "/jobs", params={"job": job["id"]})["items"]
    assert sold["placement"]["cost_usd_per_hour"] == "29.390000"
    [why] = sold["placement"]["passed_over"]
    assert why.startswith("found/2cpu-8gb, 0.1 USD an hour: ")
    assert "ResourcesUnavailableError: no a2-highgpu-1g for 29.39 USD anywhere" in why
    shop.audit()
    until(lambda: not server.clusters, "its cluster is gone")


def test_a_paid_job_that_is_cancelled_leaves_nothing_at_skypilot(
    server: SkypilotServer, skyc: Sky, customer: Customer, boxes: Boxes
) -> None:
    """While SkyPilot looks for a place, and while its command runs."""
    asked = body(sku="found", spec__image=boxes.pinned, spec__command=["/bin/busybox", "sleep", "600"])
    server.hold = True
    looking = customer.submit(asked).json()["id"]
    [request] = until(
        lambda: [
            one
            for one in list(server.requests.values())  # the server adds to them meanwhile
            if one["name"] == "sky.launch" and "task" in one and one["status"] == "RUNNING"
        ],
        "SkyPilot is asked",
    )
    assert customer("POST", f"/jobs/{looking}/cancel").json()["status"] == "cancelled"
    until(lambda: request["status"] == "CANCELLED", "it looks no more")
    server.release()
    assert customer.job(looking)["usage"]["settled_cost_usd"] == "0.000000"
    running = customer.submit(asked).json()["id"]
    customer.until(running, lambda job: job["status"] == "running")
    assert customer("POST", f"/jobs/{running}/cancel").json()["status"] == "cancelled"
    until(lambda: not server.clusters, "its cluster is gone")
    Shop(skyc.environment["SKY_URL"]).audit()
