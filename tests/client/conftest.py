"""A small HTTP server whose every answer the test decides, for what no real daemon does on cue."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import pytest
from tests.ports import free_port


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Asked, socket.socket], bool]
"""Writes an answer, or does not; True keeps the connection open."""


def answer(
    status: int = 200, body: bytes = b"{}", *, headers: str = "", keep: bool = True, cut: int | None = None
) -> Answer:
    """An ordinary answer; ``cut`` sends only that many bytes of it and hangs up."""

    def write(asked: Asked, connection: socket.socket) -> bool:
        content = b"" if asked.method == "HEAD" else body
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode()
        connection.sendall((head + content)[:cut])
        return keep and cut is None

    return write


def hang_up(asked: Asked, connection: socket.socket) -> bool:
    """Reads the request and says nothing."""
    return False


@dataclass
class Script:
    """A server that gives one answer after the other, the last one for ever."""

    answers: list[Answer]
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    _closing: threading.Event = field(default_factory=threading.Event)

    def start(self, port: int = 0) -> Script:
        self._closing.clear()
        # A port of its own, where nobody else listens while it is away.
        self._listener = socket.create_server(("127.0.0.1", port or free_port()))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = cast("BinaryIO", connection.makefile("rb"))
        try:
            while self._one(reader, connection):
                pass
        except (OSError, ValueError):
            pass
        finally:
            reader.close()
            connection.close()

    def _one(self, reader: BinaryIO, connection: socket.socket) -> bool:
        line = reader.readline()
        if not line:
            return False
        method, target, _ = line.decode().split(" ")
        headers: dict[str, str] = {}
        while (line := reader.readline().decode().strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        # Read whole, also in parts: what is left unread when a connection ends takes the answer with it.
        parts = _parts(reader) if "transfer-encoding" in headers else ()
        body = b"".join(parts) or reader.read(int(headers.get("content-length", 0)))
        asked = Asked(method, target, headers, body)
        self.asked.append(asked)
        say = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return say(asked, connection)


def _parts(reader: BinaryIO) -> Iterator[bytes]:
    """The parts of a body whose length was not told."""
    while size := int(reader.readline(), 16):
        yield reader.read(size)
        reader.readline()
    reader.readline()


class Replies:
    """The answers a script is made of, where a test can reach them."""

    answer = staticmethod(answer)
    hang_up = staticmethod(hang_up)


@pytest.fixture
def say() -> type[Replies]:
    """Builders of answers."""
    return Replies


@pytest.fixture
def scripted() -> Iterator[Callable[..., Script]]:
    """Starts servers that give the answers they are told, and stops them afterwards."""
    running: list[Script] = []

    def start(*answers: Answer, port: int = 0) -> Script:
        server = Script(list(answers)).start(port)
        running.append(server)
        return server

    yield start
    for server in running:
        server.stop()
