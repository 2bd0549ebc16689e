"""The demo as a person runs it: what it prints, and that nothing stays behind, however it ends.

Decides: real processes, signals at moments spread over the whole run, and a look at every process and file
afterwards. Never: looks inside. Follows: all of its files and processes carry the name of a folder that only
this test has, so what is left over is found whoever started it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEMO = [sys.executable, str(ROOT / "scripts/with_daemon"), str(ROOT / "examples/digits.py")]
END_S = 100.0

pytestmark = [pytest.mark.real, pytest.mark.timeout(300), pytest.mark.xdist_group("demo")]


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SKY_")}
    environment |= {"TMPDIR": str(folder), "HOME": str(folder / "home"), "COLUMNS": "110"}
    (folder / "home").mkdir()
    demo = subprocess.Popen(
        [*DEMO, *more],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    # Before it has made its folder it has nothing to leave behind, and an interpreter that is only starting
    # says so in its own way.
    deadline_s = time.monotonic() + END_S
    while not list(folder.glob("skyfleet-*")) and demo.poll() is None:
        assert time.monotonic() < deadline_s, "the demo did not begin"
        time.sleep(0.005)
    return demo


def processes_of(folder: Path) -> list[str]:
    """The command lines of processes that have the folder in their environment or arguments."""
    mark, found = os.fsencode(folder), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if mark in line + environment and int(entry.name) != os.getpid():
            found.append(f"{entry.name} {line.replace(bytes(1), b' ').decode(errors='replace')}")
    return found


def check_nothing_is_left(folder: Path) -> None:
    assert processes_of(folder) == []
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) == ["home"]


def test_demo_shows_its_trials_and_leaves_nothing(tmp_path: Path) -> None:
    demo = start(tmp_path, "--epochs", "10")  # enough to learn; a longer training shows nothing else
    printed, _ = demo.communicate(timeout=250)
    assert demo.returncode == 0, printed
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] and line.split()[0].isdigit()]
    table = [row for row in rows if len(row) >= 6][-24:]
    assert sorted(int(row[0]) for row in table) == list(range(1, 25))
    assert {row[-1] for row in table} == {"0", "1"}, "both nodes worked"
    assert max(float(row[4]) for row in table) > 0.9
    for word in ("best accuracy", "wall time", "machine seconds", "cost"):
        assert word in printed
    check_nothing_is_left(tmp_path)


def read_until(demo: subprocess.Popen[str], text: str) -> str:
    """What it printed up to and with the first line that has ``text``; "" for none."""
    assert demo.stdout is not None
    lines: list[str] = []
    while text and text not in "".join(lines[-1:]):
        lines.append(demo.stdout.readline())
        assert lines[-1], "".join(lines)
    return "".join(lines)


@pytest.mark.parametrize(
    ("line", "more_s"),
    [
        ("", 0.0),
        ("", 0.6),
        ("", 1.5),
        ("are ready", 0.0),
        ("1/24", 0.1),
        ("24/24", 0.0),
    ],
)
def test_interrupted_demo_leaves_nothing(line: str, more_s: float, tmp_path: Path) -> None:
    demo = start(tmp_path, "--epochs", "1")
    printed = read_until(demo, line)
    time.sleep(more_s + random.uniform(0, 0.3))  # a moment, not a wait for anything
    os.killpg(demo.pid, signal.SIGINT)
    printed += demo.communicate(timeout=END_S)[0]
    # A demo that was through before the signal reached it has ended well.
    through = "an hour" in printed
    assert demo.returncode == 128 + signal.SIGINT or (through and demo.returncode == 0), printed
    assert "Traceback" not in printed
    check_nothing_is_left(tmp_path)


def test_demo_that_is_interrupted_twice_leaves_nothing(tmp_path: Path) -> None:
    demo = start(tmp_path, "--epochs", "1")
    printed = read_until(demo, "1/24")
    os.killpg(demo.pid, signal.SIGINT)
    time.sleep(0.1)  # as quickly as a person does it
    os.killpg(demo.pid, signal.SIGINT)
    printed += demo.communicate(timeout=END_S)[0]
    assert demo.returncode == 128 + signal.SIGINT, printed
    check_nothing_is_left(tmp_path)
