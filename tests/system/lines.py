"""The connection of a node, taken from its agent by another one, as a test needs it to end."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import msgspec

from sky.wire import agent


def door(url: str, home: Path) -> tuple[str, dict[str, str]]:
    """Where an agent calls, and what it shows there, of the node whose folder is ``home``."""
    token = (home / "token").read_text()
    return f"{url}/agent/v1/connect", {"Authorization": f"Bearer {token}", "X-Sky-Node": home.name}


def hello(boot: str = "another", *, window: int = 1) -> bytes:
    """What an agent says first that is not the node's own. ``window``: how many calls it takes."""
    return msgspec.msgpack.encode(
        agent.Hello(
            protocol=agent.PROTOCOL,
            boot=boot,
            pid=1,
            python="3",
            release="0",
            slots=1,
            window=window,
            ready=True,
        )
    )


async def take_the_line(url: str, home: Path, *, window: int = 0) -> None:
    """Be the node's newer connection for a moment, which ends its agent's; then hang up.

    ``window``: how many calls the node says that it takes.
    """
    address, headers = door(url, home)
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(address, headers=headers) as socket,
    ):
        await socket.send_bytes(hello(window=window))
        await socket.receive(10)
