"""What is ruled when a node says nothing, or a kernel ends a worker: on a real daemon and real agents.

Meanwhile somebody follows events of which there are none, and hears that the stream is still there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.system.lines import take_the_line
from tests.system.test_noticing import whoami
from tests.system.test_outcomes import began, events_of, eventually, sent, told, wait

import sky
from sky.client import calls

pytestmark = pytest.mark.real

CONFIRM_S = 5
"""Long enough to see on a slow computer that a cancel was asked for and is not confirmed."""
BEAT_S = 15.0
LATE_S = 10.0
"""By how much a reader may be late: less than makes one beat out of two, or none."""
LIMIT_BYTES = 128 * 1024 * 1024


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon that waits for a node's word on a cancel for a moment only."""
    running = RunningDaemon(tmp_path_factory.mktemp("strict"), free_port())
    running.environment = {"SKY_CANCEL_CONFIRM_SECONDS": str(CONFIRM_S)}
    running.start()
    yield running
    running.stop()


@dataclass
class Listener:
    """Follows the events of something to which nothing happens; notes what comes, and when."""

    url: str
    heard: list[tuple[float, bytes]] = field(default_factory=list)

    def listen(self) -> None:
        with httpx2.stream("GET", self.url, timeout=BEAT_S + LATE_S, trust_env=False) as answer:
            for line in answer.iter_lines():
                self.heard.append((time.monotonic(), line.encode()))
                if line == ": still here":
                    return


@pytest.fixture(scope="module")
def listener(strict: RunningDaemon) -> Iterator[tuple[Listener, threading.Thread]]:
    """Somebody who listens beside the other tests."""
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 0, "min": 0, "max": 1}}
    made = httpx2.post(f"{strict.url}/v1/computes", json={"spec": spec}, timeout=60, trust_env=False)
    one = Listener(f"{strict.url}/v1/events?compute={made.json()['id']}&types=node.console")
    thread = threading.Thread(target=one.listen, daemon=True)
    thread.start()
    yield one, thread
    thread.join(BEAT_S + LATE_S)


@pytest.fixture(scope="module")
def compute(strict: RunningDaemon, listener: object) -> Iterator[sky.Compute]:
    with sky.Compute(url=strict.url, executor="loky", quiet=True) as compute:
        yield compute


@sky.function
def grow(size: int) -> int:
    """Hold so much memory, and have it written to."""
    held = bytearray(size)
    held[::4096] = b"x" * len(held[::4096])
    return len(held)


@sky.function
def process() -> int:
    """The process it runs in."""
    import os

    return os.getpid()


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A group of processes that the kernel gives so much memory and no more."""
    old, new = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (old, "memory.limit_in_bytes") if old.is_dir() else (new, "memory.max")
    group = root / f"sky-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(LIMIT_BYTES))
        for swap in ("memory.swappiness", "memory.swap.max"):
            if (group / swap).exists():
                (group / swap).write_text("0")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"memory cannot be limited by a control group here: {error.strerror}")
    yield group
    eventually(lambda: not (group / "cgroup.procs").read_text().strip())
    group.rmdir()


def test_a_cancel_that_no_node_confirms_leaves_the_call_indeterminate(
    compute: sky.Compute, tmp_path: Path
) -> None:
    node, _ = whoami() >> compute
    future = wait(str(tmp_path)) > compute
    began(tmp_path)
    task = sent(future)
    os.kill(node, signal.SIGSTOP)
    try:
        assert future.cancel()
        assert told(compute.http, task) == ("running", ["cancel_requested"])
        with pytest.raises(sky.TaskIndeterminate, match="did not confirm that it stopped"):
            future.result(CONFIRM_S + 20)
        assert told(compute.http, task) == ("indeterminate", ["indeterminate"])
        seen = compute.http.send(calls.get_task(task))
        (execution,) = seen.executions
        assert execution.finished_at is not None
        assert (execution.finished_at - seen.submitted_at).total_seconds() >= CONFIRM_S
    finally:
        os.kill(node, signal.SIGCONT)
    eventually((tmp_path / "left").exists)
    assert (whoami() >> compute)[0] == node, "it is still there, and has stopped the call meanwhile"
    assert told(compute.http, task) == ("indeterminate", ["indeterminate"]), "what is over stays so"
    assert events_of(compute.http, task) == ["queued", "started", "indeterminate"]


def test_a_call_that_had_not_begun_is_run_elsewhere_unasked(
    compute: sky.Compute, strict: RunningDaemon, tmp_path: Path
) -> None:
    node, home = whoami() >> compute
    os.kill(node, signal.SIGSTOP)
    asyncio.run(take_the_line(strict.url, Path(home), window=1))
    future = wait(str(tmp_path), 0.0) > compute
    task = sent(future)
    eventually(lambda: told(compute.http, task)[1] == ["assigned"])
    os.kill(node, signal.SIGKILL)
    assert future.result(60) == "done"
    assert told(compute.http, task) == ("succeeded", ["failed", "succeeded"])
    lost, again = sorted(compute.http.send(calls.get_task(task)).executions, key=lambda one: one.ordinal)
    assert lost.error is not None
    assert lost.error.details is not None
    assert (lost.error.details["cause"], lost.started_at) == ("node_lost", None)
    assert again.retry_of == lost.id
    assert len(began(tmp_path)) == 1
    assert events_of(compute.http, task) == ["queued", "started", "succeeded"], "the call itself never failed"


def test_a_call_of_a_compute_that_is_deleted_is_cancelled_once_it_has_stopped(
    strict: RunningDaemon, tmp_path: Path
) -> None:
    compute = sky.Compute(url=strict.url, quiet=True)
    with compute:
        http = compute.http
        future = wait(str(tmp_path)) > compute
        began(tmp_path)
        task = sent(future)
        http.send(calls.delete_compute(compute.id, None))
        eventually(future.cancelled)
        assert (tmp_path / "left").exists(), "it ended before anybody said so"
        assert told(http, task) == ("cancelled", ["cancelled"])
        assert events_of(http, task) == ["queued", "started", "cancelled"]
        eventually(lambda: http.send(calls.get_compute(compute.id)).status.state == "deleted")


def test_a_call_that_the_kernel_ends_for_its_memory_says_so(
    compute: sky.Compute, little_memory: Path
) -> None:
    node, _ = whoami() >> compute
    worker = process() >> compute
    assert worker != node, "a call of this executor has a process beside the agent's"
    (little_memory / "cgroup.procs").write_text(str(worker))
    future = grow(4 * LIMIT_BYTES) > compute
    with pytest.raises(sky.TaskFailed, match="SIGKILL, probably because the machine ran out of memory"):
        future.result(60)
    assert told(compute.http, future.task) == ("failed", ["failed"])
    assert (whoami() >> compute)[0] == node, "the node goes on"
    assert grow(4096) >> compute == 4096


def test_loky_is_warm_processes(compute: sky.Compute) -> None:
    assert compute.status().spec.worker.executor == "loky"
    node, _ = whoami() >> compute
    first, second = process() >> compute, process() >> compute
    assert first == second != node, "reused, and none of them the agent's"
    assert first != os.getpid()


def test_a_stream_without_events_says_every_fifteen_seconds_that_it_is_there(
    listener: tuple[Listener, threading.Thread],
) -> None:
    one, thread = listener
    thread.join(BEAT_S + LATE_S)
    spoken = [(at, line) for at, line in one.heard if line]
    assert spoken[-1][1] == b": still here"
    assert [line[:3] for _, line in spoken[:-1]] == [b"ret", b": e", b"id:"]
    assert BEAT_S - LATE_S < spoken[-1][0] - spoken[-2][0] < BEAT_S + LATE_S
