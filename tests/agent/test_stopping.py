"""Cancels and deadlines: certain before a call began, confirmed when it really ended."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest


def at_work() -> None:
    """Works for a minute, and can be interrupted in a thread too."""
    for _ in range(6000):
        time.sleep(0.01)


def occupy(node: Any, until: Any, slots: int = 2) -> list[str]:
    """Fill the slots of a node with calls that are known to have begun."""
    executions = [node.send(at_work) for _ in range(slots)]
    until(lambda: {began.execution for began in node.daemon.started} >= set(executions), "calls that run")
    return executions


def test_a_call_that_has_not_begun_is_cancelled_with_certainty(
    either: Any, until: Any, tmp_path: Path
) -> None:
    running = occupy(either, until)
    waiting = [either.item(lambda path: Path(path).touch(), str(tmp_path / "ran")) for _ in range(3)]
    executions = either.send_all(waiting)
    either.cancel(*executions)
    for execution in executions:
        outcome = either.outcome(execution)
        assert (outcome.state, outcome.error.code) == ("cancelled", "cancelled")
        assert "before it began" in outcome.error.message
    assert not set(running) & set(either.daemon.outcomes), "nothing was waited for"
    either.cancel(*running)
    assert [either.outcome(execution).state for execution in running] == ["cancelled", "cancelled"]
    assert not (tmp_path / "ran").exists()


def test_a_cancel_that_overtakes_its_work_holds(node: Any, tmp_path: Path) -> None:
    item = node.item(lambda path: Path(path).touch(), str(tmp_path / "ran"))
    node.cancel(item.execution)
    assert node.outcome(item.execution).state == "cancelled"
    node.send_all([item])
    assert node.value(lambda: 1) == 1
    assert not (tmp_path / "ran").exists()


def alive(pid: int) -> bool:
    """Whether a process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def unwinding(path: str) -> None:
    """Runs until it is stopped, and leaves a mark in ``finally``."""
    try:
        Path(path + ".begun").touch()
        while True:
            time.sleep(0.01)
    finally:
        Path(path + ".unwound").touch()


async def unwinding_async(path: str) -> None:
    """The same as a coroutine."""
    try:
        Path(path + ".begun").touch()
        await asyncio.sleep(60)
    finally:
        Path(path + ".unwound").touch()


@pytest.mark.parametrize("function", [unwinding, unwinding_async])
def test_a_running_call_is_cancelled_and_unwinds(
    either: Any, until: Any, tmp_path: Path, function: Any
) -> None:
    execution = either.send(function, str(tmp_path / "call"))
    until((tmp_path / "call.begun").exists, "a call that runs")
    either.cancel(execution)
    outcome = either.outcome(execution)
    assert (outcome.state, outcome.error.code) == ("cancelled", "cancelled")
    assert "while it ran" in outcome.error.message
    assert (tmp_path / "call.unwound").exists()
    assert either.value(lambda: 1) == 1


def test_what_a_cancelled_call_started_ends_with_it(node: Any, until: Any, tmp_path: Path) -> None:
    def spawning(path: str) -> None:
        process = subprocess.Popen(["sleep", "300"])
        Path(path).write_text(str(process.pid))
        process.wait()

    execution = node.send(spawning, str(tmp_path / "pid"))
    pid = int(until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "a subprocess"))
    node.cancel(execution)
    assert node.outcome(execution).state == "cancelled"
    until(lambda: not alive(pid), "the end of the subprocess")


def test_a_call_that_swallows_the_interruption_is_cancelled_all_the_same(
    either: Any, until: Any, tmp_path: Path
) -> None:
    def swallowing(path: str) -> str:
        Path(path).touch()
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            return "nothing happened"

    execution = either.send(swallowing, str(tmp_path / "begun"))
    until((tmp_path / "begun").exists, "a call that runs")
    either.cancel(execution)
    outcome = either.outcome(execution)
    assert (outcome.state, outcome.result) == ("cancelled", None)


def test_other_threads_go_on_when_one_is_cancelled(threaded: Any, until: Any) -> None:
    kept, dropped = threaded.send(time.sleep, 0.8), threaded.send(unwinding, "/dev/null/x")
    del dropped
    loop = threaded.send(lambda: [time.sleep(0.01) for _ in range(6000)])
    until(lambda: loop in {began.execution for began in threaded.daemon.started}, "a call that runs")
    threaded.cancel(loop)
    assert threaded.outcome(loop).state == "cancelled"
    assert threaded.outcome(kept).state == "succeeded"


def held(path: str) -> None:
    """Runs until a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)


def stubborn(path: str) -> None:
    """A call that ignores the signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(path).touch()
    time.sleep(600)  # longer than anybody waits for an outcome


def test_what_does_not_let_go_is_killed_after_its_grace(
    node: Any, node_of: Any, until: Any, tmp_path: Path
) -> None:
    threaded = node_of(worker={"executor": "thread", "concurrency": 2}).start()
    ignoring = node.send(stubborn, str(tmp_path / "begun"))
    until((tmp_path / "begun").exists, "a call that ignores the signal")
    go = tmp_path / "go"
    stuck, other = threaded.send(time.sleep, 600), threaded.send(held, str(go))
    until(lambda: len(threaded.daemon.started) == 2, "calls that run")
    began = time.monotonic()
    node.cancel(ignoring)
    threaded.cancel(stuck)
    assert node.outcome(ignoring).state == "cancelled"
    assert time.monotonic() - began > 4.5
    assert node.value(lambda: 1) == 1
    until(lambda: time.monotonic() - began > 10.3, "the grace of threads")
    assert stuck not in threaded.daemon.outcomes
    assert threaded.value(lambda: "a new process") == "a new process"
    go.touch()
    assert threaded.outcome(other).state == "succeeded"
    assert threaded.outcome(stuck).state == "cancelled"


def test_a_deadline_ends_a_running_call(either: Any, tmp_path: Path) -> None:
    outcome = either.run(unwinding, str(tmp_path / "call"), timeout_s=0.3)
    assert (outcome.state, outcome.error.code) == ("timed_out", "timed_out")
    assert "0.3 s" in outcome.error.message


def test_a_deadline_ends_a_waiting_call_before_it_begins(either: Any, until: Any, tmp_path: Path) -> None:
    running = occupy(either, until)
    outcome = either.run(lambda path: Path(path).touch(), str(tmp_path / "ran"), timeout_s=0.2)
    assert outcome.state == "timed_out"
    assert "before it began" in outcome.error.message
    assert not set(running) & set(either.daemon.outcomes), "nothing was waited for"
    either.cancel(*running)
    for execution in running:
        either.outcome(execution)
    assert not (tmp_path / "ran").exists()


def test_a_call_within_its_deadline_is_left_alone(either: Any) -> None:
    assert either.value(lambda: "in time", timeout_s=60.0) == "in time"


def test_cancelling_what_has_ended_changes_nothing(either: Any) -> None:
    execution = either.send(lambda: 1)
    assert either.outcome(execution).state == "succeeded"
    either.cancel(execution)
    assert either.value(lambda: 2) == 2
    assert either.daemon.outcomes_told.count(execution) == 1


def test_cancels_and_ends_at_the_same_moment_never_hit_another_call(either: Any, unpack: Any) -> None:
    for turn in range(30):
        first = either.send(lambda: time.sleep(0.001))
        either.cancel(first)
        assert either.outcome(first).state in {"succeeded", "cancelled"}
        second = either.run(lambda number: number, turn)
        assert unpack(second.result) == turn
