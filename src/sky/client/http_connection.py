"""One connection of the synchronous driver: a socket, and the request that is on it.

Decides: how long a connection may take to open, what goes out in one piece, how a wait for an answer can be
interrupted. Never: tries again; ``http`` does.
Follows: an interrupt is noticed within half a second, whatever thread it came to.
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import SplitResult

from sky.client.request import Call, Pieces

if TYPE_CHECKING:
    from typing_extensions import Buffer

CONNECT_S = 5.0
KEEPALIVE_IDLE_S = 15
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3
WRITE_BYTES = 1024 * 1024
LOOK_UP_S = 0.5
"""How often a read that waits comes back to Python."""
ONE_SEGMENT_BYTES_MAX = 64 * 1024
"""Up to this size a body leaves together with its headers."""


class _Reading(io.RawIOBase):
    """What a socket receives, each stillness bounded.

    Waits in short parts: an interrupt that comes between Python's last look and the system call, or to
    another thread, wakes nobody, and would be noticed only when the other side says something.
    """

    def __init__(self, source: socket.socket, still_s: float) -> None:
        self._socket = source
        self._still_s = still_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        late_s = time.monotonic() + self._still_s
        self._socket.settimeout(min(LOOK_UP_S, self._still_s))
        while True:
            try:
                return self._socket.recv_into(buffer)
            except TimeoutError:
                if time.monotonic() >= late_s:
                    raise

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What the parser asks a socket for."""
        return io.BufferedReader(self)


class Connection:
    """One socket to the daemon, and the request that is on it."""

    def __init__(self, where: SplitResult, tls: ssl.SSLContext | None) -> None:
        host = where.hostname or "127.0.0.1"
        port = where.port or (443 if tls else 80)
        raw = socket.create_connection((host, port), timeout=CONNECT_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
        try:
            self.socket = tls.wrap_socket(raw, server_hostname=host) if tls else raw
        except BaseException:
            raw.close()
            raise
        self.sent = False

    def usable(self) -> bool:
        """Whether an idle connection is still open: anything readable on one is its end."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLHUP | select.POLLERR)
        return not poll.poll(0)

    def exchange(self, head: bytes, call: Call[Any]) -> http.client.HTTPResponse:
        """Send a request and read its answer as far as the headers."""
        self.sent = False
        self.socket.settimeout(call.timeout_s)
        self._write(head, call)
        reading = cast("socket.socket", _Reading(self.socket, call.timeout_s))
        response = http.client.HTTPResponse(reading, method=call.method)
        response.begin()
        framed = response.length is not None or response.chunked
        if not framed and call.method != "HEAD":
            # The parser takes headers that were cut off for headers that ended, and no length for no content.
            raise http.client.IncompleteRead(b"")
        return response

    def _write(self, head: bytes, call: Call[Any]) -> None:
        body = call.body
        self.sent = True
        if body is None or (isinstance(body, bytes) and len(body) <= ONE_SEGMENT_BYTES_MAX):
            self.socket.sendall(head + body if body else head)
            return
        self.socket.sendall(head)
        if isinstance(body, bytes):
            # In parts, because a socket's timeout bounds all of one sending and not each stillness.
            whole = memoryview(body)
            for at in range(0, len(body), WRITE_BYTES):
                self.socket.sendall(whole[at : at + WRITE_BYTES])
            return
        if isinstance(body, Pieces):
            for piece in body():
                self.socket.sendall(piece)
            return
        for piece in body():
            if piece:
                self.socket.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.socket.sendall(b"0\r\n\r\n")

    def close(self) -> None:
        self.socket.close()

    def abort(self) -> None:
        """End it under whoever reads it in another thread."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
