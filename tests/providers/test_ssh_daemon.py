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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests import waiting
from tests.conftest import RunningDaemon, free_port
from tests.proof import DEEP, record
from tests.providers.sshd import Sshd, make_key, run, serving

import sky
from sky.cli import hosts_file
from sky.cli.errors import CliError

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks and accounts of its own need root"),
]
WAIT_S = 50.0
until = partial(waiting.until, within_s=WAIT_S)
CUT_S = 30.0
"""How long a cut lasts at least where there is time for it."""
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

    def cut(self, ways: str) -> None:
        """Nothing passes ``in``, ``out``, or both (``in out``), and neither end is told."""
        for way in ways.split():
            run(*self._dropping("-I", way))

    def heal(self, ways: str) -> None:
        for way in ways.split():
            run(*self._dropping("-D", way))

    def _dropping(self, what: str, way: str) -> tuple[str, ...]:
        chain, side = {"in": ("INPUT", "-i"), "out": ("OUTPUT", "-o")}[way]
        return (*self._inside, "iptables", what, chain, side, f"{self.name}i", "-j", "DROP")

    def slow(self, rate: str) -> None:
        """No more than that passes from now on, either way."""
        told = ("root", "tbf", "rate", rate, "burst", "4kb", "latency", "2s")
        run("tc", "qdisc", "add", "dev", f"{self.name}o", *told)
        run(*self._inside, "tc", "qdisc", "add", "dev", f"{self.name}i", *told)

    def quick(self) -> None:
        run("tc", "qdisc", "del", "dev", f"{self.name}o", "root")
        run(*self._inside, "tc", "qdisc", "del", "dev", f"{self.name}i", "root")

    @property
    def _inside(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name)

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


def test_a_pool_is_named_as_the_page_shows_it(pool: Place) -> None:
    there = pool.sky("launch", "--infra", "ssh/near", "--dryrun", "true")
    assert there.returncode == 0, there.stderr
    assert "near" in there.stdout
    assert "far" not in there.stdout
    wrong = pool.sky("launch", "--infra", "ssh/nera", "--dryrun", "true")
    assert wrong.returncode != 0
    assert "did you mean 'near'?" in wrong.stderr


@sky.function
def double(number: int) -> int:
    return 2 * number


@sky.function
def where() -> str:
    import os

    return os.environ["SKY_AGENT_HOME"]


@sky.function
def slowly(seconds: float, note: str) -> str:
    """Works for a while, and leaves a line when it begins and one when it ends."""
    import time

    with open(note, "a") as file:
        file.write("begun\n")
    time.sleep(seconds)
    with open(note, "a") as file:
        file.write("ended\n")
    return "done"


@sky.function
def until_told(note: str, go: str) -> str:
    """Works until there is a file ``go``, and leaves a line when it begins and one when it ends."""
    import time
    from pathlib import Path

    with open(note, "a") as file:
        file.write("begun\n")
    while not Path(go).exists():
        time.sleep(0.05)
    with open(note, "a") as file:
        file.write("ended\n")
    return "done"


@pytest.fixture(scope="module")
def installed(pool: Place) -> Place:
    """Both hosts have the agent's environment: the far one can fetch none."""
    with pool.compute("near") as compute:
        assert (double(21) >> compute) == 42
    [agents] = pool.near.home.glob(".skyfleet/*/agents")
    there = pool.far.home / ".skyfleet" / agents.parent.name
    there.mkdir(parents=True)
    (there / "agents").symlink_to(agents)
    return pool


def test_a_host_works_and_nothing_is_left(installed: Place) -> None:
    pool = installed
    with pool.compute("near") as compute:
        assert (double(21) >> compute) == 42
        home = where() >> compute
        assert home.startswith(str(pool.near.home / ".skyfleet"))
        done = pool.sky("compute", "exec", compute.name or compute.id, "--", "sh", "-c", "echo here; pwd")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "here"
    until(lambda: not pool.near.agents(), "the agent's processes end")
    until(lambda: not Path(home).exists(), "its folder goes")


@pytest.mark.timeout(420 if DEEP else 150)
def test_work_goes_on_while_the_network_is_cut(installed: Place) -> None:
    """In one direction and in both, for longer than anybody waits for a sign of the other: the outcome
    arrives after all, once; and it arrives over a link that is slow."""
    place = installed
    cuts = ("in", "out", "in out") if DEEP else ("out", "in out")
    cut_s: list[float] = []
    with place.compute("far") as compute, place.compute("near") as other:
        for number, ways in enumerate(cuts):
            note = place.folder / f"begun-{number}"
            go = place.folder / f"go-{number}"
            running = compute.submit(until_told(str(note), str(go)))
            until(note.exists, "the call begins")
            place.network.cut(ways)
            begun_s = time.monotonic()
            try:
                until(lambda: not tunnels(place), "the tunnel is given up")
                while DEEP and time.monotonic() - begun_s < CUT_S:
                    _others_go_on(place, compute, other)
                    assert note.read_text() == "begun\n", "it is at work"
                    time.sleep(1)  # real: the cut lasts as long as it is said to
                go.touch()
                until(lambda said=note: "ended" in said.read_text(), "the call ends all the same")
                _others_go_on(place, compute, other)
                assert not running.done()
            finally:
                place.network.heal(ways)
            cut_s.append(time.monotonic() - begun_s)
            assert running.result(WAIT_S) == "done"
            assert note.read_text() == "begun\nended\n", "it ran once"
        place.network.slow("256kbit")
        try:
            assert (double(5) >> compute) == 10, "and the same node takes more"
            done = place.sky("compute", "exec", compute.id, "--", "echo", "by the tunnel")
            assert done.stdout == "by the tunnel\n", done.stderr
        finally:
            place.network.quick()
    until(lambda: not place.far.agents(), "the agent's processes end")
    record(cuts=len(cuts), shortest_cut_s=round(min(cut_s)), outcomes=len(cuts))


def _others_go_on(place: Place, compute: sky.Compute, other: sky.Compute) -> None:
    """Another host is not held up, and the node that is not heard is not gone."""
    begun_s = time.monotonic()
    assert (double(4) >> other) == 8
    assert time.monotonic() - begun_s < WAIT_S / 4, "another host is not held up"
    [node] = place.get(f"/v1/computes/{compute.id}/nodes")["items"]
    assert node["state"] not in {"lost", "deleting", "deleted"}, "who is not heard is not gone"


def tunnels(place: Place) -> list[str]:
    """The daemon's connections to the far host that are open."""
    shown = run("ss", "-Htn", "state", "established", "dst", place.far.address)
    return [line for line in shown.splitlines() if line]


def test_what_comes_through_a_tunnel_needs_a_token(installed: Place) -> None:
    """The socket is the daemon's own; whoever is behind it is not its user."""
    place = installed
    with place.compute("near") as compute:
        assert (double(1) >> compute) == 2
        [told] = place.near.home.glob(".skyfleet/*/daemon.*.json")
        url = json.loads(told.read_text())["url"]
        with httpx2.Client(base_url=url, trust_env=False, timeout=30) as http:
            assert http.get("/v1/computes").status_code == 401
            assert http.post("/v1/providers", json={}).status_code in {401, 403}
            assert http.get("/api/health").status_code == 200


def test_a_host_that_reaches_the_daemon_needs_no_tunnel(installed: Place) -> None:
    place = installed
    near = (place.folder / "near.yaml").read_text()
    (place.folder / "direct.yaml").write_text(f"daemon_url: {place.daemon.url}\n{near}")
    assert place.sky("provider", "add", "direct", "--hosts", "direct.yaml").returncode == 0
    with place.compute("direct") as compute:
        assert (double(3) >> compute) == 6
        [node] = place.get(f"/v1/computes/{compute.id}/nodes")["items"]
        assert node["provider_binding"]["tunnel"] is False
        assert node["provider_binding"]["host_key"] == place.near.fingerprint


def test_a_daemon_that_comes_back_makes_its_tunnels_again(installed: Place) -> None:
    place = installed
    note = place.folder / "begun-before"
    with place.compute("near") as compute:
        running = compute.submit(slowly(3.0, str(note)))
        until(note.exists, "the call begins")
        place.daemon.kill()
        place.daemon.start()
        assert running.result(WAIT_S) == "done"
        assert note.read_text() == "begun\nended\n"
    until(lambda: not place.near.agents(), "the agent's processes end")


def test_why_tells_what_is_wrong_with_a_host(pool: Place) -> None:
    head = "hosts:\n  - {name: closed, address: 127.0.0.1, cpus: 2, memory_gb: 4"
    (pool.folder / "closed.yaml").write_text(f"{head}, port: {pool.near.port}, password: not-this-one}}\n")
    assert pool.sky("provider", "add", "closed", "--hosts", "closed.yaml").returncode == 0
    made = pool.sky("compute", "create", "shut", "--provider", "closed", "--cpus", "1", "--no-wait")
    assert made.returncode == 0, made.stderr
    told = until(
        lambda: "not let in with the password" in (said := pool.sky("why", "shut").stdout) and said,
        "it is told",
    )
    assert "closed (127.0.0.1" in told
    assert "not-this-one" not in told
    assert pool.sky("compute", "delete", "shut", "--yes").returncode == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "hosts:\n  - name: a\n    prot: 22\n",
            "bad.yaml:3:5: there is no field 'prot' of a host; did you mean",
        ),
        ("hosts:\n  - name: a\n    port: many\n", "bad.yaml:3:5: port: Expected `int`"),
        ("hosts:\n  - name: a\n    identity_file: nowhere\n", "bad.yaml:3:5: the key"),
        ("- a\n- b c\n", "bad.yaml:2:3: 'b c' is no [user@]address[:port]"),
        ("hosts: [a, a]\n", "twice there: a"),
        ("hosts:\n\t- a\n", "bad.yaml:2:"),
        ("hosts: [{name: a, password: 12}]\n", "password is a text"),
        ('- name: a\n  gpus: "?"\n', "bad.yaml:2:3: gpus"),
    ],
)
def test_a_file_of_hosts_that_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(CliError) as refused:
        hosts_file.read(tmp_path / "bad.yaml")
    assert says in str(refused.value)


def test_a_short_file_of_hosts_is_enough(tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text("- root@10.0.0.1:2222\n- {name: b, password: secret-word}\n")
    config, credentials = hosts_file.read(tmp_path / "hosts.yaml")
    assert config == {"hosts": [{"name": "10.0.0.1", "user": "root", "port": 2222}, {"name": "b"}]}
    assert credentials == {"passwords": '{"b":"secret-word"}'}


def test_tasks_find_a_pool_by_its_infra(pool: Place) -> None:
    planned = pool.sky("launch", "--dryrun", "--yes", "--infra", "ssh/near", "--cpus", "1+", "echo hello")
    assert planned.returncode == 0, planned.stderr
    assert "near" in planned.stdout + planned.stderr
    nowhere = pool.sky("launch", "--dryrun", "--yes", "--infra", "ssh/nowhere", "--cpus", "1+", "echo hello")
    assert nowhere.returncode != 0
    assert "'nowhere' is neither a region nor a provider of 'ssh'; known: " in nowhere.stderr
    assert "near" in nowhere.stderr
    checked = pool.sky("check", "ssh")
    assert checked.returncode == 0, checked.stdout + checked.stderr
