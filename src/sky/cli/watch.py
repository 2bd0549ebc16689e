"""Following what happens: events in the order they came, and waiting for a compute or a task to settle.

Decides: how long one look at the queue may take, and when the daemon is asked again although no event came.
Never: believes an event about the end state; it makes the wait look again, and the resource decides.
Follows: a lost event costs at most ``LOOK_S`` seconds, and Ctrl-C is noticed at once.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from sky.cli.connection import Api
from sky.client.errors import DaemonUnreachable
from sky.client.events import Follower, Reader, Seen
from sky.wire import v1

EVENTS_HELD_MAX = 1_000
"""Events read and not yet looked at; the reader waits when there are more."""
LOOK_S = 2.0
PUT_S = 0.5
GATHER_S = 0.02
"""Events that come within so long of each other are one reason to look."""
AWAY_S = 60.0
"""How long the daemon may be away while somebody watches."""


class Feed:
    """Events as they come, read by a thread of its own. Use it as a context manager."""

    def __init__(
        self,
        api: Api,
        *,
        compute: str | None = None,
        task: str | None = None,
        types: Sequence[str] = (),
        after: int | None = None,
    ) -> None:
        self._events: queue.Queue[Seen] = queue.Queue(EVENTS_HELD_MAX)
        self._closed = False
        follower = Follower(api.http, compute=compute, task=task, types=types, after=after, patience_s=AWAY_S)
        self._reader = Reader(follower, self._heard)

    def next(self, timeout_s: float = LOOK_S) -> Seen | None:
        """The next event; None when none came in time. Raises what made the reader give up."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            if self._reader.refused is not None:
                raise self._reader.refused from None
            return None

    def _heard(self, seen: Seen) -> None:
        while not self._closed:
            try:
                self._events.put(seen, timeout=PUT_S)
                return
            except queue.Full:
                continue

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._reader.close()


def recorded(
    api: Api, *, compute: str | None = None, task: str | None = None, after: int = 0
) -> Iterator[Seen]:
    """Every event that is recorded now, in order; ends behind the last of them."""
    return iter(Follower(api.http, compute=compute, task=task, after=after, follow=False, patience_s=AWAY_S))


def followed(
    api: Api,
    *,
    over: Callable[[], bool],
    may_end: Callable[[v1.Event], bool],
    compute: str | None = None,
    task: str | None = None,
) -> Iterator[Seen]:
    """What was recorded and what comes, until ``over``; then what is recorded behind that, and the end.

    ``over`` is asked at first, behind an event that ``may_end`` it all, and now and then.
    """
    last = 0
    ended = over()
    if not ended:
        with Feed(api, compute=compute, task=task, after=0) as feed:
            while not ended:
                seen = feed.next()
                if seen is not None:
                    yield seen
                    last = seen.seq or last
                if seen is None or may_end(seen.event):
                    # The daemon may be on its way back; the feed gives up on its own when it is not.
                    with suppress(DaemonUnreachable):
                        ended = over()
    yield from recorded(api, compute=compute, task=task, after=last)


def compute_until(
    api: Api,
    compute: str,
    done: Callable[[v1.Compute], bool],
    *,
    timeout_s: float,
    shown: Callable[[v1.Compute, Seen | None], None],
    said: Callable[[v1.ConsoleEvent], None] | None = None,
) -> tuple[v1.Compute, bool]:
    """Look at a compute until ``done`` or the time is over; the last look, and whether it was done.

    ``shown`` is told of every look and of the event that led to it, ``said`` of what nodes write.
    """
    from sky.client import calls

    deadline_s = time.monotonic() + timeout_s
    with Feed(api, compute=compute) as feed:
        seen: Seen | None = None
        while True:
            try:
                now = api.send(calls.get_compute(compute))
            except DaemonUnreachable:
                # It may be on its way back; the feed gives up on its own when it is not.
                if time.monotonic() > deadline_s:
                    raise
            else:
                shown(now, seen)
                if done(now):
                    return now, True
                if time.monotonic() > deadline_s:
                    return now, False
            left_s = max(0.0, deadline_s - time.monotonic())
            seen = _next_of_interest(feed, min(LOOK_S, left_s), said)


def _next_of_interest(
    feed: Feed, timeout_s: float, said: Callable[[v1.ConsoleEvent], None] | None
) -> Seen | None:
    """The last event about states among those that are there; waits for the first of them.

    What programs print is no reason to ask again, and a history that comes at once is one reason.
    """
    until_s = time.monotonic() + timeout_s
    found: Seen | None = None
    while True:
        left_s = until_s - time.monotonic()
        seen = feed.next(GATHER_S if found is not None else max(GATHER_S, left_s))
        if seen is not None and isinstance(seen.event, v1.ComputeEvent | v1.NodeEvent | v1.PhaseEvent):
            found = seen
        if seen is not None and said is not None and isinstance(seen.event, v1.ConsoleEvent):
            said(seen.event)
        if seen is None or left_s <= 0:
            return found
