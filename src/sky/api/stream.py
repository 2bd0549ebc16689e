"""Answers that are sent piece by piece, and work that ends when its client leaves.

Decides: how a stream of bytes goes out, at the pace of who reads it. Never: what is in it.
Follows: a client that leaves, or does not read for longer than the limit, ends what was made for it; what
has no body to send (HEAD) is never begun.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, TypeVar

from litestar.connection import Request
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

T = TypeVar("T")
Headers = Iterable[tuple[str, str]]
BODILESS = frozenset({204, 304})

READ_STALL_S = 120.0
"""How long a reader of content may take nothing before its connection is closed."""
SESSION_S = 24 * 3600.0
"""How long an interactive session, or a reader of a generator, may stay silent."""


class CutShort(Exception):
    """What is being sent cannot go on; its reader notices that by the end that is missing."""


class Whole(ASGIResponse):
    """An answer that is all there."""

    __slots__ = ("_content", "_lines", "_status")

    def __init__(
        self, content: bytes, *, media: str | None, status: int = 200, headers: Headers = ()
    ) -> None:
        lines = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers]
        if media is not None:
            lines.append((b"content-type", media.encode("latin-1")))
        if status not in BODILESS:
            lines.append((b"content-length", b"%d" % len(content)))
        self._content = content
        self._lines = lines
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": self._status, "headers": self._lines})
        await send({"type": "http.response.body", "body": self._content, "more_body": False})

    def to_asgi_response(self, **_: Any) -> ASGIResponse:
        """In the form that Litestar asks its exception handlers for."""
        return self


class Streamed(ASGIResponse):
    """An answer whose body is ``chunks``; ``length`` is its size in bytes where that is known."""

    __slots__ = ("_chunks", "_headers", "_length", "_stall_s", "_status")

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        *,
        media: str,
        status: int = 200,
        headers: dict[str, str] | None = None,
        length: int | None = None,
        stall_s: float = READ_STALL_S,
    ) -> None:
        named = {"content-type": media, **(headers or {})}
        if length is not None:
            named["content-length"] = str(length)
        self._headers = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in named.items()]
        self._chunks = chunks
        self._length = length
        self._status = status
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Raises what the body raises; the connection then ends without the body's proper end, as it
        does quietly when that is what the body wants (``CutShort``)."""
        await send({"type": "http.response.start", "status": self._status, "headers": self._headers})
        if scope["state"].get("head"):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        with contextlib.suppress(CutShort):
            await until_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        chunks = self._chunks
        try:
            async for chunk in chunks:
                async with asyncio.timeout(self._stall_s):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def until_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Do ``work``; when the client leaves first, cancel it and return None."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return None
    finally:
        for task in (working, leaving):
            if not task.done():
                task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_wanted(request: Request[Any, Any, Any], work: Coroutine[Any, Any, T]) -> T | None:
    """Do ``work`` as long as the client of ``request`` is there; None when it left."""
    return await until_gone(request.receive, work)
