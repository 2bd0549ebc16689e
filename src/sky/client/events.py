"""Reads the daemon's stream of events, and goes on where it was when a connection breaks.

Decides: how a Server-Sent Events stream is cut into events, and from where it is resumed.
Never: drops or repeats an event that the daemon recorded; interprets what happened.
Follows: a daemon that restarts, or closes a reader that was too slow, costs the reader nothing but time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from sky.client import calls
from sky.client.errors import CursorExpired, DaemonUnreachable, SkyError
from sky.client.http import Http, Streamed
from sky.client.sse import Frame, Frames
from sky.kit import backoff
from sky.wire import v1

PAUSE_FIRST_S = 0.05
PAUSE_LONGEST_S = 2.0
JOIN_S = 1.0
"""How long closing a reader waits for its thread."""

_events: msgspec.json.Decoder[v1.Event] = msgspec.json.Decoder(v1.Event)


@dataclass(frozen=True, slots=True)
class Seen:
    """One event: its place in the whole history (None: published, not recorded), its name, itself."""

    seq: int | None
    name: str
    event: v1.Event


@dataclass(frozen=True, slots=True)
class Mark:
    """All that was recorded up to ``seq``, and asked for, has been handed out."""

    seq: int


class Parser:
    """Cuts bytes of an event stream into events. Comments (heartbeats) and unknown types give none."""

    def __init__(self) -> None:
        self._frames = Frames()

    def feed(self, piece: bytes) -> Iterator[Seen | Mark]:
        """The events and marks that are whole now, in order. Raises ValueError for an endless line."""
        for frame in self._frames.feed(piece):
            seen = _read(frame)
            if seen is not None:
                yield seen


def _read(frame: Frame) -> Seen | Mark | None:
    if not frame.data:
        return None if frame.seq is None else Mark(frame.seq)
    try:
        return Seen(frame.seq, frame.name, _events.decode(frame.data))
    except msgspec.MsgspecError:
        # A newer daemon's event: not for us, and the stream goes on.
        return None


class Follower:
    """A stream of events that outlives its connections. Iterate it in one thread, close it from any.

    ``after`` is the sequence number to begin behind (0: from the very first; None: from now on). With
    ``follow=False`` the iteration ends behind what is recorded now.
    ``patience_s`` bounds how long the daemon may be away; None: for ever.
    """

    def __init__(
        self,
        http: Http,
        *,
        compute: str | None = None,
        task: str | None = None,
        types: Sequence[str] = (),
        after: int | None = None,
        follow: bool = True,
        patience_s: float | None = None,
    ) -> None:
        self._http = http
        self._compute, self._task, self._types = compute, task, tuple(types)
        self._after = after
        self._follow = follow
        self._patience_s = patience_s
        self._closed = False
        self._stream: Streamed | None = None

    @property
    def after(self) -> int | None:
        """The sequence number of the last recorded event that was handed out."""
        return self._after

    def close(self) -> None:
        """End the iteration, also while it waits."""
        self._closed = True
        stream = self._stream
        if stream is not None:
            stream.abort()

    def __iter__(self) -> Iterator[Seen]:
        failures = 0
        while not self._closed:
            try:
                for seen in self._one_connection():
                    failures = 0
                    yield seen
            except (ConnectionError, ValueError) as lost:
                if isinstance(lost, DaemonUnreachable) and self._patience_s is not None and not self._closed:
                    raise
            failures += 1
            if not self._closed:
                time.sleep(backoff.delay_s(failures, first_s=PAUSE_FIRST_S, longest_s=PAUSE_LONGEST_S))

    def _one_connection(self) -> Iterator[Seen]:
        call = calls.events(
            compute=self._compute,
            task=self._task,
            types=self._types,
            after=self._after,
            follow=None if self._follow else False,
        )
        try:
            stream = self._http.open(call, patience_s=self._patience_s)
        except CursorExpired as expired:
            oldest = expired.details.get("oldest")
            self._after = oldest if isinstance(oldest, int) else None
            return
        with stream:
            self._stream = stream
            parser = Parser()
            for piece in stream.pieces():
                for seen in parser.feed(piece):
                    if seen.seq is not None:
                        self._after = seen.seq
                    if isinstance(seen, Seen):
                        yield seen
                    elif not self._follow:
                        self._closed = True
                if self._closed:
                    return


class Reader:
    """A thread that hands every event to ``heard`` as it comes, until it is closed."""

    def __init__(self, follower: Follower, heard: Callable[[Seen], None]) -> None:
        self._follower = follower
        self._heard = heard
        self._thread = threading.Thread(target=self._run, name="sky-events", daemon=True)
        self.refused: SkyError | None = None

    def start(self) -> None:
        """Begin reading."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading; waits a moment for the thread."""
        self._follower.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            for seen in self._follower:
                self._heard(seen)
        except SkyError as refused:
            self.refused = refused
