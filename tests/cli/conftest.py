"""The command as a process: piped, or on a terminal of its own.

Decides: the environment a command sees (nothing of the caller's that it would listen to) and how long it may
take. Never: imports the command; everything is seen from outside.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from tests.cli import warm

TOGETHER = """
import contextlib, io, json, sys
from sky.cli.main import main
ended = []
for words in json.load(sys.stdin):
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
        out.flush(), err.flush()
    ended.append((code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()))
json.dump(ended, sys.stdout)
"""
SKY = Path(sys.executable).with_name("sky")
COMMAND_S = 100.0
SHOWN_S = 60.0
CLEARED = ("SKY_URL", "SKY_TOKEN", "SKY_HOME", "SKY_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
ESCAPE = re.compile(r"\x1b")


@dataclass
class Ended:
    """How a command ended and what it wrote. On a terminal everything is in ``out``."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)

    def check(self, code: int = 0) -> Ended:
        """The same, after making sure of the exit code, and that nobody was shown a stack trace."""
        assert self.code == code, f"exit code {self.code}\n{self.out}\n{self.err}"
        assert "Traceback" not in self.err
        return self


class Sky:
    """Runs ``sky`` with one state folder, from one working folder."""

    def __init__(self, home: Path, folder: Path, **more: str) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in CLEARED}
        self.environment = {**kept, "SKY_HOME": str(home), "HOME": str(folder), **more}
        self.home = home
        self.folder = folder

    def __call__(self, *words: str, stdin: str = "", timeout_s: float = COMMAND_S, **more: str) -> Ended:
        """Run a command with pipes and wait for its end."""
        environment = {**self.environment, **more}
        if warm.takes(stdin, environment):
            return Ended(*warm.loaded(SKY).run(words, stdin, environment, self.folder, timeout_s))
        done = subprocess.run(
            [SKY, *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            cwd=self.folder,
            timeout=timeout_s,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def json_of(self, *words: str, **more: str) -> Any:
        """What a command that worked told a program."""
        return self(*words, "-o", "json", **more).check().json()

    def together(self, commands: list[list[str]], timeout_s: float = COMMAND_S) -> list[Ended]:
        """Run commands one after the other in one process: loading it is most of what a small one costs."""
        done = subprocess.run(
            [sys.executable, "-c", TOGETHER],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            env=self.environment,
            cwd=self.folder,
            timeout=timeout_s,
            check=True,
        )
        return [Ended(*told) for told in json.loads(done.stdout)]

    def begin(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start a command with pipes."""
        return subprocess.Popen(
            [SKY, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **more},
            cwd=self.folder,
        )

    def terminal(self, *words: str, **more: str) -> Terminal:
        """Start a command on a terminal of 80 columns."""
        return Terminal(
            [str(SKY), *words], {**self.environment, "TERM": "xterm-256color", **more}, self.folder
        )


class Terminal:
    """A command on a pseudo terminal. Use it as a context manager."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.shown = ""
        # A character may come in two pieces.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pid, self._screen = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execve(command[0], command, environment)
        self._code: int | None = None
        self.resize(80, 24)

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size."""
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def echoes(self) -> bool:
        """Whether it shows what is typed, as a terminal does that nobody has changed."""
        return bool(termios.tcgetattr(self._screen)[3] & termios.ECHO)

    def signal(self, number: signal.Signals) -> None:
        """Tell the command."""
        os.kill(self._pid, number)

    def until(self, text: str | re.Pattern[str], timeout_s: float = SHOWN_S) -> str:
        """Read until ``text``, or what a pattern finds, was shown; everything shown so far."""
        sought = text if isinstance(text, re.Pattern) else re.compile(re.escape(text))
        deadline_s = time.monotonic() + timeout_s
        while not sought.search(self.shown):
            assert self._read(deadline_s), f"{text!r} was never shown:\n{self.shown}"
        return self.shown

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._screen, text.encode())

    def end(self, timeout_s: float = SHOWN_S) -> Ended:
        """Read until the command has ended."""
        deadline_s = time.monotonic() + timeout_s
        while self._read(deadline_s):
            pass
        if self._code is None:
            _, status = os.waitpid(self._pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
        return Ended(self._code, self.shown, "")

    def _read(self, deadline_s: float) -> bool:
        ready, _, _ = select.select([self._screen], [], [], max(0.0, deadline_s - time.monotonic()))
        assert ready, f"nothing more was shown, and it has not ended:\n{self.shown}"
        try:
            piece = os.read(self._screen, 65536)
        except OSError:
            return False
        self.shown += self._decoder.decode(piece)
        return bool(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._screen)


@pytest.fixture
def sky(tmp_path: Path) -> Sky:
    """The command of somebody who has no daemon."""
    return without_daemon(tmp_path)


@pytest.fixture(scope="module")
def ended_together(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, ...], Ended]:
    """How each of the module's ``TOGETHER`` commands ended, for somebody who has no daemon."""
    commands = [list(words) for words in request.module.TOGETHER]
    sky = without_daemon(tmp_path_factory.mktemp("together"))
    ended = dict(zip(map(tuple, commands), sky.together(commands), strict=True))
    assert not sky.home.exists(), "a command began a daemon"
    return ended


def without_daemon(place: Path) -> Sky:
    """A command with a state folder that does not exist, in a folder that is empty."""
    folder = place / "folder"
    folder.mkdir()
    return Sky(place / "home", folder)


@pytest.fixture
def live(daemon: Any, tmp_path: Path) -> Sky:
    """The command of whom the session's daemon belongs to."""
    return Sky(daemon.home, tmp_path)


@pytest.fixture(scope="module")
def on_daemon(daemon: Any, tmp_path_factory: pytest.TempPathFactory) -> Sky:
    """As ``live``, for the tests of a module that share a compute."""
    return Sky(daemon.home, tmp_path_factory.mktemp("folder"))


@pytest.fixture(scope="module")
def dev(on_daemon: Sky, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a compute of two nodes that is ready; deleted after the module."""
    name = f"dev-{request.module.__name__.rpartition('_')[2]}"
    on_daemon("compute", "create", name, "--nodes", "2", "--cpus", "1").check()
    yield name
    on_daemon("compute", "delete", name, "--yes").check()


@pytest.fixture
def eventually() -> Callable[[Callable[[], object], str], None]:
    """Looks again and again until something holds."""

    def wait(holds: Callable[[], object], what: str) -> None:
        deadline_s = time.monotonic() + COMMAND_S
        while not holds():
            assert time.monotonic() < deadline_s, what
            time.sleep(0.05)

    return wait
