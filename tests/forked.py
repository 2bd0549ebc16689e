"""Daemons, and what else is run as ``python -m``, without what each pays to load itself.

Decides: that such a module is forked off a process that has loaded, once, what it loads before it reads its
arguments: a process of its own as any other, with its arguments, environment, folder, output and exit code.
Never: for whoever is told something that is read while it is loaded: that is a process from its beginning.
Follows: this file is what runs there too; it ends with who began it, and all that it began with it. What only
a start can show (its command line, how long it takes) is for tests that execute it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any

DIES_WITH_US = (shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL", "--")
"""Before a command: it ends when this process does, however that ends. To the kernel that is the thread."""
STARTER = ThreadPoolExecutor(1, "starts-processes")
"""The thread that starts them lives as long as we do; one that a test has of its own may not."""
ORDER_BYTES = 1 << 18
SHOWN_BYTES = 1000
"""Room for the command line that one that is begun shows of itself."""
PR_SET_PDEATHSIG = 1
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "TZ", "SSL_", "OPENSSL_", "OTEL_")
"""How variables begin that the interpreter, or what is loaded, reads when it starts."""


class Forked:
    """A process that was begun so; what there is of it is as of ``subprocess.Popen``."""

    def __init__(self, args: Sequence[str], told: int) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._told = os.fdopen(told, "rb", 0)
        began = self._told.readline()
        if not began:
            raise RuntimeError(f"who begins {self.args} has ended")
        self.pid = int(began)

    def poll(self) -> int | None:
        """Its exit code, or that of the signal that ended it, negative; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The same, waited for."""
        if self.returncode is None:
            readable, _, _ = select.select([self._told], [], [], timeout)
            if not readable:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            with self._told as told:
                word = told.readline()
            self.returncode = int(word) if word else -signal.SIGKILL  # it went with who began it
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal while it runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    module: str,
    arguments: Sequence[str],
    *,
    out: int,
    err: int,
    environment: Mapping[str, str],
    executed: bool = False,
) -> Forked | subprocess.Popen[bytes]:
    """``python -m module arguments`` in a session of its own, with its output in these two files."""
    if executed or _at_start(environment) != _at_start(started_with()):
        command = [*DIES_WITH_US, sys.executable, "-m", module, *arguments]
        started = STARTER.submit(
            subprocess.Popen,
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env=dict(environment),
        )
        return started.result()
    told, telling = os.pipe()
    try:
        order = json.dumps([arguments, dict(environment), str(Path.cwd())]).encode()
        socket.send_fds(_server(module)[0], [order], [out, err, telling])
    finally:
        os.close(telling)
    return Forked([sys.executable, "-m", module, *arguments], told)


def run(
    module: str, *arguments: str, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """``python -m module arguments``, once it has ended, and what it wrote. Raises TimeoutExpired."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        running = start(module, arguments, out=out.fileno(), err=err.fileno(), environment=environment)
        try:
            code = running.wait(timeout)
        finally:
            running.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(running.args, code, out.read().decode(), err.read().decode())


def _at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """What of it is perhaps read while a module is loaded."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


@cache
def started_with() -> dict[str, str]:
    """The environment of those who serve: what was ours when this was first asked."""
    return dict(os.environ)


@cache
def _server(module: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """How and who is asked for processes of a module."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * ORDER_BYTES)
    command = [
        *DIES_WITH_US,
        sys.executable,
        "-P",
        str(Path(__file__).resolve()),
        module,
        str(theirs.fileno()),
        " " * SHOWN_BYTES,
    ]
    with theirs:
        server = STARTER.submit(
            subprocess.Popen,
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # an interrupt at the keyboard is for us: we end what we began, in order
            env=started_with(),
        )
        serving = server.result()
    return ours, serving


# ── there ───────────────────────────────────────────────────────────────────────────────────────


def _load(module: str) -> None:
    """Load what it loads before it reads its arguments: it is asked how it is used."""
    with (
        open(os.devnull, "w") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
        suppress(SystemExit),
    ):
        importlib.import_module(module).main(["--help"])
    del sys.modules[module]  # it is run as a command, and as nothing else
    gc.collect()
    gc.freeze()


def _serve(module: str, asking: socket.socket) -> list[str] | None:
    """Begin what is asked for until nobody can ask any more; in each that is begun, return its arguments."""
    begun: dict[int, int] = {}
    woken, waking = os.pipe()
    for end in (woken, waking):
        os.set_blocking(end, False)
    before = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(waking)
    server = os.getpid()
    while True:
        ready, _, _ = select.select([asking, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ended(begun)
        if asking not in ready:
            continue
        order, files, _, _ = socket.recv_fds(asking, ORDER_BYTES, 3)
        if not order:
            return None
        out, err, telling = files
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, before)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.setsid()
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != server:  # which had ended before it was asked for
                os._exit(1)
            os.write(telling, f"{os.getpid()}\n".encode())
            asking.close()
            for descriptor in (woken, waking, *files, *begun.values()):
                os.close(descriptor)
            return _become(module, *json.loads(order))
        begun[pid] = telling
        os.close(out)
        os.close(err)


def _tell_ended(begun: dict[int, int]) -> None:
    """Tell of each that has ended how it has."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            telling = begun.pop(ended[0])
            with suppress(BrokenPipeError):
                os.write(telling, f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())
            os.close(telling)


def _become(module: str, arguments: list[str], environment: dict[str, str], folder: str) -> list[str]:
    """Be as one that was started with these."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.path[0] = folder
    sys.orig_argv[1:] = ["-m", module, *arguments]
    _show(sys.orig_argv)
    gc.unfreeze()
    gc.enable()
    return arguments


def _show(words: Sequence[str]) -> None:
    """Show these as the command line: the kernel reads them where the process keeps its own."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    shown = "".join(f"{word}\0" for word in words).encode()[: end - start - 1]
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def _main() -> Any:
    module, descriptor = sys.argv[1:3]
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    _load(module)
    arguments = _serve(module, socket.socket(fileno=int(descriptor)))
    if arguments is None:
        return None
    sys.argv[1:] = arguments
    return module


if __name__ == "__main__":
    chosen = _main()
    if chosen is not None:
        runpy.run_module(chosen, run_name="__main__", alter_sys=True)
