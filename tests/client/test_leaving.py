"""How a compute is left: normally, kept, by Ctrl-C once and twice, early, and under a dying daemon."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

import sky
from sky import errors
from sky.client import calls, opened
from sky.client.http import Http
from sky.wire import v1

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

GONE: tuple[str, ...] = ("deleting", "deleted")


@sky.function
def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@sky.function
def mark(folder: str, number: int) -> int:
    with open(f"{folder}/{number}", "a") as file:
        file.write("x")
    time.sleep(0.02)
    return number


def live_computes(url: str) -> set[str]:
    items = Http(url).send(calls.list_computes(limit=500)).items
    return {one.id for one in items if one.status.state not in GONE}


def state_of(daemon: Any, compute: str) -> str:
    """How the only task of a compute ended, once its node has said so."""

    def ended() -> str | None:
        (task,) = Http(daemon.url).send(calls.list_tasks(compute=compute)).items
        return task.state if task.state not in ("queued", "running") else None

    return until(ended, "the end of a call", 60) or ""


@pytest.fixture
def nothing_left(daemon: Any) -> Iterator[None]:
    """Whatever the test does, no compute more than before is there afterwards."""
    before = live_computes(daemon.url)
    yield
    assert live_computes(daemon.url) <= before


def test_an_address_where_nobody_answers_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "FOUND_S", 0.3)
    monkeypatch.setenv("SKY_URL", "http://127.0.0.1:9")
    with pytest.raises(errors.DaemonUnreachable, match=r"127\.0\.0\.1:9 .*within 0"):
        sky.Compute(quiet=True).open()


def test_leaving_gives_every_machine_back(daemon: Any, nothing_left: None) -> None:
    with sky.Compute(url=daemon.url, quiet=True) as compute:
        name = compute.id
        left = nap(60) > compute
    assert Http(daemon.url).send(calls.get_compute(name)).status.state == "deleted"
    assert left.cancelled()
    with pytest.raises(sky.NotEntered):
        nap(1) >> compute


def test_an_exception_in_the_block_gives_them_back_too(daemon: Any, nothing_left: None) -> None:
    with pytest.raises(ZeroDivisionError), sky.Compute(url=daemon.url, quiet=True):
        raise ZeroDivisionError


async def test_an_event_loop_can_enter_and_leave(daemon: Any, nothing_left: None) -> None:
    async with sky.Compute(url=daemon.url, quiet=True) as compute:
        assert await (nap(0.01) > compute) == 0.01


def test_a_named_compute_is_kept_and_attached_to(daemon: Any) -> None:
    with sky.Compute(name="kept", url=daemon.url, quiet=True) as first:
        name = first.id
        running = nap(60) > first
    assert running.cancelled()
    with sky.Compute(name="kept", url=daemon.url, delete_on_exit=True, quiet=True) as second:
        assert second.id == name
        assert (nap(0.01) >> second) == 0.01
        with pytest.raises(sky.LeaseHeld, match="held by"):
            sky.Compute(name="kept", url=daemon.url, quiet=True).open()
    assert Http(daemon.url).send(calls.get_compute(name)).status.state == "deleted"


def pass_on(daemon: Any, asked: Any, connection: socket.socket) -> bool:
    """To the daemon and back."""
    headers = asked.headers | {"connection": "close", "host": f"127.0.0.1:{daemon.port}"}
    lines = [f"{asked.method} {asked.target} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    with socket.create_connection(("127.0.0.1", daemon.port)) as onward:
        onward.sendall("\r\n".join(lines).encode() + asked.body)
        while piece := onward.recv(65536):
            connection.sendall(piece)
    return False


def test_a_call_that_is_on_its_way_out_is_cancelled_too(daemon: Any, scripted: Any) -> None:
    arrived, looked, awaited = threading.Event(), threading.Event(), threading.Event()

    def relay(asked: Any, connection: socket.socket) -> bool:
        """A call is slow enough to be overtaken by a look for calls."""
        if "/v1/tasks?" in asked.target:
            looked.set()
        if asked.method == "POST" and asked.target == "/v1/tasks":
            arrived.set()
            if not looked.wait(1):
                awaited.set()
        return pass_on(daemon, asked, connection)

    with sky.Compute(url=scripted(relay).url, name="outgoing", quiet=True) as compute:
        name = compute.id
        left = nap(60) > compute
        assert arrived.wait(30), "it is on its way, and not only in line"
    assert left.cancelled()
    assert awaited.is_set()
    (task,) = Http(daemon.url).send(calls.list_tasks(compute=name)).items
    with sky.Compute(url=daemon.url, name="outgoing", delete_on_exit=True, quiet=True) as compute:
        assert (nap(0.01) >> compute) == 0.01
        assert Http(daemon.url).send(calls.get_task(task.id)).state == "cancelled"


def test_a_cell_that_opens_may_be_run_again(daemon: Any) -> None:
    earlier = sky.Compute(name="cell", url=daemon.url, quiet=True).open()
    name = earlier.id
    machines = sky.Compute(name="cell", url=daemon.url, delete_on_exit=True, quiet=True).open()
    try:
        assert machines.id == name
        assert (nap(0.01) >> machines) == 0.01
        with pytest.raises(sky.NotEntered):
            nap(0.01) >> earlier
        under_way = nap(60) > machines
        with pytest.raises(sky.LeaseHeld, match="held by this program"):
            sky.Compute(name="cell", url=daemon.url, quiet=True).open()
        assert not under_way.done()
    finally:
        machines.close()
    assert Http(daemon.url).send(calls.get_compute(name)).status.state == "deleted"


ENDS = {"it ends": "pass", "it is killed": "os.kill(os.getpid(), signal.SIGKILL)"}


@pytest.mark.parametrize("end", ENDS)
def test_a_kernel_that_never_closed_it_has_its_machines_again(
    daemon: Any, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    cell = f"""
        import os, signal, sky

        machines = sky.Compute(name="kernel", url={daemon.url!r}, quiet=True).open()
        print(machines.id, flush=True)
        {ENDS[end]}
    """
    kernel = [sys.executable, "-c", textwrap.dedent(cell)]
    before = subprocess.run(kernel, capture_output=True, text=True, check=False, timeout=100)
    http, said = Http(daemon.url), [""]
    holder = http.send(calls.get_compute("kernel")).lease.owner

    def waits() -> bool:
        said[0] += capsys.readouterr().err
        return "its holder on this computer is gone" in said[0]

    again = sky.Compute(name="kernel", url=daemon.url, delete_on_exit=True)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(again.open)
        if end == "it is killed":
            until(waits, "it is said that the holder is gone", 60)
            http.send(calls.release_lease("kernel", holder))  # which its lapse does, a minute after
        opening.result(100)
    with contextlib.closing(again):
        assert again.id == before.stdout.strip(), before.stderr
    assert waits() == (end == "it is killed")


def test_what_a_compute_of_that_name_does_not_have_is_told(
    daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with sky.Compute(name="small", url=daemon.url):
        pass
    with sky.Compute(name="small", url=daemon.url):
        pass
    assert "otherwise" not in capsys.readouterr().err
    wanted = sky.Image(pip=["humanize"])
    with sky.Compute(name="small", url=daemon.url, nodes=(1, 3), image=wanted, delete_on_exit=True):
        pass
    told = "small was made otherwise than asked for here: its nodes are 1, not 1 to 3 and its image does not"
    assert f"sky: {told} name humanize\n" in capsys.readouterr().err


def test_what_nobody_can_provide_fails_at_once_with_the_reason(daemon: Any, nothing_left: None) -> None:
    begun = time.monotonic()
    with pytest.raises(sky.ComputeFailed) as raised:
        sky.Compute(cpus=4000, url=daemon.url, quiet=True).open()
    assert time.monotonic() - begun < 120, "it is not waited for as machines are that come"
    assert len(str(raised.value)) > 40, str(raised.value)


def test_a_compute_that_failed_before_is_replaced_under_its_name(
    daemon: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    http = Http(daemon.url)
    spec = v1.ComputeSpec(
        specs=(v1.Spec(provider=v1.ProviderRef(kind="local"), cpus=4000),), nodes=v1.NodeBounds(desired=1)
    )
    failed = http.send(calls.create_compute(v1.ComputeCreate(spec=spec, name="again")))
    deadline = time.monotonic() + 60
    while http.send(calls.get_compute(failed.id)).status.state != "failed":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with sky.Compute(name="again", delete_on_exit=True, url=daemon.url) as compute:
        assert compute.id != failed.id
        assert (nap(0.01) >> compute) == 0.01
    assert f"again, which is {failed.id}, had failed" in capsys.readouterr().err
    assert http.send(calls.get_compute(failed.id)).status.state == "deleted"


def test_what_is_wrong_is_refused_with_its_field(daemon: Any, nothing_left: None) -> None:
    with pytest.raises(sky.InvalidRequest, match="nodes") as raised:
        sky.Compute(nodes=(5, 2), url=daemon.url, quiet=True).open()
    assert raised.value.details["field"].startswith("spec.nodes")
    with pytest.raises(sky.CapabilityMismatch, match=r"3\.99"):
        sky.Compute(image=sky.Image(python="3.99"), url=daemon.url).open()


def test_a_declared_function_brings_its_compute(daemon: Any, nothing_left: None) -> None:
    @sky.app(url=daemon.url, quiet=True)
    def twice(number: int) -> int:
        return number * 2

    assert twice.run(4) == 8
    assert twice.local(4) == 8
    with twice.compute(nodes=2) as compute:
        assert twice.function(1) @ compute == [2, 2]


# ── Ctrl-C ──────────────────────────────────────────────────────────────────────────────────────

SCRIPT = """
    import sys, time
    import sky

    @sky.function
    def work(folder):
        open(f"{folder}/began", "w").close()
        time.sleep(120)

    compute = sky.Compute(url=sys.argv[1])
    print("asked", flush=True)
    with compute:
        print(compute.id, flush=True)
        work(sys.argv[2]) >> compute if sys.argv[3:] == [] else None
        print("leaving", flush=True)
"""


def start_script(daemon: Any, folder: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), daemon.url, str(folder), *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            raise AssertionError(process.communicate())
        time.sleep(0.02)


def test_ctrl_c_cancels_and_gives_back(daemon: Any, tmp_path: Path, nothing_left: None) -> None:
    script = start_script(daemon, tmp_path)
    wait_for(tmp_path / "began", script)
    script.send_signal(signal.SIGINT)
    out, err = script.communicate(timeout=100)
    assert script.returncode == -signal.SIGINT
    assert err.endswith("KeyboardInterrupt\n")
    assert re.findall('File "(.*)", line', err) == ["<string>"], "the way through the package is not shown"
    name = out.split()[1]
    assert Http(daemon.url).send(calls.get_compute(name)).status.state == "deleted"
    assert state_of(daemon, name) == "cancelled"


INTERRUPTED = """
    import sys, time
    import sky

    @sky.function
    def work():
        time.sleep(60)

    with sky.Compute(url=sys.argv[1], name="between", quiet=True) as compute:
        print(compute.id, flush=True)
        work() >> compute
"""


@pytest.mark.parametrize("by", ["a program", "a command"])
def test_ctrl_c_between_a_call_and_its_answer_leaves_nothing_running(
    daemon: Any, scripted: Any, tmp_path: Path, by: str
) -> None:
    stored, arrived, left, passed = (threading.Event() for _ in range(4))

    def relay(asked: Any, connection: socket.socket) -> bool:
        """The call arrives after whoever sent it has gone."""
        if asked.target.startswith("/v1/functions/"):
            stored.set()
        if (asked.method, asked.target) == ("POST", "/v1/tasks") and stored.is_set() and not arrived.is_set():
            arrived.set()
            assert left.wait(60)
            with contextlib.suppress(OSError):  # nobody is there to be answered
                pass_on(daemon, asked, connection)
            passed.set()
            return False
        return pass_on(daemon, asked, connection)

    url = scripted(relay).url
    with sky.Compute(url=daemon.url, name="between", quiet=True) as compute:
        name = compute.id
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(INTERRUPTED), encoding="utf-8")
    command = [sys.executable, file, url]
    if by == "a command":
        file.write_text(file.read_text(encoding="utf-8").partition("with ")[0], encoding="utf-8")
        command = [sys.executable, "-m", "sky.cli.main", "run", "--compute", "between", f"{file}:work"]
    script = subprocess.Popen(
        command, env={**os.environ, "SKY_URL": url}, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert arrived.wait(60), script.communicate()
    script.send_signal(signal.SIGINT)
    script.communicate(timeout=100)
    left.set()
    assert passed.wait(60)
    assert state_of(daemon, name) == "cancelled"
    Http(daemon.url).send(calls.delete_compute(name, None))


def test_ctrl_c_while_the_daemon_is_away_says_what_may_run(
    daemon: Any, scripted: Any, tmp_path: Path
) -> None:
    stored, arrived = threading.Event(), threading.Event()

    def relay(asked: Any, connection: socket.socket) -> bool:
        """Nobody answers any more once the call has come."""
        if asked.target.startswith("/v1/functions/"):
            stored.set()
        if (asked.method, asked.target) == ("POST", "/v1/tasks") and stored.is_set():
            arrived.set()
        return False if arrived.is_set() else pass_on(daemon, asked, connection)

    with sky.Compute(url=daemon.url, name="unheard", quiet=True) as compute:
        name = compute.id
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(INTERRUPTED).partition("with ")[0], encoding="utf-8")
    script = subprocess.Popen(
        [sys.executable, "-m", "sky.cli.main", "run", "--compute", "unheard", f"{file}:work"],
        env={**os.environ, "SKY_URL": scripted(relay).url},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert arrived.wait(60), script.communicate()
    script.send_signal(signal.SIGINT)
    _, err = script.communicate(timeout=100)
    assert err == f"it may run all the same: `sky task list --compute {name}` shows it\n"
    Http(daemon.url).send(calls.delete_compute(name, None))


def test_ctrl_c_twice_leaves_at_once_and_says_what_is_left(
    daemon: Any, scripted: Any, tmp_path: Path
) -> None:
    asked_to_end, over = threading.Event(), threading.Event()

    def relay(asked: Any, connection: socket.socket) -> bool:
        """Whoever would end a call is not answered."""
        if asked.method == "DELETE" and asked.target.startswith("/v1/tasks/"):
            asked_to_end.set()
            over.wait(100)
            return False
        return pass_on(daemon, asked, connection)

    script = start_script(scripted(relay), tmp_path)
    try:
        wait_for(tmp_path / "began", script)
        script.send_signal(signal.SIGINT)
        assert asked_to_end.wait(60), script.communicate()
        script.send_signal(signal.SIGINT)
        out, err = script.communicate(timeout=100)
    finally:
        over.set()
    name = out.split()[1]
    assert f"sky compute delete {name}" in err
    assert err.endswith("KeyboardInterrupt\n")
    assert "Traceback" not in err
    Http(daemon.url).send(calls.delete_compute(name, None))


def test_ctrl_c_once_while_leaving_does_not_stop_that(
    daemon: Any, tmp_path: Path, nothing_left: None
) -> None:
    script = start_script(daemon, tmp_path, "no work")
    assert script.stdout is not None
    name = [script.stdout.readline() for _ in range(3)][1].strip()
    script.send_signal(signal.SIGINT)
    script.communicate(timeout=100)
    assert Http(daemon.url).send(calls.get_compute(name)).status.state == "deleted"


@pytest.mark.parametrize("moment_s", [0.0, 0.1, 0.5])
def test_ctrl_c_before_it_is_ready_leaves_nothing(
    daemon: Any, tmp_path: Path, nothing_left: None, moment_s: float
) -> None:
    script = start_script(daemon, tmp_path)
    assert script.stdout is not None
    assert script.stdout.readline() == "asked\n"
    threading.Event().wait(moment_s)
    script.send_signal(signal.SIGINT)
    _, err = script.communicate(timeout=100)
    assert "KeyboardInterrupt" in err


# ── a daemon that dies ──────────────────────────────────────────────────────────────────────────


def test_calls_survive_the_daemons_death_and_run_once(
    daemon: Any, tmp_path: Path, nothing_left: None
) -> None:
    with sky.Compute(nodes=1, concurrency=2, url=daemon.url, quiet=True) as compute:
        blocking = threading.Thread(target=lambda: results.append(nap(3.0) >> compute))
        results: list[float] = []
        blocking.start()
        futures = [mark(str(tmp_path), number) > compute for number in range(100)]
        for _ in range(2):
            time.sleep(0.4)
            daemon.kill()
            time.sleep(0.3)
            daemon.start()
        assert [future.result(60) for future in futures] == list(range(100))
        assert sky.map(mark, [str(tmp_path)] * 20, range(200, 220)) >> compute == list(range(200, 220))
        blocking.join(60)
        assert results == [3.0]
    assert {path.read_text() for path in tmp_path.iterdir()} == {"x"}
    assert len(list(tmp_path.iterdir())) == 120
