"""A generator's items as they are yielded on a node, across broken connections.

Decides: how frames are read, where a stream is resumed, and that leaving early ends the call.
Never: gives an item twice or leaves one out; reads ahead of its consumer beyond one connection's buffers.
Follows: written once, as steps, for two drivers (``waiting``, ``awaiting``); the connection's own
back-pressure reaches the generator, which waits for a slow reader.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

import msgspec

from sky.client import calls
from sky.client.aside import aside
from sky.client.errors import DaemonUnreachable, PackError, SkyError
from sky.client.flows import Connect, Give, Pause, Read
from sky.client.function import Settled
from sky.client.http import Http
from sky.client.items import Items
from sky.client.pack import revive, unpack
from sky.client.settling import Settler
from sky.kit import backoff
from sky.kit.clock import SystemClock
from sky.wire import v1

HEAD_BYTES = 4
FRAME_BYTES_MAX = 1024**3
END_WAIT_S = 2
"""How long the end of a call is waited for after its last item, before the stream is opened again."""
PAUSE_LONGEST_S = 1.0
CUTS_MAX = 30
"""How often in a row a stream may be cut off as soon as it has begun."""
LASTING_S = 5.0
"""One that was open for so long was not cut off as soon as it had begun."""
UNREAD_BYTES = 32 * 1024
"""Of items that were sent and nobody has asked for, about so much waits in the connection."""

_clock = SystemClock()
_frames: msgspec.msgpack.Decoder[v1.Frame] = msgspec.msgpack.Decoder(v1.Frame)


@dataclass(frozen=True, slots=True)
class Do:
    """Something that may wait for the daemon or for another thread."""

    work: Callable[[], Any]


Steps = Generator[Connect | Read | Give | Do | Pause, Any, None]


class Frames:
    """Cuts bytes as they arrive into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[v1.Frame]:
        """The frames that are whole now. Raises PackError for one that is too large."""
        buffer = self._buffer
        buffer += piece
        while len(buffer) >= HEAD_BYTES:
            length = int.from_bytes(buffer[:HEAD_BYTES], "big")
            if length > FRAME_BYTES_MAX:
                raise PackError(
                    f"an item of {length} bytes is larger than can be read from a stream ({FRAME_BYTES_MAX} "
                    "bytes): yield it in parts"
                )
            if len(buffer) < HEAD_BYTES + length:
                return
            with memoryview(buffer) as view:
                frame = _frames.decode(view[HEAD_BYTES : HEAD_BYTES + length])
            del buffer[: HEAD_BYTES + length]
            yield frame


class Source:
    """One streaming call, from being asked for to its end."""

    def __init__(
        self,
        http: Http,
        settler: Settler,
        *,
        submit: Callable[[], str],
        printed: Callable[[str, int], None],
        abandon: Callable[[str], object],
    ) -> None:
        self._http = http
        self._settler = settler
        self._submit = submit
        self._printed = printed
        self._abandon = abandon
        self._lock = threading.Lock()
        self._task = ""
        self._ended = False
        self._closed = False

    def items(self) -> Items[Any]:
        """The items, for either kind of loop."""
        return Items(self._waiting, self._awaiting)

    # ── what is done, in whichever way ──────────────────────────────────────────────────────────

    def _steps(self) -> Steps:
        yield Do(self._begin)
        task, index, failures = self._task, 0, 0
        while True:
            begun, began_s = index, _clock.monotonic_s()
            try:
                yield Connect(calls.stream_task(task, index or None))
                frames = Frames()
                while (piece := (yield Read())) is not None:
                    for frame in frames.feed(piece):
                        if isinstance(frame, v1.Failed):
                            yield from self._fail(frame)
                        else:
                            index += 1
                            yield Give(unpack(frame.value, "an item"))
            except _CutShort as cut:
                lasted = index > begun or _clock.monotonic_s() - began_s >= LASTING_S
                failures = 0 if lasted else failures + 1
                if failures > CUTS_MAX:
                    raise DaemonUnreachable(
                        f"{task}: its items were cut off {failures} times in a row ({cut.__cause__}); "
                        f"`sky task get {task}` tells how it stands"
                    ) from cut
                yield Pause(backoff.delay_s(failures, first_s=0.05, longest_s=PAUSE_LONGEST_S))
                continue
            end = yield Do(self._end)
            if end is not None:
                if end.error is not None and not isinstance(end.error, PackError):
                    raise end.error
                return

    def _fail(self, frame: v1.Failed) -> Steps:
        end = yield Do(self._end)
        self._ended = True
        if end is not None and end.error is not None:
            raise end.error
        raise revive(frame.payload, kind="", message=frame.error, traceback=frame.traceback, task=self._task)

    def _begin(self) -> None:
        task = self._submit()
        with self._lock:
            self._task, closed = task, self._closed
        if closed:
            self._abandon(task)

    def _end(self) -> Settled[Any] | None:
        """How the task ended; None while it has not, which means that the stream was only cut."""
        end = self._settler.fetch(self._task, END_WAIT_S)
        if end is not None:
            self._ended = True
            self._printed(self._task, end.console_lines)
        return end

    def _close(self) -> None:
        """Nobody reads on: end the call unless it has ended, also if it is just being asked for."""
        with self._lock:
            closed, self._closed = self._closed, True
        if self._task and not closed and not self._ended:
            self._abandon(self._task)

    # ── drivers ─────────────────────────────────────────────────────────────────────────────────

    def _waiting(self) -> Generator[Any, None, None]:
        steps = self._steps()
        answer: Any = None
        pieces: Iterator[bytes] = iter(())
        failed: Exception | None = None
        with ExitStack() as outer, ExitStack() as connection:
            outer.callback(self._close)
            while (step := _next(steps, answer, failed)) is not None:
                answer = failed = None
                if isinstance(step, Give):
                    yield step.item
                    continue
                try:
                    match step:
                        case Read():
                            answer = next(pieces, None)
                        case Connect():
                            connection.close()
                            stream = connection.enter_context(self._http.open(step.call))
                            stream.hold_little(UNREAD_BYTES)
                            pieces = stream.pieces()
                        case Do():
                            answer = step.work()
                        case Pause():
                            time.sleep(step.seconds)
                except (SkyError, ConnectionError) as error:
                    failed = _sorted_out(error)

    async def _awaiting(self) -> AsyncGenerator[Any]:
        steps = self._steps()
        answer: Any = None
        pieces: AsyncIterator[bytes] | None = None
        failed: Exception | None = None
        async with AsyncExitStack() as outer, AsyncExitStack() as connection:
            outer.push_async_callback(self._aclose)
            http = await outer.enter_async_context(self._http.asynchronous())
            while (step := _next(steps, answer, failed)) is not None:
                answer = failed = None
                if isinstance(step, Give):
                    yield step.item
                    continue
                try:
                    match step:
                        case Read():
                            answer = None if pieces is None else await anext(pieces, None)
                        case Connect():
                            await connection.aclose()
                            pieces = await connection.enter_async_context(
                                http.open(step.call, unread_bytes=UNREAD_BYTES)
                            )
                        case Do():
                            answer = await aside(step.work)
                        case Pause():
                            await asyncio.sleep(step.seconds)
                except (SkyError, ConnectionError) as error:
                    failed = _sorted_out(error)

    async def _aclose(self) -> None:
        await asyncio.shield(aside(self._close))


class _CutShort(Exception):
    """A connection broke. A kind of its own, since the generator itself may raise a ConnectionError."""


def _next(steps: Steps, answer: Any, failed: Exception | None) -> Connect | Read | Give | Do | Pause | None:
    """The next step; None after the last."""
    try:
        return steps.send(answer) if failed is None else steps.throw(failed)
    except StopIteration:
        return None


def _sorted_out(error: Exception) -> Exception:
    """A broken connection as what it is here; a daemon that stays away, or refuses, as it was."""
    if isinstance(error, ConnectionError) and not isinstance(error, DaemonUnreachable):
        cut = _CutShort()
        cut.__cause__ = error
        return cut
    return error
