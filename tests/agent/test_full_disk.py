"""A node on a disk without room: what runs goes on, and is told when there is room again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any


def held(path: str) -> str:
    """Runs until a file is there."""
    while not Path(path).exists():
        time.sleep(0.005)
    return "let go"


def test_words_for_which_there_is_no_room_end_nothing(node_of: Any, until: Any, tmp_path: Path) -> None:
    node = node_of()
    node.log_path = Path("/dev/full")
    node.start()
    go = tmp_path / "go"
    execution = node.send(held, str(go))
    until(lambda: any(s.execution == execution for s in node.daemon.started), "a running call")
    token = (node.home / "token").read_text()
    (node.home / "token").write_text("another node's")
    node.daemon.hang_up()
    until(lambda: len(node.daemon.refusals) > 2, "something to complain about")
    (node.home / "token").write_text(token)
    go.touch()
    assert node.outcome(execution).state == "succeeded"
    assert node.process.poll() is None
