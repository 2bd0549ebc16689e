"""What is left of a state folder's processes, as the kernel tells it."""

from __future__ import annotations

import os
import time
from pathlib import Path


def alive(home: Path) -> dict[int, str]:
    """Processes with ``home`` in their command line or environment, by id."""
    marker = str(home).encode()
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if state != "Z" and (marker in command or marker in environment):
            found[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def wait_gone(home: Path, *, but: int, seconds: float = 180.0) -> dict[int, str]:
    """Wait until no process of ``home`` is left beside ``but``; returns those that still are."""
    deadline = time.monotonic() + seconds
    while True:
        left = {pid: command for pid, command in alive(home).items() if pid != but}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)
