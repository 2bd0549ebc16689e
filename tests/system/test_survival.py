"""The daemon killed in the middle of real work: every call finishes exactly once, and nothing is left."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon
from tests.proof import record
from tests.system.processes import wait_gone
from tests.waiting import until

import sky

WAIT_S = 180.0
NOTICED_S = 180.0
"""A daemon that asks its provider notices in a second or two; a lease takes ten minutes."""
CALLS = 500
KILLS = 10
SEED = int(os.environ.get("SKY_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)


@sky.function
def leave_a_mark(number: int, folder: str) -> int:
    """Append a line for every run: a call that ran twice has two."""
    import os
    import time

    time.sleep(0.01)
    descriptor = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b"ran\n")
    os.close(descriptor)
    return number * number


@pytest.mark.real
@pytest.mark.timeout(600)
def test_five_hundred_calls_survive_ten_kills(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    chance = random.Random(SEED)
    finished = threading.Event()
    kills = 0

    def keep_killing() -> None:
        nonlocal kills
        while kills < KILLS and not finished.wait(chance.uniform(0.2, 1.5)):
            own_daemon.kill()
            own_daemon.start()
            kills += 1

    with (
        sky.Compute(provider=sky.Local(), nodes=2, url=own_daemon.url) as compute,
        ThreadPoolExecutor(1) as pool,
    ):
        killing = pool.submit(keep_killing)
        results: list[int] = []
        number = 0
        while not killing.done() or number < CALLS:  # more calls where the kills take longer
            batch = range(number, number + 50)
            results += sky.map(leave_a_mark, batch, [str(marks)] * 50) >> compute
            number += 50
        finished.set()
        killing.result()
    assert kills == KILLS, f"seed {SEED}"
    assert results == [n * n for n in range(number)], f"seed {SEED}"
    runs = Counter({path.name: path.read_text().count("ran") for path in marks.iterdir()})
    assert len(runs) == number, f"seed {SEED}"
    twice = {name: count for name, count in runs.items() if count != 1}
    assert twice == {}, f"seed {SEED}"
    assert wait_gone(own_daemon.home, but=own_daemon.process.pid) == {}
    record(kills=kills, calls=number, ran_once=len(runs) - len(twice), lost=number - len(runs))


@sky.function
def die_like_this(number: int) -> None:
    """End the worker by a signal."""
    import os

    os.kill(os.getpid(), number)


@sky.function
def exit_like_this(code: int) -> None:
    """End the worker without a word."""
    import os

    os._exit(code)


@sky.function
def whoami() -> tuple[int, int]:
    """The worker's process and its agent's."""
    import os

    return os.getpid(), os.getppid()


@sky.function
def wait_for_ever(started: str) -> None:
    """Say that it runs, then never return."""
    import pathlib
    import time

    pathlib.Path(started).touch()
    while True:
        time.sleep(0.1)


@pytest.mark.real
def test_a_dead_worker_fails_its_call_with_the_cause_and_not_the_node(own_daemon: RunningDaemon) -> None:
    with sky.Compute(provider=sky.Local(), nodes=1, url=own_daemon.url) as compute:
        _, agent = whoami() >> compute
        with pytest.raises(sky.SkyError, match="SIGKILL"):
            die_like_this(signal.SIGKILL) >> compute
        with pytest.raises(sky.SkyError, match="7"):
            exit_like_this(7) >> compute
        _, same_agent = whoami() >> compute
        assert same_agent == agent


@pytest.mark.real
def test_a_killed_agent_makes_its_call_indeterminate_and_is_replaced(
    own_daemon: RunningDaemon, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    with sky.Compute(provider=sky.Local(), nodes=1, url=own_daemon.url) as compute:
        _, agent = whoami() >> compute
        future = wait_for_ever(str(started)) > compute
        until(started.exists, "it has begun", WAIT_S)
        killed_at = time.monotonic()
        os.kill(agent, signal.SIGKILL)
        with pytest.raises(sky.TaskIndeterminate):
            future.result(timeout=WAIT_S)
        assert time.monotonic() - killed_at < NOTICED_S
        _, other = whoami() >> compute
        assert other != agent
    assert wait_gone(own_daemon.home, but=own_daemon.process.pid) == {}
