"""``sky server``: one daemon per state folder, from the first start to the last stop."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real


@pytest.fixture
def own(sky: Any) -> Iterator[Any]:
    """The command of somebody whose daemons are stopped afterwards."""
    yield sky
    sky("server", "stop")


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except OSError:
        return False


def test_a_daemon_from_start_to_stop(own: Any) -> None:
    assert "no daemon runs" in own("server", "status").check(3).out
    assert own("server", "status", "-o", "json").check(3).json()["running"] is False
    started = own("server", "start", "--timeout", "60", "--port", "0", "-o", "json").check().json()
    assert started["running"] is True
    assert alive(started["pid"])
    assert (own.home.stat().st_mode & 0o777) == 0o700

    again = own("server", "start").check()
    assert again.out == f"runs already: {started['url']} (process {started['pid']})\n"
    refused = own("server", "start", "--port", "1", "--database", "other.db", "-o", "json").check(4)
    told = json.loads(refused.err)
    assert told["code"] == "already_running"
    assert "port 1 and database" in told["message"]
    own("server", "start", "--host", "localhost", "--port", "0").check()
    table = own("server", "status").check().out
    assert started["url"] in table
    assert own("compute", "list", SKY_URL=started["url"]).check().out == ""
    assert own("config", "validate").check().out.strip().endswith("daemon: ready")

    assert started["url"] in own("server", "stop").check().out
    assert not alive(started["pid"])
    own("server", "stop").check(3)
    assert "no daemon runs" in own("compute", "list").check(5).err
    assert own("server", "logs").check().out


def test_starts_in_parallel_end_in_one(own: Any) -> None:
    begun = [own.begin("server", "start", "--timeout", "60", "--port", "0", "-o", "json") for _ in range(4)]
    told = [process.communicate(timeout=100) for process in begun]
    assert [process.returncode for process in begun] == [0] * 4, told
    assert len({out for out, _ in told}) == 1


def test_creating_starts_a_daemon(own: Any) -> None:
    ended = own("compute", "create", "first", "--cpus", "1", "--no-wait").check()
    assert ended.out.startswith("cmp_")
    assert own("server", "status").check()
    own("compute", "delete", "first", "--yes").check()


def test_a_daemon_that_cannot_start_says_why(sky: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = sky("server", "start", "--port", str(port)).check(1)
    assert ended.err.startswith("error: daemon_start_failed: ")
    assert "hint: `sky server logs`" in ended.err
    assert len(ended.err.splitlines()) == 2
    sky("server", "status").check(3)


def test_a_crashed_daemon_is_noticed(own: Any, eventually: Callable[..., None]) -> None:
    pid = own("server", "start", "--timeout", "60", "--port", "0", "-o", "json").check().json()["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not alive(pid), "it is dead")
    assert "is gone" in own("server", "status").check(3).out
    own("compute", "list").check(5)
    assert own("server", "start", "--timeout", "60", "--port", "0").check().out.startswith("started: ")


def test_stop_touches_no_other_daemon(own: Any, tmp_path: Path, daemon: Any) -> None:
    own("server", "stop").check(3)
    ended = own("server", "stop", SKY_URL=daemon.url).check(2)
    assert "SKY_URL" in ended.err
    assert daemon.process.poll() is None


def test_in_the_foreground_until_it_is_asked_to_end(own: Any, eventually: Callable[..., None]) -> None:
    process = own.begin("server", "start", "--foreground", "--port", "0")
    try:
        eventually(lambda: own("server", "status").code == 0, "the daemon never answered")
        assert own("server", "status", "-o", "json").json()["pid"] == process.pid
        ended = own("server", "start", "--foreground").check(4)
        assert ended.err.startswith("error: already_running: ")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        own("server", "status").check(3)
    finally:
        process.kill()
        process.communicate()


def test_the_document_comes_from_the_daemon_or_from_here(own: Any) -> None:
    generated = own("openapi", "v1").check().json()
    assert "/v1/computes" in generated["paths"]
    own("server", "start", "--timeout", "60", "--port", "0").check()
    assert own("openapi", "v1").check().json()["paths"].keys() == generated["paths"].keys()
    assert own("openapi", "v1", "--offline").check().json() == generated
