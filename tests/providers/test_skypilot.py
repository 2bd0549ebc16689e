"""Clusters of a SkyPilot server as machines: the conformance suite, and what a server says and refuses.

Decides: what is launched, how often, and what a person is told, when answers are lost, late or no. Never:
replaces a part of the provider; the server is a double that takes what one of 0.14 takes.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import subprocess
import unittest
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.providers.skypilot_server import Failure, SkypilotServer, Trouble

from sky.kit.clock import Clock, SystemClock
from sky.providers.base import (
    AgainLater,
    AgentSetup,
    Context,
    DiskKeeper,
    LaunchOrder,
    Machine,
    Provider,
    ProviderError,
    Refused,
    Setup,
    keeper_of,
)
from sky.providers.contract import ProviderContract
from sky.providers.registry import standard
from sky.providers.skypilot import handle, shape
from sky.providers.skypilot import provider as module
from sky.providers.skypilot.config import Size, SkypilotConfig
from sky.providers.skypilot.kind import KIND

DAEMON = "http://daemon.example:46580"
TOKEN = "the-token-of-the-node"


def provider_of(
    server: SkypilotServer | str,
    clock: Clock | None = None,
    credentials: dict[str, str] | None = None,
    deployment: str = "test",
    **config: Any,
) -> Provider:
    url = server if isinstance(server, str) else server.url
    settings = SkypilotConfig(**{"endpoint": url, "daemon_url": DAEMON, **config})
    context = Context(Path("/nowhere"), deployment, clock or SystemClock())
    return KIND.create(Setup("prv_sp", "sp", settings, credentials or {}, context))


async def order_of(provider: Provider, tag: str = "nod_one", wanted: str = "2cpu-8gb") -> LaunchOrder:
    offer = next(one for one in await provider.offers() if one.instance_type == wanted)
    return LaunchOrder(tag, offer, "on_demand", AgentSetup("http://127.0.0.1:9", TOKEN), 60)


def keeper(provider: Provider) -> DiskKeeper:
    found = keeper_of(provider)
    assert found is not None
    return found


class TestSkypilot(ProviderContract, unittest.IsolatedAsyncioTestCase):
    described = KIND
    wrong_configs = (
        ({"endpoint": "sky.example.com"}, "endpoint"),
        ({"endpoint": "http://one", "infra": "aws/ somewhere"}, "infra"),
        ({"endpoint": "http://one", "sizes": [{"cpus": 0, "memory_gb": 1}]}, "sizes[0].cpus"),
    )

    async def asyncSetUp(self) -> None:
        self.server = SkypilotServer()
        await self.server.__aenter__()
        self.addAsyncCleanup(self.server.__aexit__)

    def provider(self) -> Provider:
        return provider_of(self.server, keep_disks=True)


@pytest.fixture
async def server() -> AsyncIterator[SkypilotServer]:
    async with SkypilotServer() as made:
        yield made


async def error_of(call: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await call
    return caught.value


async def launched(provider: Provider, order: LaunchOrder) -> Machine:
    """The machine, however often it has to be asked for."""
    for _ in range(50):
        try:
            return await provider.launch(order)
        except AgainLater:
            await asyncio.sleep(0.01)
    raise AssertionError("it is never launched")


# ── which servers are spoken to, and as whom ─────────────────────────────────────────────────────


async def test_versions_that_are_not_spoken_are_refused_by_name(server: SkypilotServer) -> None:
    server.version = "0.14.9.post1"
    assert await provider_of(server).offers()
    for version in ("0.13.0", "0.15.0", "1.0.0-dev0", "0.140.1"):
        server.version = version
        error = await error_of(provider_of(server).offers())
        assert isinstance(error, Refused)
        assert error.field == "config.endpoint"
        assert f"runs SkyPilot {version}, and 0.14 is spoken here" in error.message
        assert "install 'skypilot>=0.14,<0.15' there" in error.message
    assert server.count("/launch") == 0


async def test_what_is_no_skypilot_server_is_said(server: SkypilotServer) -> None:
    server.troubles = [Trouble("/api/health", 200, "<html>hello</html>")]
    error = await error_of(provider_of(server).offers())
    assert "is no SkyPilot API server" in error.message
    assert "set config.endpoint" in error.message


@pytest.mark.parametrize(
    ("credentials", "sent"),
    [
        ({"token": "sky_secret"}, {"authorization": "Bearer sky_secret"}),
        (
            {"username": "u", "password": "p:ü"},
            {"authorization": "Basic " + base64.b64encode("u:p:ü".encode()).decode()},
        ),
        ({"cookies": "_oauth2_proxy=abc; x=1"}, {"cookie": "_oauth2_proxy=abc; x=1"}),
    ],
)
async def test_who_asks(server: SkypilotServer, credentials: dict[str, str], sent: dict[str, str]) -> None:
    server.authorization, server.cookie = sent.get("authorization"), sent.get("cookie")
    assert await provider_of(server, credentials=credentials).offers()
    wrong = {name: value + "x" for name, value in credentials.items()}
    error = await error_of(provider_of(server, credentials=wrong).offers())
    assert isinstance(error, Refused)
    assert error.code == "unauthorized"
    assert "give token" in error.message
    assert not any(value in error.message for value in wrong.values())


async def test_a_login_page_is_no_answer(server: SkypilotServer) -> None:
    server.troubles = [Trouble("/enabled_clouds", 302, "", headers={"Location": "/oauth2/start"})]
    error = await error_of(provider_of(server).offers())
    assert isinstance(error, Refused)
    assert error.code == "unauthorized"


@pytest.mark.parametrize(
    ("credentials", "field"),
    [
        ({"token": "a", "username": "u", "password": "p"}, "token"),
        ({"username": "u"}, "password"),
        ({"token": "two\nlines"}, "token"),
    ],
)
def test_credentials_that_do_not_go_together(credentials: dict[str, str], field: str) -> None:
    with pytest.raises(Refused) as caught:
        provider_of("http://one", credentials=credentials)
    assert caught.value.field == f"credentials.{field}"
    assert "lines" not in caught.value.message.replace("more than one line", "")


def test_the_kind_is_built_in_and_keeps_disks_where_it_is_told() -> None:
    assert standard({}).kind("skypilot") is KIND
    assert keeper_of(provider_of("http://one")) is None
    assert keeper_of(provider_of("http://one", keep_disks=True)) is not None
    with pytest.raises(ValueError, match="keep_disks needs idle_minutes"):
        SkypilotConfig(endpoint="http://one", keep_disks=True, idle_minutes=0)


# ── what is offered ──────────────────────────────────────────────────────────────────────────────


async def test_offers_are_the_lowest_of_all_places(server: SkypilotServer) -> None:
    offers = {one.instance_type: one for one in await provider_of(server, sizes=()).offers()}
    assert offers.keys() == {"8x-a100", "1x-a100", "1x-l4"}
    eight = offers["8x-a100"]
    assert (eight.on_demand_micro, eight.spot_micro) == (29_390_000, 9_830_000)
    assert (eight.cpus, eight.memory_gb, eight.vram, eight.accelerator_count) == (96, 680.0, 40.0, 8)
    assert offers["1x-l4"].spot_micro is None
    server.clouds = ["AWS"]
    offers = {one.instance_type: one for one in await provider_of(server, sizes=()).offers()}
    assert offers.keys() == {"8x-a100"}
    assert offers["8x-a100"].on_demand_micro == 32_770_000


async def test_settings_narrow_what_is_offered(server: SkypilotServer) -> None:
    sizes = (Size(cpus=4, memory_gb=15, spot_price_per_hour_usd=0.05),)
    config = {"accelerators": ("a100",), "infra": "gcp/us-central1", "max_hourly_usd": 5.0, "sizes": sizes}
    offers = {one.instance_type: one for one in await provider_of(server, **config).offers()}
    assert offers.keys() == {"1x-a100", "4cpu-15gb"}
    assert {one.region for one in offers.values()} == {"us-central1"}
    assert (offers["4cpu-15gb"].on_demand_micro, offers["4cpu-15gb"].spot_micro) == (200_000, 50_000)
    error = await error_of(provider_of(server, infra="azure").offers())
    assert "azure (config.infra) not enabled" in error.message


async def test_a_server_without_a_cloud_says_what_to_do(server: SkypilotServer) -> None:
    order = await order_of(provider_of(server))
    server.clouds = []
    for call in (provider_of(server).offers(), provider_of(server).launch(order)):
        error = await error_of(call)
        assert isinstance(error, Refused)
        assert error.code == "unauthorized"
        assert "'sky check' of SkyPilot" in error.message
        assert "\x1b" not in error.message
    assert server.clusters == {}


# ── what is launched, and how often ──────────────────────────────────────────────────────────────


async def test_what_skypilot_is_told_and_tells(server: SkypilotServer) -> None:
    config = {"disk_gb": 64, "image": "docker:ubuntu:24.04", "labels": {"team": "a"}, "workspace": "research"}
    provider = provider_of(server, infra="gcp", max_hourly_usd=40, idle_minutes=7, **config)
    order = replace(await order_of(provider, wanted="1x-a100"), market="spot")
    machine = await provider.launch(order)
    (task,) = server.tasks()
    assert task["resources"] == {
        "infra": "gcp",
        "accelerators": {"A100": 1},
        "cpus": "12+",
        "memory": "85+",
        "use_spot": True,
        "disk_size": 64,
        "image_id": "docker:ubuntu:24.04",
        "max_hourly_cost": 40,
        "labels": {"team": "a"},
        "autostop": {"idle_minutes": 7, "down": True},
    }
    program = base64.b64decode(task["secrets"]["SKYFLEET_PROGRAM"]).decode()
    assert TOKEN in program
    assert f"SKY_AGENT_URL={DAEMON}" in program
    assert TOKEN not in yaml.safe_dump({**task, "secrets": None})
    body = next(body for path, body in server.bodies if path == "/launch")
    assert body["override_skypilot_config"] == {"active_workspace": "research"}
    assert machine.state == "running"
    assert machine.address == "10.128.0.7"
    assert machine.launched_us == 1_700_000_000_000_000
    assert machine.binding["hourly_usd"] == pytest.approx(29.39)
    assert {
        name: machine.binding[name]
        for name in ("cloud", "region", "zone", "instance_type", "market", "state")
    } == {
        "cloud": "GCP",
        "region": "us-central1",
        "zone": "us-central1-a",
        "instance_type": "a2-highgpu-1g",
        "market": "spot",
        "state": "UP",
    }
    assert TOKEN not in str(machine)


async def test_machines_are_told_an_address_that_they_reach(server: SkypilotServer) -> None:
    provider = provider_of(server, daemon_url=None)
    error = await error_of(provider.launch(await order_of(provider)))
    assert isinstance(error, Refused)
    assert error.field == "config.daemon_url"
    assert "start the daemon with --host" in error.message
    assert server.count("/launch") == 0


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_launch_whose_answer_was_lost_is_looked_for(server: SkypilotServer, lost: str) -> None:
    order = await order_of(provider_of(server))
    server.troubles = [Trouble("/launch", lost=lost)]
    assert isinstance(await error_of(provider_of(server).launch(order)), AgainLater)
    machine = await launched(provider_of(server), order)
    assert machine.state == "running"
    assert len(server.tasks()) == 1, "it is launched once"
    assert list(server.clusters) == [machine.id]


async def test_a_launch_that_takes_long_is_waited_for(
    server: SkypilotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACED_S_MAX", 0.0)
    provider, server.hold = provider_of(server), True
    order = await order_of(provider)
    error = await error_of(provider.launch(order))
    assert isinstance(error, AgainLater)
    assert "SkyPilot looks for a place" in error.message
    request = next(one for one in server.requests.values() if one["name"] == "sky.launch")
    server.logs[request["request_id"]] = "\x1b[33m⚙︎ Launching on GCP us-central1\x1b[0m\n"
    other = provider_of(server)
    assert "Launching on GCP us-central1" in (await error_of(other.launch(order))).message
    found = await other.find(order.tag)
    assert found is not None
    assert found.state == "pending"
    assert [one.tag for one in await other.machines()] == [order.tag], (
        "it is listed before there is a cluster"
    )
    server.release()
    assert (await launched(other, order)).state == "running"
    assert len(server.tasks()) == 1


async def test_a_token_that_ends_during_a_launch_loses_nothing(
    server: SkypilotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACED_S_MAX", 0.0)
    provider, server.hold = provider_of(server), True
    order = await order_of(provider)
    await error_of(provider.launch(order))
    server.authorization = "Bearer another"
    for again in (provider, provider_of(server)):
        error = await error_of(again.launch(order))
        assert isinstance(error, AgainLater), "nobody can say whether it was bought"
        assert "credentials" in error.message
    server.authorization = None
    server.release()
    assert (await launched(provider_of(server), order)).state == "running"
    assert len(server.tasks()) == 1


async def test_a_machine_whose_cost_cannot_be_told_is_there(server: SkypilotServer) -> None:
    server.troubles = [Trouble("/cost_report", 500, times=9)]
    provider = provider_of(server)
    machine = await provider.launch(await order_of(provider))
    assert (machine.state, "hourly_usd" in machine.binding) == ("running", False)


async def test_a_launch_that_is_not_taken_is_refused(server: SkypilotServer) -> None:
    provider = provider_of(server)
    order = await order_of(provider)
    detail = '{"detail": [{"loc": ["body", "task"], "msg": "Field required"}]}'
    server.troubles = [Trouble("/launch", 422, detail)]
    error = await error_of(provider.launch(order))
    assert isinstance(error, Refused)
    assert "HTTP 422: body.task: Field required" in error.message


async def test_a_launch_that_is_not_wanted_any_more_is_cancelled(
    server: SkypilotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACED_S_MAX", 0.0)
    provider, server.hold = provider_of(server), True
    order = await order_of(provider)
    await error_of(provider.launch(order))
    server.troubles = [Trouble("/status")]
    error = await error_of(provider_of(server).terminate(order.tag, None))
    assert isinstance(error, AgainLater), "it cannot be known yet whether there is a cluster"
    assert [one["status"] for one in server.requests.values() if one["name"] == "sky.launch"] == ["CANCELLED"]
    await provider_of(server).terminate(order.tag, None)
    assert await provider.find(order.tag) is None
    assert server.clusters == {}


@pytest.mark.parametrize(
    ("failure", "code", "told"),
    [
        (
            ("ResourcesUnavailableError", "Failed to provision all possible resources."),
            "capacity",
            "provision",
        ),
        (("ResourcesUnavailableError", "Found no quota for p4d.24xlarge"), "quota", "higher quota"),
        (("ResourcesUnavailableError", "due to invalid cloud credentials: x"), "unauthorized", "sky check"),
        (
            ("ResourcesUnavailableError", "No launchable resource found"),
            "capability_mismatch",
            "widen config.infra",
        ),
        (("NotSupportedError", "no spot there"), "capability_mismatch", "another size"),
        (("InvalidSkyPilotConfigError", "bad"), "invalid_request", "docs/providers/skypilot.md"),
        (("UserRequestRejectedByPolicy", "not you"), "invalid_request", "not you"),
        (("SomethingNew", "who knows"), "capacity", "SomethingNew: who knows"),
        (("RequestInterruptedError", "restarted"), None, "restarted"),
    ],
)
async def test_what_a_launch_fails_with(
    server: SkypilotServer, failure: tuple[str, str], code: str | None, told: str
) -> None:
    provider = provider_of(server)
    order = await order_of(provider)
    server.launch_fails = [Failure(*failure)]
    error = await error_of(provider.launch(order))
    assert getattr(error, "code", None) == code
    assert isinstance(error, Refused if code else AgainLater)
    assert told in error.message
    machine = await provider.launch(order)
    assert machine.state == "running", "what was refused once may be had another time"
    assert len(server.tasks()) == 2


async def test_the_log_of_a_failed_launch_is_told(
    server: SkypilotServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PLACED_S_MAX", 0.0)
    provider, server.hold = provider_of(server), True
    order = await order_of(provider)
    await error_of(provider.launch(order))
    request = next(one for one in server.requests.values() if one["name"] == "sky.launch")
    server.logs[request["request_id"]] = "\x1b[31mno room in us-central1-a\x1b[0m\n"
    server.launch_fails = [Failure("ResourcesUnavailableError", "nowhere")]
    server.release()
    await asyncio.gather(request["task"])
    error = await error_of(provider.launch(order))
    assert isinstance(error, Refused)
    assert "nowhere (its log ends: no room in us-central1-a)" in error.message


async def test_what_a_failed_launch_leaves_is_removed_before_it_is_refused(server: SkypilotServer) -> None:
    provider, server.leaves = provider_of(server), True
    order = await order_of(provider)
    server.launch_fails = [Failure("CommandError", "the setup has failed")]
    error = await error_of(provider.launch(order))
    assert isinstance(error, AgainLater), "something is left that may cost"
    assert "the setup has failed" in error.message
    error = await error_of(provider.launch(order))
    assert isinstance(error, Refused)
    assert server.clusters == {}
    # And where the daemon that asked for it has forgotten.
    server.launch_fails = [Failure("CommandError", "the setup has failed")]
    await error_of(provider.launch(order))
    server.clusters.update(left_of(server, order))
    assert isinstance(await error_of(provider_of(server).launch(order)), AgainLater)
    assert (await launched(provider_of(server), order)).state == "running"


def left_of(server: SkypilotServer, order: LaunchOrder) -> dict[str, Any]:
    name = next(body["cluster_name"] for path, body in server.bodies if path == "/launch")
    assert name.endswith(order.tag)
    return {
        name: {"name": name, "status": "INIT", "cluster_ever_up": False, "launched_at": 1, "handle": None}
    }


# ── what becomes of a cluster ────────────────────────────────────────────────────────────────────


async def test_unreachable_is_not_gone(server: SkypilotServer) -> None:
    provider = provider_of(server)
    machine = await provider.launch(await order_of(provider))
    for path, status in (("/status", 503), ("/api/get", 502), ("/api/status", 429), ("/status", 401)):
        server.troubles = [Trouble(path, status)]
        assert isinstance(await error_of(provider.find(machine.tag)), AgainLater), (path, status)
    server.troubles = [Trouble("/status", lost="after")]
    assert isinstance(await error_of(provider.find(machine.tag)), AgainLater)
    for text in ("<html>", "null", "[" * 100_000):
        server.troubles = [Trouble("/api/status", 200, text=text)]
        assert "the answer is no list" in (await error_of(provider.find(machine.tag))).message
    found = await provider.find(machine.tag)
    assert found is not None
    assert found.state == "running"
    await server.__aexit__()
    for call in (provider.find(machine.tag), provider.machines(), provider.terminate(machine.tag, None)):
        assert isinstance(await error_of(call), AgainLater)


async def test_states(server: SkypilotServer) -> None:
    provider = provider_of(server)
    machine = await provider.launch(await order_of(provider))
    cluster = server.clusters[machine.id]
    cluster.update(status="INIT", init_status_reason="ray is not healthy")
    found = await provider.find(machine.tag)
    assert found is not None
    assert (found.state, found.reason) == ("running", "SkyPilot has it as INIT: ray is not healthy")
    cluster["status"] = "STOPPED"
    found = await provider.find(machine.tag)
    assert found is not None
    assert (found.state, found.reason) == ("gone", "its cluster is stopped")
    del server.clusters[machine.id]
    assert await provider.find(machine.tag) is None


async def test_an_end_is_asked_for_once_and_its_failure_is_told(server: SkypilotServer) -> None:
    provider = provider_of(server)
    machine = await provider.launch(await order_of(provider))
    server.hold = True
    for _ in range(3):
        await provider.terminate(machine.tag, machine.id)
    assert server.count("/down") == 1
    found = await provider.find(machine.tag)
    assert found is not None
    assert found.state == "running", "it costs until it is gone"
    server.down_fails = [Failure("RuntimeError", "the cloud says no")]
    server.release()
    await asyncio.gather(*(row["task"] for row in server.requests.values() if row["name"] == "sky.down"))
    error = await error_of(provider.terminate(machine.tag, machine.id))
    assert isinstance(error, AgainLater)
    assert "the cloud says no" in error.message
    await asyncio.gather(*(row["task"] for row in server.requests.values() if row["name"] == "sky.down"))
    assert server.clusters == {}
    await provider.terminate(machine.tag, machine.id)
    assert server.count("/down") == 2


async def test_deployments_on_one_server_do_not_see_each_other(server: SkypilotServer) -> None:
    ours, theirs = provider_of(server), provider_of(server, deployment="other")
    machine = await ours.launch(await order_of(ours))
    assert await theirs.machines() == ()
    assert await theirs.find(machine.tag) is None
    await theirs.terminate(machine.tag, machine.id)
    server.clusters["somebody-elses"] = {"name": "somebody-elses", "status": "UP"}
    assert [one.id for one in await ours.machines()] == [machine.id]


# ── clusters that are stopped and started ────────────────────────────────────────────────────────


async def test_a_disk_is_a_cluster_that_is_stopped(server: SkypilotServer) -> None:
    provider = keeper(provider_of(server, keep_disks=True))
    order = replace(await order_of(provider), disk="dsk-one")
    machine = await provider.launch(order)
    (task,) = server.tasks()
    assert task["resources"]["autostop"] == {"idle_minutes": 5, "down": False}, "forgotten, it is stopped"
    await provider.terminate(order.tag, machine.id, keep_disk=True)
    await asyncio.gather(*(row["task"] for row in server.requests.values() if row["name"] == "sky.stop"))
    server.launch_fails = [Failure("ResourcesUnavailableError", "no room to start it again")]
    then = replace(await order_of(provider, "nod_two"), disk="dsk-one")
    error = await error_of(provider.launch(then))
    assert isinstance(error, Refused)
    assert await provider.disks() == ("dsk-one",), "a start that was refused leaves the disk"
    again = await provider.launch(then)
    assert (again.id, again.tag, again.state) == (machine.id, "nod_two", "running")
    assert await provider.find("nod_one") is None
    assert server.count("/down") == 0


# ── what runs on the machine ─────────────────────────────────────────────────────────────────────


async def test_handed_in_twice_for_one_machine_it_is_one_agent(
    server: SkypilotServer, tmp_path: Path
) -> None:
    provider = keeper(provider_of(server, keep_disks=True))
    await provider.launch(replace(await order_of(provider), disk="dsk-one"))
    (task,) = server.tasks()
    await asyncio.to_thread(run_twice, task["run"], tmp_path)
    assert (tmp_path / "ran").read_text() == f"{tmp_path}/skyfleet/disks/dsk-one unset\n"
    assert not (tmp_path / "skyfleet/nodes/nod_before").exists()
    assert (tmp_path / "skyfleet/nodes/nod_one/begin").stat().st_mode & 0o077 == 0


def run_twice(run: str, home: Path) -> None:
    """What a task runs, and the same again while its program has not ended."""
    (home / "skyfleet/nodes/nod_before").mkdir(parents=True)
    program = 'echo "$SKY_AGENT_DISK ${SKYFLEET_PROGRAM-unset}" >>"$HOME/ran"; read -r _ <"$HOME/end"'
    subprocess.run(["mkfifo", home / "end"], check=True)
    secret = base64.b64encode(program.encode()).decode()
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "SKYFLEET_PROGRAM": secret}
    first = subprocess.Popen(["bash", "-c", run], env=environment)
    try:
        with (home / "end").open("w") as end:  # opens when the program reads: it has begun
            second = subprocess.run(["bash", "-c", run], env=environment, timeout=60, check=False)
            assert second.returncode == 0
            end.write("now\n")
        assert first.wait(timeout=60) == 0
    finally:
        first.kill()


# ── pickles that are read and never opened ───────────────────────────────────────────────────────


class Danger:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("danger"),))


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_runs_nothing(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = {"launched_resources": {"_zone": "z", "_use_spot": False}, "more": [Danger(), b"x", 1.5, 2**70]}
    encoded = base64.b64encode(pickle.dumps(known, protocol=protocol)).decode()
    found = handle.read(encoded)
    assert (found.zone, found.spot) == ("z", False)
    assert not (tmp_path / "danger").exists()


@pytest.mark.parametrize("encoded", [None, "", "!!", "gASV", base64.b64encode(b"\x80\x04}(e.").decode(), 7])
def test_a_pickle_that_cannot_be_read_tells_nothing(encoded: object) -> None:
    assert handle.read(encoded) == handle.Handle()


def test_a_number_without_measure_is_none() -> None:
    assert [shape.number(shape.parsed(text)) for text in ("1" + "0" * 400, "1e400", "NaN", "2")] == [
        None, None, None, 2.0,
    ]  # fmt: skip
