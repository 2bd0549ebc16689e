"""Connections that this process makes to itself for somebody else.

Decides: which of its own sockets those are. Never: keeps one. Follows: a door that lets in whoever runs as
our own user asks here first; what comes through a tunnel is nobody, although the socket is ours.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

CLOSE_S_MAX = 5.0
"""How long what was written may still be on its way."""
_lent: set[tuple[str, int]] = set()


@contextmanager
def lending(host: str) -> Generator[socket.socket]:
    """A socket, not yet connected, that is lent for as long as the context lasts; who asked for it closes it.
    Raises OSError."""
    opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        # It has its number before anybody can see it at a door.
        opened.bind((host, 0))
    except OSError:
        opened.close()
        raise
    name: tuple[str, int] = opened.getsockname()[:2]
    _lent.add(name)
    try:
        yield opened
    finally:
        _lent.discard(name)


@asynccontextmanager
async def lent_connection(
    host: str, port: int, seconds: float
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is lent, made within ``seconds``. Raises OSError, TimeoutError."""
    with lending(host) as ours:
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().sock_connect(ours, (host, port))
        except BaseException:
            ours.close()
            raise
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield reader, writer
        finally:
            await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close it, and come back when its socket is closed: while it is there, it must not be taken for ours."""
    writer.close()
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await writer.wait_closed()
    except (OSError, TimeoutError):
        writer.transport.abort()


def is_lent(peer: tuple[str, int]) -> bool:
    """Whether the socket of that name is one."""
    return (peer[0], peer[1]) in _lent
