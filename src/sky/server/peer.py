"""Who is at the other end of a connection, and how long it may take to say what it wants.

Decides: the user id behind a TCP connection on this computer: the kernel knows; the limits of a request's
head. Never: trusts what the peer says.
Follows: it is asked once per connection, over netlink, with /proc as the second source; where neither can
tell, the peer is nobody and must bring a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from pathlib import Path

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sky.kit.lent import is_lent
from sky.wire.error import Error

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY_COOKIE = b"\xff" * 8
_REPLY_BYTES = 4096
_TIMEOUT_S = 0.5
_UID_AT = 16 + 4 + 48 + 12  # header, family and state, socket id, three counters; then user id and inode
HEAD_BYTES_MAX = 256 * 1024
"""How long the first line and headers of a request may be; before their end nobody is asked for a token."""
HEAD_SECONDS = 10.0
"""How long they may take to arrive, counted from the connection or from their first byte."""


def uid_of(peer: tuple[str, int], ours: tuple[str, int]) -> int | None:
    """The user id of the process whose socket is ``peer``, connected to ``ours``; None: not known.

    Nor is it of a socket that its process has closed, which has no inode: many kernels call its user root.
    """
    try:
        peer_ip, our_ip = ipaddress.ip_address(peer[0]), ipaddress.ip_address(ours[0])
    except ValueError:
        return None
    if not peer_ip.is_loopback or peer_ip.version != our_ip.version:
        return None
    found = _ask_netlink(peer_ip.packed, peer[1], our_ip.packed, ours[1])
    return found if found is not None else _ask_proc(peer_ip.packed, peer[1], ours[1])


def _ask_netlink(peer_ip: bytes, peer_port: int, our_ip: bytes, our_port: int) -> int | None:
    family = socket.AF_INET if len(peer_ip) == 4 else socket.AF_INET6
    socket_id = (
        struct.pack("!HH", peer_port, our_port)
        + peer_ip.ljust(16, b"\0")
        + our_ip.ljust(16, b"\0")
        + struct.pack("=I", 0)
        + _ANY_COOKIE
    )
    body = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + socket_id
    header = struct.pack("=IHHII", 16 + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link,
    ):
        link.settimeout(_TIMEOUT_S)
        link.send(header + body)
        reply = link.recv(_REPLY_BYTES)
        kind = struct.unpack_from("=H", reply, 4)[0] if len(reply) >= 16 else 0
        if kind == _SOCK_DIAG_BY_FAMILY and len(reply) >= _UID_AT + 8:
            uid, inode = struct.unpack_from("=II", reply, _UID_AT)
            return uid if inode else None
    return None


def _ask_proc(peer_ip: bytes, peer_port: int, our_port: int) -> int | None:
    name = "tcp" if len(peer_ip) == 4 else "tcp6"
    words = [peer_ip[i : i + 4][::-1].hex().upper() for i in range(0, len(peer_ip), 4)]
    local = f"{''.join(words)}:{peer_port:04X}"
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/self/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[1] == local and fields[2].endswith(f":{our_port:04X}"):
                return int(fields[7]) if fields[9] != "0" else None
    return None


class OwnerProtocol(HttpToolsProtocol):
    """HTTP as usual, with the peer's user id at hand for every request of the connection.

    It stands in the request's scope as ``scope["state"]["peer_uid"]``. A head that is too long or too slow
    ends the connection.
    """

    head_seconds = HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.app_state = {**self.app_state, **self._known_of_it()}
        self._head_bytes = 0
        self._in_head = True
        self._unanswered = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._time_head()

    def _known_of_it(self) -> dict[str, object]:
        """What every request of this connection may be held against."""
        if self.client and is_lent(self.client):
            return {"peer_uid": None, "lent": True}
        ours, port = self.server or ("", None)
        uid = uid_of(self.client, (ours, port)) if self.client and port is not None else None
        return {"peer_uid": uid}

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._in_head or self.transport.get_protocol() is not self:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse("431 Request Header Fields Too Large", f"its head is over {HEAD_BYTES_MAX} bytes")
        elif self._head_timer is None:
            self._time_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._unanswered += 1
        self._head_arrived()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._unanswered -= 1
        super().on_response_complete()

    def _time_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self._head_is_late)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._unanswered:
            self._time_head()  # whoever waits for an answer may be slow with the next question
        elif self._head_bytes:
            self._refuse("408 Request Timeout", f"its head took over {self.head_seconds:g} s")
        else:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read as HTTP is answered with the error object, as everything else is."""
        self._refuse("400 Bad Request", msg.rstrip(".").lower())

    def _refuse(self, status: str, why: str) -> None:
        if self.transport.is_closing():
            return
        said = f"the request cannot be read as HTTP: {why}"
        body = msgspec.json.encode(Error(code="invalid_request", message=said, retryable=False))
        head = (
            f"HTTP/1.1 {status}\r\n"
            "content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class PublicProtocol(OwnerProtocol):
    """The same where others may come: nobody is asked for, and ``scope["state"]["public"]`` says so."""

    def _known_of_it(self) -> dict[str, object]:
        return {"peer_uid": None, "public": True}
