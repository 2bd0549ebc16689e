"""Nodes in containers of a real engine: the conformance suite, and what an engine's answers mean.

Decides: what the provider promises of containers, volumes and images. Never: replaces a part of the provider.
Follows: containers are real ones and run real agents, which find no daemon; a stand-in speaks only where an
engine or a registry has to fail in a way that cannot be had from one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import ssl
import threading
import unittest
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from tests.jobs import engine as engines
from tests.providers.container_engine import BARE, IMAGE, Boxes
from tests.requests.remote import certificates

from sky.kit import faults
from sky.kit.clock import SystemClock
from sky.providers.base import (
    AgainLater,
    AgentSetup,
    Context,
    Kind,
    LaunchOrder,
    Machine,
    Provider,
    Refused,
    Setup,
)
from sky.providers.container import engine as asking
from sky.providers.container import place
from sky.providers.container.body import HOME
from sky.providers.container.config import CREDENTIALS, ContainerConfig
from sky.providers.container.provider import ContainerProvider
from sky.providers.contract import ProviderContract
from sky.providers.registry import check_config

HERE = "prv_boxes"
TOKEN = "a-token-of-a-node"
WAIT_S = 90.0
CDI_FOLDER = Path("/var/run/cdi")


def provider_of(
    config: dict[str, Any], credentials: dict[str, str] | None = None, home: Path = Path("/nonexistent")
) -> ContainerProvider:
    settings = check_config(Kind.of(ContainerProvider), config)
    context = Context(home, "test", SystemClock())
    return ContainerProvider(Setup(HERE, "boxes", settings, credentials or {}, context))


async def order_for(
    provider: Provider, tag: str, image: str | None = None, *, gpus: int = 0, **spec: Any
) -> LaunchOrder:
    offers = [one for one in await provider.offers() if one.accelerator_count == gpus]
    told = {"image": {"base": image} if image else {}, **spec}
    agent = AgentSetup("http://127.0.0.1:9", TOKEN, spec=told)
    return LaunchOrder(tag, offers[0], "on_demand", agent, ttl_seconds=60)


async def until(check: Callable[[], Any]) -> Any:
    """Look until there is something; returns it."""
    async with asyncio.timeout(WAIT_S):
        while not (found := await check()):
            await asyncio.sleep(0.05)
    return found


async def gone(provider: Provider, tag: str) -> Machine:
    """The machine of ``tag`` once it is gone by itself."""

    async def look() -> Machine | None:
        machine = await provider.find(tag)
        return machine if machine is not None and machine.state == "gone" else None

    return await until(look)


async def refusal(provider: Provider, order: LaunchOrder) -> Refused:
    with pytest.raises(Refused) as refused:
        await provider.launch(order)
    return refused.value


class TestContract(ProviderContract, unittest.IsolatedAsyncioTestCase):
    described = Kind.of(ContainerProvider)
    running_within_seconds = gone_within_seconds = 90.0
    wrong_configs = (
        ({"max_nodes": 0}, "max_nodes"),
        ({"pull": "sometimes"}, "pull"),
        ({"engine": "ssh://host"}, "config"),
        ({"mounts": ["/a:b"]}, "config"),
        ({"daemon_url": "localhost:1"}, "config"),
        ({"accelerator": "A100"}, "config"),
        ({"accelerator_device": "nvidia.com/gpu=0"}, "config"),
    )

    @pytest.fixture(autouse=True)
    def at(self, box: Boxes) -> None:
        self.boxes = box

    def provider(self) -> Provider:
        return provider_of(self.boxes.config)


@pytest.fixture
def box(boxes: Boxes) -> Iterator[Boxes]:
    """The engine; what a test has left there is gone for the next one."""
    yield boxes
    for container in boxes.containers():
        boxes.podman("rm", "--force", "--time", "0", container)


# ── what a container is given ───────────────────────────────────────────────────────────────


async def test_a_container_has_the_limits_of_its_node_and_its_end_is_told(box: Boxes) -> None:
    provider = provider_of(box.config)
    machine = await provider.launch(await order_for(provider, "nod_1", memory_gb=0.25))
    told = json.loads(box.podman("inspect", machine.id))[0]
    assert told["HostConfig"]["Memory"] == told["HostConfig"]["MemorySwap"] == 256 * 1024**2
    assert told["HostConfig"]["NanoCpus"] == 10**9
    with pytest.raises(AssertionError):
        box.podman("exec", machine.id, "sh", "-c", "tail /dev/zero")
    found = await provider.find("nod_1")
    assert found is not None
    assert found.state == "running", "what used too much was killed, and not the node"
    assert TOKEN not in json.dumps(told), "the engine shows no token"
    assert TOKEN not in repr(machine)
    assert box.podman("exec", machine.id, "cat", f"{HOME}/token") == TOKEN
    box.podman("kill", machine.id)
    assert "killed" in ((await gone(provider, "nod_1")).reason or "")
    assert [one.state for one in await provider.machines()] == ["gone"]
    await provider.terminate("nod_1", machine.id)
    assert box.containers() == []


async def test_what_an_agent_says_last_is_the_reason_of_its_end(box: Boxes) -> None:
    provider = provider_of({**box.config, "mounts": []})
    order = await order_for(provider, "nod_1")
    with closed() as url:
        await provider.launch(replace(order, agent=replace(order.agent, url=url)))
        reason = (await gone(provider, "nod_1")).reason or ""
    assert "cannot become a node" in reason
    assert f"package cannot be fetched from {url}" in reason


async def test_accelerators_are_given_one_by_one(box: Boxes) -> None:
    """What a device brings along is there only if the engine was asked for that device."""
    devices = [
        {"name": str(number), "containerEdits": {"env": [f"LENT_{number}=yes"]}} for number in range(2)
    ]
    spec = {"cdiVersion": "0.3.0", "kind": "tests.example/gpu", "devices": devices}
    CDI_FOLDER.mkdir(exist_ok=True)
    file = CDI_FOLDER / f"sky-tests-{os.getpid()}.json"
    file.write_text(json.dumps(spec))
    config = {
        **box.config,
        "accelerator": "A100",
        "accelerator_count": 2,
        "accelerator_memory_gb": 80,
        "accelerator_device": "tests.example/gpu",
    }
    try:
        provider = provider_of(config)
        offers = [one for one in await provider.offers() if one.accelerator]
        assert [(one.accelerator, one.accelerator_count, one.vram) for one in offers] == [
            ("A100", 1, 80.0),
            ("A100", 2, 80.0),
        ]
        orders = [await order_for(provider, f"nod_{n}", gpus=1, memory_gb=0.25) for n in range(2)]
        nodes = await asyncio.gather(*(provider.launch(order) for order in orders))
        lent = [box.podman("exec", node.id, "cat", "/proc/1/environ").split("\0") for node in nodes]
        assert sorted(word for words in lent for word in words if word.startswith("LENT_")) == [
            "LENT_0=yes",
            "LENT_1=yes",
        ]
        told = json.loads(box.podman("inspect", nodes[0].id))[0]
        assert told["HostConfig"]["Memory"] == 256 * 1024**2, "made in podman's words, limits are the same"
        refused = await refusal(provider, await order_for(provider, "nod_2", gpus=1))
        assert (refused.code, "0 of 2 are free" in refused.message) == ("capacity", True)
    finally:
        file.unlink()
        if not any(CDI_FOLDER.iterdir()):
            CDI_FOLDER.rmdir()


# ── what is refused ─────────────────────────────────────────────────────────────────────────


async def test_no_more_containers_than_the_settings_allow(box: Boxes) -> None:
    provider = provider_of({**box.config, "max_nodes": 1})
    orders = [await order_for(provider, f"nod_{number}") for number in range(2)]
    answers = await asyncio.gather(*(provider.launch(order) for order in orders), return_exceptions=True)
    [made] = [one for one in answers if isinstance(one, Machine)]
    [refused] = [one for one in answers if isinstance(one, Refused)]
    assert refused.code == "quota"
    assert "max_nodes is 1" in refused.message
    assert box.containers() == [made.id]


async def test_an_image_without_a_shell_is_refused_by_name(box: Boxes) -> None:
    provider = provider_of(box.config)
    refused = await refusal(provider, await order_for(provider, "nod_1", BARE))
    assert refused.code == "capability_mismatch"
    assert f"the image {BARE} cannot run as a node" in refused.message
    assert box.containers() == []


async def test_a_daemon_out_of_reach_is_refused_before_anything_is_made(box: Boxes) -> None:
    provider = provider_of({**box.config, "network": "inner"})
    order = await order_for(provider, "nod_1")
    refused = await refusal(provider, order)
    assert refused.field == "config.daemon_url"
    assert "http://127.0.0.1:9" in refused.message
    told = provider_of({**box.config, "network": "inner", "daemon_url": "http://10.9.8.7:1"})
    refused = await refusal(told, order)
    assert refused.field == "config.network"
    assert "no network 'inner'" in refused.message
    assert box.containers() == []


async def test_a_volume_that_another_daemon_uses_is_left_to_it(box: Boxes) -> None:
    """Made side by side by two daemons, neither container has the disk; one after the other, the first."""
    one, other = provider_of(box.config), provider_of(box.config)
    orders = [replace(await order_for(one, f"nod_{n}"), disk="dsk-1") for n in range(2)]
    answers = await asyncio.gather(one.launch(orders[0]), other.launch(orders[1]), return_exceptions=True)
    assert [type(answer) for answer in answers if not isinstance(answer, Machine)] in (
        [AgainLater],
        [AgainLater, AgainLater],
    )
    assert len(box.containers("label=sky.disk=dsk-1")) <= 1
    for machine in await one.machines():
        await one.terminate(machine.tag, machine.id)
    await until(lambda: _removed(one, "dsk-1"))
    assert box.volumes() == []


async def _removed(provider: ContainerProvider, disk: str) -> bool:
    try:
        await provider.remove_disk(disk)
    except AgainLater:
        return False
    return True


# ── images ──────────────────────────────────────────────────────────────────────────────────


async def test_an_image_is_fetched_when_a_node_needs_it(box: Boxes) -> None:
    registry = engines.serve_registry(box.podman)
    try:
        box.podman("tag", IMAGE, box.podman.image)
        await asyncio.to_thread(engines.push, box.podman)
        never = provider_of({**box.config, "pull": "never"})
        refused = await refusal(never, await order_for(never, "nod_1", f"docker:{box.podman.image}"))
        assert "pull of the provider is never" in refused.message
        provider = provider_of(box.config)
        order = await order_for(provider, "nod_1", f"docker:{box.podman.image}")
        said: list[str] = []

        async def launched() -> Machine | None:
            try:
                return await provider.launch(order)
            except AgainLater as later:
                said.append(later.message)
                return None

        machine = await until(launched)
        assert machine.binding["image"] == box.podman.image
        assert all("is being fetched" in message for message in said)
    finally:
        registry.terminate()
        await asyncio.to_thread(registry.wait)


def _basic(login: str) -> str:
    return base64.b64encode(login.encode()).decode()


class Registry(BaseHTTPRequestHandler):
    """A registry that has nothing, and tells so only to ``me`` with the right password."""

    shown: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        login = self.headers.get("Authorization", "")
        self.shown.append(login)
        right = login == f"Basic {_basic('me:right-password')}"
        code = "MANIFEST_UNKNOWN" if right else "UNAUTHORIZED"
        status = 200 if right and self.path == "/v2/" else 404 if right else 401
        body = json.dumps({"errors": [{"code": code, "message": code.lower().replace("_", " ")}]}).encode()
        self.send_response(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("WWW-Authenticate", 'Basic realm="tests"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing is printed."""


@contextmanager
def closed(address: str = "127.0.0.1:0") -> Iterator[str]:
    """A server that lets nobody in; its address."""
    host, _, port = address.partition(":")
    server = ThreadingHTTPServer((host, int(port)), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def test_a_registry_is_shown_its_login_and_its_refusal_is_told(box: Boxes) -> None:
    registry = box.podman.registry
    login = {"registry_username": "me", "registry_password": "right-password"}
    config = {**box.config, "registry": registry}
    with closed(registry):
        Registry.shown.clear()
        elsewhere = provider_of(box.config, login)
        refused = await refusal(elsewhere, await order_for(elsewhere, "nod_1", f"{registry}/nothing:1"))
        assert not any(_basic("me:right-password") in shown for shown in Registry.shown)
        assert "without a login" in refused.message
        provider = provider_of(config, login)
        refused = await refusal(provider, await order_for(provider, "nod_1", f"{registry}/nothing:1"))
        assert refused.code == "capability_mismatch"
        assert refused.field == "spec.image.base"
        assert f"the image {registry}/nothing:1 cannot be pulled: there is no such image" in refused.message
        wrong = provider_of(config, {**login, "registry_password": "hidden-value"})
        refused = await refusal(wrong, await order_for(wrong, "nod_1", f"{registry}/nothing:2"))
        assert refused.code == "unauthorized"
        assert "hidden-value" not in refused.message


# ── engines that are not there, or not as they should be ────────────────────────────────────


async def test_an_engine_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = provider_of({"engine": f"unix://{tmp_path}/none.sock"})
    with pytest.raises(Refused, match=r"there is no socket .*none\.sock"):
        await absent.offers()
    with pytest.raises(AgainLater, match=r"none\.sock"):
        await absent.find("nod_1")
    with pytest.raises(AgainLater, match=r"none\.sock"):
        await absent.terminate("nod_1", None)
    monkeypatch.setattr(place, "SOCKETS", (f"{tmp_path}/podman.sock",))
    with pytest.raises(Refused) as refused:
        place.find(tmp_path, {"PATH": str(tmp_path)}, {})
    assert refused.value.field == "config.engine"
    for tried in ("DOCKER_HOST is not set", f"{tmp_path}/podman.sock", "podman is not installed"):
        assert tried in refused.value.message
    with pytest.raises(Refused, match="DOCKER_HOST: 'nonsense' is no address"):
        place.find(tmp_path, {"DOCKER_HOST": "nonsense"}, {})
    with pytest.raises(Refused, match="without TLS"):
        place.find(tmp_path, {"DOCKER_HOST": "tcp://10.0.0.1:2375"}, {})


async def test_podman_without_a_service_is_given_one(
    box: Boxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in box.podman.environment.items():
        monkeypatch.setenv(name, value)
    for name in place.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(place, "SOCKETS", ())
    provider = provider_of({"image": IMAGE}, home=tmp_path)
    offers = await asyncio.gather(provider.offers(), provider.offers())
    assert offers[0] == offers[1] != ()
    found = place.find(tmp_path, os.environ, {})
    [service] = [pid for pid in _processes() if str(found).encode() in _command(pid)]
    os.kill(service, signal.SIGTERM)
    while _command(service):  # it takes its socket away itself
        await asyncio.sleep(0.02)
    shutil.rmtree(Path(found.path or "").parent)


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_an_engine_that_never_answers_delays_nobody_else(
    box: Boxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = box.socket.with_name("silent.sock")
    server = await asyncio.start_unix_server(lambda _reader, _writer: asyncio.sleep(WAIT_S), str(socket))
    silent = asyncio.ensure_future(provider_of({"engine": f"unix://{socket}"}).find("nod_1"))
    assert await provider_of(box.config).find("nod_1") is None
    assert not silent.done()
    silent.cancel()
    monkeypatch.setattr(asking, "ANSWER_SECONDS_MAX", 0.2)
    with pytest.raises(AgainLater, match=r"silent\.sock gave no answer within 0\.2 s"):
        await provider_of({"engine": f"unix://{socket}"}).find("nod_1")
    server.close()


async def test_what_goes_while_the_engine_looks_at_it_is_gone(tmp_path: Path) -> None:
    words = json.dumps({"message": "container 0c86 does not exist in database: no such container"}).encode()
    answer = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer + b"Content-Length: %d\r\n\r\n%s" % (len(words), words))
        await writer.drain()
        writer.close()

    socket = tmp_path / "going.sock"
    async with await asyncio.start_unix_server(answered, str(socket)):
        assert await provider_of({"engine": f"unix://{socket}"}).find("nod_1") is None


async def test_what_is_no_engine_is_told_so() -> None:
    with closed() as url:
        provider = provider_of({"engine": url.replace("http", "tcp")})
        with pytest.raises(AgainLater, match="unauthorized"):
            await provider.find("nod_1")


@asynccontextmanager
async def over_tls(socket: Path, folder: Path) -> AsyncIterator[tuple[int, dict[str, str]]]:
    """The engine behind a door that asks for a certificate: its port, and what opens it."""
    files = dict(zip(("ca", "cert", "key"), certificates(folder), strict=True))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files["ca"])
    context.load_cert_chain(files["cert"], files["key"])
    context.verify_mode = ssl.CERT_REQUIRED

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            writer.write(chunk)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(socket))
        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1], {name: path.read_text() for name, path in files.items()}
    server.close()


async def test_an_engine_elsewhere_is_asked_over_tls(box: Boxes, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    stranger = certificates(others)[0].read_text()
    async with over_tls(box.socket, tmp_path) as (port, credentials):
        config = {"engine": f"tcp://localhost:{port}"}
        assert set(credentials) < set(CREDENTIALS)
        provider = provider_of(config, credentials)
        assert await provider.offers()
        assert await provider.find("nod_1") is None
        with pytest.raises(AgainLater, match="does not answer"):
            await provider_of(config, {"ca": credentials["ca"]}).find("nod_1")
        with pytest.raises(Refused, match="not who ca vouches for") as refused:
            await provider_of(config, {**credentials, "ca": stranger}).offers()
        assert refused.value.code == "unauthorized"
        with pytest.raises(Refused, match="no PEM text") as refused:
            await provider_of(config, {**credentials, "key": "hidden-value"}).offers()
        assert "hidden-value" not in refused.value.message


# ── dying halfway ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("budget", range(2))
async def test_a_launch_that_died_halfway_is_gone_on_with(box: Boxes, budget: int) -> None:
    order = await order_for(provider_of(box.config), "nod_1")
    faults.arm(budget)
    with pytest.raises(faults.Died):
        await provider_of(box.config).launch(order)
    faults.disarm()
    later = provider_of(box.config)
    [left] = await later.machines()
    assert left.state == ("pending", "running")[budget]
    machine = await later.launch(order)
    assert (machine.id, machine.state) == (left.id, "running")
    assert msgspec.json.encode(machine.binding)


async def test_one_that_never_began_can_be_ended(box: Boxes) -> None:
    faults.arm(0)
    with pytest.raises(faults.Died):
        await provider_of(box.config).launch(await order_for(provider_of(box.config), "nod_1"))
    faults.disarm()
    await provider_of(box.config).terminate("nod_1", None)
    assert box.containers() == []


def test_every_setting_has_its_default() -> None:
    assert check_config(Kind.of(ContainerProvider), {}) == ContainerConfig()
