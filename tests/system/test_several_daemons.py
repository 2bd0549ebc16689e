"""Several daemons on one PostgreSQL: any of them may be killed, and work goes on through the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import server

import sky
from sky.client import calls
from sky.client.http import Http

pytestmark = pytest.mark.real
CALLS = 240


@sky.function
def step(folder: str, number: int) -> int:
    """Say that it runs, once for each run, and take a moment."""
    import os
    import time

    with open(f"{folder}/ran-{number}", "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.02)
    return number * number


@sky.function
def count(folder: str) -> Iterator[int]:
    """Numbers, the later ones once they are asked for."""
    import pathlib
    import time

    for number in range(60):
        if number == 20:
            pathlib.Path(folder, "counting").touch()
            while not pathlib.Path(folder, "go on").exists():
                time.sleep(0.01)
        yield number


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[list[RunningDaemon]]:
    """Three with one database and one shared folder; nothing is left of them afterwards."""
    shared = tmp_path / "shared"
    environment = {"SKY_DATABASE": server().empty(), "SKY_SHARED_FOLDER": str(shared)}
    three: list[RunningDaemon] = []
    for number in range(3):
        home = tmp_path / f"home-{number}"
        home.mkdir()
        three.append(RunningDaemon(home, free_port(), environment))
        three[-1].start()
    yield three
    for one in three:
        if one.process.poll() is None:
            one.stop()
    RunningDaemon(shared, 0).end_agents()


def test_any_daemon_may_be_killed_while_calls_run_through_another(
    daemons: list[RunningDaemon], tmp_path: Path
) -> None:
    first, second, third = daemons
    folder = str(tmp_path)
    wanted = {"provider": sky.Local(), "nodes": 2, "concurrency": 2, "name": "shared", "quiet": True}
    with sky.Compute(**wanted, url=first.url, delete_on_exit=False) as compute:
        assert (step(folder, -1) >> compute) == 1
    with sky.Compute(**wanted, url=second.url, delete_on_exit=True) as compute:
        asked = [step(folder, number) > compute for number in range(CALLS)]
        assert asked[0].result(timeout=120) == 0
        first.kill()
        assert [one.result(timeout=120) for one in asked] == [n * n for n in range(CALLS)]
        third.kill()
        more = [step(folder, CALLS + number) > compute for number in range(40)]
        assert [one.result(timeout=120) for one in more] == [(CALLS + n) ** 2 for n in range(40)]
    runs = {path.name: len(path.read_text().split()) for path in tmp_path.glob("ran-*")}
    assert len(runs) == CALLS + 41
    assert set(runs.values()) == {1}, "none twice"
    states = [one.status.state for one in Http(second.url).send(calls.list_computes()).items]
    assert set(states) <= {"deleted"}


def test_a_stream_goes_on_when_the_daemon_that_the_node_speaks_to_is_killed(
    daemons: list[RunningDaemon], tmp_path: Path
) -> None:
    first, second, third = daemons
    folder = str(tmp_path)
    with sky.Compute(sky.Local(), nodes=1, url=second.url, quiet=True) as compute:
        items = count(folder) >> compute
        seen = [next(items) for _ in range(10)]
        (tmp_path / "go on").touch()
        first.kill()
        third.kill()
        seen += list(items)
    assert seen == list(range(60))
