"""Commands without what each pays to load itself: one process has loaded them, and is forked for each.

Decides: what of the caller's a forked command has: its words, environment, folder and pipes, as one that is
executed. Never: runs a command in the process that loaded it, so that none sees what another left behind.
Follows: a command is a process with an exit code of its own; what only its start can show (its terminal, what
the interpreter reads of the environment) is for tests that execute it.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import IO

from tests.conftest import DIES_WITH_US, STARTER

LOADER = '''
import array, json, os, signal, socket, sys, time

def command(words, environment, folder, files):
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", errors=errors, buffering=1 if number == 2 else -1)
        for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    sys.argv = [sys.argv[2], *words]
    sys.path[0] = os.path.dirname(sys.argv[0])
    return main()

def served(listener):
    """Fork for every command; returns its exit code, in its own process, or never."""
    while True:
        caller, _ = listener.accept()
        if os.fork():
            caller.close()
            continue
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        told, control, _, _ = caller.recvmsg(1 << 20, socket.CMSG_SPACE(16))
        files = list(array.array("i", control[0][2]))
        while not told.endswith(b"\\n"):
            told += caller.recv(1 << 20)
        pid = os.fork()
        if pid == 0:
            caller.close()
            return command(*json.loads(told), files)
        for file in files:
            os.close(file)
        caller.sendall(b"%d\\n" % pid)
        _, status = os.waitpid(pid, 0)
        caller.sendall(b"%d\\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)

listener = socket.socket(fileno=int(sys.argv[1]))
exec(sys.argv[3])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
sys.exit(served(listener))
'''
OURS = """
import asyncio, cyclopts.help, rich.console, rich.table, yaml
from sky.cli.main import main
import sky.cli.app, sky.cli.connection, sky.cli.output
import sky.client.attempts, sky.client.http, sky.client.request
"""
"""What is loaded for the command of this project, and its ``main``."""
ASKING = """
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect(sys.argv[1])
told = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode() + b"\\n"
sent = socket.send_fds(line, [told], [0, 1, 2])
line.sendall(told[sent:])
pid, code = line.makefile("rb")
sys.exit(int(code) if int(code) >= 0 else 128 - int(code))
"""
READ_AT_START = ("PYTHON", "LC_", "LANG")
"""Variables that the interpreter reads when it starts."""


STDIN_BYTES_MAX = 32 * 1024
"""What a pipe takes before anybody reads it."""


class Loaded:
    """The process that is forked: ``python`` runs ``loads``, in which is the ``main`` of ``command``."""

    def __init__(self, command: Path, python: Path, loads: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sky-loaded-")
        self._name = command.name
        self._path = str(Path(self._folder.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._path)
            listener.listen()
            words = [str(python), "-c", LOADER, str(listener.fileno()), str(command), loads]
            self._process = STARTER.submit(
                subprocess.Popen,
                [*DIES_WITH_US, *words],
                stdin=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
            ).result()
        atexit.register(self.stop)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def in_a_shell(self) -> str:
        """The command as a function of a shell's, with the shell's environment, folder and files."""
        words = shlex.join((sys.executable, "-I", "-S", "-c", ASKING, self._path))
        return f'{self._name}() {{ {words} "$@"; }}'

    def run(
        self, words: tuple[str, ...], stdin: str, environment: dict[str, str], folder: Path, timeout_s: float
    ) -> tuple[int, str, str]:
        """How a command ended, and what it wrote to each stream. Raises TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        with ExitStack() as stack:
            caller = stack.enter_context(socket.socket(socket.AF_UNIX))
            caller.settimeout(timeout_s)
            caller.connect(self._path)
            (stdin_end, typed), *written = (_pipe(stack) for _ in range(3))
            typed.write(stdin.encode())
            typed.close()
            told = json.dumps([words, environment, str(folder)]).encode() + b"\n"
            ends = [stdin_end, *(end for _, end in written)]
            sent = socket.send_fds(caller, [told], [end.fileno() for end in ends])
            caller.sendall(told[sent:])
            for end in ends:
                end.close()
            answer = stack.enter_context(caller.makefile("rb"))
            pid = int(answer.readline())
            try:
                out, err = _read([end for end, _ in written], deadline_s)
                return int(answer.readline()), out, err
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise


def takes(stdin: str, environment: dict[str, str]) -> bool:
    """Whether a command that is forked is as one that is executed with these."""
    both = {*environment, *os.environ}
    return len(stdin) < STDIN_BYTES_MAX and all(
        environment.get(name) == os.environ.get(name) for name in both if name.startswith(READ_AT_START)
    )


@cache
def loaded(command: Path, python: Path = Path(sys.executable), loads: str = OURS) -> Loaded:
    """The one of this worker."""
    return Loaded(command, python, loads)


def _pipe(stack: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    reader, writer = os.pipe()
    return (
        stack.enter_context(open(reader, "rb", buffering=0)),
        stack.enter_context(open(writer, "wb", buffering=0)),
    )


def _read(ends: list[IO[bytes]], deadline_s: float) -> tuple[str, ...]:
    """All that is written into pipes until nobody has their other ends, as text."""
    parts: dict[IO[bytes], bytes] = dict.fromkeys(ends, b"")
    with selectors.DefaultSelector() as selector:
        for end in ends:
            selector.register(end, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise TimeoutError(parts)
            for key, _ in ready:
                end = next(one for one in ends if one is key.fileobj)
                piece = os.read(key.fd, 65536)
                parts[end] += piece
                if not piece:
                    selector.unregister(end)
    return tuple(part.decode().replace("\r\n", "\n") for part in parts.values())
