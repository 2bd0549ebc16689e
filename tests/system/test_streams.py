"""Streams of items on real daemons and nodes: held back, broken off and resumed, left early."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon
from tests.system.lines import take_the_line

import sky
from sky.client import calls
from sky.client.http import Streamed

pytestmark = pytest.mark.real

ITEM_BYTES = 1024 * 1024
LARGE_ITEMS = 100
BUFFERED_BYTES_MAX = 8 * 1024 * 1024
"""What the buffers of a connection may hold of small items, beyond the window that is counted in items."""
GROWTH_BYTES_MAX = 70 * 1024 * 1024


@sky.function
def numbers(to: int, progress: str, pause_s: float = 0.0) -> Iterator[int]:
    """Count, and write down how far it got and that it was closed."""
    import os
    import time

    descriptor = os.open(progress, os.O_WRONLY | os.O_CREAT)
    try:
        for number in range(to):
            os.pwrite(descriptor, b"%020d" % number, 0)
            yield number
            time.sleep(pause_s)
    finally:
        open(f"{progress}.closed", "w").close()


@sky.function
def blocks(count: int, progress: str, size: int) -> Iterator[bytes]:
    """Items that do not compress, each beginning with its number."""
    import os

    descriptor = os.open(progress, os.O_WRONLY | os.O_CREAT)
    try:
        for number in range(count):
            os.pwrite(descriptor, b"%020d" % number, 0)
            yield b"%020d" % number + os.urandom(size)
    finally:
        open(f"{progress}.closed", "w").close()


@sky.function
def whoami() -> tuple[int, str]:
    """The agent's process and the node's folder."""
    import os

    return os.getppid(), os.environ["SKY_AGENT_HOME"]


def eventually(what: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def stands_still(progress: Path, quiet_s: float = 1.0) -> int:
    """How far a generator is once it has not moved for a while."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < quiet_s:
        now = int(progress.read_text()) if progress.exists() else -1
        if now != seen:
            seen, since = now, time.monotonic()
        time.sleep(0.02)
    return seen


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def compute(daemon: RunningDaemon) -> Iterator[sky.Compute]:
    with sky.Compute(url=daemon.url, quiet=True) as compute:
        yield compute


def test_a_reader_that_stops_stops_the_generator(compute: sky.Compute, tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    items = blocks(10**9, str(progress), 8 * 1024) >> compute
    try:
        assert [int(next(items)[:20]) for _ in range(3)] == [0, 1, 2]
        first = stands_still(progress)
        assert first < 64 + BUFFERED_BYTES_MAX // 8192
        seen = [int(item[:20]) for item in itertools.islice(items, first)]
        assert seen == list(range(3, 3 + first))
        assert stands_still(progress) > first
    finally:
        items.close()
    eventually(Path(f"{progress}.closed").exists)


def test_large_items_pass_without_piling_up(
    compute: sky.Compute, daemon: RunningDaemon, tmp_path: Path
) -> None:
    progress = tmp_path / "progress"
    node, _ = whoami() >> compute
    assert len(list(blocks(8, str(progress), ITEM_BYTES) >> compute)) == 8
    before = {pid: resident(pid) for pid in (node, daemon.process.pid, os.getpid())}
    most = dict(before)
    seen = 0
    for item in blocks(LARGE_ITEMS, str(progress), ITEM_BYTES) >> compute:
        assert item[:20] == b"%020d" % seen
        assert len(item) == 20 + ITEM_BYTES
        seen += 1
        if seen == 4:
            assert stands_still(progress) < LARGE_ITEMS - 1
        most = {pid: max(bytes_, resident(pid)) for pid, bytes_ in most.items()}
    assert seen == LARGE_ITEMS
    grown = {pid: most[pid] - before[pid] for pid in most}
    assert {pid: bytes_ for pid, bytes_ in grown.items() if bytes_ > GROWTH_BYTES_MAX} == {}


@pytest.mark.parametrize("way", ["break", "close", "raise"])
def test_leaving_early_closes_the_generator_on_its_node(
    compute: sky.Compute, tmp_path: Path, way: str
) -> None:
    progress = tmp_path / "progress"

    def read() -> None:
        items = numbers(10**9, str(progress), 0.01) >> compute
        for number in items:
            if number == 5:
                if way == "raise":
                    raise LookupError
                if way == "close":
                    items.close()
                break

    try:
        read()
    except LookupError:
        pass
    eventually(Path(f"{progress}.closed").exists)
    newest = compute.http.send(calls.list_tasks(compute=compute.id, limit=1)).items[0]
    eventually(lambda: compute.http.send(calls.get_task(newest.id)).state == "cancelled")


def test_a_connection_that_is_cut_is_resumed_at_its_item(compute: sky.Compute, tmp_path: Path) -> None:
    seen: list[int] = []
    for number in numbers(300, str(tmp_path / "progress"), 0.005) >> compute:
        seen.append(number)
        if number % 50 == 20:
            for stream in [one for one in gc.get_objects() if type(one) is Streamed]:
                stream.abort()
    assert seen == list(range(300))


def test_a_node_whose_connection_is_cut_goes_on(
    compute: sky.Compute, daemon: RunningDaemon, tmp_path: Path
) -> None:
    _, home = whoami() >> compute
    seen: list[int] = []
    for number in numbers(400, str(tmp_path / "progress"), 0.005) >> compute:
        seen.append(number)
        if number in (30, 150):
            asyncio.run(take_the_line(daemon.url, Path(home)))
    assert seen == list(range(400))


@pytest.mark.parametrize("kind", ["for", "async for"])
def test_a_daemon_that_dies_in_the_middle_leaves_no_gap(
    own_daemon: RunningDaemon, tmp_path: Path, kind: str
) -> None:
    def passed(seen: list[Any], number: int) -> None:
        seen.append(number)
        if number == 40:
            own_daemon.kill()
            own_daemon.start()

    async def read(compute: sky.Compute, seen: list[Any]) -> None:
        async for number in numbers(200, str(tmp_path / "progress"), 0.005) >> compute:
            passed(seen, number)

    seen: list[Any] = []
    with sky.Compute(url=own_daemon.url, quiet=True) as compute:
        if kind == "for":
            for number in numbers(200, str(tmp_path / "progress"), 0.005) >> compute:
                passed(seen, number)
        else:
            asyncio.run(read(compute, seen))
        (task,) = compute.http.send(calls.list_tasks(compute=compute.id)).items
        assert task.state == "succeeded"
        assert len(compute.http.send(calls.get_task(task.id)).executions) == 1
    assert seen == list(range(200))
