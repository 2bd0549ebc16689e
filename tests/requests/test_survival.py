"""A server that is killed, stopped or left behind in the middle of work: every request answers as if it had
not been, in every program that waits, and nothing runs twice, is bought twice, or is left over."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE
from tests.system.processes import wait_gone
from tests.waiting import until

import sky

pytestmark = [IN_A_FILE, pytest.mark.real]

DEADLINE_S = 60.0
LAUNCHES = 10
EXECS = 20
ASKERS = 4
LINES = 400
NAMES = ("dies-a", "dies-b")
CONTACT = "import json, sys, sky; print(sky.api_info().status, flush=True);"
GETTER = f"{CONTACT} print(json.dumps([sky.get(one)[0] for one in sys.argv[1:]]))"
FOLLOWER = f"{CONTACT} print('result', sky.stream_and_get(sys.argv[1])[0])"
TAILER = "import sys, sky; sys.exit(sky.tail_logs(sys.argv[1], int(sys.argv[2]), follow=True))"


@dataclass
class Fleet:
    """A daemon with a cluster ``base`` of one node, on which nothing runs, and a folder for marks."""

    daemon: RunningDaemon
    marks: Path
    environment: dict[str, str]

    def program(self, script: str, *words: str) -> subprocess.Popen[str]:
        """Somebody else's program that waits for something."""
        return subprocess.Popen(
            [sys.executable, "-c", script, *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment},
        )

    @property
    def go(self) -> Path:
        return self.daemon.home / "go"

    def marking(self, name: str) -> sky.Task:
        """A task that leaves a line for every time it runs."""
        return sky.Task(name="t", run=f"echo ran >> {self.marks}/{name}")

    def launch(self, number: int) -> str:
        """One of several launches on few names, whose setup goes on until ``go`` is there."""
        task = self.marking(f"launch-{number}")
        task.setup = f"until [ -e {self.go} ]; do sleep 0.1; done"
        return sky.launch(task, cluster_name=NAMES[number % len(NAMES)])

    def count(self, name: str) -> int:
        """How many requests of that name there are."""
        return self.rows("SELECT count(*) FROM requests WHERE name = ?", name)[0][0]

    def sky(self, *words: str) -> None:
        """A command of whoever owns the daemon."""
        environment = {**os.environ, "SKY_HOME": str(self.daemon.home)}
        del environment["SKYPILOT_API_SERVER_ENDPOINT"]
        command = [Path(sys.executable).with_name("sky"), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def states(self, *ids: str) -> list[str]:
        """The states of requests."""
        marks = ", ".join("?" for _ in ids)
        found = self.rows(f"SELECT state FROM requests WHERE id IN ({marks})", *map(str, ids))
        return [state for (state,) in found]

    def runs(self) -> Counter[str]:
        """How often each task that left marks has run."""
        return Counter({path.name: path.read_text().count("ran") for path in self.marks.iterdir()})

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What is in the database, read beside the daemon."""
        link = sqlite3.connect(f"file:{self.daemon.home}/sky.db?mode=ro", uri=True, timeout=30)
        try:
            return link.execute(sql, values).fetchall()
        finally:
            link.close()

    def nodes_of(self, *clusters: str) -> list[str]:
        """The states of every node that was ever wanted for these clusters."""
        marks = ", ".join("?" for _ in clusters)
        sql = f"SELECT n.state FROM nodes n JOIN clusters c USING (compute_id) WHERE c.name IN ({marks})"
        return [state for (state,) in self.rows(sql, *clusters)]

    def agents(self) -> list[str]:
        """The nodes that have an agent which is alive."""
        found = set[str]()
        for pid in self.daemon.agents():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended meanwhile
            if b"sky.agent\0" in command:
                found |= {str(one) for one in environ if one.startswith(b"SKY_AGENT_HOME=")}
        return sorted(found)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    running = RunningDaemon(tmp_path_factory.mktemp("survival"), free_port())
    home = tmp_path_factory.mktemp("user")
    environment = {
        "SKYPILOT_API_SERVER_ENDPOINT": running.url,
        "HOME": str(home),
        "SKY_HOME": str(home / "sky"),
    }
    running.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        sky.get(sky.launch(sky.Task(num_nodes=1), cluster_name="base"))
        yield Fleet(running, tmp_path_factory.mktemp("marks"), environment)
        if running.process.poll() is not None:  # a test failed while it was away
            running.start()
        sky.get(sky.down("base"))
        assert wait_gone(running.home, but=running.process.pid) == {}, "nothing is orphaned"
    running.stop()


def waits(program: subprocess.Popen[str]) -> None:
    """Return once a program has found the daemon, and does nothing but wait."""
    assert program.stdout is not None
    assert program.stdout.readline() == "healthy\n"
    while Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert program.poll() is None


def done(program: subprocess.Popen[str]) -> str:
    """What a program printed that has not been read yet, once it has ended well."""
    assert program.stdout is not None
    out = program.stdout.read()
    assert program.wait(DEADLINE_S) == 0
    return out


def test_ten_launches_twenty_execs_and_a_followed_log_survive_a_server_that_is_killed(fleet: Fleet) -> None:
    script = f"for i in $(seq {LINES}); do echo line $i; [ $((i % 40)) != 0 ] || sleep 0.5; done"
    followed, _ = sky.get(sky.exec(sky.Task(name="t", run=script), "base"))
    assert followed is not None
    tailing = fleet.program(TAILER, "base", str(followed))
    assert tailing.stdout is not None
    first = tailing.stdout.readline()
    launches = [fleet.launch(n) for n in range(LAUNCHES)]
    execs = [sky.exec(fleet.marking(f"exec-{n}"), "base") for n in range(EXECS)]
    numbers = [1 + n // len(NAMES) for n in range(LAUNCHES)]
    fleet.daemon.kill()  # while machines are bought
    fleet.daemon.start()
    getting = fleet.program(GETTER, *map(str, launches))
    streaming = fleet.program(FOLLOWER, str(launches[0]))
    waits(getting)
    waits(streaming)
    until(lambda: fleet.states(*launches) == ["RUNNING"] * LAUNCHES, "each was looked at", DEADLINE_S)
    fleet.daemon.kill()  # while all wait
    assert fleet.states(*launches) == ["RUNNING"] * LAUNCHES
    fleet.daemon.start()
    fleet.go.touch()
    assert json.loads(done(getting)) == numbers
    said = done(streaming).splitlines()
    assert [line for line in said if line.startswith(f"launching cluster '{NAMES[0]}'")]
    assert said[-1] == "result 1"
    assert len(set(said)) == len(said), "no line twice"
    assert [sky.get(one)[0] for one in execs] == [1 + followed + n for n in range(EXECS)]
    assert (first + done(tailing)).splitlines() == [f"(t) line {n}" for n in range(1, LINES + 1)]
    for name in (*NAMES, "base"):
        for job in sky.get(sky.queue(name)):
            assert sky.tail_logs(name, job.job_id, True, output_stream=io.StringIO()) == 0
    wanted = {f"launch-{n}" for n in range(LAUNCHES)} | {f"exec-{n}" for n in range(EXECS)}
    assert fleet.runs() == Counter(dict.fromkeys(wanted, 1))
    assert fleet.nodes_of("base", *NAMES) == ["ready"] * 3, "no machine was bought twice"
    assert len(fleet.agents()) == 3
    for request in [sky.down(name) for name in NAMES]:
        sky.get(request)
    assert len(fleet.agents()) == 1


def test_what_a_server_that_is_told_to_end_has_taken_goes_on_with_the_next_one(fleet: Fleet) -> None:
    """Ended by a signal and by the command, while several ask without pause."""
    rounds, enough = 2, threading.Event()

    def ask(worker: int) -> list[tuple[str, str]]:
        asked: list[tuple[str, str]] = []
        while not enough.is_set():
            name = f"load-{worker}-{len(asked)}"
            asked.append((name, str(sky.exec(fleet.marking(name), "base"))))
            sky.get(sky.status(["base"]))
        return asked

    with ThreadPoolExecutor(ASKERS) as pool:
        asking = [pool.submit(ask, worker) for worker in range(ASKERS)]
        try:
            for number in range(rounds):
                seen = fleet.count("exec")
                while fleet.count("exec") < seen + ASKERS:
                    assert not any(one.done() for one in asking), [one.result() for one in asking]
                if number == 0:
                    fleet.daemon.process.terminate()
                else:
                    fleet.sky("api", "stop")
                assert fleet.daemon.process.wait(DEADLINE_S) == 0
                fleet.daemon.start()
        finally:
            enough.set()
        asked = [one for found in asking for one in found.result(DEADLINE_S)]
    ids = [request_id for _, request_id in asked]
    numbers = [sky.get(request_id)[0] for request_id in ids]
    assert len(set(numbers)) == len(asked), "each is a job of its own"
    for number in numbers:
        assert sky.tail_logs("base", number, True, output_stream=io.StringIO()) == 0
    loads = Counter({name: count for name, count in fleet.runs().items() if name.startswith("load")})
    assert loads == Counter(dict.fromkeys((name for name, _ in asked), 1)), "none is lost or runs twice"
