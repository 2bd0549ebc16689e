"""The steps of a cluster's job on a node: bring files, run a script.

Decides: where a cluster's files are on a node, and how its scripts run there. Never: lets an archive write
outside of where it belongs. Follows: a script that is stopped leaves no process; files that are there
already are not brought again.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from sky.agent import leftovers
from sky.agent.brought import Marks
from sky.agent.job_node import JobNode
from sky.agent.surroundings import BOOT_VARIABLE
from sky.wire.scripts import PYTHON_VARIABLE, WORKDIR, Bring, Script, Step, home_of
from sky.wire.steps import Failed, Outcome

MARKS = ".sky_files"
ONLY = "only"
"""What the one file of an archive is called before it is in its place: what it says itself is not heeded."""
NOT_RUNNABLE = 126
GRACE_S = 4.0
"""Between SIGTERM and SIGKILL: less than an agent gives the worker that runs the script."""
POLL_S = 0.2
UNPACKED_BYTES_MAX = 100 * 1024**3
UNREADABLE = (OSError, tarfile.TarError, EOFError, zlib.error, ValueError)
"""What an archive raises that is none, or ends too early, or leads elsewhere."""
PASSED = ("PATH", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME")


def do(step: Step, content: bytes | None, path: str | None, node: JobNode) -> Outcome:
    """Do a step; what comes along is the archive of one that brings files."""
    home = _home(step.cluster)
    (home / WORKDIR).mkdir(parents=True, exist_ok=True, mode=0o700)
    if isinstance(step, Bring):
        try:
            _bring(step, content, path, home)
        except UNREADABLE as error:
            return Outcome(failed=Failed("files", f"{step.target}: {error}"))
        return Outcome(exit_code=0)
    return _run(step, home, node)


def _home(cluster: str) -> Path:
    """The home of a cluster on this node; its scripts find it as ``HOME``."""
    return Path.cwd() / home_of(cluster)


def _bring(step: Bring, content: bytes | None, path: str | None, home: Path) -> None:
    target = _target(step.target, home)
    marks = Marks(home / MARKS)
    if marks.stands(step.digest, target):
        return
    if step.clear and target.is_dir():
        shutil.rmtree(target)
    folder = target.parent if step.single else target
    folder.mkdir(parents=True, exist_ok=True)
    inline = None if content is None else io.BytesIO(content)
    with tarfile.open(path, mode="r:gz", fileobj=inline) as archive:
        members = archive.getmembers()
        if sum(member.size for member in members) > UNPACKED_BYTES_MAX:
            raise ValueError(f"it unfolds to more than {UNPACKED_BYTES_MAX} bytes")
        if step.single:
            _unpack_single(archive, members, target)
            brought = [target]
        else:
            for member in members:
                archive.extract(member, folder, filter=_fresh)
            brought = [folder / member.name for member in members]
    marks.note(step.digest, target, brought)


def _unpack_single(archive: tarfile.TarFile, members: Sequence[tarfile.TarInfo], target: Path) -> None:
    """Put the one file of an archive in its place, whatever it is called there."""
    if len(members) != 1 or not members[0].isreg():
        raise ValueError("the archive of a single file has something else in it")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".sky-") as apart:
        file = members[0].replace(name=ONLY, deep=False)
        archive.extract(file, apart, filter=_fresh)
        (Path(apart) / ONLY).replace(target)


def _fresh(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo:
    """A member as it is unpacked: inside of the folder, instead of a file that somebody may be reading. One
    that tells no time is of now, so that what is built from it is built again."""
    safe = tarfile.data_filter(member, folder)
    if not safe.isdir():
        (Path(folder) / safe.name).unlink(missing_ok=True)
    untimed = cast("Any", None)
    return safe.replace(mtime=untimed, deep=False) if member.mtime == 0 else safe


def _target(text: str, home: Path) -> Path:
    """Where files go: ``~/`` is the cluster's home, what is relative its working folder."""
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    return Path(text) if text.startswith("/") else home / WORKDIR / text


def _run(step: Script, home: Path, node: JobNode) -> Outcome:
    environment = {name: os.environ[name] for name in PASSED if name in os.environ}
    environment |= {"HOME": str(home), "PWD": str(home / WORKDIR), **step.env}
    environment |= {PYTHON_VARIABLE: sys.executable, BOOT_VARIABLE: node.boot}
    try:
        process = subprocess.Popen(
            ["bash", "-c", step.text],
            cwd=home / WORKDIR,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # too long; or with a NUL, which no command can have
        return Outcome(exit_code=NOT_RUNNABLE, failed=Failed("bash", f"bash cannot be started: {error}"))
    try:
        process.wait()
    finally:
        _end(process)
    return Outcome(exit_code=_code(process.returncode))


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
        deadline_s = time.monotonic() + GRACE_S
        while process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
    leftovers.kill_session(process.pid)
    process.wait()


def _code(returned: int) -> int:
    """An exit code as a shell tells it."""
    return 128 - returned if returned < 0 else returned
