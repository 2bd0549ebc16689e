"""The synchronous driver against a server that breaks on cue: what is sent again, and what never is."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any

import pytest

from sky.client import calls, calls_machines, streaming
from sky.client.errors import (
    ApiError,
    DaemonUnreachable,
    InvalidRequest,
    LeaseHeld,
    NotFound,
    RevisionConflict,
    Unavailable,
)
from sky.client.http import Http
from sky.client.http_async import AsyncHttp
from sky.client.request import Call
from sky.client.settling import Settler
from sky.wire import v1

LIVE = b'{"live": true}'
TASK = v1.TaskCreate(compute="c", function="a" * 64, args_inline=b"x")
BATCH = v1.TaskBatchCreate(
    compute="c", function="a" * 64, calls=(v1.BatchCall(args_inline=b"x"),), correlation_id="c"
)
BATCH_ANSWER = b'{"tasks": ["tsk_1"]}'


def test_one_connection_serves_many_requests(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(body=LIVE))
    client = Http(server.url)
    assert [client.send(calls.live()).live for _ in range(3)] == [True] * 3
    assert len(server._open) == 1


def test_a_creating_call_is_repeated_with_the_same_key_and_bytes(scripted: Any, say: Any) -> None:
    server = scripted(say.hang_up, say.answer(201, BATCH_ANSWER, cut=20), say.answer(201, BATCH_ANSWER))
    assert Http(server.url).send(calls.create_batch(BATCH)).tasks == ("tsk_1",)
    assert len(server.asked) == 3
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1
    assert len({asked.body for asked in server.asked}) == 1


def test_two_creating_calls_have_two_keys() -> None:
    first, second = calls.create_task(TASK), calls.create_task(TASK)
    assert dict(first.headers)["Idempotency-Key"] != dict(second.headers)["Idempotency-Key"]


def test_what_may_have_run_is_never_sent_again(scripted: Any, say: Any) -> None:
    server = scripted(say.hang_up, say.answer(body=b"{}"))
    with pytest.raises(DaemonUnreachable, match="POST"):
        Http(server.url).send(calls_machines.run_command("c", "rm -rf /tmp/x"))
    assert len(server.asked) == 1


def test_an_idle_connection_that_the_server_closed_is_not_an_error(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(body=b"{}", keep=False))
    client = Http(server.url)
    call = calls_machines.run_command("c", "true")
    assert client.send(call) == {}
    deadline = time.monotonic() + 60
    while client._idle and client._idle[0].usable() and time.monotonic() < deadline:
        pass
    assert client.send(call) == {}
    assert len(server.asked) == 2


def test_busy_is_tried_again_after_what_was_asked_for(scripted: Any, say: Any) -> None:
    body = b'{"code": "busy", "message": "too much", "retryable": true}'
    server = scripted(say.answer(503, body, headers="Retry-After: 0.2\r\n"), say.answer(body=LIVE))
    begun = time.monotonic()
    assert Http(server.url).send(calls.live()).live
    assert time.monotonic() - begun >= 0.2


def test_a_request_that_is_still_running_elsewhere_is_waited_for(scripted: Any, say: Any) -> None:
    running = b'{"code": "idempotency_conflict", "message": "still running", "retryable": true}'
    server = scripted(say.answer(409, running, headers="Retry-After: 0\r\n"), say.answer(200, BATCH_ANSWER))
    assert Http(server.url).send(calls.create_batch(BATCH)).tasks == ("tsk_1",)


def test_a_daemon_that_comes_back_at_its_port_is_not_noticed(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(body=LIVE))
    client = Http(server.url)
    assert client.send(calls.live()).live
    port = server.port
    server.stop()
    threading.Timer(0.5, server.start, (port,)).start()
    begun = time.monotonic()
    assert client.send(calls.live()).live
    assert time.monotonic() - begun >= 0.4


def test_who_answered_before_is_waited_for_and_who_never_did_is_not(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(body=LIVE))
    server.stop()
    client = Http(server.url, first_s=0.2)
    with pytest.raises(DaemonUnreachable, match="Nobody answered yet"):
        client.send(calls.live())
    server.start(server.port)
    assert client.send(calls.live()).live
    server.stop()
    threading.Timer(0.6, server.start, (server.port,)).start()
    assert client.send(calls.live()).live


def test_a_daemon_that_moved_is_followed(scripted: Any, say: Any) -> None:
    old, new = scripted(say.answer(body=LIVE)), scripted(say.answer(body=LIVE))
    client = Http(old.url, locate=lambda: new.url)
    old.stop()
    assert client.send(calls.live()).live
    assert client.url == new.url


def test_patience_ends_with_the_address_and_advice(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(body=LIVE))
    server.stop()
    with pytest.raises(DaemonUnreachable, match="sky server start") as raised:
        Http(server.url, patience_s=0.3).send(calls.live())
    assert server.url in str(raised.value)
    assert isinstance(raised.value, ConnectionError)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "not_found", NotFound),
        (412, "revision_conflict", RevisionConflict),
        (409, "lease_held", LeaseHeld),
        (400, "invalid_request", InvalidRequest),
        (400, "hash_mismatch", InvalidRequest),
        (500, "internal", Unavailable),
        (418, "a_code_of_tomorrow", ApiError),
    ],
)
def test_refusals_become_errors_of_their_kind(
    scripted: Any, say: Any, status: int, code: str, kind: type[ApiError]
) -> None:
    body = f'{{"code": "{code}", "message": "no", "retryable": true, "details": {{"field": "x"}}}}'
    server = scripted(say.answer(status, body.encode()))
    with pytest.raises(kind) as raised:
        Http(server.url).send(calls.get_compute("c"))
    error = raised.value
    assert (error.code, error.status, error.retryable, error.details) == (code, status, True, {"field": "x"})
    assert str(error) == f"{code}: no"


def test_an_answer_that_is_not_ours_is_still_an_error(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(404, b"<html>nginx</html>"))
    with pytest.raises(NotFound, match="nginx"):
        Http(server.url).send(calls.get_compute("c"))
    with pytest.raises(NotFound):
        Http(server.url).send(calls.has_blob("a" * 64))


def test_a_body_can_be_begun_again(scripted: Any, say: Any) -> None:
    server = scripted(say.hang_up, say.answer(201))

    def pieces() -> list[bytes]:
        return [b"abc", b"", b"def"]

    Http(server.url).send(calls.put_blob("a" * 64, pieces))
    assert [asked.headers.get("transfer-encoding") for asked in server.asked] == ["chunked", "chunked"]
    assert [asked.body for asked in server.asked] == [b"abcdef", b"abcdef"]


def test_a_stream_that_is_cut_says_so(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(body=b"0123456789", cut=-4))
    with Http(server.url).open(calls.get_blob("a" * 64)) as stream, pytest.raises(ConnectionError):
        assert b"".join(stream.pieces())


def test_a_stream_can_be_ended_from_another_thread(scripted: Any, say: Any) -> None:
    hold = threading.Event()

    def quiet(asked: Any, connection: Any) -> bool:
        connection.sendall(b"HTTP/1.1 200 X\r\nContent-Length: 10\r\n\r\n01")
        hold.wait(60)
        return False

    with Http(scripted(quiet).url).open(calls.get_blob("a" * 64)) as stream:
        threading.Timer(0.1, stream.abort).start()
        with pytest.raises(ConnectionError):
            assert list(stream.pieces())
    hold.set()


@pytest.mark.parametrize("kind", ["for", "async for"])
def test_items_that_are_cut_off_again_and_again_are_given_up(
    scripted: Any, say: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "CUTS_MAX", 3)
    server = scripted(say.answer(body=b"0123456789", cut=-9))
    ended: list[str] = []

    async def first(items: Any) -> Any:
        return await anext(items)

    http = Http(server.url)
    items = streaming.Source(
        http,
        Settler(http),
        submit=lambda: "tsk_1",
        printed=lambda _task, _lines: None,
        abandon=ended.append,
    ).items()
    with pytest.raises(DaemonUnreachable, match="tsk_1"):
        next(items) if kind == "for" else asyncio.run(first(items))
    assert len(server.asked) == 4
    assert ended == ["tsk_1"], "nobody reads it any more"


def test_nothing_can_be_smuggled_into_a_header(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(body=LIVE))
    with pytest.raises(InvalidRequest):
        Http(server.url).send(calls.create_task(TASK, key="x\r\nHost: elsewhere"))
    assert not server.asked


@pytest.mark.parametrize("url", ["", "127.0.0.1", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    if url == "127.0.0.1":
        assert Http(url).url == "http://127.0.0.1"
    else:
        with pytest.raises(InvalidRequest, match="7590"):
            Http(url)


async def test_the_asynchronous_driver_sends_the_same_calls(scripted: Any, say: Any) -> None:
    server = scripted(say.hang_up, say.answer(201, BATCH_ANSWER), say.answer(404, b""))
    async with AsyncHttp(server.url, token="secret") as client:
        assert (await client.send(calls.create_batch(BATCH))).tasks == ("tsk_1",)
        with pytest.raises(NotFound):
            await client.send(calls.get_compute("c"))
    assert len({asked.headers["idempotency-key"] for asked in server.asked[:2]}) == 1
    assert len({asked.body for asked in server.asked[:2]}) == 1
    assert server.asked[0].headers["authorization"] == "Bearer secret"


async def test_the_asynchronous_driver_streams_and_gives_up(scripted: Any, say: Any) -> None:
    server = scripted(say.answer(body=b"0123456789"))
    client = AsyncHttp(server.url, patience_s=0.2)
    async with client.open(calls.get_blob("a" * 64)) as pieces:
        assert b"".join([piece async for piece in pieces]) == b"0123456789"
    server.stop()
    with pytest.raises(DaemonUnreachable):
        await client.send(calls.live())
    await client.aclose()


def test_targets_are_quoted() -> None:
    call: Call[Any] = calls_machines.list_files("a/b", "/x y&z", node="0")
    assert call.target == "/v1/computes/a%2Fb/files?path=%2Fx+y%26z&node=0"


def test_an_interrupt_that_came_to_another_thread_ends_a_silent_wait(scripted: Any) -> None:
    asked, over = threading.Event(), threading.Event()

    def silent(_asked: Any, _connection: Any) -> bool:
        asked.set()
        over.wait(60)
        return False

    def interrupt() -> None:
        asked.wait(60)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            Http(scripted(silent).url).send(calls.live())
    finally:
        over.set()
    assert time.monotonic() - begun < 10
