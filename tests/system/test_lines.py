"""Several connections of one node: the newest is the one that is told things."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.conftest import RunningDaemon
from tests.system.lines import door, hello

import sky
from sky.api.agent.connect import REPLACED
from sky.wire import agent

WAIT_S = 30.0
DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(agent.FromDaemon)


@sky.function
def whoami() -> tuple[int, str]:
    """The agent's process and the node's folder."""
    import os

    return os.getppid(), os.environ["SKY_AGENT_HOME"]


async def until(socket: aiohttp.ClientWebSocketResponse, kind: type[Any]) -> Any:
    """The next message of that kind."""
    while True:
        said = DECODER.decode(await socket.receive_bytes())
        if isinstance(said, kind):
            return said


async def comes_late(url: str, home: Path, call: Any) -> Any:
    """A first connection says hello after a second one has; then somebody calls. What the second is told."""
    address, headers = door(url, home)
    async with asyncio.timeout(WAIT_S), aiohttp.ClientSession() as session:
        first = await session.ws_connect(address, headers=headers)
        second = await session.ws_connect(address, headers=headers)
        await second.send_bytes(hello("newer"))
        await until(second, agent.Welcome)
        await first.send_bytes(hello("older"))
        while not first.closed:
            await first.receive()
        assert first.close_code == REPLACED
        await second.send_bytes(msgspec.msgpack.encode(agent.Report(number=1)))
        assert (await until(second, agent.Heard)).number == 1, "what it reports is taken"
        await asyncio.to_thread(call)
        return await until(second, agent.Work)


@pytest.mark.real
def test_a_connection_that_says_hello_late_takes_nothing_from_a_newer_one(own_daemon: RunningDaemon) -> None:
    with sky.Compute(provider=sky.Local(), nodes=1, url=own_daemon.url) as compute:
        pid, home = whoami() >> compute
        os.kill(pid, signal.SIGSTOP)
        futures: list[Any] = []
        told = asyncio.run(comes_late(own_daemon.url, Path(home), lambda: futures.append(whoami() > compute)))
        assert len(told.items) == 1
        os.kill(pid, signal.SIGKILL)
