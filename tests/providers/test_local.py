"""Nodes on this computer: the conformance suite, and what begins, ends, survives and leaks.

Decides: what the local provider promises of processes, files and environments; most nodes here run a small
program in an agent's place, and one class runs real agents. Never: replaces a part of the provider.
Follows: the processes are real ones, and whatever is left of them when a test ends fails it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.providers.node_programs import LEAVING, QUIET, STUBBORN, TELLING

from sky.domain.offer import Offer
from sky.kit import faults
from sky.kit.clock import Clock, ManualClock, SystemClock
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
from sky.providers.contract import ProviderContract
from sky.providers.local.folder import ENDED_LOGS_MAX, LOG_BYTES_KEPT, LOG_BYTES_MAX
from sky.providers.local.nodes import AGENT, GONE_KEPT_SECONDS, GRACE_SECONDS
from sky.providers.local.processes import read_process, send
from sky.providers.local.provider import LocalConfig, LocalProvider

WAIT_SECONDS_MAX = 60.0


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def provider_at(
    home: Path, text: str = QUIET, clock: Clock | None = None, config: LocalConfig | None = None
) -> LocalProvider:
    context = Context(home, "test", clock or ManualClock())
    setup = Setup("prv_local", "local", config or LocalConfig(), {}, context)
    return LocalProvider(setup, program=program(text))


def offer_of(cpus: int = 1, gpus: int = 0, gpus_total: int = 0) -> Offer:
    return Offer(
        id="ofr_test",
        provider_id="prv_local",
        provider_name="local",
        kind="local",
        instance_type=f"local-{cpus}",
        cpus=cpus,
        memory_gb=2.0,
        accelerator="A100" if gpus else None,
        accelerator_count=gpus,
        on_demand_micro=0,
        specific={"gpus_total": gpus_total},
    )


def order_for(tag: str, offer: Offer | None = None, **spec: object) -> LaunchOrder:
    agent = AgentSetup("http://127.0.0.1:9", "the-token", "/nowhere/daemon.json", dict(spec))
    return LaunchOrder(tag, offer or offer_of(), "on_demand", agent, 60)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def processes_under(home: Path) -> list[int]:
    """Processes whose environment names a node folder under ``home``, or a file in one."""
    wanted = b"=" + os.fsencode(home) + b"/nodes/"
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            try:
                if wanted in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def own_zombies() -> list[int]:
    """Dead children that this process has not buried."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def until(check: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not check():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {WAIT_SECONDS_MAX:.0f} s: {what}")
        time.sleep(0.02)


async def until_async(check: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(until, check, what)


async def until_gone(provider: Provider, tag: str) -> None:
    for _ in range(round(WAIT_SECONDS_MAX / 0.02)):
        machine = await provider.find(tag)
        if machine is None or machine.state == "gone":
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {WAIT_SECONDS_MAX:.0f} s: {tag} is gone")


async def in_turn(provider: Provider, order: LaunchOrder) -> Machine:
    """The machine, also where so many are launched that one is told to come again."""
    for _ in range(round(WAIT_SECONDS_MAX)):
        try:
            return await provider.launch(order)
        except AgainLater as later:
            if later.message != "the nodes of this computer are busy":
                raise
    raise AssertionError(f"not within {WAIT_SECONDS_MAX:.0f} tries: {order.tag} is launched")


async def end(provider: Provider, tag: str) -> None:
    await provider.terminate(tag, None)
    await until_gone(provider, tag)


def kill_all(home: Path) -> list[int]:
    """End what is left under ``home``; returns what that was."""
    left = processes_under(home)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return left


@contextlib.contextmanager
def another_process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no node's."""
    with subprocess.Popen([sys.executable, "-c", QUIET], start_new_session=True) as bystander:
        try:
            yield bystander
        finally:
            bystander.kill()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A state folder; no process of a node under it may survive the test, and no zombie may be ours."""
    before = own_zombies()
    yield tmp_path
    left = kill_all(tmp_path)
    assert not left, f"processes survived the test: {left}"
    assert set(own_zombies()) <= set(before)


class TestContract(ProviderContract, unittest.IsolatedAsyncioTestCase):
    """The suite over nodes that run a small program."""

    described = Kind.of(LocalProvider)
    running_within_seconds = gone_within_seconds = 90.0
    wrong_configs = (
        ({"max_nodes": 0}, "max_nodes"),
        ({"max_nodes": "many"}, "max_nodes"),
        ({"price_per_hour_usd": -0.01}, "price_per_hour_usd"),
        ({"limit_memory": 1}, "limit_memory"),
    )
    program: tuple[str, ...] = program(QUIET)

    def setUp(self) -> None:
        self.zombies = own_zombies()
        self.folder = tempfile.TemporaryDirectory()
        self.home = Path(self.folder.name)

    def tearDown(self) -> None:
        left = kill_all(self.home)
        self.folder.cleanup()
        assert not left, f"processes survived the test: {left}"
        assert set(own_zombies()) <= set(self.zombies)

    def provider(self) -> Provider:
        context = Context(self.home, "test", SystemClock())
        return LocalProvider(Setup("prv_local", "local", LocalConfig(), {}, context), self.program)


class TestContractWithAgents(TestContract):
    """The suite over nodes that run the product's own agent, which finds no daemon to talk to."""

    program = AGENT

    async def working(self) -> Machine:
        """A node whose agent has begun its workers."""
        machine = await self.provider().launch(await self.order("nod_works"))
        await until_async(lambda: len(processes_under(self.home)) > 2, "the agent has workers")
        return machine

    async def test_workers_end_with_their_node(self) -> None:
        machine = await self.working()
        await end(self.provider(), machine.tag)
        assert processes_under(self.home) == []
        log = self.home / "nodes" / "ended" / f"{machine.tag}.log"
        assert "SIGTERM" in log.read_text(), "the agent has ended in order"

    async def test_workers_end_with_a_killed_agent(self) -> None:
        machine = await self.working()
        os.kill(machine.binding["pid"], signal.SIGKILL)
        await self.until_gone(self.provider(), machine.tag)
        await until_async(lambda: not processes_under(self.home), "nothing of the node is left")


# ── beginning ───────────────────────────────────────────────────────────────────────────────────


async def told(home: Path, tag: str = "nod_1") -> str:
    path = home / "nodes" / tag / "told"
    await until_async(path.exists, f"the program of {tag} has told")
    return path.read_text()


async def test_a_node_has_a_folder_a_session_and_limits_of_its_own(home: Path) -> None:
    provider = provider_at(home, TELLING)
    machine = await provider.launch(order_for("nod_1", cpus=3))
    folder = home / "nodes" / "nod_1"
    node = json.loads(await told(home))
    assert node["cwd"] == str(folder)
    assert node["sid"] == node["pid"] == machine.binding["pid"]
    assert node["core"] == 0
    assert node["lock"] == (folder / "agent.lock").stat().st_ino, "it holds the lock's file"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "told").stat().st_mode & 0o077 == 0, "what a node writes is its owner's alone"
    for name in ("spec.json", "token", "agent.log", "agent.pid", "agent.lock", "launch.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name
    assert (folder / "token").read_text() == "the-token"
    spec = json.loads((folder / "spec.json").read_text())
    assert spec.pop("envs_bytes_max") == 20 * 1024**3
    assert spec == {"cpus": 3, "memory_gb": 2.0, "envs": str(home / "envs"), "accelerators": []}
    await end(provider, "nod_1")


async def test_memory_is_not_limited_when_the_provider_says_so(home: Path) -> None:
    provider = provider_at(home, config=LocalConfig(limit_memory=False))
    await provider.launch(order_for("nod_1", memory_gb=2.0))
    spec = json.loads((home / "nodes/nod_1/spec.json").read_text())
    assert spec["memory_gb"] is None
    await end(provider, "nod_1")


async def test_the_environment_is_clean(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_TOKEN", "daemon-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "daemon-secret")
    monkeypatch.setenv("UV_PUBLISH_TOKEN", "daemon-secret")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("PYTHONPATH", f"here{os.pathsep}/there")
    provider = provider_at(home, TELLING)
    await provider.launch(order_for("nod_1", offer_of(cpus=2)))
    environ = json.loads(await told(home))["environ"]
    assert "daemon-secret" not in environ.values()
    assert environ["UV_OFFLINE"] == "1"
    assert environ["PATH"] == os.environ["PATH"]
    assert environ["PYTHONPATH"] == f"{Path('here').absolute()}{os.pathsep}/there"
    folder = home / "nodes" / "nod_1"
    agent = {name: value for name, value in environ.items() if name.startswith("SKY_")}
    assert int(agent.pop("SKY_AGENT_LOCK_FD")) > 2
    assert agent == {
        "SKY_AGENT_NODE": "nod_1",
        "SKY_AGENT_URL": "http://127.0.0.1:9",
        "SKY_AGENT_URL_FILE": "/nowhere/daemon.json",
        "SKY_AGENT_TOKEN_FILE": str(folder / "token"),
        "SKY_AGENT_HOME": str(folder),
        "SKY_AGENT_SPEC": str(folder / "spec.json"),
        "SKY_AGENT_TTL_SECONDS": "60",
    }
    assert "the-token" not in environ.values(), "the token is in a file and not in the environment"
    await end(provider, "nod_1")


async def test_many_at_once_are_one_each(home: Path) -> None:
    tags = [f"nod_{number}" for number in range(8)]
    providers = [provider_at(home), provider_at(home)]
    launched = await asyncio.gather(
        *(in_turn(provider, order_for(tag)) for tag in tags for provider in providers)
    )
    pids = {machine.binding["pid"] for machine in launched}
    assert len(pids) == len(tags)
    assert sorted(processes_under(home)) == sorted(pids)
    assert [machine.tag for machine in await providers[0].machines()] == tags
    for tag in tags:
        await end(providers[0], tag)


async def test_a_program_that_cannot_run_is_said_and_leaves_nothing(home: Path) -> None:
    context = Context(home, "test", ManualClock())
    setup = Setup("prv_local", "local", LocalConfig(), {}, context)
    provider = LocalProvider(setup, ("/no/such/program",))
    for _ in range(2):
        with pytest.raises(AgainLater, match="No such file"):
            await provider.launch(order_for("nod_1"))
    assert await provider.find("nod_1") is None
    assert await provider.machines() == ()
    await provider.terminate("nod_1", None)
    assert not (home / "nodes" / "nod_1").exists()
    assert not (home / "nodes" / "ended" / "nod_1.log").exists()


@pytest.mark.parametrize("tag", ["..", "../x", "a/b", "", "ended", ".lock", "x" * 65])
async def test_a_tag_cannot_lead_out_of_the_folder(home: Path, tag: str) -> None:
    provider = provider_at(home)
    with pytest.raises(Refused):
        await provider.launch(order_for(tag))
    assert await provider.find(tag) is None
    await provider.terminate(tag, None)
    assert processes_under(home) == []


async def test_no_more_nodes_than_allowed(home: Path) -> None:
    provider = provider_at(home, config=LocalConfig(max_nodes=2))
    for tag in ("nod_1", "nod_2"):
        await provider.launch(order_for(tag))
    with pytest.raises(Refused, match="max_nodes") as refused:
        await provider.launch(order_for("nod_3"))
    assert refused.value.code == "quota"
    assert await provider.find("nod_3") is None
    assert (await provider.launch(order_for("nod_2"))).state == "running", (
        "what is there is not counted again"
    )
    await end(provider, "nod_1")
    await provider.launch(order_for("nod_3"))
    for tag in ("nod_2", "nod_3"):
        await end(provider, tag)


async def test_accelerators_are_given_out_once(home: Path) -> None:
    provider = provider_at(home, TELLING)
    for number, count, visible in ((1, 1, "0"), (2, 0, ""), (3, 1, "1")):
        tag = f"nod_{number}"
        await provider.launch(order_for(tag, offer_of(gpus=count, gpus_total=2)))
        assert json.loads(await told(home, tag))["environ"]["CUDA_VISIBLE_DEVICES"] == visible
    with pytest.raises(Refused, match="0 of 2 are free") as refused:
        await provider.launch(order_for("nod_4", offer_of(gpus=1, gpus_total=2)))
    assert refused.value.code == "capacity"
    for number in (1, 2, 3):
        await end(provider, f"nod_{number}")


# ── ending ──────────────────────────────────────────────────────────────────────────────────────


async def test_what_does_not_want_to_end_is_killed_after_its_grace(home: Path) -> None:
    clock = ManualClock()
    provider = provider_at(home, STUBBORN, clock)
    machine = await provider.launch(order_for("nod_1"))
    pids = [machine.binding["pid"], *map(int, (await told(home)).split())]
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    await provider.terminate("nod_1", machine.id)
    assert loop.time() - begun_s < 15, "its grace is not waited for, which stands still here"
    clock.advance(GRACE_SECONDS - 1)
    await provider.terminate("nod_1", machine.id)
    found = await provider.find("nod_1")
    assert found is not None
    assert found.state == "running", "it is there as long as one of its processes is"
    assert all(is_alive(pid) for pid in pids)
    clock.advance(2)
    # Another provider, as after a crash of the daemon: the end goes on by looking.
    await until_gone(provider_at(home, clock=clock), "nod_1")
    assert not any(is_alive(pid) for pid in pids), "grandchildren with sessions of their own as well"
    assert not (home / "nodes" / "nod_1").exists()


async def test_a_clock_set_back_does_not_make_the_grace_longer(home: Path) -> None:
    clock = ManualClock()
    provider = provider_at(home, STUBBORN, clock)
    await provider.launch(order_for("nod_1"))
    await told(home)
    await provider.terminate("nod_1", None)
    clock.step_wall(-86_400)
    assert await provider.find("nod_1") is not None
    clock.advance(GRACE_SECONDS)
    await until_gone(provider, "nod_1")


async def test_the_log_of_an_ended_node_is_kept_and_old_ones_go(home: Path) -> None:
    provider = provider_at(home, "print('once upon a time', flush=True); import signal; signal.pause()")
    ended = home / "nodes" / "ended"
    ended.mkdir(parents=True)
    for number in range(ENDED_LOGS_MAX):
        path = ended / f"nod_old_{number}.log"
        path.touch()
        os.utime(path, (number, number))
    await provider.launch(order_for("nod_1"))
    log = home / "nodes" / "nod_1" / "agent.log"
    await until_async(lambda: log.stat().st_size > 0, "the node has written its log")
    await end(provider, "nod_1")
    assert (ended / "nod_1.log").read_text() == "once upon a time\n"
    assert len(list(ended.iterdir())) == ENDED_LOGS_MAX
    assert not (ended / "nod_old_0.log").exists()
    late = await provider.launch(order_for("nod_1"))
    assert late.state == "gone", "an order that comes after the end begins nothing"
    assert processes_under(home) == []


async def test_read_only_folders_go_too(home: Path) -> None:
    provider = provider_at(home)
    await provider.launch(order_for("nod_1"))
    deep = home / "nodes" / "nod_1" / "work" / "deep"
    deep.mkdir(parents=True)
    (deep / "file").touch()
    deep.chmod(0o500)
    deep.parent.chmod(0o500)
    await end(provider, "nod_1")
    assert [path.name for path in (home / "nodes" / "ended").iterdir()] == ["nod_1.log"]


async def test_a_log_that_grows_is_capped(home: Path) -> None:
    provider = provider_at(home)
    await provider.launch(order_for("nod_1"))
    log = home / "nodes" / "nod_1" / "agent.log"
    with log.open("ab") as file:
        file.write(b"x" * LOG_BYTES_MAX + b"end\n")
    await provider.find("nod_1")
    assert log.stat().st_size == 0
    kept = log.with_name("agent.log.1").read_bytes()
    assert len(kept) == LOG_BYTES_KEPT
    assert kept.endswith(b"end\n")
    await end(provider, "nod_1")


# ── dying by itself ─────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_ended_is_gone_with_its_last_words_and_nothing_is_left(home: Path) -> None:
    clock = ManualClock()
    provider = provider_at(home, LEAVING, clock)
    await provider.launch(order_for("nod_1"))
    left = [int(pid) for pid in (await told(home)).split()]
    await until_gone(provider, "nod_1")
    found = await provider.find("nod_1")
    assert found is not None
    assert found.reason == "the agent ended by itself; its last words: the roof is on fire"
    assert not any(is_alive(pid) for pid in left), "nobody looks after what it left behind"
    again = await provider_at(home, clock=clock).launch(order_for("nod_1"))
    assert again.state == "gone", "a tag is bought for once"
    assert [machine.state for machine in await provider.machines()] == ["gone"]
    clock.advance(GONE_KEPT_SECONDS + 1)
    assert await provider.machines() == ()
    assert await provider.find("nod_1") is None
    assert not (home / "nodes" / "nod_1").exists()


async def test_a_killed_agent_is_gone_and_can_be_ended(home: Path) -> None:
    provider = provider_at(home)
    machine = await provider.launch(order_for("nod_1"))
    os.kill(machine.binding["pid"], signal.SIGKILL)
    await until_gone(provider, "nod_1")
    await provider.terminate("nod_1", machine.id)
    assert await provider.find("nod_1") is None


async def test_a_number_that_is_another_processes_now_is_never_signalled(home: Path) -> None:
    provider = provider_at(home)
    machine = await provider.launch(order_for("nod_1"))
    os.kill(machine.binding["pid"], signal.SIGKILL)
    await until_async(lambda: not is_alive(machine.binding["pid"]), "the agent is dead")
    with another_process() as bystander:
        path = home / "nodes" / "nod_1" / "agent.pid"
        identity = json.loads(path.read_text()) | {"pid": bystander.pid}
        path.write_text(json.dumps(identity))
        found = await provider.find("nod_1")
        assert found is not None
        assert found.state == "gone"
        await provider.terminate("nod_1", None)
        assert await provider.find("nod_1") is None
        assert bystander.poll() is None, "the bystander lives"


def test_a_signal_reaches_only_the_process_that_was_seen(home: Path) -> None:
    with another_process() as bystander:
        seen = read_process(bystander.pid)
        assert seen is not None
        send(replace(seen, start_ticks=seen.start_ticks - 1), signal.SIGKILL)
        with pytest.raises(subprocess.TimeoutExpired):
            bystander.wait(0.2)
        send(seen, signal.SIGTERM)
        assert bystander.wait(WAIT_SECONDS_MAX) == -signal.SIGTERM
        send(seen, signal.SIGTERM)
    assert read_process(bystander.pid) is None


async def test_a_restart_of_the_computer_is_told(home: Path) -> None:
    provider = provider_at(home)
    machine = await provider.launch(order_for("nod_1"))
    path = home / "nodes" / "nod_1" / "agent.pid"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "another"}))
    found = await provider.find("nod_1")
    assert found is not None
    assert (found.state, found.reason) == ("gone", "the computer was restarted")
    os.kill(machine.binding["pid"], signal.SIGKILL)
    await until_async(lambda: not processes_under(home), "the agent is gone")


# ── the daemon dies ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("budget", range(2))
async def test_a_launch_that_died_halfway_is_finished_by_the_next(home: Path, budget: int) -> None:
    faults.arm(budget)
    with pytest.raises(faults.Died):
        await provider_at(home).launch(order_for("nod_1"))
    faults.disarm()
    provider = provider_at(home)
    found = await provider.find("nod_1")
    assert (found is None) == (budget == 0), "it is there from the moment in which it has begun"
    machine = await provider.launch(order_for("nod_1"))
    assert processes_under(home) == [machine.binding["pid"]]
    await end(provider, "nod_1")


@pytest.mark.parametrize("budget", range(3))
async def test_an_end_that_died_halfway_goes_on(home: Path, budget: int) -> None:
    provider = provider_at(home)
    await provider.launch(order_for("nod_1"))
    faults.arm(budget)
    with pytest.raises(faults.Died):
        await end(provider, "nod_1")
    faults.disarm()
    later = provider_at(home)
    await until_gone(later, "nod_1")
    await later.terminate("nod_1", None)
    assert await later.machines() == ()
    assert [path.name for path in (home / "nodes" / "ended").iterdir()] == ["nod_1.log"]


async def test_a_start_under_way_is_neither_repeated_nor_forgotten(home: Path) -> None:
    """A daemon died and what it started has the lock and has not yet said who it is."""
    faults.arm(0)
    with pytest.raises(faults.Died):
        await provider_at(home).launch(order_for("nod_1"))
    faults.disarm()
    provider = provider_at(home)
    folder = home / "nodes" / "nod_1"
    with (folder / "agent.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(AgainLater, match="under way"):
            await provider.launch(order_for("nod_1"))
        await provider.terminate("nod_1", None)
        found = await provider.find("nod_1")
        assert found is not None
        assert found.state == "pending", "it is not gone before it is known to be"
    await until_gone(provider, "nod_1")
    assert not folder.exists()
