"""Calls through plain HTTP: asked for, waited for, streamed, cancelled and tried again, on real nodes.

Decides: what a client without our SDK can do. Never: uses the SDK.
"""

from __future__ import annotations

import base64
import itertools
import os
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec
import pytest

READ_S = 80.0
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def call(api: Any, tools: Any, ready: dict[str, Any]) -> Any:
    """Submits a call of a function and returns its task."""

    def submit(function: Any, *args: Any, **more: Any) -> dict[str, Any]:
        code = tools.packed(function)
        name = tools.sha256(code)
        stored = api("PUT", f"/v1/functions/{name}", code, content_type="application/octet-stream")
        assert stored.status in {200, 201}
        arguments = base64.b64encode(tools.packed((args, {}))).decode()
        body = {"compute": ready["id"], "function": name, "args_inline": arguments, **more}
        answer = api("POST", "/v1/tasks", body)
        assert answer.status == 201, answer.content
        return answer.json

    return submit


def double(x: int) -> int:
    print("doubling", x)
    return 2 * x


def broken(x: int) -> int:
    raise ValueError(f"cannot take {x}")


def ended(api: Any, tools: Any, task: dict[str, Any]) -> dict[str, Any]:
    def look() -> Any:
        found = api("GET", f"/v1/tasks/{task['id']}").json
        return found if found["state"] not in {"queued", "running"} else None

    return tools.until(look, "the task ended")


def test_a_result_is_waited_for_and_can_be_read_twice(api: Any, tools: Any, call: Any) -> None:
    task = call(double, 21)
    assert task["dispatch"] == "one"
    path = f"/v1/tasks/{task['id']}/result"
    answer = api("GET", f"{path}?wait=60")
    assert tools.unpacked(answer.content) == 42
    assert answer.headers["sky-console-lines"] == "1"
    assert answer.headers["sky-node"].startswith("nod_")
    assert api("GET", path).content == answer.content
    found = api("GET", f"/v1/tasks/{task['id']}").json
    assert found["state"] == "succeeded"
    assert api("GET", f"/v1/blobs/{found['result_sha256']}").content == answer.content
    one = api("GET", f"/v1/tasks/{task['id']}/executions/1").json
    assert one["state"] == "succeeded"
    assert api("GET", f"/v1/tasks/{task['id']}/executions").json["items"] == [one]
    api("GET", f"/v1/tasks/{task['id']}/executions/2").error(404)


def test_a_result_that_is_not_there_yet_is_204(api: Any, call: Any) -> None:
    task = call(time.sleep, READ_S)
    begun = time.monotonic()
    assert api("GET", f"/v1/tasks/{task['id']}/result").status == 204
    assert api("GET", f"/v1/tasks/{task['id']}/result?wait=1").status == 204
    assert time.monotonic() - begun < READ_S
    assert api("DELETE", f"/v1/tasks/{task['id']}").status == 202


def test_a_waiter_is_woken_by_the_result(api: Any, tools: Any, call: Any, ready: Any) -> None:
    """Several wait for the same one, before it has begun."""
    del ready
    task = call(time.sleep, 1)
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(api, "GET", f"/v1/tasks/{task['id']}/result?wait=60") for _ in range(5)]
        assert [tools.unpacked(w.result(READ_S).content) for w in waiting] == [None] * 5


def test_a_failure_is_told_with_its_traceback_and_exception(api: Any, tools: Any, call: Any) -> None:
    task = call(broken, 7)
    error = api("GET", f"/v1/tasks/{task['id']}/result?wait=60").error(409, "task_failed")
    details = error["details"]
    assert "cannot take 7" in error["message"]
    assert details["type"].endswith("ValueError")
    assert "in broken" in details["traceback"]
    if "payload" in details:
        exception = tools.unpacked(base64.b64decode(details["payload"]))
    else:
        exception = tools.unpacked(api("GET", f"/v1/blobs/{details['payload_sha256']}").content)
    assert isinstance(exception, ValueError)
    assert exception.args == ("cannot take 7",)


def test_a_failed_task_is_tried_again_under_the_same_id(api: Any, tools: Any, call: Any) -> None:
    task = call(broken, 1)
    ended(api, tools, task)
    path = f"/v1/tasks/{task['id']}/executions"
    again = api("POST", path, {}, idempotency_key=task["id"])
    assert (again.status, again.json["id"]) == (202, task["id"])
    assert api("POST", path, {}, idempotency_key=task["id"]).headers["idempotency-replayed"] == "true"
    assert ended(api, tools, task)["state"] == "failed"
    assert len(api("GET", path).json["items"]) == 2
    succeeded = call(double, 1)
    ended(api, tools, succeeded)
    api("POST", f"/v1/tasks/{succeeded['id']}/executions", {}).error(409)
    api("POST", f"/v1/tasks/{succeeded['id']}/executions").error(409)


def test_a_running_call_is_cancelled(api: Any, tools: Any, call: Any) -> None:
    task = call(time.sleep, 60)
    tools.until(lambda: api("GET", f"/v1/tasks/{task['id']}").json["state"] == "running", "it ran")
    assert api("DELETE", f"/v1/tasks/{task['id']}").status == 202
    assert ended(api, tools, task)["state"] == "cancelled"
    error = api("GET", f"/v1/tasks/{task['id']}/result").error(409, "task_failed")
    assert error["details"]["state"] == "cancelled"


def test_a_call_to_all_ranks_has_a_result_by_rank(api: Any, tools: Any, call: Any) -> None:
    task = call(double, 4, dispatch="all")
    assert ended(api, tools, task)["state"] == "succeeded"
    executions = api("GET", f"/v1/tasks/{task['id']}/executions").json["items"]
    assert sorted(e["rank"] for e in executions) == [0, 1]
    for execution in executions:
        assert tools.unpacked(api("GET", f"/v1/blobs/{execution['result_sha256']}").content) == 8


def test_a_batch_is_admitted_whole_and_its_outcomes_are_read_in_order(
    api: Any, tools: Any, ready: dict[str, Any], call: Any, fresh_name: str
) -> None:
    function = call(double, 0)["function"]
    calls = [{"args_inline": base64.b64encode(tools.packed(((n,), {}))).decode()} for n in range(40)]
    body = {"compute": ready["id"], "function": function, "calls": calls, "correlation_id": fresh_name}
    made = api("POST", "/v1/tasks/batch", body, idempotency_key=fresh_name)
    assert made.status == 201
    names = made.json["tasks"]
    assert len(set(names)) == 40
    again = api("POST", "/v1/tasks/batch", body, idempotency_key=fresh_name)
    assert (again.status, again.json) == (200, made.json)
    results: dict[str, Any] = {}
    after, open_tasks = 0, 40
    while open_tasks or len(results) < 40:
        query = f"correlation_id={fresh_name}&after={after}&wait=10&limit=7"
        page = api("GET", f"/v1/tasks/outcomes?{query}").json
        assert len(page["items"]) <= 7
        seqs = [item["seq"] for item in page["items"]]
        assert seqs == sorted(seqs)
        for item in page["items"]:
            assert item["task"] not in results
            results[item["task"]] = tools.unpacked(base64.b64decode(item["result"]))
        after, open_tasks = page["next_cursor"], page["open"]
    assert [results[name] for name in names] == [2 * n for n in range(40)]
    assert api("GET", f"/v1/tasks?correlation_id={fresh_name}&limit=500").json["items"][0]["id"] == names[-1]
    wrong = {**body, "calls": [*calls, {}], "correlation_id": fresh_name + "x"}
    api("POST", "/v1/tasks/batch", wrong).error(400)
    assert api("GET", f"/v1/tasks?correlation_id={fresh_name}x").json["items"] == []


# ── streams ─────────────────────────────────────────────────────────────────────────────────────


def count(up_to: int) -> Iterator[int]:
    yield from range(up_to)


def breaking(after: int) -> Iterator[int]:
    yield from range(after)
    raise KeyError("no more")


def frames(pieces: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """The frames of a stream, decoded as they come."""
    buffer = b""
    for piece in pieces:
        buffer += piece
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
            yield msgspec.msgpack.decode(buffer[4 : 4 + size])
            buffer = buffer[4 + size :]
    assert not buffer


def test_items_are_streamed_and_resumed(api: Any, tools: Any, call: Any) -> None:
    task = call(count, 300, dispatch="stream")
    path = f"/v1/tasks/{task['id']}/stream"
    with api.http.stream("GET", path, timeout=READ_S) as answer:
        assert answer.headers["content-type"] == "application/vnd.skyward.frames"
        some = list(itertools.islice(frames(answer.iter_raw(chunk_size=1)), 10))
    assert [tools.unpacked(f["value"]) for f in some] == list(range(10))
    with api.http.stream("GET", f"{path}?after=10", timeout=READ_S) as answer:
        rest = list(frames(answer.iter_raw()))
    assert [tools.unpacked(f["value"]) for f in rest] == list(range(10, 300))
    with api.http.stream("GET", f"{path}?after=300", timeout=READ_S) as answer:
        assert list(frames(answer.iter_raw())) == []


def test_a_stream_that_breaks_says_so_in_its_last_frame(api: Any, tools: Any, call: Any) -> None:
    task = call(breaking, 3, dispatch="stream")
    with api.http.stream("GET", f"/v1/tasks/{task['id']}/stream", timeout=READ_S) as answer:
        found = list(frames(answer.iter_raw()))
    assert [f["status"] for f in found] == ["chunk"] * 3 + ["failed"]
    assert "no more" in found[-1]["error"]
    assert "in breaking" in found[-1]["traceback"]
    assert isinstance(tools.unpacked(found[-1]["payload"]), KeyError)


def telling(path: str, up_to: int) -> Iterator[bytes]:
    """Items of 10 kB that cannot be packed smaller; ``path`` has a byte for each that was asked for."""
    with open(path, "wb", buffering=0) as file:
        for number in range(up_to):
            file.write(b".")
            yield number.to_bytes(4, "big") + os.urandom(10_000)


def test_a_generator_waits_for_its_reader(
    api: Any, daemon: Any, tools: Any, call: Any, tmp_path: Path
) -> None:
    """One who does not read stops it, however much it has to yield; one who reads sets it going again."""
    told, total = tmp_path / "told", 100_000
    task = call(telling, str(told), total, dispatch="stream")
    path = f"/v1/tasks/{task['id']}/stream"

    def progress() -> int:
        return told.stat().st_size if told.exists() else 0

    def still() -> int:
        before = progress()
        time.sleep(0.5)
        return before if before == progress() else 0

    with socket.create_connection(("127.0.0.1", daemon.port)) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n\r\n".encode())
        assert lazy.recv(16)
        stopped_at = tools.until(still, "it stopped")
        assert stopped_at < total // 10
    with api.http.stream("GET", f"{path}?after=0", timeout=READ_S) as answer:
        for number, frame in zip(range(stopped_at + 100), frames(answer.iter_raw()), strict=False):
            assert tools.unpacked(frame["value"])[:4] == number.to_bytes(4, "big")
    assert progress() > stopped_at
    assert api("GET", f"/v1/tasks/{task['id']}").json["state"] == "running"
    api("DELETE", f"/v1/tasks/{task['id']}")
    assert ended(api, tools, task)["state"] == "cancelled"


def test_a_task_without_a_stream_has_none(api: Any, tools: Any, call: Any) -> None:
    task = call(double, 1)
    error = api("GET", f"/v1/tasks/{task['id']}/stream").error(422, "capability_mismatch")
    assert error["details"]["dispatch"] == "one"
    ended(api, tools, task)


def test_a_call_for_every_node_of_none_is_refused_and_may_be_repeated(
    api: Any, tools: Any, idle: dict[str, Any]
) -> None:
    function, arguments = tools.packed(print), tools.packed(((), {}))
    api("PUT", f"/v1/functions/{tools.sha256(function)}", function, content_type="application/octet-stream")
    api("PUT", f"/v1/blobs/{tools.sha256(arguments)}", arguments, content_type="application/octet-stream")
    names = {"function": tools.sha256(function), "args_sha256": tools.sha256(arguments)}
    refused = api("POST", "/v1/tasks", {"compute": idle["id"], "dispatch": "all", **names})
    error = refused.error(409, "compute_not_connected")
    assert error["retryable"] is True
    assert error["details"]["compute"] == idle["id"]
    assert api("GET", f"/v1/tasks?compute={idle['id']}").json["items"] == []
