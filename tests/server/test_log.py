"""What a daemon logs never gets in its way."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.conftest import RunningDaemon, free_port


def test_a_daemon_serves_though_its_log_has_no_room(tmp_path: Path) -> None:
    (tmp_path / "server.log").symlink_to("/dev/full")
    daemon = RunningDaemon(tmp_path, free_port())
    daemon.start()
    try:
        with urllib.request.urlopen(f"{daemon.url}/v1/computes", timeout=10) as answer:
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
        timeout=60,
        check=True,
        env={**os.environ, "SKY_HOME": str(tmp_path)},
    )
    assert done.stdout == "['structlog']\n", "and what somebody else needs can be had all the same"
    assert "port" in done.stderr
