"""Versions of the requests' interface: what both sides say, who is too old, and who knows more."""

from __future__ import annotations

import httpx2
import pytest
from tests.requests.remote import Reachable

from sky.kit.version import VERSION
from sky.wire import requests as wire

VERSION_HEADER = "x-skypilot-api-version"


@pytest.fixture(scope="module")
def client(reachable: Reachable) -> httpx2.Client:
    return reachable.owner()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/health", None, 200),
        ("POST", "/status", {}, 200),
        ("POST", "/status", {"nosuch": 1}, 400),
        ("GET", "/api/get?request_id=nosuch", None, 404),
        ("POST", "/nosuch", {}, 404),
        ("GET", "/launch", None, 405),
        ("GET", "/users", None, 200),
    ],
)
def test_every_answer_tells_the_versions(
    client: httpx2.Client, method: str, path: str, body: object, status: int
) -> None:
    answer = client.request(method, path, json=body)
    assert answer.status_code == status
    assert answer.headers[VERSION_HEADER] == str(wire.API_VERSION)
    assert answer.headers["x-skypilot-version"] == VERSION


def test_a_refusal_at_the_door_tells_them_too(reachable: Reachable) -> None:
    with reachable.as_() as nobody:
        answer = nobody.post("/status", json={})
    assert answer.status_code == 401
    assert answer.headers[VERSION_HEADER] == str(wire.API_VERSION)


def test_other_faces_have_nothing_to_do_with_them(client: httpx2.Client) -> None:
    answer = client.get("/v1/computes", headers={VERSION_HEADER: "1"})
    assert answer.status_code == 200
    assert VERSION_HEADER not in answer.headers


def test_health_tells_all_of_its_fields(client: httpx2.Client) -> None:
    told = client.get("/api/health").json()
    assert set(told) == {
        "status",
        "api_version",
        "min_compatible_api_version",
        "version",
        "commit",
        "user",
        "basic_auth_enabled",
    }
    assert told["api_version"] == str(wire.API_VERSION)
    assert told["min_compatible_api_version"] == str(wire.MIN_COMPATIBLE_API_VERSION)
    assert told["version"] == VERSION


@pytest.mark.parametrize("said", ["x", "-1", "", "5.5", "1234567", "５６"])
def test_a_version_that_is_no_number_is_refused(client: httpx2.Client, said: str) -> None:
    headers = {VERSION_HEADER.encode(): said.encode()}
    for path in ("/status", "/nosuch"):
        answer = client.post(path, json={}, headers=headers)
        assert (answer.status_code, answer.json()["details"]["field"]) == (400, VERSION_HEADER)
    assert client.get("/api/health", headers=headers).status_code == 400


def test_a_client_that_is_too_old_is_told_both_versions_before_its_body_is_read(
    client: httpx2.Client,
) -> None:
    old = {VERSION_HEADER: str(wire.MIN_COMPATIBLE_API_VERSION - 1)}
    for path, body in (("/status", {}), ("/status", {"no": "such field"}), ("/launch", {})):
        answer = client.post(path, json=body, headers=old)
        assert answer.status_code == 400
        details = answer.json()["details"]
        assert details["type"] == "APINotSupportedError"
        assert (details["client"], details["server"], details["least"]) == (
            wire.MIN_COMPATIBLE_API_VERSION - 1,
            wire.API_VERSION,
            wire.MIN_COMPATIBLE_API_VERSION,
        )
        for part in (old[VERSION_HEADER], str(wire.API_VERSION), "upgrade the client"):
            assert part in answer.json()["message"]
    assert client.get("/api/health", headers=old).status_code == 200, "so that it can learn which will do"


def test_what_an_older_server_does_not_know_is_named(client: httpx2.Client) -> None:
    newer = {VERSION_HEADER: str(wire.API_VERSION + 1)}
    answer = client.post("/status", json={"colour": "red"}, headers=newer)
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "colour")
    answer = client.post("/paint", json={}, headers=newer)
    assert (answer.status_code, answer.json()["details"]["path"]) == (404, "/paint")
    for told in (answer, client.post("/status", json={}, headers=newer)):
        assert told.headers[VERSION_HEADER] == str(wire.API_VERSION), "from which a client sees who is older"


def test_a_newer_server_says_so_and_refuses_whom_it_has_left_behind(beside: Reachable) -> None:
    with beside.owner() as owner:
        told = owner.get("/api/health", headers={VERSION_HEADER: str(wire.API_VERSION)}).json()
        assert (told["api_version"], told["min_compatible_api_version"]) == ("70", "60")
        answer = owner.post("/status", json={}, headers={VERSION_HEADER: str(wire.API_VERSION)})
        assert (answer.status_code, answer.json()["details"]["type"]) == (400, "APINotSupportedError")
        assert answer.headers[VERSION_HEADER] == "70"
        assert owner.post("/status", json={}, headers={VERSION_HEADER: "60"}).status_code == 200
