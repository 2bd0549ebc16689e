"""Ports for what tests start.

Decides: that a port is given once, to one process among all that run tests on this computer, and stays that
one's until it ends: also while what listened there is away and comes again. Never: gives one of those that
the kernel takes for connections, or for whoever lets it choose.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

FIRST, LAST = 10_000, 20_000
"""Below what Linux takes by itself, unless it is told otherwise, and below where nodes choose for themselves:
the ranks of a call, and lines into pods."""
TRIES = 1_000
_chance = random.SystemRandom()  # which no test has seeded
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on now, and that no other test is given."""
    for _ in range(TRIES):
        port = _chance.randrange(FIRST, LAST)
        if port not in _given and _claimed(port) and _is_free(port):
            _given.add(port)
            return port
    raise RuntimeError(f"none of {TRIES} ports from {FIRST} to {LAST} was free")


def _claimed(port: int) -> bool:
    """Lock the byte of that number in a file that all share; the kernel gives it back when we end."""
    try:
        fcntl.lockf(_book(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _book() -> int:
    path = Path(tempfile.gettempdir()) / f"sky-tests-ports-{os.geteuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
