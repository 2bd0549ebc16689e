"""Which server is meant, logging in and out, servers of other versions, broken connections: with servers that
say what the test tells them."""

from __future__ import annotations

import io
import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.conftest import Replies, Script

import sky
from sky import exceptions
from sky.client import daemon, endpoints, request_link

Serve = Callable[..., Script]
NAMES = (*endpoints.URL_VARIABLES, *endpoints.TOKEN_VARIABLES)
HEALTH = {
    "status": "healthy",
    "api_version": "56",
    "min_compatible_api_version": "40",
    "version": "9.9",
    "commit": "",
    "user": None,
    "basic_auth_enabled": False,
}
RECORD = {"request_id": "r1", "name": "status", "status": "SUCCEEDED", "created_at": 1.0, "user": "u"}
DONE = {"request_id": "r1", "record": {**RECORD, "finished_at": 2.0, "result": []}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SKY_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


# ── which server ────────────────────────────────────────────────────────────────────────────────


def test_the_environment_goes_before_a_login_and_a_parameter_before_both(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert endpoints.named(home) == endpoints.Named(None, None, "", "")
    endpoints.store(home, endpoints.Login("https://stored.example", "sky_stored"))
    stored = endpoints.named(home)
    assert (stored.url, stored.token) == ("https://stored.example", "sky_stored")
    for name in reversed(endpoints.URL_VARIABLES):
        monkeypatch.setenv(name, f"http://{name.lower()}.example")
        found = endpoints.named(home)
        assert (found.url, found.token, found.by) == (f"http://{name.lower()}.example", None, name)
    monkeypatch.setenv("SKYPILOT_SERVICE_ACCOUNT_TOKEN", "sky_other")
    assert endpoints.named(home).token == "sky_other"
    monkeypatch.setenv("SKY_TOKEN", "mine")
    assert endpoints.named(home).token == "mine"
    assert endpoints.named(home, "http://given.example", "").token is None


def test_a_stored_token_goes_to_the_server_it_was_stored_for_and_to_no_other(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoints.store(home, endpoints.Login("https://stored.example", "sky_stored"))
    monkeypatch.setenv("SKY_API_ENDPOINT", "https://stored.example/")
    assert endpoints.named(home).token == "sky_stored"
    monkeypatch.setenv("SKY_API_ENDPOINT", "https://stored.example.org")
    assert endpoints.named(home).token is None


def test_calls_of_functions_go_where_requests_go(home: Path, scripted: Serve, say: type[Replies]) -> None:
    server = scripted(say.answer(body=body({"live": True, "version": "0"})))
    endpoints.store(home, endpoints.Login(server.url, "sky_stored"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKY_HOME", str(home))
        http = daemon.connect()
    assert http.url == server.url


@pytest.mark.parametrize(
    "endpoint", ["localhost:80", "ftp://a", "http://", "https:///x", "http://a:b", "", "::"]
)
def test_an_endpoint_without_a_scheme_is_told_how_to_write_it(endpoint: str) -> None:
    with pytest.raises(exceptions.InvalidEndpointError, match="https://"):
        endpoints.checked_url(endpoint)


def test_a_login_file_that_cannot_be_read_is_named(home: Path) -> None:
    home.mkdir()
    (home / "login.json").write_text("{")
    with pytest.raises(exceptions.InvalidEndpointError, match=r"login\.json .*log in again"):
        sky.status()


# ── login ───────────────────────────────────────────────────────────────────────────────────────


def test_a_login_is_tried_out_kept_privately_and_forgotten(
    home: Path, scripted: Serve, say: type[Replies]
) -> None:
    server = scripted(
        say.answer(body=body(HEALTH)), say.answer(body=b'{"items": []}'), say.answer(body=body(DONE))
    )
    info = sky.api_login(f"{server.url}/", service_account_token="sky_secret")
    assert (info.endpoint, info.version) == (server.url, "9.9")
    assert stat.S_IMODE((home / "login.json").stat().st_mode) == 0o600
    assert sky.get(sky.status()) == []
    assert [one.headers["authorization"] for one in server.asked] == ["Bearer sky_secret"] * 3
    sent = server.asked[-1]
    assert (sent.method, sent.target, json.loads(sent.body)) == ("POST", "/status", {})
    assert (sent.headers["x-skypilot-api-version"], sent.headers["x-skypilot-version"]) == (
        "56",
        sky.__version__,
    )
    with pytest.raises(exceptions.NotSupportedError, match="sky api logout"):
        sky.api_stop()
    sky.api_logout()
    assert endpoints.named(home).url is None
    with pytest.raises(exceptions.InvalidArgument, match="nobody is logged in"):
        sky.api_logout()


def test_a_login_that_does_not_work_is_not_kept(home: Path, scripted: Serve, say: type[Replies]) -> None:
    refused = {"code": "unauthorized", "message": "that token is not known here", "retryable": False}
    server = scripted(say.answer(body=body(HEALTH)), say.answer(401, body(refused)))
    with pytest.raises(exceptions.ApiServerAuthenticationError, match="not known here") as raised:
        sky.api_login(server.url, service_account_token="sky_wrong")
    assert "sky_wrong" not in str(raised.value)
    with pytest.raises(exceptions.ApiServerConnectionError, match=r"127\.0\.0\.1:1"):
        sky.api_login("http://127.0.0.1:1")
    with pytest.raises(exceptions.InvalidArgument, match="begins with 'sky_'") as wrong:
        sky.api_login(server.url, service_account_token="uck_abc")
    assert "uck_abc" not in str(wrong.value)
    with pytest.raises(exceptions.InvalidArgument, match="needs the endpoint"):
        sky.api_login()
    assert not (home / "login.json").exists()


# ── other versions ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("status", "told", "headers", "says"),
    [
        (
            200,
            DONE,
            "x-skypilot-api-version: 12\r\nx-skypilot-version: 0.0.9\r\n",
            "version 12 .*upgrade the server",
        ),
        (
            404,
            {"code": "not_found", "message": "no path", "details": {"path": "/status"}},
            "",
            "upgrade the server",
        ),
        (
            400,
            {
                "code": "invalid_request",
                "message": "task.x is not a known field",
                "details": {"field": "task.x", "expected": "one of the known fields"},
            },
            "x-skypilot-api-version: 50\r\n",
            "task.x .*version 50 .*upgrade the server",
        ),
        (
            400,
            {
                "code": "invalid_request",
                "message": "upgrade the client",
                "details": {"type": "APINotSupportedError"},
            },
            "x-skypilot-api-version: 90\r\n",
            "upgrade the client",
        ),
    ],
)
def test_a_server_of_another_version_is_told_with_what_to_upgrade(
    scripted: Serve,
    say: type[Replies],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    told: Any,
    headers: str,
    says: str,
) -> None:
    server = scripted(say.answer(status, body(told), headers=headers))
    monkeypatch.setenv("SKY_URL", server.url)
    with pytest.raises(exceptions.APINotSupportedError, match=says):
        sky.status()


# ── broken connections ──────────────────────────────────────────────────────────────────────────


def test_a_submission_whose_answer_was_lost_is_sent_again_under_its_key(
    scripted: Serve, say: type[Replies], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(say.hang_up, say.answer(body=body(DONE), cut=20), say.answer(body=body(DONE)))
    monkeypatch.setenv("SKY_URL", server.url)
    assert sky.get(sky.down("dev")) == []
    assert len({one.headers["idempotency-key"] for one in server.asked}) == 1
    assert [one.target for one in server.asked] == ["/down"] * 3


def test_who_waits_from_the_start_is_patient_with_a_server_that_was_there(
    scripted: Serve, say: type[Replies], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_link, "FIRST_PATIENCE_S", 0.2)
    running = body({**RECORD, "status": "RUNNING", "finished_at": None})
    over = body({**RECORD, "finished_at": 2.0, "result": []})
    away = [say.hang_up] * 6
    server = scripted(say.answer(body=running), *away, say.answer(body=over))
    monkeypatch.setenv("SKY_URL", server.url)
    assert sky.get("r1") == []
    assert len(server.asked) == 8


def test_a_stream_is_begun_again_behind_its_last_whole_line(
    scripted: Serve, say: type[Replies], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = b'{"line": 1, "text": "one"}\n{"line": 2, "text": "two"}\n{"line": 3, "te'
    end = body({"end": {**RECORD, "finished_at": 2.0, "result": [{"name": "a", "status": "MELTED"}]}})
    rest = b'{"line": 3, "text": "three\\nfour"}\n' + end + b"\n"
    server = scripted(
        say.answer(body=first + b"x" * 40, cut=len(first) + 40), say.hang_up, say.answer(body=rest)
    )
    monkeypatch.setenv("SKY_URL", server.url)
    out = io.StringIO()
    [cluster] = sky.stream_and_get("r1", output_stream=out)
    assert out.getvalue() == "one\ntwo\nthree\nfour\n"
    assert [one.target.rpartition("after=")[2].partition("&")[0] for one in server.asked] == ["0", "2", "2"]
    assert (cluster.name, cluster.status) == ("a", "MELTED")  # a word of a newer server stays a text


def test_the_log_of_the_server_goes_on_where_it_was_cut(
    scripted: Serve, say: type[Replies], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = b'{"place": 10, "text": "a"}\n{"place": 20, "text": "b"}\n'
    head = len(f"HTTP/1.1 200 X\r\nContent-Length: {len(first) + 9}\r\n\r\n")
    server = scripted(
        say.answer(body=first + b"123456789", cut=head + len(first)),
        say.answer(body=b'{"place": 30, "text": "c"}\n'),
    )
    monkeypatch.setenv("SKY_URL", server.url)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    sky.api_server_logs(follow=False, tail=3)
    assert out.getvalue() == "a\nb\nc\n"
    assert "after=20" in server.asked[1].target
