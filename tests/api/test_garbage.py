"""Bytes that are not HTTP, on the port of a real daemon."""

from __future__ import annotations

import json
import socket

import pytest
from tests.conftest import RunningDaemon


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HELLO\r\n\r\n",
    ],
    ids=["a request line without end", "a TLS handshake", "no protocol"],
)
def test_what_is_not_http_is_refused_with_the_error_object(daemon: RunningDaemon, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as connection:
        connection.sendall(sent)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4")
    assert b"application/json" in head
    assert json.loads(body)["code"] == "invalid_request"
