"""Machines of a simulated cloud: processes of this computer, each with a disk of its own.

Decides: what a machine's program sees (a path, a home, and the agent's environment where it looks for that).
Never: knows a cloud, or what is run. Follows: a machine that ends keeps its disk.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conftest import DIES_WITH_US, STARTER

END_S = 10


class Machines:
    """What runs on the machines of an account: each has a disk, and the processes of a node while it runs."""

    def __init__(self, disks: Path) -> None:
        self.disks = disks
        self.environment: dict[str, str] = {}
        """What else is in the environment of all that runs on them."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, machine: str, node: str, command: Sequence[str], more: Mapping[str, str]) -> None:
        """The machine starts, with a program that makes a node of it."""
        home = self.disks / machine
        folder = home / "skyfleet/nodes" / node
        folder.mkdir(parents=True)
        (folder / "venv").symlink_to(Path(sys.prefix))
        with open(home / "log", "ab") as log:
            begun = STARTER.submit(
                subprocess.Popen,
                [*DIES_WITH_US, *command],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": os.environ["PATH"], "HOME": str(home), **self.environment, **more},
            )
            self._running[machine] = begun.result()

    def end(self, machine: str) -> None:
        """The machine stops; its disk stays."""
        running = self._running.pop(machine, None)
        if running is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(running.pid, number)
                    running.wait(END_S)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue

    def said(self) -> str:
        """What all of them have said, to be shown where a test fails."""
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in self.disks.glob("*/log"))

    def close(self) -> None:
        for machine in list(self._running):
            self.end(machine)
