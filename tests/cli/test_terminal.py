"""What a person sees: the live screen, questions, progress, and lines that fit."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Terminal

pytestmark = pytest.mark.real

CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def lines_of(shown: str) -> list[str]:
    return [line.rpartition("\r")[2] for line in CODES.sub("", shown).replace("\r\n", "\n").split("\n")]


def test_a_question_before_deleting(live: Any) -> None:
    live("compute", "create", "asked", "--cpus", "1").check()
    with live.terminal("compute", "delete", "asked") as terminal:
        terminal.until("Delete asked (1 nodes, ready)? [y/N]")
        terminal.type("n\n")
        ended = terminal.end()
        assert ended.code == 4
        assert "nothing was deleted" in ended.out
    with live.terminal("compute", "delete", "asked") as terminal:
        terminal.until("[y/N]")
        terminal.type("y\n")
        ended = terminal.end().check()
        assert "asked is deleted" in ended.out


def test_progress_is_shown_and_taken_away(live: Any) -> None:
    with live.terminal("compute", "create", "moving", "--cpus", "1") as terminal:
        shown = terminal.end().check().out
    live("compute", "delete", "moving", "--yes").check()
    assert "moving: " in shown
    assert "0/1 nodes ready" in shown
    assert lines_of(shown)[-2].endswith("moving is ready: 1 of 1 nodes")


GOES_ON = """
import sys
from sky.cli import output
with output.waiting("it goes on …"):
    sys.stdin.readline()
    output.say("first")
    sys.stdin.readline()
output.say("last")
"""
GOING_ON = re.compile(r"it goes on … \d+ s")


def test_what_goes_on_in_silence_says_for_how_long(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GOES_ON]
    with Terminal(command, {**os.environ, "TERM": "xterm-256color"}, tmp_path) as terminal:
        terminal.until(GOING_ON)
        terminal.type("\n")
        terminal.until("first")
        terminal.shown = ""
        terminal.until(GOING_ON)
        terminal.type("\n")
        ended = terminal.end().check()
    assert lines_of(ended.out)[-2] == "last", "the line that moved is gone"


WAITS = """
import pathlib, time

def waits_for(mark: str):
    print("\\r 10%\\r 20% of it", flush=True)
    while not pathlib.Path(mark).exists():
        time.sleep(0.02)
"""


def test_the_live_screen(on_daemon: Any, dev: str) -> None:
    mark = on_daemon.folder / "mark"
    (on_daemon.folder / "waits.py").write_text(WAITS)
    running = on_daemon.begin("run", "--compute", dev, "waits.py:waits_for", str(mark))
    with on_daemon.terminal("compute", "view", dev) as terminal:
        for shown in ("1 running, 0 queued", "waits_for", "RANK", "/h", "so far", "20% of it", "q quits"):
            terminal.until(shown)
        while not re.search(r"\d%.*\d%.*\d%.*nod_", terminal.until("nod_")):  # processor, memory, disk
            terminal.shown = ""
        terminal.resize(160, 40)
        terminal.until("░")  # there is room for bars now
        terminal.resize(17, 4)
        terminal.shown = ""
        terminal.until("q quits")
        terminal.type("q")
        ended = terminal.end().check()
        assert "Traceback" not in ended.out
        assert "\x1b[?1049l" in ended.out, "the screen was not given back"
        assert terminal.echoes()
    with on_daemon.terminal("compute", "view", dev, NO_COLOR="1") as terminal:
        terminal.until("q quits")
        terminal.type("\x03")
        ended = terminal.end()
        assert ended.code == 130
        assert "\x1b[?1049l" in ended.out
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", ended.out)
    mark.touch()
    running.communicate(timeout=60)
    assert running.returncode == 0


def test_a_shell_is_a_terminal(on_daemon: Any, dev: str) -> None:
    with on_daemon.terminal("compute", "shell", dev) as terminal:
        terminal.type("tty && stty size\n")
        terminal.until("24 80")
        assert "/dev/pts/" in terminal.shown
        # Ctrl-C belongs to the program on the node. One process says it and sleeps: between two commands
        # it would be the shell's.
        terminal.type("sh -c \"echo slee''ping; exec sleep 50\"\n")
        terminal.until("sleeping")
        terminal.type("\x03")
        terminal.until("^C")  # what was typed before it is thrown away
        terminal.type("echo still $((1 + 1)) here\n")
        terminal.until("still 2 here")
        terminal.resize(99, 33)
        for look in range(1000):
            terminal.type(f"stty size; echo lo''oked {look}\n")
            if "33 99" in terminal.until(f"looked {look}"):
                break
        assert "33 99" in terminal.shown
        terminal.type("exit 7\n")
        terminal.end().check(7)


def test_the_exit_code_of_a_shell_is_that_of_the_command(on_daemon: Any, dev: str) -> None:
    on_daemon("compute", "shell", dev, "exit 5").check(5)
    on_daemon("compute", "shell", dev, "kill -9 $$").check(137)
    ended = on_daemon("compute", "shell", dev, stdin="echo $((6 * 7))\nexit 6\n").check(6)
    assert "42" in ended.out


def test_a_terminal_is_as_before_whatever_ends_its_shell(on_daemon: Any, dev: str) -> None:
    with on_daemon.terminal("compute", "shell", dev) as terminal:
        terminal.type("echo he''re\n")
        terminal.until("here")
        assert not terminal.echoes()
        terminal.signal(signal.SIGTERM)
        assert terminal.end().code == 143
        assert terminal.echoes()


def test_tables_fit_the_terminal(on_daemon: Any, dev: str) -> None:
    for words in (
        ["compute", "list"],
        ["compute", "get", dev],
        ["task", "list"],
        ["offers"],
        ["provider", "list"],
    ):
        with on_daemon.terminal(*words) as terminal:
            shown = terminal.end().check().out
        assert max(map(len, lines_of(shown))) <= 80, shown
