"""A daemon that is killed by the kernel while it buys, again and again: each node has one machine.

Decides: after which purchase of some it is killed, from a seed. Never: looks at what the
daemon remembers; machines are counted in the file of the simulated cloud, written before a purchase is
answered.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import IN_A_FILE
from tests.proof import DEEP, record

pytestmark = [pytest.mark.real, IN_A_FILE]

SEEDS = 100 if DEEP else 2
SECONDS_MAX = 150.0
"""On a slow computer there are fewer kills, and it is told how many there were."""
NODES = 6
ANSWER_MS = 30
DEADLINE_S = 60.0


@pytest.fixture
def cloudy(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon with a simulated cloud."""
    running = RunningDaemon(tmp_path, free_port(), environment={"SKY_FAKE_PROVIDER": "1"})
    running.start()
    config = {"latency_ms": ANSWER_MS}
    made = ask(running, "POST", "/v1/providers", {"kind": "fake", "name": "cloud", "config": config})
    assert made["name"] == "cloud"
    yield running
    running.stop()


def ask(daemon: RunningDaemon, method: str, path: str, body: Any = None, **headers: str) -> Any:
    with httpx2.Client(base_url=daemon.url, timeout=DEADLINE_S, trust_env=False) as http:
        answer = http.request(method, path, json=body, headers=headers)
    assert answer.status_code < 300, answer.text
    return answer.json()


def machines(home: Path) -> tuple[Counter[str], set[str]]:
    """How often each tag was bought, and which machines of them still run."""
    bought: Counter[str] = Counter()
    ended: set[str] = set()
    for file in (home / "fake").glob("*.jsonl"):
        text = file.read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():  # the last one may be half-written
            told = json.loads(line)
            if told["what"] == "bought":
                bought[told["tag"]] += 1
            elif told["what"] == "ended":
                ended.add(told["tag"])
    return bought, set(bought) - ended


def nodes(home: Path, compute: str, state: str) -> set[str]:
    with closing(sqlite3.connect(f"file:{home}/sky.db?mode=ro", uri=True, timeout=DEADLINE_S)) as link:
        found = link.execute("SELECT id FROM nodes WHERE compute_id = ? AND state = ?", (compute, state))
        return {row[0] for row in found}


def until_bought(daemon: RunningDaemon, compute: str, seed: int) -> set[str]:
    deadline = time.monotonic() + DEADLINE_S
    while len(found := nodes(daemon.home, compute, "connecting")) < NODES:
        assert time.monotonic() < deadline, f"seed {seed}: {len(found)} of {NODES} have a machine"
        time.sleep(0.02)
    return found


def until_some(daemon: RunningDaemon, count: int, seed: int) -> None:
    """Wait until so many machines were ever bought: the moment of the kill, give or take what it takes."""
    deadline = time.monotonic() + DEADLINE_S
    while machines(daemon.home)[0].total() < count:
        assert time.monotonic() < deadline, f"seed {seed}: fewer than {count} machines were bought"
        time.sleep(0.001)


def until_empty(daemon: RunningDaemon, seed: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while left := machines(daemon.home)[1]:
        assert time.monotonic() < deadline, f"seed {seed}: {left} run though nothing is wanted"
        time.sleep(0.02)


@pytest.mark.timeout(900)
def test_killed_while_it_buys_each_node_has_one_machine(cloudy: RunningDaemon) -> None:
    spec = {
        "specs": [{"provider": {"kind": "cloud"}}],
        "nodes": {"desired": NODES},
        "options": {"ssh_connect_timeout": 3_600, "provision_timeout": 3_600},
    }
    half, kills, began = 0, 0, time.monotonic()
    while kills < SEEDS and time.monotonic() - began < SECONDS_MAX:
        seed = kills
        compute = ask(cloudy, "POST", "/v1/computes", {"spec": spec})["id"]
        until_some(cloudy, kills * NODES + random.Random(seed).randrange(NODES), seed)
        cloudy.kill()
        half += 0 < len(machines(cloudy.home)[1]) < NODES
        cloudy.start()
        wanted = until_bought(cloudy, compute, seed)
        bought, alive = machines(cloudy.home)
        assert alive == wanted, f"seed {seed}: what runs is what is wanted, and no more"
        ask(cloudy, "DELETE", f"/v1/computes/{compute}", **{"If-Match": "*"})
        until_empty(cloudy, seed)
        kills += 1
    bought, alive = machines(cloudy.home)
    assert set(bought.values()) == {1}, "nothing was bought twice under its tag"
    assert len(bought) == kills * NODES, "and no node was bought that nobody wanted"
    assert alive == set()
    record(kills=kills, between_two_purchases=half, nodes_wanted=kills * NODES, machines=len(bought))
