"""Who is there while a daemon is asked: readers of its events, and agents at their sockets.

Decides: that an agent says hello, is ready, pings as it was told to and answers each call at once, and that a
reader counts what it is told and is never slow. Never: knows what is asked meanwhile.
Follows: it says on standard output when all are there, and when it is told to end on standard input what each
reader had been told and how often a connection was lost.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from sky.server.keys import Keys
from sky.wire import agent

READ_BYTES = 1 << 16
CREATED = b"event: compute.created"
ARRIVE_S = 240.0
LAST_S = 15.0
AT_ONCE = 50
VALUE = b"what each call gives"

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[agent.FromDaemon] = msgspec.msgpack.Decoder(agent.FromDaemon)


@dataclass
class Lost:
    """Connections that ended though nobody had asked for that."""

    readers: int = 0
    agents: int = 0


class Member:
    """One agent: the protocol, and nothing that runs."""

    def __init__(self, url: str, node: str, token: str, lost: Lost) -> None:
        self.url, self.node, self.lost = f"{url}/agent/v1/connect", node, lost
        self.headers = {"Authorization": f"Bearer {token}", "X-Sky-Node": node}
        self.there = asyncio.Event()
        self.number = 0

    async def run(self, session: aiohttp.ClientSession) -> None:
        try:
            async with session.ws_connect(self.url, headers=self.headers) as socket:
                hello = agent.Hello(
                    protocol=agent.PROTOCOL,
                    boot=self.node,
                    pid=1,
                    python="3.11.7",
                    release="0",
                    slots=4,
                    window=4,
                    ready=True,
                )
                await socket.send_bytes(_encoder.encode(hello))
                await self._talk(socket)
        except (aiohttp.ClientError, OSError):
            pass
        self.lost.agents += 1

    async def _talk(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        ping: asyncio.Task[None] | None = None
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    return
                said = _decoder.decode(message.data)
                if isinstance(said, agent.Welcome):
                    await self._report(socket, ready=True)
                    ping = asyncio.create_task(self._ping(socket, said.ping_seconds))
                elif isinstance(said, agent.Work):
                    ended = tuple(
                        agent.Outcome(
                            execution=one.execution, state="succeeded", seconds=0.001, ago_s=0.0, result=VALUE
                        )
                        for one in said.items
                    )
                    await self._report(socket, outcomes=ended)
                elif isinstance(said, agent.Heard):
                    self.there.set()
        finally:
            if ping is not None:
                ping.cancel()

    async def _report(self, socket: aiohttp.ClientWebSocketResponse, **what: Any) -> None:
        self.number += 1
        await socket.send_bytes(_encoder.encode(agent.Report(number=self.number, **what)))

    async def _ping(self, socket: aiohttp.ClientWebSocketResponse, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await socket.send_bytes(_encoder.encode(agent.Ping(window=4)))


class Reader:
    """One reader of the stream of events, which counts the computes that it is told of."""

    def __init__(self, url: str, lost: Lost) -> None:
        self.address, self.lost = url.removeprefix("http://"), lost
        self.told = 0
        self.there = asyncio.Event()

    async def run(self) -> None:
        host, _, port = self.address.partition(":")
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"GET /v1/events?types=compute.created HTTP/1.1\r\nHost: {self.address}\r\n\r\n"
            writer.write(head.encode())
            await reader.readuntil(b"\r\n\r\n")
            self.there.set()
            tail = b""
            while data := await reader.read(READ_BYTES):
                text = tail + data
                self.told += text.count(CREATED)
                tail = text[text.rfind(CREATED) + 1 :][-len(CREATED) + 1 :]
        except (OSError, asyncio.IncompleteReadError):
            pass
        self.lost.readers += 1


async def arrive(members: list[Any], starts: list[Any]) -> set[asyncio.Task[None]]:
    """Let them come, some at a time; returns their tasks once all are there."""
    running = set[asyncio.Task[None]]()
    async with asyncio.timeout(ARRIVE_S):
        for first in range(0, len(members), AT_ONCE):
            running.update(asyncio.create_task(one) for one in starts[first : first + AT_ONCE])
            for member in members[first : first + AT_ONCE]:
                await member.there.wait()
    return running


async def run(config: dict[str, Any]) -> None:
    lost = Lost()
    home = Path(config["home"])
    link = sqlite3.connect(f"file:{home}/sky.db?mode=ro", uri=True, timeout=30)
    nodes = [row[0] for row in link.execute("SELECT id FROM nodes WHERE state = 'connecting'")]
    link.close()
    keys = Keys(home)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session:
        agents = [Member(config["url"], node, keys.node_token(node), lost) for node in nodes]
        running = await arrive(agents, [one.run(session) for one in agents])
        readers = [Reader(config["url"], lost) for _ in range(config["readers"])]
        running |= await arrive(readers, [one.run() for one in readers])
        print(f"{len(agents)} agents, {len(readers)} readers", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        most = max((one.told for one in readers), default=0)
        for _ in range(int(LAST_S / 0.1)):
            most = max((one.told for one in readers), default=0)
            if all(one.told == most for one in readers):
                break
            await asyncio.sleep(0.1)
        told = {
            "told_to_the_luckiest_reader": most,
            "told_to_the_unluckiest_reader": min((one.told for one in readers), default=0),
            "readers_lost": lost.readers,
            "agents_lost": lost.agents,
        }
        print(json.dumps(told), flush=True)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def main() -> None:
    uvloop.run(run(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
