"""How a WebSocket of an agent is refused and ended.

Decides: the answers to a handshake, and what a lost peer looks like. Never: reads a message.
Follows: hanging up on somebody who is gone is no error.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from litestar.connection import WebSocket
from litestar.exceptions import WebSocketException
from litestar.types import Message

from sky.api.errors import body_of
from sky.domain.errors import SkyError

HANG_UP_S = 5.0
LOST = (WebSocketException, RuntimeError, OSError)
"""What using a socket raises whose other end is gone."""
DENIAL = "websocket.http.response"


async def refuse(socket: WebSocket[Any, Any, Any], error: SkyError) -> None:
    """Answer the handshake as any request that is refused, where the server can; else close it."""
    if DENIAL not in (socket.scope["extensions"] or {}):
        await hang_up(socket, 4000 + error.status, error.message)
        return
    body = body_of(error, None)
    start = {
        "type": f"{DENIAL}.start",
        "status": error.status,
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
    }
    await socket.send(cast("Message", start))
    await socket.send(cast("Message", {"type": f"{DENIAL}.body", "body": body, "more_body": False}))


async def hang_up(socket: WebSocket[Any, Any, Any], code: int, reason: str) -> None:
    """Close, with a reason that fits into a close frame (123 bytes)."""
    fitting = reason.encode()[:123].decode("utf-8", "ignore")
    try:
        async with asyncio.timeout(HANG_UP_S):
            await socket.send({"type": "websocket.close", "code": code, "reason": fitting})
    except (*LOST, TimeoutError):
        return
