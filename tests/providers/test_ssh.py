"""Hosts over SSH: the conformance suite against real servers, and what each thing that goes wrong is called.

Decides: what the provider promises of logins, host keys, folders and places. Never: speaks to a computer
outside the test. Follows: the servers are real ones on loopback; most nodes here never find a daemon.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import unittest
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncssh
import pytest
import pytest_asyncio
from tests.disks import small_disk
from tests.providers.sshd import Sshd, make_key, run, serving

from sky.kit import agent_package
from sky.kit.clock import SystemClock
from sky.providers.base import AgainLater, AgentSetup, Context, Kind, LaunchOrder, Machine, Refused, Setup
from sky.providers.contract import ProviderContract
from sky.providers.registry import check_config
from sky.providers.ssh import pool
from sky.providers.ssh.gpus import Gpus, gpus_of
from sky.providers.ssh.provider import SshProvider
from sky.providers.ssh.records import Records

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="accounts of its own need root"),
]
KIND = Kind.of(SshProvider)
ROOT = Path(__file__).parents[2]
WAIT_S = 60.0


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Sshd]]:
    """Two servers for all tests of a process."""
    folder = tmp_path_factory.mktemp("hosts")
    key = make_key(folder / "key")
    with serving(Sshd(folder / "first", key)) as first, serving(Sshd(folder / "second", key)) as second:
        yield [first, second]


@pytest_asyncio.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    await pool.close_all()


def as_host(server: Sshd, name: str = "first", **more: Any) -> dict[str, Any]:
    return {"name": name, "address": server.address, "port": server.port, **more}


def home_on(server: Sshd, folder: Path, deployment: str = "deployment") -> str:
    """A home of its own on a host, where the agent is installed if it is elsewhere on that host."""
    home = server.home / folder.name
    (home / deployment).mkdir(parents=True, exist_ok=True)
    (server.home / "agents").mkdir(exist_ok=True)
    agents = home / deployment / "agents"
    if not agents.exists():
        agents.symlink_to(server.home / "agents")
    return str(home)


def provider(
    state: Path, *told: dict[str, Any], credentials: dict[str, str] | None = None, **config: Any
) -> SshProvider:
    usual = {"connect_seconds": 20.0, "own_keys": False} | config
    checked = check_config(KIND, {"hosts": list(told), **usual})
    context = Context(state, "deployment", SystemClock())
    return SshProvider(Setup("prv_1", "mine", checked, credentials or {}, context))


def keyed(server: Sshd) -> dict[str, str]:
    return {"private_key": server.key.read_text()}


async def order_of(from_: SshProvider, tag: str, place: int = 0) -> LaunchOrder:
    offers = await from_.offers()
    agent = AgentSetup("http://127.0.0.1:9", "unused")
    return LaunchOrder(tag, offers[place], "on_demand", agent, ttl_seconds=60)


async def refused(from_: SshProvider, tag: str, **offered: Any) -> Refused:
    """What a launch on the first host is refused with."""
    with pytest.raises(Refused) as refusal:
        await from_.launch(await order_of(from_, tag, **offered))
    return refusal.value


async def gone(from_: SshProvider, tag: str) -> Machine | None:
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await from_.find(tag)
            if found is None or found.state == "gone":
                return found
            await asyncio.sleep(0.05)


async def deserted(server: Sshd) -> None:
    """Returns once nothing of a node is left on a host."""
    async with asyncio.timeout(WAIT_S):
        while server.agents():
            await asyncio.sleep(0.05)


class TestConformance(ProviderContract, unittest.IsolatedAsyncioTestCase):
    """Each test has a home of its own on the same host, where the agent was installed before."""

    running_within_seconds = gone_within_seconds = 90.0
    described = KIND
    wrong_configs = (
        ({"hosts": []}, "hosts"),
        ({"hosts": [{"name": "a", "prot": 22}]}, "hosts"),
        ({"hosts": [{"name": "a", "port": 70_000}]}, "port"),
        ({"hosts": [{"name": "a", "home": "relative"}]}, "home"),
    )
    servers: list[Sshd]
    folder: Path

    @pytest.fixture(autouse=True)
    def placed(self, hosts: list[Sshd], tmp_path: Path) -> None:
        self.servers, self.folder = hosts, tmp_path

    def provider(self) -> SshProvider:
        [first, _] = self.servers
        host = as_host(first, max_nodes=3, home=home_on(first, self.folder))
        return provider(self.folder, host, credentials=keyed(first))

    async def asyncTearDown(self) -> None:
        await super().asyncTearDown()
        [first, _] = self.servers
        await deserted(first)  # nothing of a node outlives it
        await pool.close_all()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"hosts": [{"name": "a"}, {"name": "a"}]}, "twice there: a"),
        ({"hosts": [{"name": "a", "jump": "b@c@d"}]}, "'b@c@d' is neither the name of a jump or host nor"),
        ({"hosts": [{"name": "a", "jump": "b"}, {"name": "b", "jump": "a"}]}, "in a circle: a by b by a"),
        ({"hosts": [{"name": "a"}], "tunnel": "never"}, "tunnel: never needs daemon_url"),
        ({"hosts": [{"name": "a"}], "daemon_url": "here"}, "daemon_url is http:// or https://, not 'here'"),
    ],
)
def test_a_pool_that_makes_no_sense_is_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused) as refusal:
        check_config(KIND, config)
    assert refusal.value.code == "invalid_request"
    assert says in refusal.value.message


async def test_a_host_is_as_large_as_it_says_or_is_told(hosts: list[Sshd], tmp_path: Path) -> None:
    first, second = hosts
    mine = provider(
        tmp_path,
        as_host(first),
        as_host(second, "second", cpus=64, memory_gb=512, gpus="H100:8", max_nodes=4),
        credentials=keyed(first),
        price_per_hour_usd=16,
    )
    plain, large = await mine.offers()
    assert plain.cpus == len(os.sched_getaffinity(0))
    assert (plain.available, plain.accelerator, plain.on_demand_micro) == (1, None, 16_000_000)
    assert (large.cpus, large.memory_gb, large.accelerator, large.accelerator_count) == (16, 128, "H100", 2)
    assert (large.available, large.on_demand_micro, large.region) == (4, 4_000_000, "mine")


@pytest.mark.parametrize(
    ("told", "printed", "found"),
    [
        (
            None,
            "NVIDIA A100-SXM4-80GB, 81920\nNVIDIA A100-SXM4-80GB, 81920\n",
            Gpus("A100-SXM4-80GB", 2, 80.0),
        ),
        (None, "NVIDIA A100, 40960\nNVIDIA T4, 16384\n", Gpus()),
        (None, "NVIDIA-SMI has failed\n", Gpus()),
        ("T4:4", "", Gpus("T4", 4)),
        ("L4", "NVIDIA L4, 24576\n", Gpus("L4", 1, 24.0)),
        ("none", "NVIDIA L4, 24576\n", Gpus()),
    ],
)
def test_accelerators_are_found_or_told(told: str | None, printed: str, found: Gpus) -> None:
    assert gpus_of(told, printed) == found


async def test_a_node_has_its_own_accelerators_and_folder(hosts: list[Sshd], tmp_path: Path) -> None:
    first, _ = hosts
    home = Path(home_on(first, tmp_path))
    told = as_host(first, home=str(home), gpus="T4:4", max_nodes=2)
    mine = provider(tmp_path, told, credentials=keyed(first))
    orders = [await order_of(mine, f"nod_gpu{n}") for n in range(3)]
    assert orders[0].offer.accelerator_count == 2
    await asyncio.gather(*(mine.launch(order) for order in orders[:2]))
    seen = {
        (home / "deployment/nodes" / f"nod_gpu{n}" / "surroundings.sh")
        .read_text()
        .partition("DEVICES=")[2][:3]
        for n in range(2)
    }
    assert seen == {"0,1", "2,3"}, "no accelerator is given to two nodes"
    with pytest.raises(Refused, match="all its places for nodes are taken") as full:
        await mine.launch(orders[2])
    assert full.value.code == "capacity"
    assert [offer.available for offer in await mine.offers()] == [0]
    assert (home / "deployment/nodes/nod_gpu0").stat().st_mode & 0o077 == 0, "nobody else looks into a node"
    assert "unused" not in run("ps", "axww"), "a token is in no command line"
    for n in range(2):
        await mine.terminate(f"nod_gpu{n}", None)
        await gone(mine, f"nod_gpu{n}")
    assert [offer.available for offer in await mine.offers()] == [2], "a place is free again"


async def test_deployments_and_users_of_a_host_are_apart(hosts: list[Sshd], tmp_path: Path) -> None:
    first, _ = hosts
    told = as_host(first, home=home_on(first, tmp_path), max_nodes=2)
    mine = provider(tmp_path / "mine", told, credentials=keyed(first))
    setup = mine._setup
    other = SshProvider(replace(setup, context=Context(tmp_path / "theirs", "others", SystemClock())))
    await mine.launch(await order_of(mine, "nod_same"))
    await other.launch(await order_of(other, "nod_same"))
    assert [offer.available for offer in await mine.offers()] == [0], (
        "places are counted over all deployments"
    )
    await other.terminate("nod_same", None)
    await gone(other, "nod_same")
    [left] = await mine.machines()
    assert (left.tag, left.state) == ("nod_same", "running")
    assert await other.machines() == ()
    await mine.terminate("nod_same", None)
    await gone(mine, "nod_same")


async def test_users_of_a_host_are_apart(hosts: list[Sshd], tmp_path: Path) -> None:
    """Two accounts of one host, each with a node: neither reads, lists or ends what the other has."""
    with TemporaryDirectory(prefix="sky-host-") as place:
        folder = Path(place) / "host"
        folder.mkdir(mode=0o711)
        Path(place).chmod(0o711)
        there = {Path(sys.base_prefix): folder / "python", ROOT / "src": folder / "src"}
        packages = Path(next(path for path in sys.path if path.endswith("site-packages")))
        uids = {"one": 60_001, "two": 60_002}
        host = Sshd(folder, hosts[0].key, others=uids, mounts={**there, packages: folder / "packages"})
        with serving(host):
            (folder / "authorized_keys").chmod(0o644)
            for name, uid in uids.items():
                has_the_agent(folder, folder / name, uid)
            told = {name: as_host(host, name, user=name) for name in uids}
            mine = provider(tmp_path / "mine", told["one"], told["two"], credentials=keyed(host))
            machines = [
                await mine.launch(await order_of(mine, f"nod_{name}", place))
                for place, name in enumerate(uids)
            ]
            for machine, uid in zip(machines, uids.values(), strict=True):
                pid = machine.binding["pid"]
                assert Path(f"/proc/{pid}").stat().st_uid == uid
            first, second = machines
            token = folder / "one/.skyfleet/deployment/nodes/nod_one/token"
            assert token.read_text() == "unused"
            for tried in (
                ("cat", token),
                ("ls", token.parent),
                ("cat", f"/proc/{first.binding['pid']}/environ"),
                ("kill", str(first.binding["pid"])),
            ):
                said = refused_as(uids["two"], *tried)
                assert "not permitted" in said or "denied" in said, said
            await pool.close_all()
            alone = provider(tmp_path / "two", told["two"], credentials=keyed(host))
            assert [each.id for each in await alone.machines()] == [second.id]
            await alone.terminate("nod_one", first.id)
            await alone.terminate("nod_two", second.id)
            await gone(alone, "nod_two")
            found = await mine.find("nod_one")
            assert found is not None
            assert found.state == "running"
            await mine.terminate("nod_one", None)
            await gone(mine, "nod_one")
            await deserted(host)


def refused_as(uid: int, *tried: str | Path) -> str:
    """What somebody is told who tries that, which fails."""
    who = (f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
    done = subprocess.run(["setpriv", *who, *tried], capture_output=True, text=True, check=False)
    assert done.returncode != 0, tried
    return done.stderr


def has_the_agent(folder: Path, home: Path, uid: int) -> None:
    """An account's environment with the agent, as if it had been installed there before."""
    python = home / ".skyfleet/deployment/agents" / agent_package.digest()[:16] / "venv/bin/python"
    python.parent.mkdir(parents=True)
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    paths = f"PYTHONPATH={folder}/src:{folder}/packages"
    python.write_text(f'#!/bin/sh\nexec env {paths} {folder}/python/bin/{minor} "$@"\n')
    python.chmod(0o755)
    for path in (home / ".skyfleet").rglob("*"):
        os.chown(path, uid, uid)
    os.chown(home / ".skyfleet", uid, uid)


async def test_an_agent_that_ends_is_gone_with_its_last_words(hosts: list[Sshd], tmp_path: Path) -> None:
    first, _ = hosts
    mine = provider(tmp_path, as_host(first, home=home_on(first, tmp_path)), credentials=keyed(first))
    machine = await mine.launch(await order_of(mine, "nod_dies"))
    os.kill(machine.binding["pid"], signal.SIGKILL)
    ended = await gone(mine, "nod_dies")
    assert ended is not None
    assert "ended by itself" in (ended.reason or "")
    again = await mine.launch(await order_of(mine, "nod_dies"))
    assert again.state == "gone", "a tag has one machine, though it has ended"
    assert [offer.available for offer in await mine.offers()] == [1]
    await mine.terminate("nod_dies", machine.id)
    await deserted(first)


# ── being let in ────────────────────────────────────────────────────────────────────────────────


async def test_passwords_and_keys_let_in_and_are_told_apart(hosts: list[Sshd], tmp_path: Path) -> None:
    first, second = hosts
    told = (as_host(first), as_host(second, "second", cpus=1, memory_gb=1))
    right = {
        "passwords": '{"first": "open-sesame"}',
        "private_keys": json.dumps({"second": second.key.read_text()}),
    }
    assert len(await provider(tmp_path / "a", *told, credentials=right).offers()) == 2
    wrong = provider(
        tmp_path / "b", as_host(first, cpus=1, memory_gb=1), credentials={"password": "hidden-word"}
    )
    refusal = await refused(wrong, "nod_wrong")
    assert refusal.code == "unauthorized"
    assert "first" in refusal.message
    assert "not let in with the password in the credentials" in refusal.message
    assert "hidden-word" not in refusal.message
    nothing = await refused(provider(tmp_path / "c", as_host(first, cpus=1, memory_gb=1)), "nod_nothing")
    assert "it has no credentials" in nothing.message
    broken = provider(
        tmp_path / "d", as_host(first, cpus=1, memory_gb=1), credentials={"private_key": "xyz-secret"}
    )
    unreadable = await refused(broken, "nod_broken")
    assert unreadable.field == "credentials.private_key"
    assert "xyz-secret" not in unreadable.message


async def test_a_key_with_a_passphrase_and_one_of_an_agent(
    hosts: list[Sshd], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = hosts
    locked = asyncssh.import_private_key(first.key.read_text()).export_private_key(
        passphrase="tell-nobody", rounds=64
    )
    told = as_host(first, cpus=1, memory_gb=1)
    opened = {"private_key": locked.decode(), "passphrase": "tell-nobody"}
    [offer] = await provider(tmp_path / "a", told, credentials=opened).offers()
    assert offer.available == 1
    for passphrase in ({}, {"passphrase": "another"}):
        mine = provider(tmp_path / "b", told, credentials={"private_key": locked.decode(), **passphrase})
        refusal = await refused(mine, "nod_locked")
        assert refusal.code == "unauthorized"
        assert "passphrase" in refusal.message
    agent = await asyncio.create_subprocess_exec(
        "ssh-agent", "-D", "-a", str(tmp_path / "agent"), stdout=subprocess.DEVNULL
    )
    try:
        while not (tmp_path / "agent").exists():
            await asyncio.sleep(0.01)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        monkeypatch.setenv("HOME", str(tmp_path))
        run("ssh-add", "-q", first.key)
        [offer] = await provider(tmp_path / "c", told, own_keys=True, user="root").offers()
        assert offer.available == 1
    finally:
        agent.kill()
        await agent.wait()


async def test_a_host_key_is_kept_and_another_is_refused(hosts: list[Sshd], tmp_path: Path) -> None:
    first, second = hosts
    told = as_host(first, cpus=1, memory_gb=1)
    mine = provider(tmp_path, told, credentials=keyed(first))
    await mine.offers()
    kept = Records(tmp_path, "prv_1", SystemClock()).key_of("first")
    assert kept is not None
    assert kept.fingerprint == first.fingerprint
    await pool.close_all()
    # Behind the same name there is another server now.
    changed = provider(tmp_path, told | {"port": second.port}, credentials=keyed(first))
    refusal = await refused(changed, "nod_changed")
    assert refusal.code == "unauthorized"
    assert "its host key is not the one that is known from the first connection" in refusal.message
    assert second.fingerprint in refusal.message
    accepted = provider(
        tmp_path, told | {"port": second.port, "host_key": second.fingerprint}, credentials=keyed(first)
    )
    assert (await accepted.offers())[0].available == 1
    for wrong in (first.fingerprint, first.public_key):
        told_wrong = told | {"port": second.port, "host_key": wrong}
        refusal = await refused(provider(tmp_path / "w", told_wrong, credentials=keyed(first)), "nod_told")
        assert "known from its host_key" in refusal.message
    known = f"[127.0.0.1]:{first.port} {first.public_key}\n"
    [offer] = await provider(tmp_path / "k", told, credentials=keyed(first), known_hosts=known).offers()
    assert offer.available == 1
    lying = f"[127.0.0.1]:{first.port} {second.public_key}\n"
    refusal = await refused(
        provider(tmp_path / "l", told, credentials=keyed(first), known_hosts=lying), "nod_l"
    )
    assert "known from known_hosts" in refusal.message


async def test_hosts_behind_others_are_reached_through_them(hosts: list[Sshd], tmp_path: Path) -> None:
    first, second = hosts
    jumps = [{"name": "gate", "address": first.address, "port": first.port}]
    by_name = as_host(second, "inner", jump="gate")
    written = as_host(second, "other", jump=f"gate, root@127.0.0.1:{first.port}")
    mine = provider(tmp_path, by_name, written, credentials=keyed(first), jumps=jumps)
    assert [offer.available for offer in await mine.offers()] == [1, 1]
    closed_gate = [{"name": "gate", "address": first.address, "port": 9}]
    stuck = provider(
        tmp_path / "x", by_name | {"cpus": 1, "memory_gb": 1}, credentials=keyed(first), jumps=closed_gate
    )
    refusal = await refused(stuck, "nod_stuck")
    assert refusal.code == "capacity"
    assert "host gate (127.0.0.1:9), on the way to inner" in refusal.message


# ── hosts that are not there ────────────────────────────────────────────────────────────────────


async def test_a_host_that_never_speaks_delays_nobody(hosts: list[Sshd], tmp_path: Path) -> None:
    first, _ = hosts
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = {
            "name": "mute",
            "address": "127.0.0.1",
            "port": silent.getsockname()[1],
            "cpus": 1,
            "memory_gb": 1,
        }
        told = as_host(first, home=home_on(first, tmp_path))
        mine = provider(tmp_path, told, mute, credentials=keyed(first), connect_seconds=8.0)
        offers = await mine.offers()
        assert [(offer.instance_type, offer.available) for offer in offers] == [("first", 1), ("mute", None)]
        await mine.launch(await order_of(mine, "nod_quick"))
        patient = provider(tmp_path, told, mute, credentials=keyed(first), connect_seconds=WAIT_S)
        async with asyncio.timeout(WAIT_S / 2):  # who is there answers without those who are not
            found = await patient.find("nod_quick")
            assert found is not None
            assert found.state == "running"
            await patient.terminate("nod_quick", None)
        with pytest.raises(AgainLater, match="mute"):
            await mine.find("nod_never")
        assert [machine.tag for machine in await mine.machines()] == ["nod_quick"]
        await gone(mine, "nod_quick")


async def test_a_host_that_is_down_hides_nothing(hosts: list[Sshd], tmp_path: Path) -> None:
    first, _ = hosts
    folder = tmp_path / "own"
    key = first.key
    with serving(Sshd(folder, key)) as own:
        told = (as_host(own, home=str(own.home / "h")), as_host(first, "second"))
        mine = provider(tmp_path / "state", *told, credentials=keyed(first))
        machine = await mine.launch(await order_of(mine, "nod_stays"))
        own.stop()
        assert [each.state for each in await mine.machines()] == ["running"], (
            "what was seen last still stands"
        )
        fresh = SshProvider(mine._setup)
        await pool.close_all()
        for _ in range(2):
            with pytest.raises(AgainLater, match="first"):
                await fresh.find("nod_stays")
            with pytest.raises(AgainLater, match="first"):
                await fresh.terminate("nod_stays", machine.id)
        elsewhere = LaunchOrder(
            "nod_stays", (await fresh.offers())[-1], "on_demand", AgentSetup("http://127.0.0.1:9", "t"), 60
        )
        with pytest.raises(AgainLater, match="first"):
            await fresh.launch(elsewhere)
        own.start()
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    found = await fresh.find("nod_stays")
                    break
                except AgainLater:
                    await asyncio.sleep(0.1)
        assert found is not None
        assert (found.state, found.id) == ("running", machine.id), "it worked on all the while"
        again = await fresh.launch(elsewhere)
        assert again.id == machine.id, "one node is never begun on two hosts"
        await fresh.terminate("nod_stays", machine.id)
        await gone(fresh, "nod_stays")
        await deserted(own)


async def test_a_host_that_left_the_pool_takes_its_nodes_along(hosts: list[Sshd], tmp_path: Path) -> None:
    first, second = hosts
    one = as_host(first, home=home_on(first, tmp_path))
    mine = provider(tmp_path, one, credentials=keyed(first))
    await mine.launch(await order_of(mine, "nod_left"))
    rest = provider(tmp_path, as_host(second, "second"), credentials=keyed(first))
    found = await rest.find("nod_left")
    assert found is not None
    assert found.state == "gone"
    assert "no longer among the hosts of mine" in (found.reason or "")
    back = provider(tmp_path, one, credentials=keyed(first))
    await back.terminate("nod_left", None)
    await gone(back, "nod_left")


# ── hosts that cannot have a node ───────────────────────────────────────────────────────────────


async def test_a_full_disk_is_told(hosts: list[Sshd], tmp_path: Path) -> None:
    first, _ = hosts
    with small_disk(tmp_path / "small", "1m") as small, serving(Sshd(tmp_path / "own", first.key)) as own:
        mine = provider(tmp_path, as_host(own, home=f"{small}/sky"), credentials=keyed(first))
        refusal = await refused(mine, "nod_full")
        assert refusal.code == "capacity"
        assert "its disk is full" in refusal.message
        assert await mine.machines() == ()


async def test_a_host_that_forwards_no_ports_is_told(hosts: list[Sshd], tmp_path: Path) -> None:
    first, _ = hosts
    with serving(Sshd(tmp_path / "own", first.key, settings="AllowTcpForwarding no")) as own:
        mine = provider(tmp_path, as_host(own), credentials=keyed(first))
        refusal = await refused(mine, "nod_closed")
        assert refusal.code == "capacity"
        assert "AllowTcpForwarding" in refusal.message
        assert await mine.machines() == (), "nothing is left of what was prepared"
        assert [offer.available for offer in await mine.offers()] == [1]


async def test_a_host_without_python_and_index_says_what_it_lacks(hosts: list[Sshd], tmp_path: Path) -> None:
    first, _ = hosts
    broken = "SetEnv UV_OFFLINE=1 UV_NO_CACHE=1 UV_NO_CONFIG=1"
    with serving(Sshd(tmp_path / "own", first.key, settings=broken)) as own:
        mine = provider(tmp_path, as_host(own), credentials=keyed(first))
        await mine.launch(await order_of(mine, "nod_lacks"))
        ended = await gone(mine, "nod_lacks")
        assert ended is not None
        assert "the agent cannot be installed with uv" in (ended.reason or "")
        await mine.terminate("nod_lacks", None)
