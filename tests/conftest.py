"""One real daemon for the tests of a session, in a state folder and on a port of its own.

Decides: how a test gets a daemon, and that nothing of it is left when the session ends; and that what is
started here keeps what it compiled.
Never: touches a daemon that it did not start.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import forked
from tests.ports import free_port

# Some shells forbid it: then each of some thousand processes would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
forked.started_with()
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A job that a shell put into the background is begun so, and so would be all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes says how much else this computer has to do.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

HERE = Path(__file__).parent
SOON_OVER = {"agent", "api", "domain", "fuzz", "kit", "plan", "proving", "reconcile", "server", "store"}
"""Folders with no file that takes long."""
LONGEST = {"test_pages.py"}
"""The file that takes as long as any two others."""
DIES_WITH_US, STARTER = forked.DIES_WITH_US, forked.STARTER
START_S = 60.0
STOP_S = 30.0


@dataclass
class RunningDaemon:
    """A daemon at ``url`` with its state in ``home``; ``process`` is the one that runs now.

    ``executed``: it is one for which its command line matters.
    """

    home: Path
    port: int
    environment: dict[str, str] = field(default_factory=dict)
    executed: bool = False
    process: forked.Forked | subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        if os.environ.get("SKY_TESTS_DATABASE") == "postgresql":
            databases = importlib.import_module("tests.databases")  # which imports this module
            self.environment = {"SKY_DATABASE": databases.server().empty(), **self.environment}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it at its port and wait until it answers."""
        arguments = ["--home", str(self.home), "--port", str(self.port)]
        with open(self.home / "server.log", "ab") as log:
            self.process = forked.start(
                "sky.server.main",
                arguments,
                out=log.fileno(),
                err=log.fileno(),
                environment={**os.environ, **self.environment},
                executed=self.executed,
            )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.home / "server.log").read_text()[-4000:])
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self) -> None:
        """Ask it to end, and make sure that it and its nodes have."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self.end_agents()

    def end_agents(self) -> None:
        """End what was started as its nodes, as far as that has not ended by itself meanwhile."""
        for pid in self.agents():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def agents(self) -> list[int]:
        """Processes that were started as nodes of this daemon, or by those."""
        return agents_below(self.home)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(
                    f"GET /v1/health/live HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
                    "Connection: close\r\n\r\n".encode()
                )
                return b" 200 " in connection.recv(64)
        except OSError:
            return False


def agents_below(home: Path) -> list[int]:
    """Processes that were started as nodes of daemons with their state below ``home``, or by those."""
    mark = f"SKY_AGENT_HOME={home}".encode()
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: nobody looks for garbage in it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest comes first, and what is over soon last: whoever has nothing more to do waits for that."""

    def length(item: pytest.Item) -> int:
        place = item.path.relative_to(HERE)
        return 2 if str(place) in LONGEST else int(SOON_OVER.isdisjoint(place.parts))

    items.sort(key=length, reverse=True)


def pytest_sessionfinish() -> None:
    """End a PostgreSQL that was started: a process that runs tests beside others does no more than this."""
    databases = sys.modules.get("tests.databases")
    if databases is not None and databases.server.cache_info().currsize:
        databases.server().stop()


@pytest.fixture(scope="session")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for the whole session. A test that kills it starts it again."""
    environment = {"SKY_ALLOW_HOST_JOBS": "true", "SKY_WEBHOOK_LOOPBACK": "true"}
    # Whoever looks for the daemon of a state folder knows it by its command line.
    running = RunningDaemon(tmp_path_factory.mktemp("sky"), free_port(), environment, executed=True)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def own_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for one test, which may kill it and start it again."""
    running = RunningDaemon(tmp_path_factory.mktemp("own"), free_port())
    running.start()
    yield running
    running.stop()
