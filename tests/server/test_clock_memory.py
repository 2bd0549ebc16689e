"""A clock that is set while no daemon runs: what the next daemon takes the time for.

Decides: which clock is believed, after what. Never: sets this computer's clock; what was written down is
moved instead, which looks the same to the daemon that reads it.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.databases import IN_A_FILE

from sky.kit.clock import BOOT_ID, SECOND_US, ManualClock, SinceBoot, SteadyClock
from sky.server.clock_memory import FILE, ClockMemory

HOUR_S = 3600.0


class Computer:
    """A computer that has run for an hour."""

    def __init__(self) -> None:
        self.wall = ManualClock()
        self.since: SinceBoot | None = SinceBoot("this-start", HOUR_S, 0.0)

    def passes(self, seconds: float, *, asleep: bool = False) -> None:
        assert self.since is not None
        slept = self.since.asleep_s + (seconds if asleep else 0.0)
        self.since = SinceBoot(self.since.boot, self.since.seconds + seconds, slept)
        if asleep:
            self.wall.step_wall(seconds)  # what counts steadily does not count sleep
        else:
            self.wall.advance(seconds)

    def daemon(self, home: Path) -> tuple[ClockMemory, SteadyClock]:
        memory = ClockMemory(home, self.wall, lambda: self.since)
        clock = SteadyClock(self.wall, memory.begin())
        memory.keep(clock)
        return memory, clock


@pytest.mark.parametrize("set_by_s", [2 * HOUR_S, -2 * HOUR_S])
def test_what_passed_is_what_the_computer_counted(tmp_path: Path, set_by_s: float) -> None:
    computer = Computer()
    _, clock = computer.daemon(tmp_path)
    computer.passes(60)
    last_us = clock.now_us()
    computer.passes(30)
    computer.wall.step_wall(set_by_s)
    _, clock = computer.daemon(tmp_path)
    assert abs(clock.now_us() - last_us - 30 * SECOND_US) < SECOND_US
    computer.passes(HOUR_S)
    assert abs(clock.now_us() - last_us) == pytest.approx((HOUR_S + 30) * SECOND_US, rel=0.11), "it leans"


def test_a_clock_that_leans_is_taken_up_where_it_was(tmp_path: Path) -> None:
    computer = Computer()
    memory, clock = computer.daemon(tmp_path)
    computer.wall.step_wall(2 * HOUR_S)
    computer.passes(HOUR_S)
    memory.keep(clock)
    last_us = clock.now_us()
    computer.passes(1)
    _, clock = computer.daemon(tmp_path)
    assert abs(clock.now_us() - last_us - SECOND_US) < SECOND_US // 2


def test_sleep_is_made_good_at_the_next_start(tmp_path: Path) -> None:
    computer = Computer()
    memory, clock = computer.daemon(tmp_path)
    computer.passes(8 * HOUR_S, asleep=True)
    memory.keep(clock)
    computer.passes(1)
    _, clock = computer.daemon(tmp_path)
    assert abs(clock.now_us() - computer.wall.now_us()) < SECOND_US


def test_the_wall_is_believed_where_nothing_better_is_known(tmp_path: Path) -> None:
    computer = Computer()
    computer.daemon(tmp_path)
    told = (tmp_path / FILE).read_bytes()
    computer.wall.step_wall(HOUR_S)

    def begins() -> int:
        return ClockMemory(tmp_path, computer.wall, lambda: computer.since).begin()

    assert begins() != computer.wall.now_us(), "what is below would show nothing"
    for broken in (b"", b"{}", b'{"boot": 1}', b"\xff"):
        (tmp_path / FILE).write_bytes(broken)
        assert begins() == computer.wall.now_us()
    (tmp_path / FILE).write_bytes(told)
    computer.wall.step_wall(25 * HOUR_S)
    assert begins() == computer.wall.now_us(), "it was off by more than a day"
    computer.wall.step_wall(-25 * HOUR_S)
    for since in (None, SinceBoot("another-start", 5.0, 0.0), SinceBoot("this-start", 5.0, 0.0)):
        computer.since = since
        assert begins() == computer.wall.now_us()


@pytest.mark.skipif(not BOOT_ID.exists(), reason="only Linux says which start of the computer it is")
@IN_A_FILE
def test_a_daemon_goes_on_by_the_clock_of_the_one_before(own_daemon: Any) -> None:
    own_daemon.stop()
    file = own_daemon.home / FILE
    kept = msgspec.json.decode(file.read_bytes())
    two_hours_us = int(2 * HOUR_S) * SECOND_US
    file.write_bytes(msgspec.json.encode({**kept, "now_us": kept["now_us"] + two_hours_us}))
    own_daemon.start()
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 0, "min": 0, "max": 1}}
    with httpx2.Client(base_url=own_daemon.url, timeout=60, trust_env=False) as http:
        made = http.post("/v1/computes", json={"spec": spec}).json()
        shown = http.get(f"/v1/computes/{made['id']}").json()
    created = msgspec.convert(shown["created_at"], type=datetime)
    assert created.timestamp() - time.time() == pytest.approx(2 * HOUR_S, abs=600)
