"""What the tests of the faces share: a client that shows everything, and things to ask for.

Decides: how a test speaks HTTP: with a plain client, from outside, to a real daemon.
Never: hides a header or a status. Follows: what these tests see is what anybody with an HTTP client sees.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import httpx2
import lz4.frame
import pytest

DEADLINE_S = 60.0
WAIT_S_MAX = 60
"""The longest for which a daemon can be asked to wait before it answers."""
CODES = {
    400: {"invalid_request", "hash_mismatch"},
    401: {"unauthorized"},
    403: {"forbidden"},
    404: {"not_found"},
    405: {"method_not_allowed"},
    412: {"revision_conflict"},
    413: {"payload_too_large"},
    415: {"unsupported_media_type"},
    428: {"precondition_required"},
}


@dataclass(frozen=True)
class Answer:
    """One answer, whole."""

    status: int
    headers: httpx2.Headers
    content: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json", self.content[:200]
        return json.loads(self.content)

    def error(self, status: int, code: str | None = None) -> dict[str, Any]:
        """The error object, after checking that it is one and that status and code fit."""
        assert self.status == status, (self.status, self.content[:400])
        body = self.json
        assert set(body) == {"code", "message", "retryable", "request_id", "details"}
        assert body["request_id"] == self.headers["request-id"]
        assert body["message"]
        assert "Traceback" not in body["message"]
        if code is not None:
            assert body["code"] == code, body
        elif status in CODES:
            assert body["code"] in CODES[status], body
        return body


class Api:
    """A client of one daemon."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx2.Client(base_url=url, timeout=WAIT_S_MAX + DEADLINE_S, trust_env=False)

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request; ``body`` is JSON unless it is bytes. Header names are written with ``_``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None or isinstance(body, bytes):
            content = body
        else:
            content = json.dumps(body).encode()
            named.setdefault("content-type", "application/json")
        answer = self.http.request(method, path, content=content, headers=named)
        return Answer(answer.status_code, answer.headers, answer.content)

    def create(self, spec: dict[str, Any], name: str | None = None) -> dict[str, Any]:
        """A new compute."""
        body = {"spec": spec} if name is None else {"spec": spec, "name": name}
        answer = self("POST", "/v1/computes", body)
        assert answer.status == 201, answer.content
        return answer.json

    def delete(self, compute_id: str) -> None:
        """Have a compute deleted."""
        self("DELETE", f"/v1/computes/{compute_id}", if_match="*")


def until(look: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """What ``look`` returns, as soon as that is true; fails after the deadline."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {deadline_s:g} s")


def local_spec(**more: Any) -> dict[str, Any]:
    """A spec that this computer can serve."""
    return {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 1}, **more}


def idle_spec(**more: Any) -> dict[str, Any]:
    """A spec that is right, and for which no machine is bought until there is work."""
    return local_spec(nodes={"desired": 0, "min": 0, "max": 1}, **more)


def packed(value: Any) -> bytes:
    """A value as functions and arguments travel."""
    return lz4.frame.compress(cloudpickle.dumps(value, protocol=5))


def unpacked(content: bytes) -> Any:
    """The value of a packed result."""
    return cloudpickle.loads(lz4.frame.decompress(content))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="session")
def api(daemon: Any) -> Iterator[Api]:
    """A client of the session's daemon, as its owner."""
    made = Api(daemon.url)
    yield made
    made.http.close()


@pytest.fixture
def fresh_name() -> str:
    """A name that nothing has."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def idle(api: Api) -> Iterator[dict[str, Any]]:
    """A compute without machines."""
    compute = api.create(idle_spec())
    yield compute
    api.delete(compute["id"])


@pytest.fixture(scope="session")
def ready(api: Api) -> Iterator[dict[str, Any]]:
    """A compute with two ready nodes."""
    compute = api.create(local_spec(nodes={"desired": 2}))

    def look() -> Any:
        found = api("GET", f"/v1/computes/{compute['id']}").json
        assert found["status"]["state"] != "failed", found
        return found if found["status"]["state"] == "ready" else None

    yield until(look, "the compute became ready", 60.0)
    api.delete(compute["id"])
    until(
        lambda: api("GET", f"/v1/computes/{compute['id']}").json["status"]["state"] == "deleted",
        "the compute was deleted",
        60.0,
    )


@pytest.fixture
def tools() -> Any:
    """The helpers of this module, for tests that are not imported from a package."""

    class Tools:
        until = staticmethod(until)
        local_spec = staticmethod(local_spec)
        idle_spec = staticmethod(idle_spec)
        packed = staticmethod(packed)
        unpacked = staticmethod(unpacked)
        sha256 = staticmethod(sha256)

    return Tools
