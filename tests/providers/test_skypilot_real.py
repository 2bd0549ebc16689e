"""A real SkyPilot API server on this computer, with an environment and a home of its own, and no cloud.

Decides: that what is asked of a server is what one of 0.14 takes, and that what it answers is understood.
Never: buys anything. Follows: the environment is the one that scripts/setup --tests keeps; clouds are a
catalogue of two machines, and nothing can be bought there.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, free_port

from sky.kit.clock import SystemClock
from sky.providers.base import (
    AgainLater,
    AgentSetup,
    Context,
    LaunchOrder,
    Provider,
    ProviderError,
    Refused,
    Setup,
)
from sky.providers.skypilot import handle
from sky.providers.skypilot.api import Access, Api, calling, headers_of
from sky.providers.skypilot.clusters import Names
from sky.providers.skypilot.config import SIZES, SkypilotConfig
from sky.providers.skypilot.kind import KIND
from sky.providers.skypilot.offers import offers_of
from sky.providers.skypilot.task import launch_body

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
VERSION = "0.14.1"
T = TypeVar("T")
UP_S, TRIES = 300, 40
NAMES = Names("real")
CATALOGUE = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
gpu_1x_a10,A10,1.0,30.0,200.0,0.75,us-east-1,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 24576}}]}",
gpu_8x_a100,A100,8.0,124.0,1800.0,10.32,us-east-1,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 40960}}]}",
"""
ACCELERATORS = "AcceleratorName,Clouds\nA10,Lambda\nA100,Lambda\n"
ENABLE = """\
from sky import check, global_user_state as known
from sky.clouds.cloud import CloudCapability
known.set_enabled_clouds(["Lambda"], CloudCapability.COMPUTE, "default")
known.set_allowed_clouds(check._get_workspace_allowed_clouds("default"), "default")
"""
HOLDING = """\
import time
from pathlib import Path
from sky import admin_policy
class Policy(admin_policy.AdminPolicy):
    @classmethod
    def validate_and_mutate(cls, asked):
        while (Path.home() / "hold").exists():
            time.sleep(0.05)
        return admin_policy.MutatedUserRequest(task=asked.task, skypilot_config=asked.skypilot_config)
"""
"""What a server may have its operator's say on launches asked for; this one takes its time, where told."""
HANDLE = """\
import sky
from sky.backends.cloud_vm_ray_backend import CloudVmRayResourceHandle
from sky.server.requests.serializers import encoders
made = sky.Resources.from_yaml_config({"infra": "lambda/us-east-1", "instance_type": "gpu_1x_a10"})
resources = next(iter(made)) if isinstance(made, (set, list)) else made
handle = CloudVmRayResourceHandle(
    cluster_name="a", cluster_name_on_cloud="a", cluster_yaml=None, launched_nodes=1,
    launched_resources=resources, stable_ssh_ports=[22],
    stable_internal_external_ips=[("10.0.0.4", "54.1.2.3")])
print(encoders.encode_handle(handle))
"""


@dataclass
class Real:
    """The server."""

    url: str
    python: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.home}/bin:{self.python.parent}:/usr/bin:/bin"
        own = {"HOME": str(self.home), "PATH": path, "PYTHONPATH": str(self.home / "policies")}
        return {**own, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}

    def run(self, program: str, *arguments: str) -> str:
        """Have a program say something to its database, as the server itself would."""
        done = subprocess.run(
            [self.python, "-c", program, *arguments],
            env={**self.environment, "SKYPILOT_USER_ID": NAMES.user},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout


def processes_of(home: Path) -> Iterator[int]:
    """The processes whose home that is."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}\0".encode() in (folder / "environ").read_bytes():
                yield int(folder.name)
        except OSError:
            continue


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Real:
    """Its environment, and a home; nothing is started."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "skyfleet"
    python = cache / f"skypilot-{VERSION}-py{sys.version_info.major}{sys.version_info.minor}/bin/python"
    if not python.exists():
        missing = f"SkyPilot is not at {python}: scripts/setup --tests puts it there"
        (pytest.fail if os.environ.get("SKY_TESTS_ALL") else pytest.skip)(missing)
    home, port = tmp_path_factory.mktemp("skypilot"), free_port()
    for name, text in (
        (".sky/catalogs/v8/lambda/vms.csv", CATALOGUE),
        (".sky/catalogs/v8/common/accelerators.csv", ACCELERATORS),
        (".sky/config.yaml", "admin_policy: holding.Policy\n"),
        ("policies/holding.py", HOLDING),
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    made = Real(f"http://127.0.0.1:{port}", python, home)
    # It looks for rsync before it looks for a place; nothing here gets as far as using it.
    (home / "bin").mkdir()
    (home / "bin/rsync").write_text("#!/bin/sh\nexit 0\n")
    (home / "bin/rsync").chmod(0o755)
    return made


@pytest.fixture(scope="module")
def real(installed: Real) -> Iterator[Real]:
    made, home = installed, installed.home
    port = made.url.rpartition(":")[2]
    command = [made.python, "-m", "sky.server.server", "--host", "127.0.0.1", "--port", port]
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=made.environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + UP_S
        while not answers(made.url):
            assert process.poll() is None, (home / "server.log").read_text()[-2000:]
            assert time.monotonic() < deadline, f"SkyPilot is not up within {UP_S} s"
            time.sleep(0.5)
        yield made
    finally:
        # Its workers write their titles over their environment, and are left to nobody when it ends; of what
        # has another group, the home is known.
        for pid in processes_of(home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/api/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def provider_of(real: Real, **config: Any) -> Provider:
    settings = SkypilotConfig(endpoint=real.url, daemon_url="http://daemon.example:46580", **config)
    return KIND.create(Setup("prv_sp", "sp", settings, {}, Context(real.home, "real", SystemClock())))


def order_of(tag: str) -> LaunchOrder:
    config = SkypilotConfig(endpoint="http://one")
    offer = next(one for one in offers_of([], config, "prv_sp", "sp") if one.cpus == SIZES[0].cpus)
    return LaunchOrder(tag, offer, "on_demand", AgentSetup("http://127.0.0.1:9", "a-token"), 60)


async def answered(call: Callable[[], Awaitable[T]]) -> T | ProviderError:
    """What a call returns or is refused with, however often it has to be made."""
    error: AgainLater | None = None
    for _ in range(TRIES):
        try:
            return await call()
        except AgainLater as later:
            error = later
            await asyncio.sleep(1)
        except ProviderError as refused:
            return refused
    raise AssertionError(f"no answer: {error}")


async def with_api(real: Real, call: Callable[[Api], Awaitable[T]]) -> T:
    async with calling(Access(real.url, headers_of({}), NAMES.user)) as api:
        return await call(api)


@pytest.fixture(scope="module")
def selling(real: Real) -> Real:
    """The server with a cloud, once it has looked for clouds by itself, as it does when it starts."""

    async def looked(api: Api) -> bool:
        return not next(iter(await api.requests(request_ids="skypilot-server-on-boot-check"))).active

    async def until_looked() -> None:
        deadline = time.monotonic() + UP_S
        while not await with_api(real, looked):
            assert time.monotonic() < deadline, f"it still looks for clouds after {UP_S} s"
            await asyncio.sleep(1)

    with ThreadPoolExecutor(1) as aside:
        aside.submit(asyncio.run, until_looked()).result()
    real.run(ENABLE)
    return real


# The tests follow each other: the first have a server without any cloud.


async def test_health_and_nothing_there(real: Real) -> None:
    await with_api(real, lambda api: api.check())
    provider = provider_of(real, keep_disks=True)
    assert await answered(lambda: provider.find("nod_none")) is None
    assert await answered(provider.machines) == ()
    assert await answered(lambda: provider.terminate("nod_none", None)) is None


async def test_no_cloud_is_a_clear_refusal(real: Real) -> None:
    provider = provider_of(real)
    for call in (provider.offers, lambda: provider.launch(order_of("nod_cloudless"))):
        error = await answered(call)
        assert isinstance(error, Refused)
        assert error.code == "unauthorized"
        assert "'sky check' of SkyPilot" in error.message
        assert "\x1b" not in error.message
    assert await answered(provider.machines) == ()


async def test_errors_of_requests_are_decoded(real: Real) -> None:
    async def ended(path: str, body: dict[str, Any]) -> ProviderError:
        async def call(api: Api) -> ProviderError:
            request_id = await api.submit(path, body)
            while next(iter(await api.requests(request_ids=request_id))).active:
                await asyncio.sleep(0.2)
            return await api.error(request_id, path)

        return await with_api(real, call)

    error = await ended("/launch", {"task": "bogus: 1", "cluster_name": "sf-bogus"})
    assert isinstance(error, Refused)
    assert (error.code, "unsupported field 'bogus'" in error.message) == ("invalid_request", True)
    error = await ended("/down", {"cluster_name": "sf-nobody"})
    assert "ClusterDoesNotExist" in error.message
    with pytest.raises(Refused, match=r"HTTP 422: body.task: Field required"):
        await with_api(real, lambda api: api.submit("/launch", {"cluster_name": "sf-x"}))


async def test_a_launch_that_is_not_wanted_is_cancelled(real: Real) -> None:
    provider, order = provider_of(real), order_of("nod_cancelled")
    hold = real.home / "hold"
    hold.touch()
    try:
        with pytest.raises(AgainLater, match="SkyPilot looks for a place for it"):
            await provider.launch(order)
        [under_way] = await answered(provider.machines)
        assert (under_way.tag, under_way.state) == (order.tag, "pending")
        await answered(lambda: provider.terminate(order.tag, None))
        request_id = under_way.binding["request"]

        async def until_ended(api: Api) -> str:
            while (one := next(iter(await api.requests(request_ids=request_id)))).active:
                await asyncio.sleep(0.2)
            return one.status

        assert await with_api(real, until_ended) == "CANCELLED"
    finally:
        hold.unlink()
    assert await answered(lambda: provider.find(order.tag)) is None


async def test_a_catalogue_and_a_dry_launch(selling: Real) -> None:
    provider = provider_of(selling, infra="lambda/us-east-1", max_hourly_usd=50, labels={"team": "a"})
    offers = await answered(provider.offers)
    assert isinstance(offers, tuple), offers
    known = {one.instance_type: one for one in offers}
    assert {"1x-a10", "8x-a100"} < known.keys()
    ten = known["1x-a10"]
    assert (ten.on_demand_micro, ten.spot_micro, ten.cpus, ten.memory_gb, ten.vram) == (
        *(750_000, None, 30),
        *(200.0, 24.0),
    )
    # The task is one that SkyPilot takes and finds a place for; with dryrun it goes no further.
    config = SkypilotConfig(endpoint=selling.url, infra="lambda/us-east-1", max_hourly_usd=50, disk_gb=512)
    order = replace(order_of("nod_dry"), offer=ten)
    body = launch_body(order, config, NAMES.node("nod_dry"), "http://daemon.example:46580")

    async def dry(api: Api) -> tuple[str, str]:
        request_id = await api.submit("/launch", {**body, "dryrun": True})
        while (one := next(iter(await api.requests(request_ids=request_id)))).active:
            await asyncio.sleep(0.5)
        why = "" if one.status == "SUCCEEDED" else (await api.error(request_id, "dry")).message
        return one.status, why

    assert await with_api(selling, dry) == ("SUCCEEDED", "")


def test_a_daemon_goes_on_to_the_next_kind_where_skypilot_finds_nothing(
    selling: Real, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """There is a catalogue, and neither a key nor a network to buy with. Nothing is left of the launch."""
    folder = tmp_path_factory.mktemp("folder")
    daemon = RunningDaemon(tmp_path_factory.mktemp("daemon"), free_port())
    daemon.start()
    try:
        skyc = Sky(daemon.home, folder, SKY_URL=daemon.url)
        settings = (
            f"endpoint={selling.url}",
            "daemon_url=http://daemon.example:46580",
            "infra=lambda/us-east-1",
        )
        added = [word for setting in settings for word in ("--config", setting)]
        skyc("provider", "add", "far", "--kind", "skypilot", *added).check()
        assert "8x-a100" in skyc("offers", "--kind", "skypilot").check().out
        wish = "    - {infra: far, cpus: 32+}\n    - {infra: local, cpus: 1+}\n"
        (folder / "task.yaml").write_text(f"resources:\n  ordered:\n{wish}run: echo went on\n")
        done = skyc("launch", "-c", "next", "task.yaml", "--yes", timeout_s=UP_S).check()
        assert "went on" in done.out + done.err
        told = skyc("why", "next", "--events", "60").check().out
        why = re.search(r"is not +far/32cpu-128gb in us-east-1, 1.6 USD an hour: (.*)", told)
        assert why is not None, told
        assert "launching 32cpu-128gb" in why[1]
        assert re.search(r"passed over far/32cpu-128gb .*; takes local/", told), told
        everything = with_api(selling, lambda api: answered(lambda: api.clusters(["*"])))
        assert asyncio.run(everything) == []
    finally:
        daemon.stop()


def test_a_handle_as_skypilot_pickles_it_is_read(installed: Real) -> None:
    found = handle.read(installed.run(HANDLE).splitlines()[-1])
    assert found == handle.Handle(None, "gpu_1x_a10", False, "10.0.0.4", "54.1.2.3")
