"""How soon a daemon notices that an agent has died, when its connection ends before its process does."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon
from tests.system.lines import take_the_line

import sky

NOTICED_S = 180.0
"""Far below what a lease takes, ten minutes; a new node has to come in it."""


@sky.function
def whoami() -> tuple[int, str]:
    """The agent's process and the node's folder."""
    import os

    return os.getppid(), os.environ["SKY_AGENT_HOME"]


async def hang_up_and_die(url: str, home: Path, dead: int) -> None:
    """Have the agent's connection end, and the agent die after."""
    await take_the_line(url, home, window=1)
    await asyncio.sleep(0.3)  # not to wait for anything: the first look is to find the agent alive
    os.kill(dead, signal.SIGKILL)


@pytest.mark.real
def test_an_agent_that_dies_after_its_connection_is_noticed_soon(own_daemon: RunningDaemon) -> None:
    with sky.Compute(provider=sky.Local(), nodes=1, url=own_daemon.url) as compute:
        pid, home = whoami() >> compute
        os.kill(pid, signal.SIGSTOP)
        asyncio.run(hang_up_and_die(own_daemon.url, Path(home), pid))
        began = time.monotonic()
        other, _ = whoami() >> compute
        assert other != pid
        assert time.monotonic() - began < NOTICED_S
