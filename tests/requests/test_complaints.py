"""What is there to be told when there is nothing: empty lists are answers, and a question has its value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import TOGETHER
from tests.conftest import RunningDaemon

import sky

pytestmark = pytest.mark.real

NOTHING = (
    ("status",),
    ("cost-report",),
    ("storage", "ls"),
    ("api", "status"),
    ("down", "--all", "-y"),
    ("stop", "--all", "-y"),
)


@pytest.fixture
def environment(own_daemon: RunningDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Somebody who has nothing yet."""
    monkeypatch.setenv("SKY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", own_daemon.url)
    return dict(os.environ)


def test_nothing_is_no_error_and_the_best_machine_is_a_value(environment: dict[str, str]) -> None:
    assert sky.get(sky.status()) == []
    assert sky.get(sky.cost_report()) == []
    assert sky.get(sky.storage_ls()) == []
    assert sky.get(sky.api_cancel(silent=True)) == []
    with sky.Dag() as dag:
        sky.Task(name="t", run="true", resources=sky.Resources(infra="local"))
    found = sky.get(sky.optimize(dag))
    assert [(one.name, one.chosen.infra, one.chosen.chosen) for one in found] == [("t", "local", True)]
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER],
        input=json.dumps(list(NOTHING)),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    for words, (code, out, err) in zip(NOTHING, json.loads(done.stdout), strict=True):
        assert (code, out) == (0, ""), words
        assert err.startswith("no "), "it says so, and how there would be some"
