"""The connection of a node, taken from its agent by another one, as a test needs it to end."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import msgspec

from sky.wire import agent


async def take_the_line(url: str, home: Path, *, window: int = 0) -> None:
    """Be the node's newer connection for a moment, which ends its agent's; then hang up.

    ``window``: how many calls the node says that it takes.
    """
    headers = {"Authorization": f"Bearer {(home / 'token').read_text()}", "X-Sky-Node": home.name}
    hello = agent.Hello(
        protocol=agent.PROTOCOL,
        boot="another",
        pid=1,
        python="3",
        release="0",
        slots=1,
        window=window,
        ready=True,
    )
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{url}/agent/v1/connect", headers=headers) as socket,
    ):
        await socket.send_bytes(msgspec.msgpack.encode(hello))
        await socket.receive(10)
