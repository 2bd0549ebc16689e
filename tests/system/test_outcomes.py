"""Every way a call can end without a result, on a real daemon and real agents: state, events, error."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon

import sky
from sky.client import calls
from sky.client.errors import ApiError
from sky.client.http import Http
from sky.client.settling import Settler

pytestmark = pytest.mark.real
WAIT_S = 180.0


@sky.function
def whoami() -> tuple[int, int]:
    """The worker's process and its agent's."""
    import os

    return os.getpid(), os.getppid()


@sky.function
def wait(folder: str, seconds: float = 600.0) -> str:
    """Say that it runs (once more for every run), wait, and say how it was left."""
    import os
    import pathlib
    import time

    place = pathlib.Path(folder)
    with open(place / "runs", "a") as file:
        file.write(f"{os.getpid()}\n")
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (place / "go").exists():
            time.sleep(0.02)
    finally:
        (place / "left").touch()
    return "done"


@sky.function
def stubborn(folder: str) -> None:
    """Start a child, and do not end by SIGTERM; neither does the child."""
    import pathlib
    import signal
    import subprocess
    import time

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
    (pathlib.Path(folder) / "runs").write_text(f"{child.pid}\n")
    while True:
        time.sleep(1)


@sky.function
def die(how: str) -> None:
    """End the worker."""
    import os
    import resource
    import signal

    if how == "memory":
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        bytearray(2**31)
    elif how == "exit":
        os._exit(137)
    else:
        os.kill(os.getpid(), signal.Signals[how])


@pytest.fixture(scope="module")
def compute(daemon: RunningDaemon) -> Iterator[sky.Compute]:
    with sky.Compute(url=daemon.url, quiet=True) as compute:
        yield compute


def eventually(what: Callable[[], Any], seconds: float = WAIT_S) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)
    return found


def began(folder: Path, times: int = 1) -> list[int]:
    """The processes that ran it, once it has begun so often."""
    runs = folder / "runs"
    eventually(lambda: runs.exists() and runs.read_text().count("\n") >= times)
    return [int(line) for line in runs.read_text().split()]


def told(http: Http, task: str) -> tuple[str, list[str]]:
    """The state of a task, and of each of its attempts."""
    found = http.send(calls.get_task(task))
    return found.state, [one.state for one in sorted(found.executions, key=lambda one: one.ordinal)]


def runs(pid: int) -> bool:
    """Whether a process is there, and not only its entry."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def events_of(http: Http, task: str) -> list[str]:
    """The events of a task so far, by name."""
    with http.open(calls.events(task=task, after=0, follow=False)) as stream:
        lines = b"".join(stream.pieces()).decode().splitlines()
    mark = "event: task."
    return [line.removeprefix(mark) for line in lines if line.startswith(mark)]


def sent(future: sky.Future[Any]) -> str:
    """The task of a call, once the daemon has it."""
    return eventually(lambda: future.task)


# ── cancelled, timed out ────────────────────────────────────────────────────────────────────────


def test_a_call_that_waits_is_cancelled_at_once_and_never_runs(compute: sky.Compute, tmp_path: Path) -> None:
    running, waiting = tmp_path / "running", tmp_path / "waiting"
    running.mkdir()
    waiting.mkdir()
    first = wait(str(running)) > compute
    began(running)
    second = wait(str(waiting)) > compute
    task = sent(second)
    assert second.cancel()
    eventually(second.cancelled)
    (running / "go").touch()
    assert first.result(WAIT_S) == "done"
    assert told(compute.http, task) == ("cancelled", ["cancelled"])
    assert not (waiting / "runs").exists()
    assert [name for name in events_of(compute.http, task) if name != "started"] == ["queued", "cancelled"]
    with pytest.raises(sky.TaskCancelled):
        raise_as_awaited(compute, task)


def raise_as_awaited(compute: sky.Compute, task: str) -> None:
    """Raise what somebody is told who waits for this task."""
    settled = Settler(compute.http).fetch(task, 10)
    assert settled is not None
    settled.unwrap()


def test_a_running_call_is_cancelled_once_its_processes_are_gone(
    compute: sky.Compute, tmp_path: Path
) -> None:
    _, node = whoami() >> compute
    future = stubborn(str(tmp_path)) > compute
    (child,) = began(tmp_path)
    task = sent(future)
    eventually(lambda: told(compute.http, task) == ("running", ["started"]))
    os.kill(node, signal.SIGSTOP)  # or it might be over before anybody has looked
    try:
        assert future.cancel()
        assert not future.cancelled()
        assert told(compute.http, task) == ("running", ["cancel_requested"])
        assert runs(child)
    finally:
        os.kill(node, signal.SIGCONT)
    eventually(future.cancelled)
    assert not runs(child)
    assert told(compute.http, task) == ("cancelled", ["cancelled"])
    assert events_of(compute.http, task) == ["queued", "started", "cancelled"]


def test_a_deadline_holds_while_the_daemon_is_away(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    with sky.Compute(url=own_daemon.url, quiet=True) as compute:
        whoami() >> compute
        future = wait.options(timeout=3)(str(tmp_path)) > compute
        began(tmp_path)
        own_daemon.kill()
        eventually((tmp_path / "left").exists)
        own_daemon.start()
        with pytest.raises(sky.TaskTimedOut, match="its time of"):
            future.result(WAIT_S)
        assert told(compute.http, future.task) == ("timed_out", ["timed_out"])
        assert events_of(compute.http, future.task) == ["queued", "started", "timed_out"]


# ── workers that die ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("exit", sky.TaskFailed, "exited with code 137"),
        ("SIGKILL", sky.TaskFailed, "SIGKILL, probably because the machine ran out of memory"),
        ("SIGSEGV", sky.TaskFailed, "SIGSEGV"),
        ("memory", MemoryError, None),
    ],
)
def test_a_worker_that_dies_fails_its_call_and_nothing_else(
    compute: sky.Compute, how: str, kind: type[Exception], words: str | None
) -> None:
    _, before = whoami() >> compute
    future = die(how) > compute
    with pytest.raises(kind, match=words):
        future.result(WAIT_S)
    assert told(compute.http, future.task) == ("failed", ["failed"])
    assert events_of(compute.http, future.task) == ["queued", "started", "failed"]
    assert (whoami() >> compute)[1] == before


# ── nodes that disappear ────────────────────────────────────────────────────────────────────────


def test_a_node_that_is_silent_for_a_while_goes_on(compute: sky.Compute, tmp_path: Path) -> None:
    _, node = whoami() >> compute
    future = wait(str(tmp_path)) > compute
    began(tmp_path)
    os.kill(node, signal.SIGSTOP)
    try:
        (tmp_path / "go").touch()
        eventually((tmp_path / "left").exists)
        assert not future.done()
    finally:
        os.kill(node, signal.SIGCONT)
    assert future.result(WAIT_S) == "done"
    assert told(compute.http, future.task)[1] == ["succeeded"]
    assert (whoami() >> compute)[1] == node


def test_a_call_on_a_lost_node_is_run_again_only_by_who_accepts_that(
    compute: sky.Compute, tmp_path: Path
) -> None:
    _, node = whoami() >> compute
    future = wait(str(tmp_path)) > compute
    began(tmp_path)
    os.kill(node, signal.SIGKILL)
    with pytest.raises(sky.TaskIndeterminate, match="lost after it may have begun"):
        future.result(WAIT_S)
    task, http = future.task, compute.http
    assert told(http, task) == ("indeterminate", ["indeterminate"])
    with pytest.raises(sky.DuplicationNotAcknowledged, match="acknowledge_duplication"):
        http.send(calls.retry_task(task))
    assert told(http, task)[0] == "indeterminate"
    (tmp_path / "go").touch()
    http.send(calls.retry_task(task, acknowledge_duplication=True))
    eventually(lambda: told(http, task)[0] == "succeeded")
    assert told(http, task)[1] == ["indeterminate", "succeeded"]
    assert len(began(tmp_path)) == 2
    seen = events_of(http, task)
    assert seen == ["queued", "started", "indeterminate", "queued", "started", "succeeded"]
    with pytest.raises(ApiError, match="succeeded") as refused:
        http.send(calls.retry_task(task, acknowledge_duplication=True))
    assert refused.value.status == 409


def test_an_ambiguous_retry_that_was_allowed_is_made(compute: sky.Compute, tmp_path: Path) -> None:
    _, node = whoami() >> compute
    future = wait.options(retry=sky.Retry(ambiguous_retries=1))(str(tmp_path)) > compute
    began(tmp_path)
    os.kill(node, signal.SIGKILL)
    began(tmp_path, times=2)
    (tmp_path / "go").touch()
    assert future.result(WAIT_S) == "done"
    assert told(compute.http, future.task)[1] == ["indeterminate", "succeeded"]
    assert "indeterminate" not in events_of(compute.http, future.task)


def test_a_node_that_hears_of_no_daemon_ends_itself_and_what_it_runs(
    own_daemon: RunningDaemon, tmp_path: Path
) -> None:
    with sky.Compute(url=own_daemon.url, ttl=3, quiet=True) as compute:
        _, node = whoami() >> compute
        future = wait(str(tmp_path)) > compute
        (worker,) = began(tmp_path)
        eventually(lambda: told(compute.http, sent(future)) == ("running", ["started"]))
        own_daemon.kill()  # and with it whoever could rule on the call
        eventually(lambda: not runs(node))
        assert not runs(worker), "before anybody can take the node for lost, nothing of it runs"
        own_daemon.start()
        with pytest.raises(sky.TaskIndeterminate):
            future.result(WAIT_S)
    assert len(began(tmp_path)) == 1
