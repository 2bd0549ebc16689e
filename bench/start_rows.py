"""How long the product takes to be there: importing it, its help, a daemon that answers.

Decides: each is a whole new process, timed from outside. Never: counts the first run, which fills the caches.
Follows: an interpreter that does nothing is timed too, and is part of every figure here.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

LONGEST_S = 60.0


def seconds(command: list[str], environment: dict[str, str]) -> float:
    quiet = subprocess.DEVNULL
    began_s = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=quiet, stdin=quiet)
    # A wait with a timeout looks at growing intervals, which would be all that is measured here.
    guard = threading.Timer(LONGEST_S, process.kill)
    guard.start()
    code = process.wait()
    took_s = time.perf_counter() - began_s
    guard.cancel()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return took_s


def measure(
    python: str, rounds: int, note: Callable[[str, float], None], more: Mapping[str, str] | None = None
) -> None:
    """``more``: what its environment has beside ours."""
    environment = {**os.environ, **(more or {})}
    sky = str(Path(python).with_name("sky"))
    rows = {
        "python_ms": [python, "-c", "pass"],
        "import_sky_ms": [python, "-c", "import sky"],
        "sky_help_ms": [sky, "--help"],
    }
    for row, command in rows.items():
        seconds(command, environment)
        for _ in range(rounds):
            note(row, seconds(command, environment) * 1000)
