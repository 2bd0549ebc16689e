"""How open requests end when the daemon is told to end.

Decides: which are let go at once (readers of events, and questions that wait for their answer), and what
those are told that time runs out for. Never: ends what may change something before its time is over.
Follows: a client that waited asks the next daemon the same again; an answer that cannot go on is cut off
where it is, which its reader notices; and the log tells of no defect where there is none.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Send

from sky.store.events import Hub
from sky.wire.error import Error

AGAIN_S = 1
_ENDS = Error(
    code="busy", message="the daemon is ending; ask again when it, or the next one, is up", retryable=True
)


class _Open:
    """A request that has not been answered to its end."""

    __slots__ = ("asks", "started", "task")

    def __init__(self, asks: bool) -> None:
        self.task = asyncio.current_task()
        self.asks = asks
        self.started = False


class Ending:
    """The application, with a way to end."""

    def __init__(self, app: ASGIApp, hub: Hub) -> None:
        self._app = app
        self._hub = hub
        self._open: set[_Open] = set()
        self._begun = False

    def begin(self) -> None:
        """Let go of whoever only waits."""
        self._begun = True
        self._hub.close()
        for request in self._open:
            if request.asks and not request.started and request.task is not None:
                request.task.cancel()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._http(scope, receive, send)

    async def _http(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        request = _Open(scope["method"] in ("GET", "HEAD"))

        async def out(message: Message) -> None:
            request.started = True
            await send(message)

        self._open.add(request)
        try:
            await self._app(scope, receive, out)
        except asyncio.CancelledError:
            if not self._begun or request.task is None:
                raise
            request.task.uncancel()
            if not request.started:
                await _tell(send)
        finally:
            self._open.discard(request)


async def _tell(send: Send) -> None:
    body = msgspec.json.encode(_ENDS)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"retry-after", b"%d" % AGAIN_S),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
