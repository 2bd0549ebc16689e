"""How soon a daemon notices that an agent has died, when its connection ends before its process does."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest
from tests.conftest import RunningDaemon

import sky
from sky.wire import agent

NOTICED_S = 10.0


@sky.function
def whoami() -> tuple[int, str]:
    """The agent's process and the node's folder."""
    import os

    return os.getppid(), os.environ["SKY_AGENT_HOME"]


async def take_the_line(url: str, home: Path, dead: int) -> None:
    """Be the node's newer connection, which ends the agent's; then hang up, and have the agent die after."""
    headers = {"Authorization": f"Bearer {(home / 'token').read_text()}", "X-Sky-Node": home.name}
    hello = agent.Hello(
        protocol=agent.PROTOCOL, boot="another", pid=1, python="3", release="0", slots=1, window=1, ready=True
    )
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}/agent/v1/connect", headers=headers) as socket,
    ):
        await socket.send_bytes(msgspec.msgpack.encode(hello))
        await socket.receive(10)
    await asyncio.sleep(0.3)  # not to wait for anything: the first look is to find the agent alive
    os.kill(dead, signal.SIGKILL)


@pytest.mark.real
def test_an_agent_that_dies_after_its_connection_is_noticed_soon(own_daemon: RunningDaemon) -> None:
    with sky.Compute(provider=sky.Local(), nodes=1, url=own_daemon.url) as compute:
        pid, home = whoami() >> compute
        os.kill(pid, signal.SIGSTOP)
        asyncio.run(take_the_line(own_daemon.url, Path(home), pid))
        began = time.monotonic()
        other, _ = whoami() >> compute
        assert other != pid
        assert time.monotonic() - began < NOTICED_S
