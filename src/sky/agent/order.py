"""The process around calls as each of them should find it, whatever the call before it did.

Decides: what is put back between two calls (working folder, environment, umask, limits, signals, timers,
streams, interpreter switches), and when that cannot be done, so that the process must be given up.
Never: touches what warm workers are for: imported modules and their globals stay as calls leave them.
Follows: a call cannot break the next one by what it did to its process; looking costs a few microseconds.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

LIMITS = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_AS,
    resource.RLIMIT_DATA,
    resource.RLIMIT_STACK,
    resource.RLIMIT_CORE,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_CPU,
)
HANDLED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
    signal.SIGCHLD,
)
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
OUTPUTS = (1, 2)
PEERS_VARIABLE = b"SKYWARD_PEERS"
"""Where functions written for the published client library find the addresses of all nodes, by rank."""
_handler_of: Callable[[int], Any] = vars(signal)["_signal"].getsignal
"""``signal.getsignal`` without making a member of an enumeration of each answer: a microsecond a signal."""
_spoiled: list[str] = []


def spoil(why: str) -> None:
    """Have no other call begin in this process: what ``why`` tells cannot be put back."""
    _spoiled.append(why)


def _variables() -> Mapping[bytes, bytes]:
    """The environment as it is kept: comparing what ``os.environ`` shows would decode all of it first."""
    return vars(os.environ)["_data"]


class Order:
    """How the process was before its first call. ``restore`` between calls, when none is running."""

    def __init__(self) -> None:
        self._folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._environment = dict(_variables())
        self._peers: tuple[str, ...] | None = None
        self._limits = {name: resource.getrlimit(name) for name in LIMITS}
        self._priority = os.getpriority(os.PRIO_PROCESS, 0)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = {number: _handler_of(number) for number in HANDLED}
        self._outputs = [_identity(fd) for fd in OUTPUTS]
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._main = sys.modules.get("__main__")
        self._table = sys.modules
        self._modules = len(sys.modules)
        self._path = tuple(sys.path)
        self._recursion = sys.getrecursionlimit()
        self._timeout = socket.getdefaulttimeout()
        self._tracing = sys.gettrace(), sys.getprofile()

    def tell_peers(self, peers: tuple[str, ...]) -> None:
        """A call with these peers comes next: its environment names them, which is in order."""
        if peers != self._peers:
            self._peers = peers
            self._environment[PEERS_VARIABLE] = os.environb[PEERS_VARIABLE] = os.fsencode(",".join(peers))

    def restore(self) -> str | None:
        """Put back what was changed. What cannot be, if anything: no other call may begin here then."""
        if _spoiled:
            return _spoiled[0]
        try:
            return self._interpreter() or self._process()
        except (OSError, TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    def _interpreter(self) -> str | None:
        if sys.gettrace() is not self._tracing[0]:
            sys.settrace(self._tracing[0])
        if sys.getprofile() is not self._tracing[1]:
            sys.setprofile(self._tracing[1])
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
        if not gc.isenabled():
            gc.enable()
        if socket.getdefaulttimeout() != self._timeout:
            socket.setdefaulttimeout(self._timeout)
        sys.stdin, sys.stdout, sys.stderr = self._streams
        if sys.modules is not self._table:
            sys.modules = self._table
        if self._main is not None and sys.modules.get("__main__") is not self._main:
            sys.modules["__main__"] = self._main
        if len(sys.modules) < self._modules:
            return "modules were taken out of sys.modules"
        self._modules = len(sys.modules)
        gone = [entry for entry in self._path if entry not in sys.path]
        if gone:
            sys.path[:] = [*self._path, *(entry for entry in sys.path if entry not in self._path)]
        return None

    def _process(self) -> str | None:
        os.umask(self._umask)
        if _variables() != self._environment:
            self._restore_environment()
        for name, limit in self._limits.items():
            if resource.getrlimit(name) != limit:
                resource.setrlimit(name, limit)
        if os.getpriority(os.PRIO_PROCESS, 0) != self._priority:
            os.setpriority(os.PRIO_PROCESS, 0, self._priority)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        if threading.current_thread() is threading.main_thread():
            for timer in TIMERS:
                signal.setitimer(timer, 0)
            for number, handler in self._handlers.items():
                if _handler_of(number) is not handler:
                    signal.signal(number, handler)
        if [_identity(fd) for fd in OUTPUTS] != self._outputs:
            return "standard output or error was closed or replaced"
        os.fchdir(self._folder)
        return None

    def _restore_environment(self) -> None:
        found, wanted = _variables(), self._environment
        for name in [name for name in found if name not in wanted]:
            del os.environb[name]
        for name in [name for name in wanted if found.get(name) != wanted[name]]:
            os.environb[name] = wanted[name]


def _identity(fd: int) -> Any:
    """What a descriptor is open for; None when it is closed."""
    try:
        found = os.fstat(fd)
    except OSError:
        return None
    return found.st_dev, found.st_ino
