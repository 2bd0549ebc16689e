"""The synchronous driver: sends the values of ``calls`` over kept-alive connections, from any thread.

Decides: connections, timeouts, and that a lost one is made again (when, says ``attempts``).
Never: knows what an operation means; follows proxies of the environment (the daemon is named, not found).
Follows: written over sockets and the standard library's response parser because the client's share of a
call is small change: measured against a minimal server, the two requests of one call take 0.30 ms this
way, 0.80 ms with httpx2, 0.65 to 0.80 ms with aiohttp in a thread, and importing those costs 160 and 320 ms
more. A request leaves in one segment, so that the other side wakes once. The asynchronous driver is httpx2.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

from sky.client import trust
from sky.client.attempts import NEVER_ANSWERED, PATIENCE_S, Attempts, refusal
from sky.client.errors import DaemonUnreachable, InvalidRequest
from sky.client.http_connection import Connection
from sky.client.request import Call, CutShort, Pieces, Reply

if TYPE_CHECKING:
    from sky.client.http_async import AsyncHttp

T = TypeVar("T")

IDLE_CONNECTIONS_MAX = 16
READ_BYTES = 256 * 1024
USER_AGENT = "skyfleet"
_LOST = (OSError, http.client.HTTPException)
"""What a broken connection raises: resets, timeouts, TLS failures, answers cut short."""


class Streamed:
    """An answer being read as it comes. Close it, or use it as a context manager.

    ``give_back`` takes the connection of one that was read to its end.
    """

    def __init__(
        self,
        connection: Connection,
        response: http.client.HTTPResponse,
        give_back: Callable[[Connection], None],
    ) -> None:
        self._connection = connection
        self._response = response
        self._give_back = give_back
        self._closed = False
        self._kept = True
        self.status = response.status
        self.headers = _headers(response)

    def pieces(self) -> Iterator[bytes]:
        """The content in pieces, as they arrive. A broken connection raises ``CutShort``."""
        while True:
            try:
                piece = self._response.read1(READ_BYTES)
            except _LOST as lost:
                raise CutShort(f"the answer was cut short: {lost or type(lost).__name__}") from lost
            if not piece:
                if self._response.length:
                    raise CutShort(f"the answer was cut short: {self._response.length} bytes are missing")
                return
            yield piece

    def hold_little(self, unread_bytes: int) -> None:
        """Let about so much pile up unread, so that a reader that stops is noticed at the other end."""
        self._connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, unread_bytes)
        self._kept = False

    def abort(self) -> None:
        """Make whoever reads this in another thread stop: their read raises or ends."""
        self._connection.abort()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._kept and self._response.length == 0 and not self._response.will_close:
            self._give_back(self._connection)
            return
        self._connection.abort()
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Http:
    """A daemon at an address. Safe to use from several threads; ``close`` when done.

    ``locate`` is asked for a newer address when nobody answers at the one it has. ``first_s``: the patience
    until somebody has answered, where that is another one.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
        locate: Callable[[], str | None] | None = None,
        first_s: float | None = None,
    ) -> None:
        self._token = token
        self._patience_s = patience_s
        self._first_s = first_s
        self._locate = locate
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._move_to(url)
        _everyone.add(self)

    @property
    def url(self) -> str:
        """Where requests go, without a trailing slash."""
        return self._url

    def send(self, call: Call[T], *, patience_s: float | None = None) -> T:
        """Carry out one operation and read its answer.

        Raises ApiError when the daemon refuses and DaemonUnreachable when it stays away for longer than
        ``patience_s`` (default: this client's).
        """
        connection, response, reply = self._exchange(call, patience_s, whole=True)
        if response.will_close:
            connection.close()
        else:
            self._give_back(connection)
        if reply.status >= 400:
            raise refusal(call, reply)
        return call.decode(reply)

    def open(self, call: Call[Any], *, patience_s: float | None = None) -> Streamed:
        """Begin one operation and hand over its answer as a stream. Raises as ``send`` does."""
        connection, response, reply = self._exchange(call, patience_s, whole=False)
        if reply.status >= 400:
            connection.close()
            raise refusal(call, reply)
        return Streamed(connection, response, self._give_back)

    def receive(self, call: Call[Any], take: Callable[[Reply, Iterator[bytes]], T]) -> T:
        """Carry out one operation and have its content read by ``take`` as it arrives: large content is
        never in memory whole. Content that is cut short is asked for again, and read from its beginning.

        Raises as ``send`` does, and what ``take`` raises.
        """
        attempts = Attempts(call, self._patience_s)
        while True:
            with self.open(call) as stream:
                try:
                    return take(Reply(stream.status, stream.headers, b""), stream.pieces())
                except CutShort as lost:
                    pause = attempts.after_loss(sent=True)
                    if pause is None:
                        raise self._unreachable(call, attempts, lost) from lost
            time.sleep(pause)

    def asynchronous(self) -> AsyncHttp:
        """The other driver for the same daemon, for the event loop that runs now."""
        from sky.client.http_async import AsyncHttp  # slow to import, and most programs have no loop

        return AsyncHttp(
            self._given,
            token=self._token,
            patience_s=self._patience_s,
            locate=self._locate,
            first_s=self._first_s,
        )

    def close(self) -> None:
        """Close the idle connections. The client can still be used afterwards."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # ── one try, and the next ───────────────────────────────────────────────────────────────────

    def _exchange(
        self, call: Call[Any], patience_s: float | None, *, whole: bool
    ) -> tuple[Connection, http.client.HTTPResponse, Reply]:
        patience_s = self._patience_s if patience_s is None else patience_s
        attempts = Attempts(call, patience_s, first_s=self._first_s)
        while True:
            connection: Connection | None = None
            try:
                connection = self._take()
                response = connection.exchange(self._head(call), call)
                content = response.read() if whole or response.status >= 400 else b""
            except _LOST as lost:
                sent = connection is not None and connection.sent
                pause = attempts.after_loss(sent=sent, silent=isinstance(lost, TimeoutError))
                if connection is not None:
                    connection.close()
                if (why := trust.refused(lost)) is not None:
                    raise DaemonUnreachable(f"{self._url} cannot be spoken to: {why}") from lost
                if pause is None:
                    raise self._unreachable(call, attempts, lost) from lost
            except BaseException:
                # Interrupted between a request and its answer: nobody else may read that answer.
                if connection is not None:
                    connection.close()
                raise
            else:
                self._first_s = None
                reply = Reply(response.status, _headers(response), content)
                again = attempts.after_answer(reply.status, reply.headers) if reply.status >= 400 else None
                if again is None:
                    return connection, response, reply
                connection.close()
                pause = again
            time.sleep(pause)
            self._follow()

    def _unreachable(self, call: Call[Any], attempts: Attempts, lost: Exception) -> DaemonUnreachable:
        reason = str(lost) or type(lost).__name__
        advice = "Is the daemon running? `sky server status` tells, `sky server start` starts it."
        if self._first_s is not None:
            advice = NEVER_ANSWERED
        return DaemonUnreachable(
            f"no answer from {self._url} to {call.method} {call.path} "
            f"within {attempts.waited_s:.1f} s ({reason}). {advice}"
        )

    def _follow(self) -> None:
        url = self._locate() if self._locate else None
        if url and url.rstrip("/") != self._url:
            self.close()
            self._move_to(url)

    # ── connections ─────────────────────────────────────────────────────────────────────────────

    def _move_to(self, url: str) -> None:
        where = urlsplit(url if "://" in url else f"http://{url}")
        if where.scheme not in ("http", "https") or not where.hostname:
            message = f"{url!r} is not the address of a daemon: something like http://127.0.0.1:7590 is"
            raise InvalidRequest(message, "invalid_request", 400)
        self._where = where
        self._given = f"{where.scheme}://{where.netloc}{where.path}".rstrip("/")
        self._url = trust.shown(self._given)
        self._prefix = where.path.rstrip("/")
        self._tls = trust.context() if where.scheme == "https" else None
        host = where.netloc.rpartition("@")[2]
        lines = f"Host: {host}\r\nUser-Agent: {USER_AGENT}\r\n"
        if self._token:
            lines += f"Authorization: Bearer {self._token}\r\n"
        elif where.username:
            lines += f"Authorization: Basic {trust.basic(where)}\r\n"
        self._common = lines

    def _head(self, call: Call[Any]) -> bytes:
        lines = [f"{call.method} {self._prefix}{call.target} HTTP/1.1\r\n", self._common]
        for name, value in call.headers:
            if "\n" in value or "\r" in value:
                raise InvalidRequest(f"the header {name} cannot carry {value!r}", "invalid_request", 400)
            lines.append(f"{name}: {value}\r\n")
        if isinstance(call.body, bytes | Pieces):
            lines.append(f"Content-Length: {len(call.body)}\r\n")
        elif call.body is not None:
            lines.append("Transfer-Encoding: chunked\r\n")
        lines.append("\r\n")
        return "".join(lines).encode("latin-1")

    def _take(self) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return Connection(self._where, self._tls)
            if connection.usable():
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_CONNECTIONS_MAX:
                self._idle.append(connection)
                return
        connection.close()

    def forget_connections(self) -> None:
        """After a fork: the parent's sockets are not ours to speak on."""
        self._lock = threading.Lock()
        self._idle = []


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


_everyone: weakref.WeakSet[Http] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_everyone):
        client.forget_connections()


os.register_at_fork(after_in_child=_after_fork)
