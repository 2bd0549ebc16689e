"""Turns one short-lived process into a node's agent. Run as a script, with the standard library alone.

Decides: the order in which a node comes to be: its own session, its limits, its identity on disk, its
program. Never: imports the product, or outlives the moment in which the agent begins.
Follows: the agent is nobody's child, so the daemon may die or stay without leaving a zombie; and once
its program runs, the file that says who it is has been written, by itself, under the lock it inherits.

    start.py FOLDER PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

IDENTITY = Path("agent.pid")
OOM_SCORE = "500"
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)


def write_identity() -> None:
    """This process as ``agent.pid``: its number, its start in clock ticks, and this boot of the computer."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
    start_ticks = int(stat.rpartition(")")[2].split()[19])
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    new = IDENTITY.with_suffix(".new")
    new.write_text(f'{{"pid":{os.getpid()},"start_ticks":{start_ticks},"boot":"{boot}"}}', encoding="ascii")
    new.replace(IDENTITY)


def limit() -> None:
    """No core dumps, and first to go when the computer's memory runs out.

    The other limits are not set here: the agent sets them for its workers, so that it outlives them.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, encoding="ascii")
    except OSError as error:
        sys.stderr.write(f"the kernel's choice in a shortage of memory stays as it is: {error}\n")


def become(folder: str, program: list[str]) -> None:
    """Never returns: this process is the agent from now on."""
    os.setsid()
    os.umask(0o077)
    os.chdir(folder)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    limit()
    write_identity()
    try:
        os.execv(program[0], program)
    except OSError:
        IDENTITY.unlink()
        raise


def main(arguments: list[str]) -> int:
    """0 once the agent's program runs; otherwise the reason is on stderr."""
    folder, program = arguments[0], arguments[1:]
    begun, say = os.pipe()
    if os.fork() == 0:
        try:
            os.close(begun)
            become(folder, program)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"the node's agent did not begin: {error}\n")
            os.write(say, b"failed")
        os._exit(1)
    os.close(say)
    # The other end closes by itself in the moment in which the agent's program begins.
    return 1 if os.read(begun, 16) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
