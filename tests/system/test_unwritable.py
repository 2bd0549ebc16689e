"""A report that a daemon cannot write down keeps no other news of its node back."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import time
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.conftest import RunningDaemon
from tests.system.lines import door, hello

import sky
from sky.wire import agent

WAIT_S = 60.0


@sky.function
def whoami() -> tuple[int, str]:
    """The agent's process and the node's folder."""
    import os

    return os.getppid(), os.environ["SKY_AGENT_HOME"]


@sky.function
def hold() -> None:
    """Runs for longer than the test."""
    import time

    time.sleep(600)


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def running(url: str) -> str:
    """The one execution that runs."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for task in get(f"{url}/v1/tasks")["items"]:
            for execution in get(f"{url}/v1/tasks/{task['id']}/executions")["items"]:
                if execution["state"] == "started":
                    return execution["id"]
        time.sleep(0.02)
    raise AssertionError("it did not begin")


async def tell(url: str, home: Path, report: agent.Report) -> Any:
    """Say a report in the place of the node's agent; gives what the daemon answers."""
    address, headers = door(url, home)
    decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(agent.FromDaemon)
    async with (
        asyncio.timeout(WAIT_S),
        aiohttp.ClientSession() as session,
        session.ws_connect(address, headers=headers) as socket,
    ):
        await socket.send_bytes(hello())
        await socket.send_bytes(msgspec.msgpack.encode(report))
        while True:
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return message
            said = decoder.decode(message.data)
            if isinstance(said, agent.Heard):
                return said


@pytest.mark.real
def test_what_can_be_written_is_and_the_rest_is_not_said_for_ever(own_daemon: RunningDaemon) -> None:
    with sky.Compute(provider=sky.Local(), nodes=1, url=own_daemon.url) as compute:
        pid, home = whoami() >> compute
        future = hold() > compute
        execution = running(own_daemon.url)
        os.kill(pid, signal.SIGSTOP)
        ended = agent.Outcome(execution=execution, state="succeeded", seconds=math.inf, ago_s=math.nan)
        line = agent.ConsoleLines(stream="stdout", content="beside it\n", lines=1, execution=execution)
        report = agent.Report(number=1, console=(line,), outcomes=(ended,))
        answer = asyncio.run(tell(own_daemon.url, Path(home), report))
        assert answer == agent.Heard(number=1)
        with pytest.raises(sky.TaskIndeterminate, match="cannot be written down"):
            future.result(WAIT_S)
        os.kill(pid, signal.SIGKILL)
