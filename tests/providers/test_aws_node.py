"""A real daemon whose machines are EC2's: each does what its user data says, as a process of this computer.

Decides: that a call runs on a machine that was bought, that what a cluster has written is there after a
stop and a start, and that nothing is left. Never: starts what the user data has systemd do, or installs the
agent's package, which these machines' image has.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, free_port
from tests.providers.aws_cloud import KEYS, AwsCloud, Fails, LosesAnswer, running
from tests.providers.machines import Machines

import sky
from sky.providers.aws.userdata import METADATA

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
WAIT_S = 100.0


@sky.function
def node_folder() -> str:
    """Where the agent has its home."""

    return os.environ["HOME"] + "|" + str(Path.cwd())


class Instances(Machines):
    """Instances of the account: each does what its user data says."""

    metadata = METADATA
    """Where they ask about themselves."""

    def begin(self, machine: str, told: bytes) -> None:
        """The machine starts."""
        home = self.disks / machine
        home.mkdir(exist_ok=True)
        text = gzip.decompress(told) if told.startswith(b"\x1f\x8b") else told
        (home / "now").write_bytes(text.replace(METADATA.encode(), self.metadata.encode()))
        node = text.decode().partition("export SKY_AGENT_NODE=")[2].partition("\n")[0]
        self.run(machine, node, ["sh", str(home / "now"), "node"], {})


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instances]:
    one = Instances(tmp_path_factory.mktemp("disks"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def cloud(machines: Instances) -> Iterator[AwsCloud]:
    with running() as account:
        account.on_run, account.on_end = machines.begin, machines.end
        machines.metadata = account.url
        yield account


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    one = RunningDaemon(tmp_path_factory.mktemp("daemon"), free_port())
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def skyc(cloud: AwsCloud, daemon: RunningDaemon, tmp_path_factory: pytest.TempPathFactory) -> Sky:
    """The command, at a daemon that has the account."""
    command = Sky(daemon.home, tmp_path_factory.mktemp("folder"))
    settings = [f"daemon_url={daemon.url}", f"endpoint_url={cloud.url}", 'families=["t3"]']
    command(
        *("provider", "add", "ours", "--kind", "aws"),
        *(word for name, value in KEYS.items() for word in ("--credential", f"{name}={value}")),
        *(word for setting in settings for word in ("--config", setting)),
    ).check()
    return command


def until(done: Callable[[], Any], what: str, machines: Machines) -> Any:
    """Look until it holds; returns what it gave."""
    deadline = time.monotonic() + WAIT_S
    while not (value := done()):
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}\n{machines.said()}"
        time.sleep(0.05)
    return value


def states(cloud: AwsCloud, region: str = "us-east-1") -> list[str]:
    """The states of every instance there ever was."""
    found = cloud.client(region).describe_instances()["Reservations"]
    return sorted(one["State"]["Name"] for each in found for one in each["Instances"])


def test_a_call_runs_on_a_machine_that_was_bought_and_nothing_is_left(
    cloud: AwsCloud, daemon: RunningDaemon, skyc: Sky, machines: Machines
) -> None:
    offers = skyc("offers", "--kind", "aws").check()
    assert "t3.micro" in offers.out
    assert "prices on demand of ours are of 2025-01: public list prices" in offers.err
    with sky.Compute(
        provider="aws", cpus=1, url=daemon.url, name="bought", quiet=True, delete_on_exit=True
    ) as compute:
        assert str(machines.disks) in (node_folder() >> compute)
        assert states(cloud) == ["running"]
    until(lambda: states(cloud) == ["terminated"], "the machine is given back", machines)


def test_a_cluster_that_was_stopped_is_started_with_its_disk(
    cloud: AwsCloud, skyc: Sky, machines: Machines
) -> None:
    before = len(states(cloud))
    skyc(
        "launch", "-c", "kept", "--infra", "aws", "--yes", "echo written > kept.txt", timeout_s=WAIT_S
    ).check()
    skyc("stop", "kept", "--yes").check()
    until(lambda: "stopped" in states(cloud), "the machine is stopped", machines)
    skyc("start", "kept", "--yes", timeout_s=WAIT_S).check()
    assert "written" in skyc("exec", "kept", "cat kept.txt").check().out
    skyc("down", "kept", "--yes").check()
    until(lambda: set(states(cloud)) == {"terminated"}, "the machine is given back", machines)
    assert len(states(cloud)) == before + 1, "it was one machine before and after"


def test_a_spot_machine_is_taken_down_and_not_stopped(cloud: AwsCloud, skyc: Sky, machines: Machines) -> None:
    skyc("launch", "-c", "cheap", "--infra", "aws", "--use-spot", "--yes", "true", timeout_s=WAIT_S).check()
    assert "running" in states(cloud)
    refused = skyc("stop", "cheap", "--yes").check(4)
    assert "spot machines of 'aws'" in refused.err
    assert "sky down cheap" in refused.err
    skyc("down", "cheap", "--yes").check()
    until(lambda: set(states(cloud)) == {"terminated"}, "the machine is given back", machines)


@sky.function
def waits_for(note: str) -> str:
    """Works until it is told to end."""
    import time

    Path(note).with_suffix(".begun").touch()
    while not Path(note).exists():
        time.sleep(0.05)
    return os.environ["HOME"]


def test_a_spot_machine_that_is_recalled_finishes_its_call_and_is_replaced(
    cloud: AwsCloud, daemon: RunningDaemon, skyc: Sky, machines: Machines, tmp_path: Path
) -> None:
    """Its metadata service says so two minutes before: it takes no more, and ends what it has. It was bought
    once, though AWS was too busy at first and its answer was then lost; its successor is bought in another
    region, since its own has nothing left."""
    skyc("provider", "update", "ours", "--config", 'regions=["us-east-1","us-west-2"]').check()
    before = {region: len(states(cloud, region)) for region in cloud.regions}
    note, url = tmp_path / "note", f"{daemon.url}/v1/computes/recalled/nodes"

    def newest() -> dict[str, Any]:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return max(json.load(answer)["items"], key=lambda node: node["created_at"])

    cloud.then("RunInstances", Fails("RequestLimitExceeded", status=503), LosesAnswer())
    with sky.Compute(
        provider="aws",
        cpus=1,
        allocation="spot",
        url=daemon.url,
        name="recalled",
        quiet=True,
        delete_on_exit=True,
    ) as compute:
        running = compute.submit(waits_for(str(note)))
        until(note.with_suffix(".begun").exists, "the call begins", machines)
        region = newest()["provider_binding"]["region"]
        [other] = set(cloud.regions) - {region}
        cloud.always("RunInstances", region, Fails("InsufficientInstanceCapacity"))
        try:
            cloud.notice = {"action": "terminate", "time": "2026-01-01T00:02:00Z"}
            until(lambda: newest()["state"] == "draining", "it takes no more", machines)
        finally:
            cloud.notice = None
        told = newest()["last_error"]
        assert told["details"]["reason"] == "spot_interruption"
        assert "to terminate it at 2026-01-01T00:02:00Z" in told["message"]
        assert not running.done()
        note.touch()
        home = running.result(WAIT_S)
        assert (waits_for(str(note)) >> compute) != home, "another machine has taken its place"
        assert newest()["provider_binding"]["region"] == other
        bought = {each: len(states(cloud, each)) - before[each] for each in cloud.regions}
        assert bought == {region: 1, other: 1}
    for each in cloud.regions:
        until(lambda each=each: set(states(cloud, each)) == {"terminated"}, "both are given back", machines)
