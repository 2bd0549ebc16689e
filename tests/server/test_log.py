"""What a daemon logs never gets in its way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunningDaemon, free_port
from tests.waiting import until


def test_a_daemon_serves_though_its_log_has_no_room(tmp_path: Path) -> None:
    (tmp_path / "server.log").symlink_to("/dev/full")
    daemon = RunningDaemon(tmp_path, free_port())
    daemon.start()
    try:
        with urllib.request.urlopen(f"{daemon.url}/v1/computes", timeout=60) as answer:
            assert answer.status == 200
    finally:
        daemon.stop()


def test_a_daemon_loads_nothing_that_paints(tmp_path: Path) -> None:
    code = (
        "import sys; from sky.server import main; main.main(['--port', 'none']); "
        "loaded = {name.partition('.')[0] for name in sys.modules}; "
        "print(sorted(loaded & {'rich', 'pygments', 'structlog'})); import rich.traceback"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "SKY_HOME": str(tmp_path)},
    )
    assert done.stdout == "['structlog']\n", "and what somebody else needs can be had all the same"
    assert "port" in done.stderr


def test_each_line_says_which_request_or_pass_it_is_from(tmp_path: Path) -> None:
    daemon = RunningDaemon(tmp_path, free_port(), {"SKY_LOG_LEVEL": "debug"})
    daemon.start()
    try:
        ours, forged = "trace-7:of.mine", "two words"
        for given in (ours, forged):
            asked = urllib.request.Request(f"{daemon.url}/v1/computes", headers={"X-Request-Id": given})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert (answer.headers["Request-Id"] == given) == (given == ours)
        log = tmp_path / "server.log"
        until(lambda: {"sweep", "forget"} <= {one["loop"] for one in passes_in(log)}, "loops passed", 60)
    finally:
        daemon.stop()
    lines = [json.loads(line) for line in (tmp_path / "server.log").read_text().splitlines()]
    assert all({"timestamp", "level", "event"} <= set(line) for line in lines)
    [mine] = [line for line in lines if line.get("request_id") == ours]
    assert (mine["event"], mine["route"], mine["status"]) == ("request.answered", "GET /v1/computes", 200)
    assert not [line for line in lines if line.get("request_id") == forged]
    passes = passes_in(log)
    assert all(line["why"] for line in passes)
    assert all(line["provider"].startswith("prv_") for line in passes if line["loop"] == "sweep")
    assert not [line for line in passes if "request_id" in line], "a pass belongs to no request"


def passes_in(log: Path) -> list[dict[str, Any]]:
    """The passes that a log tells of; its last line may be half written."""
    lines = log.read_text().split("\n")[:-1]
    return [told for line in lines if (told := json.loads(line))["event"] == "pass.done"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_libraries_log_in_the_same_form_and_no_secret(form: str) -> None:
    code = (
        "import logging, structlog; from sky.kit import about; from sky.server import log; "
        f"log.configure('info', {form!r}); "
        "about.begin(lambda: about.of_key('nodes/nod_01abc')); "
        "structlog.get_logger().info('one.thing', token='hidden', count=3, said='two words'); "
        "logging.getLogger('others.code').warning('it is %s', 'odd'); "
        "logging.getLogger('others.code').info('and not told')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    first, second = done.stderr.splitlines()
    assert "hidden" not in done.stderr
    if form == "json":
        own, theirs = json.loads(first), json.loads(second)
        assert (own["event"], own["token"], own["count"], own["loop"]) == ("one.thing", "***", 3, "nodes")
        assert (own["node"], theirs["node"]) == ("nod_01abc", "nod_01abc")
        assert (theirs["event"], theirs["logger"], theirs["level"]) == (
            "it is odd",
            "others.code",
            "warning",
        )
    else:
        assert " level=info event=one.thing " in first
        assert first.startswith("timestamp=")
        assert 'said="two words"' in first
        assert "node=nod_01abc" in first
        assert ' level=warning event="it is odd" ' in second
