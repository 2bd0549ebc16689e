"""Processes that must not outlive the agent that started them, and did.

Decides: whose they are, by a variable in their environment that no other agent's processes have.
Never: touches a process of another node, or of a newer agent in the same home.
Follows: the kernel kills workers when their agent dies; the warden, a shell that waits for the agent's end
and does nothing else, kills what those had started; a new agent in the home looks again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from sky.agent.surroundings import BOOT_VARIABLE, NODE_VARIABLE

PASSES_MAX = 20
PASS_PAUSE_S = 0.01
SESSION_FIELD = 3
"""Place of the session among the fields of ``/proc/<pid>/stat`` after the name."""

_WARDEN = r"""
trap '' HUP INT TERM
while read -r _; do :; done
for pass in 1 2 3 4 5 6 7 8 9 10; do
  found=$(grep -lzs -x -F "$SKY_WARDEN_MARK" /proc/[0-9]*/environ)
  [ -n "$found" ] || exit 0
  for file in $found; do
    pid=${file#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null
  done
done
"""


class Warden:
    """Kills everything marked with a boot once the agent that has it is gone, however it went."""

    def __init__(self, boot: str, environment: Mapping[str, str]) -> None:
        """Start it. Raises OSError."""
        own = {name: value for name, value in environment.items() if name != BOOT_VARIABLE}
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _WARDEN],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**own, "SKY_WARDEN_MARK": f"{BOOT_VARIABLE}={boot}"},
            cwd="/",
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """Let it do its work now and wait for that: the agent ends in order."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def kill_session(leader: int) -> None:
    """SIGKILL to everything in the session that this process began, itself included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > SESSION_FIELD and int(fields[SESSION_FIELD]) == leader:
            _killed(int(entry.parent.name))


def sweep(node: str, boot: str) -> int:
    """Kill what earlier agents of this node left; gives how many processes there were."""
    mine, other_boot = f"{NODE_VARIABLE}={node}".encode(), f"{BOOT_VARIABLE}=".encode()
    this_boot = f"{BOOT_VARIABLE}={boot}".encode()
    killed = 0
    for _ in range(PASSES_MAX):
        found = [
            pid
            for pid, variables in _processes()
            if mine in variables
            and this_boot not in variables
            and any(variable.startswith(other_boot) for variable in variables)
        ]
        if not found:
            break
        for pid in found:
            killed += _killed(pid)
        time.sleep(PASS_PAUSE_S)
    return killed


def _killed(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return 0
    return 1


def _processes() -> list[tuple[int, frozenset[bytes]]]:
    """Every process whose environment may be read, with its variables; none without ``/proc``."""
    folder = Path("/proc")
    if not folder.is_dir():
        return []
    found: list[tuple[int, frozenset[bytes]]] = []
    for entry in folder.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            content = (entry / "environ").read_bytes()
        except OSError:
            continue
        found.append((int(entry.name), frozenset(content.split(b"\0"))))
    return found
