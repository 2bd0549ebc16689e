"""Who gets in: the owner's processes, whoever has the token, and agents at their own door.

Decides: that nobody else does, and that no page can make a browser do it. Never: trusts what a caller says
about itself. Processes of another user are started where the tests may do that (as root).
"""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
from typing import Any

import pytest

CALLER = """
import socket, sys
port, request = int(sys.argv[1]), sys.argv[2].encode().decode("unicode_escape").encode("latin-1")
with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
    connection.sendall(request)
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
sys.stdout.buffer.write(answer)
"""


def raw(port: int, path: str = "/v1/computes", method: str = "GET", **headers: str) -> bytes:
    """A request as it is, and the whole of its answer."""
    lines = {"Host": f"127.0.0.1:{port}", "Connection": "close"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    text = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v) + "\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(text.encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def as_nobody(port: int, path: str, *headers: str, method: str = "GET") -> bytes:
    """The answer to a request that a process of another user sends."""
    if os.getuid() != 0:
        pytest.fail("this test starts a process of another user, which only root may do")
    nobody = pwd.getpwnam("nobody").pw_uid
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", *headers]
    request = "".join(f"{line}\\r\\n" for line in lines) + "\\r\\n"
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", CALLER, str(port), request],
        capture_output=True,
        timeout=80,
        user=nobody,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def token_of(daemon: Any) -> str:
    return (daemon.home / "token").read_text().strip()


@pytest.mark.parametrize(
    "path", ["/v1/computes", "/v1/health/live", "/v1/openapi.json", "/docs", "/v1/events"]
)
def test_another_user_is_refused(daemon: Any, path: str) -> None:
    answer = as_nobody(daemon.port, path)
    assert b" 401 " in answer.split(b"\r\n")[0]
    assert b"www-authenticate: Bearer" in answer
    assert b'"code":"unauthorized"' in answer


def names(api: Any) -> set[str]:
    """The computes that there are; those that go may go."""
    return {one["id"] for one in api("GET", "/v1/computes?limit=500").json["items"]}


def test_another_user_is_refused_before_anything_is_written(daemon: Any, api: Any) -> None:
    before = names(api)
    answer = as_nobody(daemon.port, "/v1/computes", "Content-Length: 0", method="POST")
    assert b" 401 " in answer.split(b"\r\n")[0]
    assert names(api) - before == set()


@pytest.mark.parametrize("given", ["Bearer wrong", "Bearer ", "Basic {token}", "{token}", "Bearer {token}x"])
def test_another_user_with_a_wrong_token_is_refused(daemon: Any, given: str) -> None:
    header = "Authorization: " + given.format(token=token_of(daemon))
    assert b" 401 " in as_nobody(daemon.port, "/v1/computes", header).split(b"\r\n")[0]


def test_another_user_with_the_token_gets_in(daemon: Any) -> None:
    answer = as_nobody(daemon.port, "/v1/computes", f"Authorization: Bearer {token_of(daemon)}")
    assert b" 200 " in answer.split(b"\r\n")[0]


def test_the_state_folder_is_private(daemon: Any) -> None:
    assert daemon.home.stat().st_mode & 0o777 == 0o700
    assert (daemon.home / "token").stat().st_mode & 0o777 == 0o600
    assert (daemon.home / "daemon.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1:1",
        "127.0.0.1",
        "127.0.0.1.evil.example:{port}",
        "0.0.0.0:{port}",
    ],
)
def test_a_foreign_host_is_refused(daemon: Any, host: str) -> None:
    answer = raw(daemon.port, Host=host.format(port=daemon.port))
    assert b" 403 " in answer.split(b"\r\n")[0]
    assert b'"code":"forbidden"' in answer


def test_a_request_without_a_host_is_refused(daemon: Any) -> None:
    answer = raw(daemon.port, Host="")
    assert b" 400 " in answer.split(b"\r\n")[0]


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_our_own_names_are_taken(daemon: Any, host: str) -> None:
    assert b" 200 " in raw(daemon.port, Host=host.format(port=daemon.port)).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "file://", "https://127.0.0.1"],
)
def test_a_foreign_page_is_refused(daemon: Any, origin: str) -> None:
    for method in ("GET", "POST"):
        answer = raw(daemon.port, "/v1/computes/x/exec?command=id", method, Origin=origin, Content_Length="0")
        assert b" 403 " in answer.split(b"\r\n")[0], answer
        assert b"access-control-allow-origin" not in answer.lower()


def test_a_request_that_a_browser_sent_for_another_site_is_refused(daemon: Any) -> None:
    path = "/v1/computes/x/exec?command=id"
    answer = raw(daemon.port, path, "POST", Sec_Fetch_Site="cross-site", Content_Length="0")
    assert b" 403 " in answer.split(b"\r\n")[0]


def test_our_own_page_is_taken(daemon: Any) -> None:
    answer = raw(daemon.port, Origin=f"http://127.0.0.1:{daemon.port}")
    assert b" 200 " in answer.split(b"\r\n")[0]
    assert b"access-control" not in answer.lower()


def test_a_preflight_is_told_nothing(daemon: Any) -> None:
    answer = raw(
        daemon.port, method="OPTIONS", Origin="http://evil.example", Access_Control_Request_Method="POST"
    )
    assert b" 403 " in answer.split(b"\r\n")[0]
    assert b"access-control-allow" not in answer.lower()


@pytest.mark.parametrize(
    "path", ["/agent/v1/blobs/" + "0" * 64, "/agent/v1/connect", "/agent/v1/rendezvous/rdv_x"]
)
def test_the_agents_door_takes_only_the_token_of_a_node(daemon: Any, path: str) -> None:
    socket_headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    more = {} if "blobs" in path else socket_headers
    for token in ("", "wrong", token_of(daemon)):
        headers = {**more, "Authorization": f"Bearer {token}" if token else "", "X_Sky_Node": "nod_x"}
        first = handshake(daemon.port, path, headers) if more else raw(daemon.port, path, **headers)
        assert b" 401 " in first.split(b"\r\n")[0], first


def handshake(port: int, path: str, headers: dict[str, str]) -> bytes:
    """The first line of the answer to a request to speak WebSocket."""
    lines = {"Host": f"127.0.0.1:{port}"} | {k.replace("_", "-"): v for k, v in headers.items()}
    text = f"GET {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v) + "\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(text.encode())
        return connection.recv(4096)


def test_no_socket_is_served_outside_of_the_agents_door(daemon: Any) -> None:
    answer = handshake(
        daemon.port,
        "/v1/events",
        {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec_WebSocket_Version": "13",
            "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        },
    )
    assert b" 403 " in answer.split(b"\r\n")[0]
