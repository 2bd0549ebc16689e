"""A paid command as processes of this node itself, where the operator allows it: the image ``local``.

Decides: its environment and its folders. Never: leaves a process of it behind (see ``job_view``).
Follows: a command that is over its time gets SIGTERM, thirty seconds, and SIGKILL; one whose call
is cancelled ends with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from sky.agent import leftovers
from sky.agent.job_node import JobNode, mounts, tell, variables
from sky.agent.surroundings import BOOT_VARIABLE
from sky.wire.steps import STOP_GRACE_SECONDS, Order, Outcome

POLL_S = 0.2
NOT_RUNNABLE = 126
PASSED = ("PATH", "LANG", "TZ")
_VIEW = Path(__file__).with_name("job_view.py")


def run(order: Order, node: JobNode) -> Outcome:
    """Run the command to its end, or as long as it may."""
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    # By its boot what is left of a command is found when the worker that began it was killed.
    environment |= {"HOME": str(node.home(order)), BOOT_VARIABLE: node.boot}
    environment |= variables(order, node)
    places = ",".join(mounts(order))
    program = [sys.executable, "-I", "-S", str(_VIEW), str(os.getpid()), str(node.root(order)), places]
    node.home(order).mkdir(parents=True, exist_ok=True)
    try:
        process = subprocess.Popen(
            [*program, *order.command],
            cwd=node.home(order),
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        tell(f"the command cannot be started: {error}")
        return Outcome(exit_code=NOT_RUNNABLE)
    deadline_s = time.monotonic() + order.max_runtime_seconds
    try:
        while process.poll() is None and time.monotonic() < deadline_s:
            _wait(process, min(POLL_S, max(0.0, deadline_s - time.monotonic())))
        timed_out = process.poll() is None
    finally:
        _end(process)
    return Outcome(exit_code=_code(process.returncode), timed_out=timed_out)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of the command's session behind."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        _wait(process, STOP_GRACE_SECONDS)
    leftovers.kill_session(process.pid)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _code(returned: int) -> int:
    """An exit code as a shell tells it: 128 and the signal for a command that died of one."""
    return 128 - returned if returned < 0 else returned
