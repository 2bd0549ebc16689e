"""``sky compute forward``: bytes, ends and breaks look as if the service were here.

Decides: what a program that connects to the local port may rely on. Never: looks at how the bytes travel.
"""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytestmark = pytest.mark.real

TALK_S = 60.0
Handle = Callable[[socket.socket], None]


@contextmanager
def service(handle: Handle) -> Iterator[int]:
    """A port of this computer, and so of its nodes, where ``handle`` serves each connection."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)

    def one(connection: socket.socket) -> None:
        with connection:
            handle(connection)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@contextmanager
def forwarded(sky: Any, compute: str, port: int) -> Iterator[tuple[Callable[[], socket.socket], Any]]:
    """Makes connections to a port of a node; what the command said meanwhile is its second part."""
    with sky.begin("compute", "forward", compute, f"0:{port}") as running:
        here = int(running.stdout.readline().partition(" ")[0].rpartition(":")[2])
        yield lambda: socket.create_connection(("127.0.0.1", here), timeout=TALK_S), running
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
            assert running.wait(TALK_S) == 130


def everything(connection: socket.socket) -> bytes:
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def upper(connection: socket.socket) -> None:
    connection.sendall(everything(connection).upper())


def test_many_connections_at_once_and_much_on_each(on_daemon: Any, dev: str) -> None:
    with service(upper) as port, forwarded(on_daemon, dev, port) as (connect, _):
        opened = [connect() for _ in range(20)]
        sent = [b"%d " % number * 100_000 + b"end" for number in range(20)]
        for connection, content in zip(opened, sent, strict=True):
            connection.sendall(content)
        for connection, content in reversed(list(zip(opened, sent, strict=True))):
            connection.shutdown(socket.SHUT_WR)
            assert everything(connection) == content.upper()
            connection.close()


def test_a_service_that_says_all_first_still_hears(on_daemon: Any, dev: str) -> None:
    heard: list[bytes] = []
    done = threading.Event()

    def greet(connection: socket.socket) -> None:
        connection.sendall(b"220 hello")
        connection.shutdown(socket.SHUT_WR)
        heard.append(everything(connection))
        done.set()

    with service(greet) as port, forwarded(on_daemon, dev, port) as (connect, _), connect() as connection:
        assert everything(connection) == b"220 hello"
        connection.sendall(b"and still me")
        connection.shutdown(socket.SHUT_WR)
        assert done.wait(TALK_S)
    assert heard == [b"and still me"]


def test_what_breaks_there_breaks_here_and_is_told(on_daemon: Any, dev: str) -> None:
    def break_off(connection: socket.socket) -> None:
        connection.recv(1)
        connection.sendall(b"part of it")
        connection.recv(1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with (
        service(break_off) as port,
        forwarded(on_daemon, dev, port) as (connect, running),
        connect() as connection,
    ):
        connection.sendall(b"1")
        assert connection.recv(100) == b"part of it"
        connection.sendall(b"2")
        with pytest.raises(ConnectionResetError):
            connection.recv(100)
        assert "the node's service reset the connection" in running.stderr.readline()
    with forwarded(on_daemon, dev, port) as (connect, running), connect() as connection:
        with pytest.raises(ConnectionResetError):
            connection.recv(100)
        assert f"nothing answers on port {port} of the node" in running.stderr.readline()


def test_a_port_that_is_taken_here(on_daemon: Any, dev: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = on_daemon("compute", "forward", dev, f"{port}:80").check(4)
    assert f"port {port} of this computer cannot be had" in ended.err
