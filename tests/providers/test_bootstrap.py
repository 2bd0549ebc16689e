"""The script that makes a node of a bare machine: what it fetches, checks, installs once, and says it lacks.

Decides: what somebody sees whose machine has a shell and little else. Never: lends a machine this computer's
programs but those that a test names. Follows: what is fetched is what a daemon gives, by a door that may give
something else or stop half-way; the agent that begins is a real one, which ends as it hears no daemon.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import DIES_WITH_US, STARTER, RunningDaemon, free_port

import sky
from sky.domain.offer import Offer
from sky.kit import agent_package
from sky.providers.base import AgentSetup, LaunchOrder
from sky.providers.bootstrap import FAILED, script

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]
WAIT_S = 100.0
TOKEN = "the-token-of-the-node"
SMALL = ("cat", "chmod", "cp", "mkdir", "mv", "rm", "setsid", "uname", "kill")
PACKAGE = f"/agent/v1/package/{agent_package.FILE_NAME}"
UV = f"/agent/v1/uv/{agent_package.installer_digest()[0]}"


@dataclass
class Door:
    """What a daemon gives to a new machine, at ``url``; ``instead``: what is given in its place."""

    url: str = ""
    asked: list[str] = field(default_factory=list[str])
    instead: dict[str, bytes] = field(default_factory=dict[str, bytes])
    stops_half_way: bool = False

    def given(self, path: str) -> bytes | None:
        uv = agent_package.installer(UV.rpartition("/")[2])
        assert uv is not None
        if path == UV:
            return self.instead.get(path) or uv.read_bytes()
        return self.instead.get(path) or (agent_package.wheel() if path == PACKAGE else None)


class Handler(BaseHTTPRequestHandler):
    door: Door

    def do_GET(self) -> None:
        content = self.door.given(self.path)
        known = (
            self.headers["Authorization"] == f"Bearer {TOKEN}" and self.headers["X-Sky-Node"] == "nod_bare"
        )
        if content is None or not known:
            self.send_error(404 if known else 401)
            return
        self.door.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.door.stops_half_way:
            self.wfile.write(content[: len(content) // 2])
            self.wfile.flush()
            self.connection.settimeout(WAIT_S)
            self.connection.recv(1)  # until the machine is gone
            return
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is said of a request."""


@pytest.fixture
def door() -> Iterator[Door]:
    one = Door()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OwnHandler", (Handler,), {"door": one}))
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    one.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield one
    server.shutdown()
    server.server_close()


@dataclass
class Machine:
    """A computer with a shell and the programs that it is given; ``has`` are all of its programs."""

    folder: Path
    has: tuple[str, ...] = (*SMALL, "wget", "sha256sum")

    def __post_init__(self) -> None:
        self.home = self.folder / "home"
        programs = self.folder / "programs"
        programs.mkdir(parents=True)
        self.home.mkdir()
        for name in self.has:
            (programs / name).symlink_to(shutil.which(name) or f"/nowhere/{name}")
        # Where uv finds the Python that it would download, and what it has downloaded before.
        pythons = self.folder / "pythons"
        python = pythons / f"cpython-{platform.python_version()}-linux-{platform.machine()}-gnu"
        python.mkdir(parents=True)
        for path in Path(sys.base_prefix).iterdir():
            (python / path.name).symlink_to(path)
        cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))
        told = {name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_"))}
        self.environment = {
            **told,
            "HOME": str(self.home),
            "PATH": str(programs),
            "UV_CACHE_DIR": cache,
            "UV_PYTHON_INSTALL_DIR": str(pythons),
            "UV_PYTHON_PREFERENCE": "only-managed",
        }

    @property
    def node(self) -> Path:
        return self.home / "node"

    @contextmanager
    def begun(self, url: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        """The script, as the machine's program; nothing of it is left."""
        offer = Offer("ofr_1", "prv_1", "bare", "bare", "bare", 1, 1.0)
        order = LaunchOrder("nod_bare", offer, "on_demand", AgentSetup(url, TOKEN), ttl_seconds=1)
        text = script(order, "$HOME/node")
        told = self.folder / "told"
        told.write_text(text)
        process = STARTER.submit(
            subprocess.Popen,
            [shutil.which(DIES_WITH_US[0]) or "", *DIES_WITH_US[1:], "/bin/sh", str(told)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**self.environment, **more},
            start_new_session=True,
        ).result()
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=WAIT_S)

    def run(self, url: str, **more: str) -> tuple[int, str]:
        """The code that it ends with, and what it has said."""
        with self.begun(url, **more) as process:
            said, _ = process.communicate(timeout=WAIT_S)
            return process.returncode, said


def until(done: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_bare_machine_becomes_a_node_and_is_installed_once(door: Door, tmp_path: Path) -> None:
    """Without Python and uv; cut off half-way through the package, and again while it is installed."""
    machine = Machine(tmp_path)
    door.stops_half_way = True
    with machine.begun(door.url):
        until(lambda: door.asked and any(machine.node.glob("*.whl.*")), "the package begins to come")
    door.stops_half_way = False
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # An index that says nothing, so that it is not through before it is cut off.
        index = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        with machine.begun(door.url, UV_DEFAULT_INDEX=index):
            until(lambda: any(machine.node.glob("venv.*/bin/python")), "it begins to be installed")
    left = {path.name for path in machine.node.iterdir()}
    assert "venv" not in left, "half of an environment is none"
    code, said = machine.run(door.url)
    assert code == 0, said
    assert "no daemon heard" in said, "it was the agent that ended, having heard nobody"
    assert door.asked == [PACKAGE, PACKAGE, UV], "what was whole is not fetched again"
    assert not [path for path in machine.node.iterdir() if path.name.rpartition(".")[2].isdigit()]
    made = (machine.node / "venv").stat().st_ino
    door.asked.clear()
    again, said = machine.run(door.url)
    assert again == 0, said
    assert "no daemon heard" in said
    assert door.asked == []
    assert (machine.node / "venv").stat().st_ino == made


@pytest.mark.parametrize("path", [PACKAGE, UV])
def test_what_is_not_the_daemon_s_is_neither_run_nor_installed(door: Door, tmp_path: Path, path: str) -> None:
    machine = Machine(tmp_path)
    other = b'#!/bin/sh\necho run >>"$HOME/ran"\n'
    door.instead[path] = other
    code, said = machine.run(door.url)
    assert code == FAILED, said
    last = said.splitlines()[-1]
    assert f"its SHA-256 is {hashlib.sha256(other).hexdigest()}, not" in last
    assert door.url in last
    assert not (machine.home / "ran").exists()
    assert not list(machine.node.glob("venv*"))
    assert not [one for one in machine.node.iterdir() if one.is_file() and one.read_bytes() == other]


def test_what_a_user_has_told_their_curl_is_nothing_to_the_script(door: Door, tmp_path: Path) -> None:
    machine = Machine(tmp_path, (*SMALL, "curl", "sha256sum"))
    (machine.home / ".curlrc").write_text("fail-with-body\nwrite-out = told\n")
    door.instead[PACKAGE] = b"not the agent"
    code, said = machine.run(door.url)
    assert code == FAILED
    assert "its SHA-256 is" in said, "it was fetched, and looked at"


@pytest.mark.parametrize(
    ("has", "more", "says"),
    [
        (
            ("wget", "sha256sum"),
            {},
            "the agent's package cannot be fetched from {url}: see that this machine reaches",
        ),
        (("sha256sum",), {}, "neither curl, wget nor python3 is there"),
    ],
)
def test_a_machine_that_reaches_no_daemon_says_so(
    tmp_path: Path, has: tuple[str, ...], more: dict[str, str], says: str
) -> None:
    machine = Machine(tmp_path, (*SMALL, *has))
    url = f"http://127.0.0.1:{free_port()}"
    code, said = machine.run(url, **more)
    assert code == FAILED
    assert says.format(url=url) in said


def test_a_machine_lacks_something_and_says_what(door: Door, tmp_path: Path) -> None:
    unchecked = Machine(tmp_path / "unchecked", (*SMALL, "wget"))
    code, said = unchecked.run(door.url)
    assert code == FAILED
    assert "neither sha256sum, shasum, openssl nor python3 is there to check the agent" in said
    alone = Machine(tmp_path / "alone")
    nowhere = {"UV_CACHE_DIR": str(tmp_path / "empty"), "UV_OFFLINE": "1"}
    code, said = alone.run(door.url, **nowhere)
    assert code == FAILED
    assert "that this machine reaches a package index" in said.splitlines()[-1]
    assert not list(alone.node.glob("venv*")), "nothing half-made is left"


@sky.function
def home_of_the_node() -> str:
    import os

    return os.environ["SKY_AGENT_HOME"]


def test_a_daemon_gives_what_the_script_names_to_its_nodes_alone(daemon: RunningDaemon) -> None:
    with sky.Compute(provider="local", url=daemon.url, cpus=1, quiet=True, delete_on_exit=True) as compute:
        home = Path(home_of_the_node() >> compute)
        token = (home / "token").read_text().strip()
        for path, sha256 in ((PACKAGE, agent_package.digest()), (UV, agent_package.installer_digest()[1])):
            told = {"Authorization": f"Bearer {token}", "X-Sky-Node": home.name}
            status, content = fetched(daemon, path, told)
            assert (status, hashlib.sha256(content).hexdigest()) == (200, sha256)
            assert fetched(daemon, path, told | {"Authorization": "Bearer another"})[0] == 401


def fetched(daemon: RunningDaemon, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=WAIT_S)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
