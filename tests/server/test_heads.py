"""How long the head of a request may be, and how long it may take: a real server, raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from sky.server.peer import HEAD_BYTES_MAX, OwnerProtocol

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD_S = 0.5
WAIT_S = 40.0


class Hasty(OwnerProtocol):
    """Ours, with less patience than a daemon has."""

    head_seconds = HEAD_S


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Says well after as long as the path says."""
    await asyncio.sleep(float(scope["path"][1:] or 0))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"well"})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(answer, http=Hasty, lifespan="off", log_config=None, timeout_keep_alive=30)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join(WAIT_S)
    listener.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def rest(connection: socket.socket) -> bytes:
    """All that still comes until the server ends the connection."""
    told = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            told += piece
    return told


def test_a_head_without_end_is_refused_and_not_kept(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX-Long: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 20 * HEAD_BYTES_MAX:
                connection.sendall(b"a" * 65536)
                sent += 65536
        assert sent < 20 * HEAD_BYTES_MAX


def test_many_small_headers_are_counted_together(port: int) -> None:
    with connect(port) as connection:
        line = b"X-Small: " + b"a" * 91 + b"\r\n"
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            connection.sendall(line * (2 * HEAD_BYTES_MAX // len(line)))
        assert rest(connection).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"\r\n", REQUEST + b"GET", REQUEST + b"\r\n"])
def test_a_head_that_does_not_come_ends_the_connection(port: int, sent: bytes) -> None:
    with connect(port) as connection:
        connection.sendall(sent)
        began = time.monotonic()
        told = rest(connection)
        assert time.monotonic() - began < WAIT_S / 2
    assert told.count(b"well") == sent.count(b"Host")
    assert told.endswith(b"}") or not sent.endswith(b"T")


def test_a_head_that_drips_ends_the_connection(port: int) -> None:
    with connect(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX-Drip: ")
        connection.settimeout(HEAD_S / 10)
        deadline = time.monotonic() + WAIT_S / 2
        told = b""
        while not told and time.monotonic() < deadline:
            connection.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                told = connection.recv(1000)
        assert told.startswith(b"HTTP/1.1 408 ")


def test_an_answer_may_take_longer_than_a_head(port: int) -> None:
    with connect(port) as connection:
        slow = REQUEST.replace(b"/ ", f"/{8 * HEAD_S} ".encode(), 1)
        connection.sendall(slow + b"GET / HT")
        time.sleep(HEAD_S)
        connection.sendall(b"TP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert rest(connection).count(b"well") == 2


def test_a_body_as_long_as_a_head_may_be_is_no_head(port: int) -> None:
    with connect(port) as connection:
        length = 2 * HEAD_BYTES_MAX
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + b"b" * length)
        assert b" 200 " in rest(connection)
