"""The SDK against a real daemon and real nodes: every way to call, and every way a call can end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import sky
from sky.client import calls
from sky.client.http import Http

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def compute(daemon: Any) -> Iterator[sky.Compute]:
    with sky.Compute(nodes=2, concurrency=2, url=daemon.url, quiet=True) as compute:
        yield compute


@sky.function
def double(number: int, plus: int = 0) -> int:
    return number * 2 + plus


@sky.function
def where() -> tuple[int, int, bool]:
    info = sky.instance_info()
    return info.rank, info.total, sky.is_head()


@sky.function
def shard_of(numbers: list[int]) -> list[int]:
    return sky.shard(numbers)


@sky.function
async def later(number: int) -> int:
    await asyncio.sleep(0.01)
    return number + 1


@sky.function
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


class Refused(Exception):
    """Knows more than its message."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.code = code


@sky.function
def refuse(code: int) -> None:
    raise Refused("no", code)


@sky.function
def odd_ones_fail(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


# ── one call ────────────────────────────────────────────────────────────────────────────────────


def test_one_call_gives_back_what_the_function_returns(compute: sky.Compute) -> None:
    assert double(21) >> compute == 42
    assert (double(1, plus=5) >> compute) == 7
    assert (later(1) >> compute) == 2


def test_every_node_gives_its_result_by_rank(compute: sky.Compute) -> None:
    assert where() @ compute == [(0, 2, True), (1, 2, False)]
    assert shard_of([1, 2, 3, 4, 5]) @ compute == [[1, 3, 5], [2, 4]]


def test_calls_side_by_side_give_a_tuple(compute: sky.Compute) -> None:
    assert (double(1) & later(1) & double(3)) >> compute == (2, 2, 6)


def test_large_arguments_and_results_travel(compute: sky.Compute) -> None:
    payload = bytes(range(256)) * 16_000

    @sky.function
    def reverse(content: bytes) -> bytes:
        return content[::-1]

    assert (reverse(payload) >> compute) == payload[::-1]
    future = reverse(payload) > compute
    assert future.result(30) == payload[::-1]


def test_a_closure_travels(compute: sky.Compute) -> None:
    factor = 7

    @sky.function
    def times(number: int) -> int:
        return number * factor

    assert (times(6) >> compute) == 42


def test_wrong_arguments_are_refused_before_anything_is_sent(compute: sky.Compute) -> None:
    wrong: Any = double
    with pytest.raises(TypeError, match="missing a required argument"):
        wrong()


# ── what goes wrong ─────────────────────────────────────────────────────────────────────────────


def test_an_exception_is_raised_as_what_it_was(compute: sky.Compute) -> None:
    with pytest.raises(Refused) as raised:
        refuse(7) >> compute
    assert raised.value.code == 7
    shown = "".join(traceback.format_exception(raised.value))
    assert 'raise Refused("no", code)' in shown
    assert shown.count("site-packages") == 0
    ours = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert len(ours) == 1, "of our own frames none is shown"


@sky.function
def needs_a_module() -> None:
    importlib.import_module("no_such_module")


def test_a_module_that_the_node_lacks_is_told_with_how_it_gets_there(compute: sky.Compute) -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_module'") as raised:
        needs_a_module() >> compute
    assert any("sky.Image(pip=[...])" in note for note in raised.value.__notes__)


def test_an_exception_that_words_its_own_message_can_be_caught(compute: sky.Compute) -> None:
    class Lost(Exception):
        def __init__(self, code: int, where: str) -> None:
            super().__init__(f"{code} at {where}")
            self.code = code

    @sky.function
    def lose() -> None:
        raise Lost(7, "sea")

    with pytest.raises(Lost, match=r"^7 at sea$") as raised:
        lose() >> compute
    assert raised.value.code == 7


def test_an_exception_of_every_rank_or_one_is_raised(compute: sky.Compute) -> None:
    with pytest.raises(Refused):
        refuse(1) @ compute


def test_an_exception_in_many_ends_the_rest(compute: sky.Compute) -> None:
    with pytest.raises(ValueError, match="odd"):
        (double(1) & odd_ones_fail(1)) >> compute
    with pytest.raises(ValueError, match="is odd"):
        sky.map(odd_ones_fail, range(50)) >> compute


def test_a_process_that_would_be_ended_is_not_ours(compute: sky.Compute) -> None:
    @sky.function
    def leave() -> None:
        sys.exit(3)

    with pytest.raises(sky.TaskFailed, match="SystemExit"):
        leave() >> compute


def test_a_call_that_takes_too_long_is_stopped(compute: sky.Compute) -> None:
    with pytest.raises(sky.TaskTimedOut) as raised:
        nap.options(timeout=1)(30) >> compute
    assert isinstance(raised.value, TimeoutError)


def test_a_worker_that_dies_fails_its_call_with_the_cause(compute: sky.Compute) -> None:
    @sky.function
    def die() -> None:
        import os

        os._exit(9)

    with pytest.raises(sky.CallError) as raised:
        die() >> compute
    assert str(raised.value)
    assert (double(1) >> compute) == 2


def test_what_cannot_be_packed_is_said_here(compute: sky.Compute) -> None:
    wrong: Any = double
    with pytest.raises(sky.PackError, match=r"double\(\)"):
        wrong(threading.Lock()) >> compute


def test_a_result_that_cannot_be_sent_back_is_named_with_the_way_to_it(compute: sky.Compute) -> None:
    @sky.function
    def keeps(lock: bool) -> Any:
        return {"state": [1, threading.Lock()] if lock else (n for n in "never listed")}

    with pytest.raises(sky.PackError, match=r"result\['state'\]\[1\] is a _thread\.lock.*return plain data"):
        keeps(True) >> compute
    with pytest.raises(sky.PackError, match=r"result\['state'\] is a generator"):
        keeps(False) >> compute


def test_an_exception_without_a_message_is_told_by_its_name(compute: sky.Compute) -> None:
    @sky.function
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(sky.TaskFailed, match=r"^KeyboardInterrupt$"):
        interrupted() >> compute


# ── what is printed ─────────────────────────────────────────────────────────────────────────────


@sky.function
def talk(text: str) -> str:
    print(text)
    print("to stderr", file=sys.stderr)
    return text


def test_what_is_printed_there_appears_here_before_the_result(
    compute: sky.Compute, capsys: pytest.CaptureFixture[str]
) -> None:
    talk("hello\nworld") >> compute
    shown = capsys.readouterr()
    rank = shown.out[:9]
    assert rank in ("[rank 0] ", "[rank 1] ")
    assert shown.out == f"{rank}hello\n{rank}world\n"
    assert shown.err == f"{rank}to stderr\n"


def test_every_rank_says_its_lines(compute: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    talk("all") @ compute
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank 0] all", "[rank 1] all"]


def test_a_failing_call_says_its_lines_too(compute: sky.Compute, capsys: pytest.CaptureFixture[str]) -> None:
    @sky.function
    def last_words() -> None:
        print("last words")
        raise KeyError("gone")

    with pytest.raises(KeyError):
        last_words() >> compute
    assert "last words" in capsys.readouterr().out


# ── many calls ──────────────────────────────────────────────────────────────────────────────────


def test_map_gives_results_in_order(compute: sky.Compute) -> None:
    assert sky.map(double, range(700)) >> compute == [2 * n for n in range(700)]
    assert sky.map(double, [1, 2], [10, 20]) >> compute == [12, 24]
    assert sky.map(double, []) >> compute == []


def test_map_reads_an_endless_input_only_as_far_as_it_is_wanted(compute: sky.Compute) -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        number = 0
        while True:
            read.append(number)
            yield number
            number += 1

    found: list[int] = []
    for result in sky.map(double, numbers(), stream=True) >> compute:
        found.append(result)
        if len(found) == 100:
            break
    assert found == [2 * n for n in range(100)]
    assert len(read) < 10_000


def test_a_stream_gives_results_as_they_come(compute: sky.Compute) -> None:
    waits = [1.5, 0.0, 0.01]
    calls_ = [nap(wait) for wait in waits]
    assert next(iter(sky.gather(*calls_, stream=True, ordered=False) >> compute)) < 1
    assert list(sky.gather(*calls_, stream=True) >> compute) == waits
    assert sky.gather(*calls_) >> compute == waits


def test_map_wants_a_function_that_can_be_sent() -> None:
    wrong: Any = len
    with pytest.raises(TypeError, match=r"@sky\.function"):
        sky.map(wrong, ["a"])


# ── futures ─────────────────────────────────────────────────────────────────────────────────────


def test_futures_follow_concurrent_futures(compute: sky.Compute) -> None:
    futures = [double(n) > compute for n in range(20)]
    seen: list[int] = []
    futures[0].add_done_callback(lambda one: seen.append(one.result()))
    done, waiting = concurrent.futures.wait(futures, timeout=30)
    assert (len(done), len(waiting)) == (20, 0)
    assert sorted(one.result() for one in concurrent.futures.as_completed(futures)) == list(range(0, 40, 2))
    assert seen == [0]
    failing = refuse(3) > compute
    assert isinstance(failing.exception(30), Refused)
    with pytest.raises(Refused):
        failing.result()


def test_a_future_that_is_not_done_says_so(compute: sky.Compute) -> None:
    future = nap(5.0) > compute
    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    assert not future.done()
    assert future.result(60) == 5.0


def test_a_running_call_is_stopped_when_its_future_is_cancelled(compute: sky.Compute) -> None:
    future = nap(60) > compute
    task = wait_for_state(compute, future, "running")
    assert future.cancel(), "it is being stopped"
    with pytest.raises(concurrent.futures.CancelledError):
        future.result(30)
    assert compute.http.send(calls.get_task(task)).state == "cancelled"
    assert future.cancelled()
    assert future.cancel(), "as before: it is cancelled"
    ended = double(1) > compute
    assert ended.result(30) == 2
    assert not ended.cancel()


def test_a_waiting_call_is_cancelled_for_certain(compute: sky.Compute) -> None:
    sky.map(nap, [0.2] * 8) >> compute  # after calls that take time, nodes hold no others in advance
    busy = [nap(2.0) > compute for _ in range(12)]
    last = double(1) > compute
    wait_for_state(compute, last, "queued")
    if last.cancel():
        assert last.cancelled()
        assert compute.http.send(calls.get_task(last.task)).state == "cancelled"
    else:
        with pytest.raises((concurrent.futures.CancelledError, TimeoutError)):
            last.result(30)
    for future in busy:
        future.abandon()


def wait_for_state(compute: sky.Compute, future: sky.Future[Any], state: str) -> str:
    """The task of a future once it is in a state (or past it)."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if future.task and compute.http.send(calls.get_task(future.task)).state == state:
            return future.task
        time.sleep(0.02)
    raise AssertionError(f"{future.task} did not become {state}")


async def test_futures_can_be_awaited(compute: sky.Compute) -> None:
    assert await (double(2) > compute) == 4
    assert await asyncio.gather(*(double(n) > compute for n in range(5))) == [0, 2, 4, 6, 8]
    with pytest.raises(Refused):
        await (refuse(1) > compute)
    future = nap(60) > compute
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(future, 0.3)
    await asyncio.to_thread(concurrent.futures.wait, [future], 30)
    assert future.cancelled(), "giving up an await ends the call"


# ── generators ──────────────────────────────────────────────────────────────────────────────────


@sky.function
def count(to: int) -> Iterator[int]:
    yield from range(to)


@sky.function
async def tick(to: int) -> AsyncIterator[str]:
    for number in range(to):
        yield str(number)


def test_items_come_as_they_are_yielded(compute: sky.Compute) -> None:
    assert list(count(300) >> compute) == list(range(300))
    assert list(tick(3) >> compute) == ["0", "1", "2"]
    assert list(count(0) >> compute) == []


def test_items_do_not_wait_for_the_end(compute: sky.Compute) -> None:
    @sky.function
    def slow() -> Iterator[int]:
        yield 1
        time.sleep(600)  # longer than this test may take
        yield 2

    items: Any = slow() >> compute
    assert next(items) == 1
    items.close()


def test_a_generator_that_raises_gives_its_items_first(compute: sky.Compute) -> None:
    @sky.function
    def breaks() -> Iterator[int]:
        yield 1
        raise Refused("no", 5)

    items = breaks() >> compute
    assert next(items) == 1
    with pytest.raises(Refused) as raised:
        next(items)
    assert raised.value.code == 5


@pytest.mark.parametrize("kind", [ValueError, ConnectionResetError, UnicodeError])
def test_whatever_a_generator_raises_is_raised_here(compute: sky.Compute, kind: type[Exception]) -> None:
    @sky.function
    def breaks() -> Iterator[int]:
        yield 1
        raise kind("as a broken connection would")

    items = breaks() >> compute
    assert next(items) == 1
    with pytest.raises(kind, match="as a broken"):
        next(items)


# ── here ────────────────────────────────────────────────────────────────────────────────────────


async def test_local_runs_here() -> None:
    assert double.local(2) == 4
    assert later.local(1) == 2
    assert list(count.local(2)) == [0, 1]


def test_a_compute_that_is_not_open_says_how_to_open_it(daemon: Any) -> None:
    closed = sky.Compute(url=daemon.url)
    for use in (lambda: double(1) >> closed, lambda: double(1) > closed, lambda: closed.id):
        with pytest.raises(sky.NotEntered, match=r"with sky\.Compute"):
            use()


def test_what_is_refused_leaves_nothing_and_says_nothing_of_it(
    daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(sky.InvalidRequest, match=r"spec\.ttl"), sky.Compute(url=daemon.url, ttl=-1):
        pass
    assert capsys.readouterr().err == ""


def test_the_daemon_knows_nothing_that_was_not_asked_for(compute: sky.Compute, daemon: Any) -> None:
    with Http(daemon.url).open(calls.openapi()) as document:
        assert b"openapi" in b"".join(document.pieces())
    assert {node.rank for node in compute.nodes()} == {0, 1}
    assert compute.status().status.state == "ready"
