"""A call that is waited for, as a terminal shows it; whoever reads through a pipe sees none of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal
from tests.conftest import RunningDaemon

pytestmark = pytest.mark.real
PROGRAM = """
import sys
import sky

@sky.function
def waits(path):
    import os, time
    while path and not os.path.exists(path):
        time.sleep(0.05)
    return "it has waited"

with sky.Compute(provider=sky.Local(), nodes=1) as compute:
    print(waits(sys.argv[1]) >> compute)
    print(waits(sys.argv[1]) @ compute)
"""
WAITED = "it has waited\n['it has waited']\n"
END_S = 100.0


def test_a_call_that_lasts_is_told_on_a_terminal_and_nowhere_else(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    environment = {**os.environ, "SKY_HOME": str(daemon.home), "TERM": "xterm-256color", "NO_COLOR": "1"}
    go = tmp_path / "go"
    command = [sys.executable, "-c", PROGRAM, str(go)]
    with Terminal(command, environment, tmp_path) as terminal:
        terminal.until(re.compile(r"waits\(\) is under way … \([1-9]\d* s\)"))
        go.touch()
        ended = terminal.end(END_S).check()
    shown = [line.rpartition("\x1b[2K")[2] for line in ended.out.splitlines()]
    assert shown[-2:] == WAITED.splitlines(), "the line that moved is gone"
    assert "\x1b[3" not in ended.out, "no colour"
    piped = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=END_S, check=True
    )
    assert piped.stdout == WAITED
    assert "under way" not in piped.stderr
    assert "\x1b" not in piped.stderr
