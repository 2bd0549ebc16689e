"""Hosts over SSH from end to end: added by a command, called, cut off, and given back.

Decides: what a user sees. Never: speaks to a computer outside the test.
Follows: the hosts are real servers, one of them on a network of its own that can be cut.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.providers.sshd import Sshd, make_key, run, serving

import sky

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks and accounts of its own need root"),
]
WAIT_S = 50.0
SKY = Path(sys.executable).with_name("sky")


@dataclass
class Network:
    """A namespace whose only way out is one cable to this computer."""

    name: str
    here: str
    there: str

    def make(self) -> None:
        inside, outside = f"{self.name}i", f"{self.name}o"
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.name)
        run("ip", "addr", "add", f"{self.here}/30", "dev", outside)
        run("ip", "link", "set", outside, "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.there}/30", "dev", inside)
        run("ip", "-n", self.name, "link", "set", inside, "up")
        run("ip", "-n", self.name, "link", "set", "lo", "up")

    def cut(self) -> None:
        """Nothing passes, and neither end is told."""
        run("ip", "netns", "exec", self.name, "iptables", "-I", "INPUT", "-i", f"{self.name}i", "-j", "DROP")

    def heal(self) -> None:
        run("ip", "netns", "exec", self.name, "iptables", "-D", "INPUT", "-i", f"{self.name}i", "-j", "DROP")

    def remove(self) -> None:
        run("ip", "netns", "del", self.name)


@dataclass
class Place:
    """A daemon, and its hosts."""

    daemon: RunningDaemon
    near: Sshd
    far: Sshd
    network: Network
    folder: Path

    def sky(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of the user's."""
        environment = {**os.environ, "SKY_HOME": str(self.daemon.home), "SKY_URL": self.daemon.url}
        return subprocess.run(
            [SKY, *words],
            capture_output=True,
            text=True,
            env=environment,
            cwd=self.folder,
            timeout=90,
            check=False,
        )

    def get(self, path: str) -> Any:
        with httpx2.Client(base_url=self.daemon.url, trust_env=False, timeout=30) as http:
            return http.get(path).json()

    def compute(self, pool: str, **more: Any) -> sky.Compute:
        """A compute with a node of that pool."""
        return sky.Compute(
            provider=pool, cpus=1, url=self.daemon.url, quiet=True, delete_on_exit=True, **more
        )


def until(done: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (value := done()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return value


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A daemon with a pool of two hosts, added by a command from a file."""
    folder = tmp_path_factory.mktemp("pool")
    key = make_key(folder / "key")
    number = os.getpid() % 10_000
    first = f"10.{200 + number // 4096}.{number // 16 % 256}.{number % 16 * 16}"
    base = first.rpartition(".")[0]
    last = number % 16 * 16
    network = Network(f"sk{number}", f"{base}.{last + 1}", f"{base}.{last + 2}")
    daemon = RunningDaemon(folder / "state", free_port(), environment={"SKY_UNREACHABLE_SECONDS": "5"})
    daemon.home.mkdir()
    network.make()
    try:
        near, far = Sshd(folder / "near", key), Sshd(folder / "far", key, network.there, net=network.name)
        with serving(near), serving(far):
            daemon.start()
            try:
                yield Place(daemon, near, far, network, folder)
            finally:
                daemon.stop()
    finally:
        network.remove()


@pytest.fixture(scope="module")
def pool(place: Place) -> Place:
    """The place, once its hosts are added."""
    head = (
        "identity_file: key\nuser: root\nkeepalive_seconds: 1\nconnect_seconds: 3\ncall_seconds: 5\nhosts:\n"
    )
    for name, host in (("near", place.near), ("far", place.far)):
        told = f"  - name: {name}\n    address: {host.address}\n    port: {host.port}\n"
        (place.folder / f"{name}.yaml").write_text(f"{head}{told}    host_key: {host.public_key}\n")
        added = place.sky("provider", "add", name, "--hosts", f"{name}.yaml")
        assert added.returncode == 0, added.stderr
    shown = json.dumps(place.get("/v1/providers"))
    assert "PRIVATE KEY" not in shown
    return place


@sky.function
def double(number: int) -> int:
    return 2 * number


@sky.function
def where() -> str:
    import os

    return os.environ["SKY_AGENT_HOME"]


@sky.function
def slowly(seconds: float, note: str) -> str:
    """Works for a while, and leaves a line each time that it is begun."""
    import time

    with open(note, "a") as file:
        file.write("begun\n")
    time.sleep(seconds)
    return "done"


def test_a_host_works_and_nothing_is_left(pool: Place) -> None:
    with pool.compute("near") as compute:
        assert (double(21) >> compute) == 42
        home = (where() >> compute)
        assert home.startswith(str(pool.near.home / ".skyfleet"))
        done = pool.sky("compute", "exec", compute.name or compute.id, "--", "sh", "-c", "echo here; pwd")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "here"
    until(lambda: not pool.near.agents(), "the agent's processes end")
    until(lambda: not Path(home).exists(), "its folder goes")
