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
    headers = {"Authorization": f"Bearer {(home / 'token').read_text()}", "X-Sky-Node": home.name}
    older, newer = (
        agent.Hello(
            protocol=agent.PROTOCOL,
            boot=boot,
            pid=1,
            python="3",
            release="0",
            slots=1,
            window=1,
            ready=True,
        )
        for boot in ("older", "newer")
    )
    address = f"{url}/agent/v1/connect"
    async with asyncio.timeout(WAIT_S), aiohttp.ClientSession() as session:
        first = await session.ws_connect(address, headers=headers)
        second = await session.ws_connect(address, headers=headers)
        await second.send_bytes(msgspec.msgpack.encode(newer))
        await until(second, agent.Welcome)
        await first.send_bytes(msgspec.msgpack.encode(older))
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
