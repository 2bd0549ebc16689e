"""A process that is forked from one that has loaded its module is as one that was executed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import forked
from tests.waiting import until

LONG_S = 120
MODULE = "sky.server.main"


@pytest.mark.parametrize("words", [("--port", "no number"), ("--nothing",), ("--help",)])
def test_it_writes_and_ends_as_one_that_was_executed(tmp_path: Path, words: tuple[str, ...]) -> None:
    environment = {**os.environ, "SKY_HOME": str(tmp_path), "COLUMNS": "90"}
    command = [sys.executable, "-m", MODULE, *words]
    executed = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=LONG_S, env=environment
    )
    forked_one = forked.run(MODULE, *words, environment=environment, timeout=LONG_S)
    assert (forked_one.returncode, forked_one.stdout, forked_one.stderr) == (
        executed.returncode,
        executed.stdout,
        executed.stderr,
    )


def test_a_signal_that_ends_it_is_told_and_it_is_nobodys_zombie(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        one = forked.start(
            MODULE,
            ["--home", str(tmp_path), "--port", "0"],
            out=log.fileno(),
            err=log.fileno(),
            environment=os.environ,
        )
    assert isinstance(one, forked.Forked)
    assert os.getsid(one.pid) == one.pid
    words = [sys.executable, "-m", MODULE, "--home", str(tmp_path), "--port", "0"]
    shown = Path(f"/proc/{one.pid}/cmdline")
    until(
        lambda: shown.read_bytes().rstrip(b"\0").decode().split("\0") == words, "it shows its command", LONG_S
    )
    one.kill()
    assert one.wait(LONG_S) == -signal.SIGKILL
    assert one.poll() == -signal.SIGKILL
    assert not Path(f"/proc/{one.pid}").exists()


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "OTEL_SERVICE_NAME"])
def test_what_is_read_at_the_start_is_read_at_a_start(tmp_path: Path, name: str) -> None:
    with open(tmp_path / "log", "wb") as log:
        one = forked.start(
            MODULE, ["--help"], out=log.fileno(), err=log.fileno(), environment={**os.environ, name: "7"}
        )
    assert isinstance(one, subprocess.Popen)
    assert one.wait(LONG_S) == 0


INTERRUPTED = f"""
import os, signal, sys
from tests import forked

def code():
    ran = forked.run({MODULE!r}, "--help", environment=forked.started_with(), timeout={LONG_S})
    return ran.returncode

assert code() == 0
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.killpg(0, signal.SIGINT)
sys.exit(code())
"""


def test_what_interrupts_the_tests_at_a_keyboard_does_not_end_what_they_have_begun() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    ended = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    assert ended.returncode == 0, ended.stderr
