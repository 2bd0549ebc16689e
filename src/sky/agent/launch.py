"""Starting a worker process, with its socket, its pipes and its board.

Decides: the command line, what the process inherits, and its process group. Never: speaks to it.
Follows: a worker that cannot be started leaves nothing open; the kernel kills one whose agent dies, because
the agent's own main thread starts it.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sky.agent.board import Board
from sky.agent.frames import Setup
from sky.agent.reporter import StreamName

STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")


class Plan(msgspec.Struct, frozen=True):
    """How workers of this node are started."""

    python: str
    environment: Mapping[str, str]
    setup: Setup
    work: Path


class Started(msgspec.Struct, frozen=True):
    """A process that runs, and our ends of what connects us."""

    process: subprocess.Popen[bytes]
    socket: socket.socket
    pipes: dict[StreamName, int]
    board: Board


def launch(plan: Plan) -> Started:
    """Start a worker. Raises OSError, and then nothing is left open."""
    board = Board.create(plan.setup.slots)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ends: dict[StreamName, tuple[int, int]] = {name: os.pipe() for name in STREAMS}
    arguments = (theirs.fileno(), board.fd, os.getpid())
    try:
        process = subprocess.Popen(
            [plan.python, "-P", "-m", "sky.agent.child", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=ends["stdout"][1],
            stderr=ends["stderr"][1],
            pass_fds=arguments[:2],
            env=plan.environment,
            cwd=plan.work,
            process_group=0,
        )
    except OSError:
        ours.close()
        board.close()
        for read_end, _ in ends.values():
            os.close(read_end)
        raise
    finally:
        theirs.close()
        for _, write_end in ends.values():
            os.close(write_end)
    pipes: dict[StreamName, int] = {name: read_end for name, (read_end, _) in ends.items()}
    for read_end in pipes.values():
        os.set_blocking(read_end, False)
    return Started(process, ours, pipes, board)
