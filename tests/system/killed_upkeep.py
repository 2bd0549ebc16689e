"""Upkeep that is killed, or stopped, where it passes a point that its environment names."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from sky.kit import faults
from sky.server import upkeep

KILLED_AT = "SKY_TESTS_KILLED_AT"
STOPPED_AT = "SKY_TESTS_STOPPED_AT"


def main(arguments: Sequence[str] | None = None) -> int:
    """As ``upkeep.main``, until that point."""
    faults.watch(_point)
    return upkeep.main(arguments)


def _point(name: str) -> None:
    if os.environ.get(KILLED_AT) == name:
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ.get(STOPPED_AT) == name:
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    sys.exit(main())
