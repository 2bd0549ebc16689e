"""The SDK in an event loop: every operator awaited, nothing blocked; leaving early ends what was begun."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import sky
from sky.client import calls
from sky.client.http import Http

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def compute(daemon: Any) -> Iterator[sky.Compute]:
    with sky.Compute(nodes=2, url=daemon.url, quiet=True) as compute:
        yield compute


@pytest.fixture
def awaited(compute: sky.Compute) -> sky.AsyncCompute:
    return sky.AsyncCompute(compute)


@sky.function
def double(number: int) -> int:
    return number * 2


@sky.function
def rank() -> int:
    return sky.instance_info().rank


@sky.function
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@sky.function
def fail(number: int) -> int:
    raise ValueError(f"{number} will not do")


@sky.function
def speak(word: str) -> str:
    print(word)
    return word


@sky.function
def count(to: int, pause_s: float = 0.0) -> Iterator[int]:
    for number in range(to):
        yield number
        time.sleep(pause_s)


@sky.function
def endless(closed: str, pause_s: float) -> Iterator[int]:
    try:
        number = 0
        while True:
            yield number
            number += 1
            time.sleep(pause_s)
    finally:
        Path(closed).touch()


@asynccontextmanager
async def free_loop() -> AsyncIterator[None]:
    """The event loop goes on inside: it is never held up for long."""
    held: list[float] = []

    async def watch() -> None:
        before = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            held.append(time.monotonic() - before)
            before = time.monotonic()

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        watching.cancel()
    assert len(held) > 10, "the loop stood still"


async def eventually(what: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not what():
            await asyncio.sleep(0.02)


async def test_every_operator_is_awaited(awaited: sky.AsyncCompute) -> None:
    async with free_loop():
        await (nap(1.0) @ awaited)
        assert await (double(2) >> awaited) == 4
        assert await (double(2) > awaited) == 4
        assert await (rank() @ awaited) == [0, 1]
        assert await ((double(1) & rank()) >> awaited) in ((2, 0), (2, 1))
        assert await (sky.gather(double(1), double(2)) >> awaited) == [2, 4]
        assert await (sky.map(double, range(50)) >> awaited) == list(range(0, 100, 2))
    with pytest.raises(ValueError, match="3 will not do"):
        await (fail(3) >> awaited)
    with pytest.raises(ValueError, match="4 will not do"):
        await (fail(4) @ awaited)
    with pytest.raises(ValueError, match="5 will not do"):
        await ((double(1) & fail(5)) >> awaited)
    assert {node.rank for node in await awaited.nodes()} == {0, 1}
    assert (await awaited.status()).status.state == "ready"


async def test_what_is_sent_is_on_its_way_before_it_is_awaited(awaited: sky.AsyncCompute) -> None:
    first, second = nap(0.5) >> awaited, nap(0.5) @ awaited
    await eventually(lambda: bool(first.done() and second.done()))
    assert await asyncio.gather(first, second) == [0.5, [0.5, 0.5]]


async def test_items_come_without_blocking(awaited: sky.AsyncCompute, compute: sky.Compute) -> None:
    async with free_loop():
        assert [item async for item in count(5, 0.2) >> awaited] == [0, 1, 2, 3, 4]
    assert [item async for item in count(300) >> compute] == list(range(300))
    several = await asyncio.gather(*(_all(count(20) >> awaited) for _ in range(10)))
    assert several == [list(range(20))] * 10


async def _all(items: sky.Items[Any]) -> list[Any]:
    return [item async for item in items]


async def test_results_come_as_they_end(awaited: sky.AsyncCompute) -> None:
    async with free_loop():
        in_order = [r async for r in sky.gather(nap(1.0), double(1), stream=True) >> awaited]
    assert in_order == [1.0, 2]
    mapped = sky.map(double, range(30), stream=True, ordered=False) >> awaited
    assert sorted(await _all(mapped)) == list(range(0, 60, 2))
    failing = sky.map(fail, [1], stream=True) >> awaited
    with pytest.raises(ValueError, match="1 will not do"):
        await anext(failing)


async def test_a_generator_that_fails_gives_its_items_first(awaited: sky.AsyncCompute) -> None:
    @sky.function
    def breaks() -> Iterator[int]:
        yield 1
        raise ValueError("after one")

    items = breaks() >> awaited
    assert await anext(items) == 1
    with pytest.raises(ValueError, match="after one"):
        await anext(items)
    with pytest.raises(StopAsyncIteration):
        await anext(items)


@pytest.mark.parametrize("way", ["break", "aclose", "cancel"])
async def test_leaving_early_closes_the_generator_on_its_node(
    awaited: sky.AsyncCompute, tmp_path: Path, way: str
) -> None:
    closed = tmp_path / "closed"

    async def read() -> None:
        items = endless(str(closed), 0.2) >> awaited
        async for item in items:
            if item == 3 and way in ("break", "aclose"):
                break
            begun.set()
        if way == "aclose":
            await items.aclose()

    begun = asyncio.Event()
    reading = asyncio.create_task(read())
    if way == "cancel":
        await begun.wait()
        reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await eventually(closed.exists)


@pytest.mark.parametrize("form", ["one", "all", "many"])
async def test_giving_up_an_await_ends_the_call(awaited: sky.AsyncCompute, form: str) -> None:
    future: sky.Future[Any]
    if form == "one":
        future = nap(60) >> awaited
    elif form == "all":
        future = nap(60) @ awaited
    else:
        future = sky.gather(nap(60), nap(60)) >> awaited
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(future, 0.5)
    await eventually(future.cancelled)
    listing = calls.list_tasks(compute=awaited.id, state="running")
    await eventually(lambda: not awaited.http.send(listing).items)


async def test_the_other_kind_of_compute_says_what_to_write(compute: sky.Compute) -> None:
    with pytest.warns(RuntimeWarning, match=r"`>>` waits.*await \(call > compute\).*async with"):
        assert double(1) >> compute == 2
    with pytest.warns(RuntimeWarning, match=r"`@` waits.*async with"):
        assert rank() @ compute == [0, 1]
    with pytest.warns(RuntimeWarning, match=r"async for"):
        assert list(count(2) >> compute) == [0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert await ((double(1) & double(2)) > compute) == (2, 4)
        assert await (sky.gather(double(1), double(2)) > compute) == [2, 4]


async def test_items_are_read_in_one_way(awaited: sky.AsyncCompute) -> None:
    items = count(5) >> awaited
    assert await anext(items) == 0
    with pytest.raises(RuntimeError, match="anext"):
        next(items)
    with pytest.raises(RuntimeError, match="aclose"):
        items.close()
    await items.aclose()
    unread = count(5) >> awaited
    await unread.aclose()
    assert await _all(unread) == []


async def test_what_was_printed_is_printed_before_the_result(
    daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async with sky.Compute(url=daemon.url, quiet=True) as compute:
        assert await (speak("hello") >> compute) == "hello"
        assert "hello\n" in capsys.readouterr().out
        assert await (speak("all") @ compute) == ["all"]
        assert "all\n" in capsys.readouterr().out
        assert await (sky.gather(speak("one"), speak("two")) >> compute) == ["one", "two"]
        assert sorted(capsys.readouterr().out.split()) == ["one", "two"]
        assert await ((speak("a") & speak("b")) >> compute) == ("a", "b")
        assert sorted(capsys.readouterr().out.split()) == ["a", "b"]


async def test_many_at_once_cost_no_threads(compute: sky.Compute, awaited: sky.AsyncCompute) -> None:
    await (double(1) >> awaited)
    before = threading.active_count()
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, threading.active_count())
            await asyncio.sleep(0.002)

    watching = asyncio.create_task(watch())
    try:
        together = [sky.gather(double(n), double(n + 1)) >> awaited for n in range(100)]
        mapped = [sky.map(double, range(n)) >> awaited for n in range(20)]
        spoken = [speak(str(n)) >> awaited for n in range(100)]
        assert await asyncio.gather(*together) == [[2 * n, 2 * n + 2] for n in range(100)]
        assert await asyncio.gather(*mapped) == [list(range(0, 2 * n, 2)) for n in range(20)]
        assert await asyncio.gather(*spoken) == [str(n) for n in range(100)]
    finally:
        watching.cancel()
    assert most <= before + 2, "one for all of them"


async def test_calls_that_are_not_there_yet_keep_no_others_waiting(awaited: sky.AsyncCompute) -> None:
    go = threading.Event()

    def numbers() -> Iterator[int]:
        yield 1
        go.wait(30)
        yield 2

    slow = sky.map(double, numbers()) >> awaited
    assert await (sky.gather(double(4), double(5)) >> awaited) == [8, 10]
    assert not slow.done()
    go.set()
    assert await slow == [2, 4]


async def test_a_block_that_is_given_up_while_it_opens_leaves_nothing(daemon: Any) -> None:
    http = Http(daemon.url)
    before = {one.id for one in http.send(calls.list_computes(limit=500)).items}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), sky.Compute(url=daemon.url, quiet=True):
            await asyncio.sleep(60)
    after = [one for one in http.send(calls.list_computes(limit=500)).items if one.id not in before]
    assert {one.status.state for one in after} <= {"deleting", "deleted"}
