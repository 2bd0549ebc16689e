"""A generator's items as they are yielded on a node, across broken connections.

Decides: how frames are read, where a stream is resumed, and that leaving early ends the call.
Never: gives an item twice or leaves one out; reads ahead of its consumer beyond one connection's buffers.
Follows: the connection's own back-pressure reaches the generator, which waits for a slow reader.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sky.client import calls
from sky.client.errors import ApiError, DaemonUnreachable, PackError
from sky.client.function import Settled
from sky.client.http import Http
from sky.client.pack import revive, unpack
from sky.client.settling import ENDED_CODES, Settler
from sky.kit import backoff
from sky.wire import v1

HEAD_BYTES = 4
FRAME_BYTES_MAX = 1024**3
END_WAIT_S = 2
"""How long the end of a call is waited for after its last item, before the stream is opened again."""
PAUSE_LONGEST_S = 1.0

_frames: msgspec.msgpack.Decoder[v1.Frame] = msgspec.msgpack.Decoder(v1.Frame)


def frames_of(pieces: Iterator[bytes]) -> Iterator[v1.Frame]:
    """Frames from bytes as they arrive; half a frame is dropped. ValueError: impossible length."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while len(buffer) >= HEAD_BYTES:
            length = int.from_bytes(buffer[:HEAD_BYTES], "big")
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes")
            if len(buffer) < HEAD_BYTES + length:
                break
            body = bytes(buffer[HEAD_BYTES : HEAD_BYTES + length])
            del buffer[: HEAD_BYTES + length]
            yield _frames.decode(body)


def items_of(
    http: Http,
    task: str,
    settler: Settler,
    *,
    printed: Callable[[str, int], None],
    abandon: Callable[[str], None],
) -> Iterator[Any]:
    """The items of a streaming task. Raises what the generator raised; closing it early cancels the task."""
    index = 0
    failures = 0
    ended = False
    try:
        while not ended:
            begun = index
            try:
                for frame in _one_connection(http, task, index):
                    if isinstance(frame, v1.Failed):
                        ended = True
                        end = _end_of(http, task, settler) or Settled[Any](None, _failure(frame, task), task)
                        printed(task, end.console_lines)
                        raise end.error or _failure(frame, task)
                    index += 1
                    yield unpack(frame.value, "an item")
            except _CutShort:
                failures = 0 if index > begun else failures + 1
                time.sleep(backoff.delay_s(failures, first_s=0.05, longest_s=PAUSE_LONGEST_S))
                continue
            end = _end_of(http, task, settler)
            if end is not None:
                ended = True
                printed(task, end.console_lines)
                if end.error is not None and not isinstance(end.error, PackError):
                    raise end.error
    finally:
        if not ended:
            abandon(task)


class _CutShort(Exception):
    """A connection broke. A kind of its own, since the generator itself may raise a ConnectionError."""


def _one_connection(http: Http, task: str, index: int) -> Iterator[v1.Frame]:
    try:
        with http.open(calls.stream_task(task, index or None)) as stream:
            yield from frames_of(stream.pieces())
    except DaemonUnreachable:
        raise
    except (ConnectionError, ValueError) as broken:
        raise _CutShort from broken


def _end_of(http: Http, task: str, settler: Settler) -> Settled[Any] | None:
    """How the task ended; None while it has not, which means that the stream was only cut."""
    try:
        payload = http.send(calls.get_result(task, wait=END_WAIT_S))
    except ApiError as refused:
        if refused.code in ENDED_CODES:
            return settler.of_refusal(refused, task)
        raise
    return None if payload is None else Settled(None, None, task, payload.console_lines)


def _failure(frame: v1.Failed, task: str) -> BaseException:
    return revive(frame.payload, kind="", message=frame.error, traceback=frame.traceback, task=task)
