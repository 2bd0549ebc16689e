"""What a daemon logs never gets in its way."""

from __future__ import annotations

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
