"""Finding, starting and stopping daemons: parallel starts, early deaths, and whose daemon is ended."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sky.client import calls, daemon
from sky.client.errors import DaemonStartFailed, DaemonStopFailed, DaemonUnreachable

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "state"
    monkeypatch.setenv("SKY_HOME", str(folder))
    monkeypatch.setenv("SKY_PORT", "0")
    monkeypatch.delenv("SKY_URL", raising=False)
    yield folder
    daemon.stop(folder)


def test_nothing_runs_where_nothing_was_started(home: Path) -> None:
    assert not daemon.status().running
    assert daemon.stop().pid is None
    with pytest.raises(DaemonUnreachable, match="sky server start"):
        daemon.connect(start_if_absent=False)
    assert not home.exists()


def test_a_daemon_is_started_found_again_and_stopped(home: Path) -> None:
    client = daemon.connect()
    assert client.send(calls.live()).live
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    found = daemon.start()
    assert (found.url, found.started) == (client.url, False)
    status = daemon.status()
    assert (status.running, status.url, status.pid) == (True, client.url, found.pid)
    assert daemon.stop().running
    after = daemon.status()
    assert (after.running, after.pid) == (False, None)


def test_starts_in_parallel_end_in_one(home: Path) -> None:
    script = "from sky.client import daemon; d = daemon.start(); print(d.pid, d.started)"
    command = [sys.executable, "-c", script]
    with ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(lambda _: subprocess.check_output(command, text=True, timeout=110), range(4)))
    pids = {line.split()[0] for line in outs}
    assert len(pids) == 1
    assert [line.split()[1] for line in outs].count("True") == 1


def test_a_daemon_that_dies_while_starting_is_noticed_at_once_with_its_log(home: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(DaemonStartFailed, match=r"(?s)code 2 while starting.*no-such-host") as raised:
        daemon.start(host="no-such-host")
    assert time.monotonic() - begun < 40, "it is noticed long before it would be given up"
    assert "server.log" in str(raised.value)


def test_a_stale_record_is_no_daemon_and_its_number_is_left_alone(home: Path) -> None:
    home.mkdir()
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = {"url": "http://127.0.0.1:9", "pid": bystander.pid, "release": "0"}
    (home / "daemon.json").write_text(json.dumps(record))
    status = daemon.status()
    assert (status.running, status.stale) == (False, True)
    daemon.stop()
    assert bystander.poll() is None
    assert not (home / "daemon.json").exists()
    bystander.communicate(b"\n", timeout=60)


def test_a_daemon_that_is_busy_is_waited_for_and_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = daemon.start()
    assert running.pid is not None
    monkeypatch.setattr(daemon, "LIVE_S", 0.2)
    os.kill(running.pid, signal.SIGSTOP)
    try:
        with pytest.raises(DaemonStartFailed, match=rf"runs \(process {running.pid}\), but did not answer"):
            daemon.start(timeout_s=0.5)
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(daemon.start)
            time.sleep(0.5)
            assert not starting.done()
            os.kill(running.pid, signal.SIGCONT)
            assert starting.result(daemon.START_S).pid == running.pid
        os.kill(running.pid, signal.SIGSTOP)
        client = daemon.connect(start_if_absent=False)
        os.kill(running.pid, signal.SIGCONT)
        assert client.send(calls.live()).live
    finally:
        os.kill(running.pid, signal.SIGCONT)


def test_only_the_daemon_of_this_folder_is_stopped(home: Path, daemon_of_session: Any) -> None:
    home.mkdir()
    record = {"url": daemon_of_session.url, "pid": daemon_of_session.process.pid, "release": "0"}
    (home / "daemon.json").write_text(json.dumps(record))
    with pytest.raises(DaemonStopFailed, match="not the daemon of"):
        daemon.stop()
    assert daemon_of_session.process.poll() is None
    (home / "daemon.json").unlink()


@pytest.fixture
def daemon_of_session(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("daemon")


def test_a_url_is_taken_as_it_is_and_never_started(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_URL", "http://127.0.0.1:9")
    client = daemon.connect()
    with pytest.raises(DaemonUnreachable, match=r"127\.0\.0\.1:9"):
        client.send(calls.live(), patience_s=0.1)
    assert not home.exists()


def test_a_token_is_sent_when_it_is_set(scripted: Any, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = scripted(say.answer(body=b'{"live": true}'))
    monkeypatch.setenv("SKY_URL", server.url)
    monkeypatch.setenv("SKY_TOKEN", "secret")
    daemon.connect().send(calls.live())
    assert server.asked[0].headers["authorization"] == "Bearer secret"


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DaemonStartFailed, match="state folder"):
        daemon.start(tmp_path / "file" / "below")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
