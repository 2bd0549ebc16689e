"""Content by its hash: in, out, in part, and what is refused.

Decides: that bytes are what their name says, whole, and never all in memory. Never: opens them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BYTES = "application/octet-stream"
BLOB = "application/vnd.skyward.blob"
LARGE = 24 * 1024 * 1024


def resident_kib(daemon: Any) -> int:
    """How much memory the daemon has used at most."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("size", [0, 1, 1000, 64 * 1024, 64 * 1024 + 1, 3 * 1024 * 1024])
def test_what_goes_in_comes_out(api: Any, tools: Any, size: int) -> None:
    content = os.urandom(size)
    path = f"/v1/blobs/{tools.sha256(content)}"
    first = api("PUT", path, content, content_type=BYTES)
    assert first.status in {200, 201}
    again = api("PUT", path, content, content_type=BLOB)
    assert (again.status, again.content) == (200, b"")
    out = api("GET", path)
    assert out.content == content
    assert out.headers["content-type"] == BYTES
    assert out.headers["etag"] == f'"{tools.sha256(content)}"'
    assert api("GET", path, accept=BLOB).headers["content-type"] == BLOB
    head = api("HEAD", path)
    assert (head.status, head.headers["content-length"], head.content) == (200, str(size), b"")


def test_new_content_is_201_and_the_body_null(api: Any, tools: Any) -> None:
    content = os.urandom(50)
    made = api("PUT", f"/v1/blobs/{tools.sha256(content)}", content, content_type=BYTES)
    assert (made.status, made.json) == (201, None)
    assert made.headers["location"] == f"/v1/blobs/{tools.sha256(content)}"


@pytest.mark.parametrize("size", [100, 200_000, 3 * 1024 * 1024])
def test_content_under_a_wrong_name_is_not_stored(api: Any, tools: Any, size: int) -> None:
    content = os.urandom(size)
    name = tools.sha256(content + b"x")
    error = api("PUT", f"/v1/blobs/{name}", content, content_type=BYTES).error(400, "hash_mismatch")
    assert error["details"] == {"expected": name, "actual": tools.sha256(content)}
    api("GET", f"/v1/blobs/{name}").error(404)
    api("GET", f"/v1/blobs/{tools.sha256(content)}").error(404)


def test_content_that_is_called_text_is_refused(api: Any, tools: Any) -> None:
    path = f"/v1/blobs/{tools.sha256(b'x')}"
    error = api("PUT", path, b"x", content_type="text/plain").error(415)
    assert error["details"]["expected"] == [BYTES, BLOB]


def test_content_that_a_client_calls_json_is_taken_for_what_it_hashes_to(api: Any, tools: Any) -> None:
    content = os.urandom(64)
    assert (
        api("PUT", f"/v1/blobs/{tools.sha256(content)}", content, content_type="application/json").status
        == 201
    )


@pytest.mark.parametrize("size", [1000, 200_000])
@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [("bytes=0-9", 0, 10), ("bytes=10-19", 10, 20), ("bytes=990-", 990, None), ("bytes=-5", -5, None)],
)
def test_a_range_is_served(
    api: Any, tools: Any, size: int, wanted: str, first: int, last: int | None
) -> None:
    content = os.urandom(size)
    path = f"/v1/blobs/{tools.sha256(content)}"
    api("PUT", path, content, content_type=BYTES)
    part = api("GET", path, range=wanted)
    assert part.status == 206
    assert part.content == content[first:last]
    assert part.headers["content-range"].endswith(f"/{size}")


@pytest.mark.parametrize(
    "wanted", ["bytes=5-1", "bytes=", "bytes=x-y", "lines=1-2", "bytes=0-1,3-4", f"bytes={10**30}-"]
)
def test_a_range_that_is_none_is_passed_over(api: Any, tools: Any, wanted: str) -> None:
    content = b"hello, range"
    path = f"/v1/blobs/{tools.sha256(content)}"
    api("PUT", path, content, content_type=BYTES)
    whole = api("GET", path, range=wanted)
    assert (whole.status, whole.content) == (200, content)


def test_known_content_is_not_sent_again(api: Any, tools: Any) -> None:
    content = os.urandom(100)
    path = f"/v1/blobs/{tools.sha256(content)}"
    api("PUT", path, content, content_type=BYTES)
    same = api("GET", path, if_none_match=f'"{tools.sha256(content)}"')
    assert (same.status, same.content) == (304, b"")


def test_large_content_never_sits_in_memory(api: Any, daemon: Any) -> None:
    """Five uploads and downloads of a large blob leave the daemon's peak memory nearly where it was."""
    piece = os.urandom(1024 * 1024)

    def pieces(mark: bytes) -> Iterator[bytes]:
        yield mark
        for _ in range(LARGE // len(piece)):
            yield piece

    before = resident_kib(daemon)
    for number in range(5):
        mark = number.to_bytes(8, "big")
        name = hashlib.sha256(b"".join(pieces(mark))).hexdigest()
        headers = {"content-type": BYTES}
        sent = api.http.put(f"/v1/blobs/{name}", content=pieces(mark), headers=headers)
        assert sent.status_code == 201, sent.content
        digest = hashlib.sha256()
        with api.http.stream("GET", f"/v1/blobs/{name}") as answer:
            assert int(answer.headers["content-length"]) == LARGE + 8
            for part in answer.iter_bytes():
                digest.update(part)
        assert digest.hexdigest() == name
    assert resident_kib(daemon) - before < LARGE // 1024


# ── functions ───────────────────────────────────────────────────────────────────────────────────


def test_a_function_is_registered_by_its_bytes(api: Any, tools: Any, fresh_name: str) -> None:
    code = tools.packed(("f", fresh_name))
    path = f"/v1/functions/{tools.sha256(code)}"
    made = api("PUT", path, code, content_type=BLOB, x_skyward_function_name="double")
    assert made.status == 201
    assert made.json["name"] == "double"
    assert made.json["size_bytes"] == len(code)
    assert api("PUT", path, code, content_type=BYTES).status == 200
    assert api("GET", path).json == made.json
    assert api("HEAD", path).status == 200


def test_a_function_is_registered_by_name_of_a_stored_blob(api: Any, tools: Any, fresh_name: str) -> None:
    code = tools.packed(("g", fresh_name))
    name = tools.sha256(code)
    body = {"codec": "cloudpickle-lz4", "name": "g"}
    missing = api("PUT", f"/v1/functions/{name}", body).error(404)
    assert missing["details"]["blob"] == name
    api("PUT", f"/v1/blobs/{name}", code, content_type=BYTES)
    made = api("PUT", f"/v1/functions/{name}", body)
    assert (made.status, made.json["name"], made.json["codec"]) == (201, "g", "cloudpickle-lz4")
    error = api("PUT", f"/v1/functions/{name}", {"codec": "pickle"}).error(400)
    assert error["details"]["field"] == "codec"
    api("PUT", f"/v1/functions/{name}", {"codec": "cloudpickle-lz4", "size": 1}).error(400)
    api("PUT", f"/v1/functions/{name}", {}).error(400)


@pytest.mark.parametrize("garbage", [b"", b"\x04", b"garbage, no function", b"\x80\x05K\x01."])
def test_garbage_is_no_function(api: Any, tools: Any, garbage: bytes) -> None:
    path = f"/v1/functions/{tools.sha256(garbage)}"
    api("PUT", path, garbage, content_type=BYTES).error(400, "invalid_request")
    api("GET", path).error(404)
    api("PUT", f"/v1/blobs/{tools.sha256(garbage)}", garbage, content_type=BYTES)
    api("PUT", path, {"codec": "cloudpickle-lz4"}).error(400, "invalid_request")
    api("PUT", path, garbage, content_type=BYTES).error(400, "invalid_request")
    api("GET", path).error(404)


def test_a_function_under_a_wrong_name_is_refused(api: Any, tools: Any) -> None:
    code = tools.packed(("h", os.urandom(8)))
    name = tools.sha256(code + b"x")
    api("PUT", f"/v1/functions/{name}", code, content_type=BYTES).error(400, "hash_mismatch")
    api("PUT", f"/v1/functions/{tools.sha256(code)}", code, content_type="text/plain").error(415)
    api("GET", f"/v1/functions/{name}").error(404)
