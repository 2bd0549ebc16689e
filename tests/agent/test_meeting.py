"""Ranks that look for each other, each in a thread of its own, over real sockets.

Decides: that who belongs together meets, whoever else knocks, and that nobody waits for what cannot come.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from sky.agent import plugins
from sky.agent.meeting import CANDIDATES, Meeting, candidates, listener_at
from sky.kit.context import CallContext

HERE = "127.0.0.1"
RUN = os.getpid()
"""In every name of a call: its ports follow from that, and another run of these tests may be under way."""
LONG_S = 30.0
SHORT_S = 0.5


def ranks(
    key: str, size: int, part: Callable[[Meeting], Any], timeout_s: float = LONG_S
) -> list[Future[Any]]:
    """What became of ``part`` at each place of a call."""

    def run(place: int) -> Any:
        meeting = Meeting(key, place, size, HERE, timeout_s)
        try:
            return part(meeting)
        finally:
            meeting.close()

    with ThreadPoolExecutor(size) as pool:
        return [pool.submit(run, place) for place in range(size)]


def test_all_agree_on_what_the_first_one_makes() -> None:
    made: list[int] = []

    def value() -> int:
        made.append(7)
        return 7

    def part(meeting: Meeting) -> Any:
        agreed = meeting.agree(value)
        assert meeting.leave(None) == []
        return agreed

    assert [one.result(LONG_S) for one in ranks(f"all/{RUN}", 4, part)] == [7, 7, 7, 7]
    assert made == [7]


def test_calls_side_by_side_do_not_mix() -> None:
    def call(number: int) -> list[Any]:
        return [
            one.result(LONG_S) for one in ranks(f"side/{RUN}/{number}", 2, lambda m: m.agree(lambda: number))
        ]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(16))) == [[n, n] for n in range(16)]


def test_strangers_at_the_port_are_turned_away() -> None:
    key = f"strangers/{RUN}"
    first, *_ = candidates(key)
    with listener_at(HERE, first) as silent:
        # The first port is taken by something that says nothing at all; at the second, a stranger knocks.
        def knock() -> bytes:
            deadline = time.monotonic() + LONG_S
            while True:
                try:
                    with socket.create_connection((HERE, candidates(key)[1]), 1) as door:
                        door.sendall(b'{"key":"other","place":1}\nrubbish\n')
                        try:
                            return door.recv(1)
                        except ConnectionResetError:
                            return b""
                except OSError:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)

        with ThreadPoolExecutor(3) as pool:
            host = pool.submit(Meeting, key, 0, 2, HERE, LONG_S)
            assert pool.submit(knock).result(LONG_S) == b""
            visitor = Meeting(key, 1, 2, HERE, LONG_S)
            agreed = pool.submit(host.result(LONG_S).agree, lambda: "met")
            assert visitor.agree(lambda: "not asked") == "met"
            assert agreed.result(LONG_S) == "met"
            visitor.close()
            host.result().close()
        assert silent.fileno() >= 0


def test_who_does_not_come_is_named() -> None:
    with pytest.raises(TimeoutError, match=r"of 3 ranks, 1, 2 did not come to 127\.0\.0\.1 within 0\.5 s"):
        Meeting(f"alone/{RUN}", 0, 3, HERE, SHORT_S)
    with pytest.raises(TimeoutError, match="the first rank of this call was not found"):
        Meeting(f"alone/{RUN}", 1, 3, HERE, SHORT_S)


def test_one_that_leaves_before_it_is_ready_ends_the_others() -> None:
    def part(meeting: Meeting) -> Any:
        if meeting.place == 1:
            raise ModuleNotFoundError("no module named torch")
        return meeting.agree(lambda: 1)

    begun = time.monotonic()
    first, second, third = ranks(f"leaves/{RUN}", 3, part)
    assert isinstance(second.exception(), ModuleNotFoundError)
    with pytest.raises(ConnectionError, match="rank 1 left before every rank was ready"):
        first.result()
    with pytest.raises(ConnectionError, match="rank 0 left"):
        third.result()
    assert time.monotonic() - begun < LONG_S


def test_why_one_failed_is_told_to_those_that_fail_after_it() -> None:
    with ThreadPoolExecutor(2) as pool:
        coming = pool.submit(Meeting, f"why/{RUN}", 0, 2, HERE, LONG_S)
        second = Meeting(f"why/{RUN}", 1, 2, HERE, LONG_S)
        first = coming.result(LONG_S)
        assert second.leave(ValueError("no more")) == []
        second.close()
        assert first.leave(RuntimeError("closed by peer")) == ["rank 1 failed before: ValueError: no more"]
        first.close()


def test_that_one_is_gone_is_told_to_those_that_fail_after_it() -> None:
    with ThreadPoolExecutor(2) as pool:
        coming = pool.submit(Meeting, f"gone/{RUN}", 0, 2, HERE, LONG_S)
        second = Meeting(f"gone/{RUN}", 1, 2, HERE, LONG_S)
        first = coming.result(LONG_S)
        second.close()
        (said,) = first.leave(RuntimeError("closed by peer"))
        assert said.startswith("rank 1 is gone")
        first.close()


def test_the_first_waits_until_the_others_have_left() -> None:
    with ThreadPoolExecutor(2) as pool:
        coming = pool.submit(Meeting, f"waits/{RUN}", 0, 2, HERE, LONG_S)
        second = Meeting(f"waits/{RUN}", 1, 2, HERE, LONG_S)
        first = coming.result(LONG_S)
        leaving = pool.submit(first.leave, None)
        with pytest.raises(TimeoutError):
            leaving.result(0.2)
        second.close()
        assert leaving.result(LONG_S) == []
        first.close()


def test_ports_follow_from_the_call() -> None:
    assert candidates("one") == candidates("one") != candidates("two")
    assert len(candidates("one")) == CANDIDATES
    assert all(20_000 <= port < 30_000 for port in candidates("one"))


def test_ranks_that_were_not_ready_are_not_waited_for() -> None:
    def call(rank: int, world: tuple[int, ...], peers: tuple[str, ...]) -> CallContext:
        return CallContext("tsk_a", "exe_a", "cmp_a", "nod_a", rank, 4, peers=peers, world=world)

    part = plugins.Part(call(3, (1, 3), ("10.0.0.1", "10.0.0.2", "", "10.0.0.4")))
    assert (part.place, part.size, part.address) == (1, 2, "10.0.0.2")
    alone = plugins.Part(call(3, (), ("10.0.0.1",)))
    assert (alone.place, alone.size, alone.address) == (0, 1, HERE)
    with pytest.raises(ConnectionError, match="no address of node 2 is known"):
        plugins.Part(call(3, (2, 3), ("10.0.0.1", "", "", "")))
