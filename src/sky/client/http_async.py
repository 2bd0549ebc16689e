"""The asynchronous driver: sends the values of ``calls`` with httpx2 from one event loop.

Decides: connections and timeouts; when to send again, says ``attempts``, as for the other driver.
Never: knows what an operation means; reads proxies or certificates from the environment.
Follows: for programs that live in an event loop, and for streams that are read in one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar

import httpx2

from sky.client import trust
from sky.client.aside import aside
from sky.client.attempts import NEVER_ANSWERED, PATIENCE_S, Attempts, refusal
from sky.client.errors import DaemonUnreachable
from sky.client.request import Call, CutShort, Reply

T = TypeVar("T")

CONNECT_S = 5.0
CONNECTIONS_MAX = 100
IDLE_CONNECTIONS_MAX = 16
KEEPALIVE_EXPIRY_S = 60.0
_NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class AsyncHttp:
    """A daemon at an address, for one event loop. ``aclose`` when done, or use as a context manager."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        locate: Callable[[], str | None] | None = None,
        first_s: float | None = None,
    ) -> None:
        self._url = trust.shown(url)
        self._patience_s = patience_s
        self._locate = locate
        self._first_s = first_s
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx2.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=KEEPALIVE_EXPIRY_S,
        )
        self._client = httpx2.AsyncClient(
            base_url=url,
            headers=headers,
            limits=limits,
            trust_env=False,
            # Reading the system's certificates takes longer than all the rest, and http has no use for them.
            verify=trust.context() if self._url.startswith("https:") else False,
        )

    @property
    def url(self) -> str:
        """Where requests go, without a trailing slash."""
        return self._url

    async def send(self, call: Call[T], *, patience_s: float | None = None) -> T:
        """Carry out one operation and read its answer. Raises as ``Http.send`` does."""
        attempts = self._attempts(call, patience_s)
        while True:
            try:
                response = await self._client.send(self._request(call))
            except httpx2.TransportError as lost:
                pause = self._pause_after(attempts, call, lost)
            else:
                self._first_s = None
                reply = Reply(response.status_code, response.headers, response.content)
                if reply.status < 400:
                    return call.decode(reply)
                again = attempts.after_answer(reply.status, reply.headers)
                if again is None:
                    raise refusal(call, reply)
                pause = again
            await self._pass(pause)

    @asynccontextmanager
    async def open(
        self, call: Call[Any], *, patience_s: float | None = None, unread_bytes: int | None = None
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Begin one operation and hand over its answer in pieces as they arrive.

        About ``unread_bytes`` may pile up unread, so that a reader that stops is noticed at the other end.
        """
        attempts = self._attempts(call, patience_s)
        while True:
            try:
                response = await self._client.send(self._request(call), stream=True)
                self._first_s = None
                if response.status_code < 400:
                    break
                content = await response.aread()
            except httpx2.TransportError as lost:
                pause = self._pause_after(attempts, call, lost)
            else:
                reply = Reply(response.status_code, response.headers, content)
                again = attempts.after_answer(reply.status, reply.headers)
                if again is None:
                    raise refusal(call, reply)
                pause = again
            await self._pass(pause)
        if unread_bytes is not None:
            line = response.extensions["network_stream"].get_extra_info("socket")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, unread_bytes)
        try:
            yield _arriving(response)
        finally:
            await response.aclose()

    async def _pass(self, seconds: float) -> None:
        """Let time pass, and look where the daemon is now."""
        await asyncio.sleep(seconds)
        url = await aside(self._locate) if self._locate else None
        if url and url.rstrip("/") != self._url:
            self._url = url.rstrip("/")
            self._client.base_url = self._url

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _attempts(self, call: Call[Any], patience_s: float | None) -> Attempts:
        patience_s = self._patience_s if patience_s is None else patience_s
        return Attempts(call, patience_s, first_s=self._first_s)

    def _request(self, call: Call[Any]) -> httpx2.Request:
        body = call.body
        content = _pieces(body) if callable(body) else body
        timeout = httpx2.Timeout(call.timeout_s, connect=CONNECT_S)
        return self._client.build_request(
            call.method, call.target, content=content, headers=list(call.headers), timeout=timeout
        )

    def _pause_after(self, attempts: Attempts, call: Call[Any], lost: httpx2.TransportError) -> float:
        if (why := trust.refused(lost)) is not None:
            raise DaemonUnreachable(f"{self._url} cannot be spoken to: {why}") from lost
        pause = attempts.after_loss(sent=not isinstance(lost, _NOTHING_SENT))
        if pause is None:
            reason = str(lost) or type(lost).__name__
            raise DaemonUnreachable(
                f"no answer from {self._url} to {call.method} {call.path} "
                f"within {attempts.waited_s:.1f} s ({reason})"
                + ("" if self._first_s is None else f". {NEVER_ANSWERED}")
            ) from lost
        return pause


async def _arriving(response: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in response.aiter_raw():
            yield piece
    except httpx2.TransportError as lost:
        raise CutShort(f"the answer was cut short: {lost or type(lost).__name__}") from lost


async def _pieces(body: Callable[[], Iterable[bytes]]) -> AsyncIterator[bytes]:
    for piece in body():
        yield piece
