"""Every loop says what it did last, or why it does nothing; what may go is told, and goes when asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from sky.store.views.garbage import KINDS

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def client(daemon: Any) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=daemon.url, timeout=DEADLINE_S, trust_env=False) as one:
        yield one


def notes(client: httpx2.Client, **params: str) -> dict[str, dict[str, Any]]:
    return {one["key"]: one for one in client.get("/v1/loops", params=params).json()["items"]}


def test_every_loop_has_a_line(client: httpx2.Client) -> None:
    told = notes(client)
    counted = client.get("/metrics").text
    loops = {line.split('"')[1] for line in counted.splitlines() if line.startswith("sky_loop_passes_ready{")}
    assert len(loops) >= 15
    assert {one["loop"] for one in told.values()} == loops
    assert all(one["decision"] for one in told.values()), "each says what it decided, or why it does nothing"


def test_what_may_go_is_told_and_goes_when_asked(client: httpx2.Client, daemon: Any) -> None:
    command = [Path(sys.executable).with_name("sky"), "admin", "gc", "--dry-run", "-o", "json"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("SKY_")}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**environment, "SKY_HOME": str(daemon.home)},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["begun"] is False
    assert {one["kind"] for one in told["items"]} == {*KINDS, "requests"}
    before = notes(client, key="collect/")
    answer = client.post("/admin/v1/garbage")
    assert (answer.status_code, answer.json()["begun"]) == (202, True)
    deadline_s = time.monotonic() + DEADLINE_S
    looked = set[str]()
    while looked != set(KINDS):
        assert time.monotonic() < deadline_s, (looked, notes(client, key="collect/"))
        looked = {
            key.partition("/")[2]
            for key, one in notes(client, key="collect/").items()
            if one["decided_at"] and one["decided_at"] != before.get(key, {}).get("decided_at")
        }
