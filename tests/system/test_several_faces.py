"""Requests and paid jobs through daemons other than the one that does the work, with clocks that are apart.

Decides: three daemons with one database; the clock of the second is ten minutes ahead of this computer's,
that of the third as much behind. Each test kills two of them and starts them again.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.conftest import RunningDaemon, free_port
from tests.databases import server
from tests.jobs.conftest import SETTINGS
from tests.jobs.shop import CATALOGUE, DEADLINE_S, ROOT, Customer, Shop, body
from tests.requests.test_requests import Api

pytestmark = [pytest.mark.real, pytest.mark.timeout(170)]
APART_S = (0, 600, -600)
OTHER_TIME = """
import os, time
by_ns = int(os.environ.get("SKY_TESTS_CLOCK_AHEAD_S", "0")) * 1_000_000_000
ns, seconds = time.time_ns, time.time
time.time_ns = lambda: ns() + by_ns
time.time = lambda: seconds() + by_ns / 1e9
"""
"""What a Python does first that finds it as ``sitecustomize``."""
NEAR_S = 250.0
"""Two moments of this computer's clock may be apart by this much, when it has more to do than a test."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningDaemon]]:
    """Sellers with one database and one shared folder; nothing is left of them afterwards."""
    place = tmp_path_factory.mktemp("three")
    (place / "catalogue.yaml").write_text(CATALOGUE)
    (place / "sitecustomize.py").write_text(OTHER_TIME)
    environment = {
        **SETTINGS,
        "SKY_DATABASE": server().empty(),
        "SKY_SHARED_FOLDER": str(place / "shared"),
        "SKY_CATALOGUE": str(place / "catalogue.yaml"),
        "PYTHONPATH": str(place),
    }
    daemons: list[RunningDaemon] = []
    for ahead_s in APART_S:
        home = place / f"ahead-{ahead_s}"
        home.mkdir()
        daemons.append(
            RunningDaemon(home, free_port(), {**environment, "SKY_TESTS_CLOCK_AHEAD_S": str(ahead_s)})
        )
        daemons[-1].start()
    yield daemons
    for one in daemons:
        if one.process.poll() is None:
            one.stop()
    for pid in RunningDaemon(place / "shared", 0).agents():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def gate(tmp_path: Path) -> str:
    """A file that what runs waits for."""
    return str(tmp_path / "go on")


def waits(gate: str) -> str:
    return f"while [ ! -e '{gate}' ]; do sleep 0.05; done"


def seconds_from_now(moment: str | float) -> float:
    """How far a moment that a daemon told is from this computer's time."""
    at = moment if isinstance(moment, int | float) else datetime.fromisoformat(moment).timestamp()
    return abs(at - datetime.now(UTC).timestamp())


class Heard:
    """Lines of an answer that goes on, read by a thread."""

    def __init__(self, url: str, method: str, path: str, **more: Any) -> None:
        self.lines: list[str] = []
        self._came = threading.Condition()
        self._http = httpx2.Client(base_url=url, timeout=DEADLINE_S, trust_env=False)
        self._reader = ThreadPoolExecutor(1)
        self.end = self._reader.submit(self._read, method, path, more)

    def _read(self, method: str, path: str, more: dict[str, Any]) -> list[str]:
        with self._http.stream(method, path, **more) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                with self._came:
                    self.lines.append(line)
                    self._came.notify_all()
        return self.lines

    def until(self, text: str) -> None:
        """Wait until a line has that text."""
        deadline_s = time.monotonic() + DEADLINE_S
        with self._came:
            while not any(text in line for line in self.lines):
                left_s = deadline_s - time.monotonic()
                assert left_s > 0, self.lines
                assert not self.end.done(), self.lines
                self._came.wait(min(left_s, 1.0))


def test_each_daemon_tells_the_time_of_the_database(three: list[RunningDaemon]) -> None:
    for one in three:
        account = Shop(one.url).operate("POST", "/accounts", json={"name": f"of-{one.port}"})
        assert seconds_from_now(account["created_at"]) < NEAR_S


def test_a_request_goes_on_through_the_daemon_that_is_left(three: list[RunningDaemon], gate: str) -> None:
    first, second, third = (Api(one.url) for one in three)
    asked = first.ask("launch", key="once", task={"run": "echo launched"}, cluster_name="apart")
    launched = second.get(asked["request_id"])
    assert (launched["status"], launched["result"]["job_id"]) == ("SUCCEEDED", 1), launched
    assert second.ask("launch", key="once", task={"run": "echo launched"}, cluster_name="apart") == {
        **asked,
        **{name: launched[name] for name in asked if launched[name] != asked[name]},
    }
    assert third.logs("apart", 1)[1]["end"] == "SUCCEEDED"
    second.do("exec", task={"run": f"echo early; {waits(gate)}; echo late"}, cluster_name="apart")
    heard = Heard(three[2].url, "POST", "/logs", json={"cluster_name": "apart", "job_id": 2})
    heard.until("early")
    three[0].kill()
    three[1].kill()
    Path(gate).touch()
    lines = [json.loads(line) for line in heard.end.result(DEADLINE_S)]
    assert "late" in "".join(line.get("text", "") for line in lines)
    assert lines[-1]["end"] == "SUCCEEDED"
    three[0].start()
    three[1].start()
    jobs = Api(three[1].url).do("queue", cluster_name="apart")
    assert [job["status"] for job in jobs] == ["SUCCEEDED", "SUCCEEDED"]
    assert all(seconds_from_now(job["submitted_at"]) < NEAR_S for job in jobs)
    Api(three[0].url).do("down", cluster_name="apart")


def test_a_paid_job_goes_on_through_the_daemon_that_is_left(three: list[RunningDaemon], gate: str) -> None:
    customer = Shop(three[0].url).customer()
    elsewhere = [Customer(Shop(one.url).http, customer.key, customer.account) for one in three]
    script = f"echo early; {waits(gate)}; echo result > /out/file; echo late"
    wanted = body(spec__command=["bash", "-c", script], spec__outputs=[{"mount": "/out"}])
    job_id = customer.submit(wanted, key="once").json()["id"]
    assert elsewhere[1].submit(wanted, key="once").json()["id"] == job_id
    key = {"authorization": f"Bearer {customer.key}"}
    path = f"{ROOT}/jobs/{job_id}/logs"
    heard = Heard(three[1].url, "GET", path, params={"follow": "true"}, headers=key)
    heard.until("early")
    three[0].kill()
    three[2].kill()
    Path(gate).touch()
    heard.until("late")
    job = elsewhere[1].ended(job_id)
    assert job["status"] == "succeeded", heard.lines
    heard.end.result(DEADLINE_S)
    assert seconds_from_now(job["finished_at"]) < NEAR_S
    three[0].start()
    three[2].start()
    happened = elsewhere[2].events(job_id)
    moments = [event["created_at"] for event in happened]
    assert moments == sorted(moments)
    assert elsewhere[0].events(job_id) == happened
    [file] = elsewhere[2]("GET", f"/jobs/{job_id}/artifacts").json()["data"]
    assert (file["path"], httpx2.get(file["url"]).content) == ("/out/file", b"result\n")
    Shop(three[0].url).audit()
