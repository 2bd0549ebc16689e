"""A daemon that is told to end: who is let go at once, who is told to come back, and what its log says.

Decides: that nobody who only waits holds a daemon up. Never: measures time; the daemon of these tests would
wait for ten minutes.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon, free_port

END_S = 60.0


@pytest.fixture
def patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningDaemon]:
    """A daemon that lets open requests go on for ten minutes."""
    monkeypatch.setenv("SKY_STOP_SECONDS", "600")
    daemon = RunningDaemon(tmp_path, free_port())
    daemon.start()
    yield daemon
    daemon.kill()


def asked(daemon: RunningDaemon, path: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=END_S)
    connection.request("GET", path)
    return connection


def test_whoever_waits_is_let_go_at_once_and_told_to_come_back(patient: RunningDaemon) -> None:
    events = asked(patient, "/v1/events").getresponse()
    assert events.readline() == b"retry: 1000\n"
    outcomes = asked(patient, "/v1/tasks/outcomes?correlation_id=nobody&wait=60")
    asked(patient, "/v1/health/live").getresponse().read()  # the question before it is being waited for
    patient.process.terminate()
    assert events.read().startswith(b": events follow"), "the stream of events did not end as it should"
    answer = outcomes.getresponse()
    told: dict[str, Any] = json.loads(answer.read())
    assert (answer.status, told["code"], told["retryable"]) == (503, "busy", True)
    assert answer.headers["retry-after"]
    patient.process.wait(END_S)
    log = (patient.home / "server.log").read_text()
    assert "Traceback" not in log
    assert all(json.loads(line)["level"] == "info" for line in log.splitlines())


def test_what_is_cut_off_is_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_STOP_SECONDS", "1")
    daemon = RunningDaemon(tmp_path, free_port())
    daemon.start()
    sending = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=END_S)
    sending.putrequest("PUT", f"/v1/blobs/{'0' * 64}")
    sending.putheader("Content-Type", "application/octet-stream")
    sending.putheader("Content-Length", "1000")
    sending.endheaders(b"some of it")
    asked(daemon, "/v1/health/live").getresponse().read()
    daemon.stop()
    answer = sending.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (503, "busy")
    assert "Traceback" not in (daemon.home / "server.log").read_text()
