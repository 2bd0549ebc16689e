"""The reader of events: what it makes of bytes, and where it goes on after a break."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sky.client.errors import DaemonUnreachable
from sky.client.events import Follower, Mark, Parser, Reader, Seen
from sky.client.http import Http
from sky.wire import v1


def frame(seq: int, content: str = "x") -> bytes:
    data = f'{{"type":"node.console","compute":"c","node":"n","content":"{content}"}}'
    return f"id: {seq}\nevent: node.console\ndata: {data}\n\n".encode()


def streaming(*pieces: bytes, then: threading.Event | None = None) -> Any:
    """An answer that sends pieces, waits for ``then``, and hangs up in the middle of things."""

    def write(asked: Any, connection: Any) -> bool:
        head = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head)
        for piece in pieces:
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        if then is not None:
            then.wait(60)
        return False

    return write


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
def test_events_are_found_however_the_bytes_are_cut(size: int) -> None:
    text = b": hello\r\n\r\n" + frame(1) + b"event: cost\ndata: {}\n\n" + frame(2).replace(b"\n", b"\r\n")
    parser = Parser()
    seen = [one for at in range(0, len(text), size) for one in parser.feed(text[at : at + size])]
    assert [(one.seq, one.name) for one in seen] == [(1, "node.console"), (2, "node.console")]
    assert all(isinstance(one.event, v1.ConsoleEvent) for one in seen)


def test_a_mark_is_a_place_and_no_event(scripted: Any) -> None:
    assert list(Parser().feed(frame(1)[:0] + b"id: 7\n\n: x\n\n")) == [Mark(7)]
    server = scripted(streaming(frame(5)), streaming(frame(6), b"id: 9\n\n"), streaming(frame(10)))
    found = [seen.seq for seen in Follower(Http(server.url), after=4, follow=False)]
    assert found == [5, 6], "a break is no end, and the mark is"
    assert [asked.headers["last-event-id"] for asked in server.asked] == ["4", "5"]
    assert server.asked[0].target == "/v1/events?follow=false"
    following = iter(Follower(Http(scripted(streaming(b"id: 9\n\n"), streaming(frame(10))).url), after=4))
    assert next(following).seq == 10


def test_an_event_that_was_only_published_has_no_place() -> None:
    data = b'data: {"type":"compute.cost","compute":"c","cost":1.5,"nodes":1,"at":"2026-01-01T00:00:00Z"}\n\n'
    (seen,) = Parser().feed(b"event: compute.cost\n" + data)
    assert seen.seq is None
    assert seen.event.__class__ is v1.CostEvent


def test_a_broken_stream_goes_on_behind_the_last_event(scripted: Any) -> None:
    server = scripted(streaming(frame(5), frame(6)), streaming(frame(7), frame(9)[:20]), streaming(frame(9)))
    follower = Follower(Http(server.url), compute="c", types=("node.console",), after=4)
    found: list[int | None] = []
    for seen in follower:
        found.append(seen.seq)
        if len(found) == 4:
            break
    assert found == [5, 6, 7, 9]
    assert [asked.headers["last-event-id"] for asked in server.asked] == ["4", "6", "7"]
    assert server.asked[0].target == "/v1/events?compute=c&types=node.console"


def test_a_cursor_that_is_too_old_goes_on_at_the_oldest_event(scripted: Any, say: Any) -> None:
    body = b'{"code":"cursor_expired","message":"gone","retryable":false,"details":{"oldest":39}}'
    server = scripted(say.answer(410, body), streaming(frame(40)))
    seen = next(iter(Follower(Http(server.url), after=3)))
    assert seen.seq == 40
    assert server.asked[1].headers["last-event-id"] == "39"


def test_patience_is_bounded_when_it_should_be(scripted: Any, say: Any) -> None:
    server = scripted(say.hang_up)
    server.stop()
    with pytest.raises(DaemonUnreachable):
        list(Follower(Http(server.url), patience_s=0.2))


def test_a_reader_can_be_closed_while_it_waits(scripted: Any) -> None:
    heard: list[Seen] = []
    first = threading.Event()
    hold = threading.Event()

    def hear(seen: Seen) -> None:
        heard.append(seen)
        first.set()

    server = scripted(streaming(frame(1), then=hold))
    reader = Reader(Follower(Http(server.url)), hear)
    reader.start()
    assert first.wait(60)
    reader.close()
    assert not reader._thread.is_alive()
    hold.set()
    assert [one.seq for one in heard] == [1]
