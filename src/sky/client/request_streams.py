"""Lines that a server sends while something goes on: of a request, of a job. Across broken connections.

Decides: where a stream is begun again, and what is handed out. Never: prints; gives a line twice, or leaves
one out. Follows: written once, as steps, for two drivers (``waiting``, ``awaiting``); what came behind the
last line is in ``end``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from sky.client import calls_requests as calls
from sky.client.errors import DaemonUnreachable, SkyError
from sky.client.flows import Connect, Give, Pause, Read
from sky.client.request import Call
from sky.client.request_link import Link
from sky.kit import backoff
from sky.kit.clock import SystemClock
from sky.wire import requests as wire

T = TypeVar("T")

LINE_BYTES_MAX = 16 * 1024 * 1024
FAILED_MARK = "failed: "
"""What the last line of a request begins with that failed."""
PAUSE_LONGEST_S = 1.0
CUTS_MAX = 30
"""How often in a row a stream may be cut off as soon as it has begun."""
LASTING_S = 5.0
"""One that was open for so long was not cut off as soon as it had begun."""

_clock = SystemClock()


class Writable(Protocol):
    """What lines can be written to."""

    def write(self, text: str, /) -> object:
        """Take some text."""
        ...


Steps = Generator[Connect | Read | Give | Pause, Any, None]


class JobEnd(msgspec.Struct, frozen=True):
    """How a job stands behind the last of its lines."""

    status: wire.JobState = msgspec.field(name="end")
    exit_codes: list[int | None] | None = None


class _RequestEnd(msgspec.Struct, frozen=True):
    """A request, behind the last of its lines."""

    end: wire.RequestRecord


class _Said(msgspec.Struct, frozen=True):
    """One line of a stream: what was said, or what is behind the last of it."""

    line: int | None = None
    place: int | None = None
    text: str = ""
    end: Any = None


_said = msgspec.json.Decoder(_Said)
_jobs = msgspec.json.Decoder(JobEnd)
_requests = msgspec.json.Decoder(_RequestEnd)


class Lines(Generic[T]):
    """A reader's place in a stream. ``end``: what is behind the last line, once that was read.

    ``closing``: what stands for it where a stream simply closes; None where that is no end. ``hold``: a last
    line that begins so is not handed out.
    """

    def __init__(
        self,
        call: Callable[[int], Call[None]],
        read_end: Callable[[bytes], T],
        closing: T | None = None,
        hold: str | None = None,
    ) -> None:
        self._call = call
        self._read_end = read_end
        self._closing = closing
        self._hold = hold
        self._held: str | None = None
        self._after = 0
        self._rest = bytearray()
        self.end: T | None = None

    @property
    def after(self) -> int:
        """The last place that was read."""
        return self._after

    def steps(self) -> Steps:
        """Connect, read and hand out, until the end has come."""
        failures = 0
        while self.end is None:
            begun, began_s = self._after, _clock.monotonic_s()
            try:
                yield Connect(self._call(self._after))
                self._rest.clear()
                while self.end is None and (piece := (yield Read())) is not None:
                    for text in self._feed(piece):
                        yield from self._give(text)
                self.end = self._closing if self.end is None else self.end
                if self.end is None:
                    raise ConnectionError("the stream ended before its end")
            except ConnectionError as cut:
                if isinstance(cut, DaemonUnreachable):
                    raise
                lasted = self._after > begun or _clock.monotonic_s() - began_s >= LASTING_S
                failures = 0 if lasted else failures + 1
                if failures > CUTS_MAX:
                    raise DaemonUnreachable(f"the stream was cut off {failures} times in a row") from cut
                yield Pause(backoff.delay_s(failures, first_s=0.05, longest_s=PAUSE_LONGEST_S))

    def _give(self, text: str) -> Iterator[Give]:
        told = [] if self._held is None else [self._held]
        self._held = text if self._hold is not None and text.startswith(self._hold) else None
        if self._held is None:
            told.append(text)
        for one in told:
            yield from map(Give, one.split("\n"))

    def _feed(self, piece: bytes) -> Iterator[str]:
        self._rest += piece
        *whole, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        if len(rest) > LINE_BYTES_MAX:
            raise ConnectionError(f"a line of more than {LINE_BYTES_MAX} bytes")
        for line in filter(None, whole):
            said = _said.decode(line)
            if said.end is not None:
                self.end = self._read_end(line)
                return
            self._after = said.line or said.place or self._after
            yield said.text


def end_of(lines: Lines[T]) -> T:
    """What came behind the last line of a stream that was read to its end."""
    if lines.end is None:
        msg = "the stream was not read to its end"
        raise RuntimeError(msg)
    return lines.end


def of_request(request_id: str, *, follow: bool, after: int = 0) -> Lines[wire.RequestRecord]:
    """What a request says; behind it, the request. That it failed is not said: its error is raised."""
    found: Lines[wire.RequestRecord] = Lines(
        lambda place: calls.stream_request(request_id, max(place, after), follow=follow),
        lambda line: _requests.decode(line).end,
        hold=FAILED_MARK,
    )
    return found


def of_job(cluster_name: str, job_id: int, *, follow: bool, tail: int) -> Lines[JobEnd]:
    """What a job prints; behind it, how it stands."""

    def call(after: int) -> Call[None]:
        body = wire.LogsBody(
            cluster_name=cluster_name, job_id=job_id, follow=follow, tail=0 if after else tail
        )
        return calls.stream_logs(body, after)

    return Lines(call, _jobs.decode)


def of_server(*, follow: bool, tail: int) -> Lines[bool]:
    """What the server logs; behind it, True."""
    return Lines(
        lambda after: calls.stream_server_log(after, follow=follow, tail=tail),
        lambda _line: True,
        None if follow else True,
    )


# ── drivers ─────────────────────────────────────────────────────────────────────────────────────


def waiting(link: Link, lines: Lines[Any]) -> Generator[str, None, None]:
    """The lines as they come. Raises what requests raise."""
    steps = lines.steps()
    answer: Any = None
    pieces: Iterator[bytes] = iter(())
    failed: Exception | None = None
    with link.told(), ExitStack() as connection:
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
                        stream = link.http.open(step.call, patience_s=link.patience_s)
                        link.answered = True
                        pieces = connection.enter_context(stream).pieces()
                    case Pause():
                        time.sleep(step.seconds)
            except (SkyError, ConnectionError) as error:
                failed = error


async def awaiting(link: Link, lines: Lines[Any]) -> AsyncGenerator[str]:
    """The same, for an event loop."""
    steps = lines.steps()
    answer: Any = None
    pieces: AsyncIterator[bytes] | None = None
    failed: Exception | None = None
    with link.told():
        async with link.http.asynchronous() as http, AsyncExitStack() as connection:
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
                            stream = http.open(step.call, patience_s=link.patience_s)
                            pieces = await connection.enter_async_context(stream)
                            link.answered = True
                        case Pause():
                            await asyncio.sleep(step.seconds)
                except (SkyError, ConnectionError) as error:
                    failed = error


def _next(steps: Steps, answer: Any, failed: Exception | None) -> Connect | Read | Give | Pause | None:
    """The next step; None after the last."""
    try:
        return steps.send(answer) if failed is None else steps.throw(failed)
    except StopIteration:
        return None
