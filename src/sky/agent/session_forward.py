"""A port of the node, carried to the other end of a session.

Decides: how one direction ends while the other goes on. Never: connects anywhere but to this machine.
Follows: protocols that close one way first (HTTP/1.0, plain database dumps) work.
"""

from __future__ import annotations

import asyncio

from sky.agent.session import OPENED, Ended, Line, Place, SessionFailed
from sky.wire.agent import Ask, Data, Eof, Exit

HOST = "127.0.0.1"
CONNECT_S = 5.0
READ_BYTES = 64 * 1024


async def forward(line: Line, ask: Ask, _place: Place) -> Exit:
    """Carry bytes between the other end and a TCP port of this machine until both ways are closed."""
    if ask.port is None or not 0 < ask.port < 65536:
        raise SessionFailed(f"a port is a number from 1 to 65535, not {ask.port}")
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(HOST, ask.port)
    except (OSError, TimeoutError) as error:
        raise SessionFailed(f"nothing answers on port {ask.port} of the node: {error}") from error
    await line.send(OPENED)
    closed = asyncio.Event()
    down = asyncio.ensure_future(_down(line, reader))
    up = asyncio.ensure_future(_up(line, writer, closed))
    half = asyncio.ensure_future(closed.wait())
    try:
        for way in (down, half):
            await asyncio.wait((way, up), return_when=asyncio.FIRST_COMPLETED)
            if not way.done():
                raise Ended
            way.result()
        return Exit(code=0)
    finally:
        for task in (down, up, half):
            task.cancel()
        await asyncio.gather(down, up, half, return_exceptions=True)
        writer.close()


async def _down(line: Line, reader: asyncio.StreamReader) -> None:
    try:
        while content := await reader.read(READ_BYTES):
            await line.send(Data(content=content))
    except ConnectionResetError as error:
        raise SessionFailed("the node's service reset the connection") from error
    await line.send(Eof())


async def _up(line: Line, writer: asyncio.StreamWriter, closed: asyncio.Event) -> None:
    """Carry what the other end says; ends only when that has left."""
    try:
        while True:
            frame = await line.receive()
            if isinstance(frame, Data):
                writer.write(frame.content)
                await writer.drain()
            elif isinstance(frame, Eof):
                closed.set()
                if writer.can_write_eof():
                    writer.write_eof()
    except (Ended, ConnectionError):
        return
