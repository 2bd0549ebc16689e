"""The stream of everything that happens, as Server-Sent Events.

Decides: where a reader begins, and when it is let go. Never: encodes an event for one reader alone.
Follows: a reader subscribes before the log is read, so nothing falls between; one that does not keep up is
closed, and comes back with the last id it has seen. Where the recorded part ends is marked, by an id without
an event: readers of the standard take it as their place and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated

from litestar.response.base import ASGIResponse
from msgspec import Meta

from sky.api.errors import short, unknown_name
from sky.api.operation import EVENTS, Ask, Header, operation
from sky.api.reading import Query
from sky.api.stream import CutShort, Streamed
from sky.api.unit import Services
from sky.domain import compute, node, task
from sky.domain.errors import CursorExpired, InvalidRequest, NotFound
from sky.domain.lifecycle import Table
from sky.store.events import Filter, ForgottenError, Replayed, Subscription, replay_as_sent
from sky.store.views import events as views
from sky.wire import v1

TAG = "Events"
HEARTBEAT_S = 15.0
STALL_S = 60.0
"""How long a reader may take nothing at all before it is closed."""
HEARTBEAT = b": still here\n\n"
GREETING = b"retry: 1000\n: events follow\n\n"
CURSOR_MAX = 2**62
PIECE_BYTES = 256 * 1024


def _told(table: Table) -> set[str]:
    return {move.event for move in table.values() if move.event is not None}


NAMES = frozenset(
    {
        *_told(compute.MOVES),
        *_told(node.MOVES),
        *_told(task.TASK_MOVES),
        "compute.created",
        "compute.cost",
        "node.console",
        "node.phase",
        "node.metrics",
        "node.requested",
        "task.queued",
    }
)


class EventFilter(Query, frozen=True):
    """Which events are wanted, and from where on."""

    compute: Annotated[str, Meta(max_length=256, description="Id or name of a compute.")] | None = None
    task: Annotated[str, Meta(max_length=64, description="Id of a task.")] | None = None
    types: (
        Annotated[tuple[str, ...], Meta(description="Names of events: several, or separated by commas.")]
        | None
    ) = None
    after: (
        Annotated[int, Meta(ge=0, le=CURSOR_MAX, description="The last id that was seen; 0 for all.")] | None
    ) = None
    follow: Annotated[
        bool, Meta(description="Whether to go on with what is new; else it ends after what is recorded.")
    ] = True


@operation(
    "GET",
    "/v1/events",
    tag=TAG,
    answers=v1.Event,
    headers=[Header("Last-Event-ID", "The last id that was seen. Goes before ``after``.")],
    errors=[NotFound, CursorExpired],
)
async def follow_events(ask: Ask, query: EventFilter) -> ASGIResponse:
    """Follow what happens.

    Begins after ``Last-Event-ID`` or ``after``; without either, at the beginning for one compute or task,
    and now for all. A cursor whose events are no longer kept is refused, and told the oldest one that is.
    Behind all that was recorded before comes an ``id:`` without an event.
    """
    unit = ask.unit
    names = frozenset(query.types or ())
    for name in sorted(names - NAMES):
        details = {"field": "types", "value": short(name), "expected": "names of events"}
        raise unknown_name("event", name, sorted(NAMES), details=details)
    after = _last_seen(ask.header(b"last-event-id"), query.after)
    wanted = await unit.db.read(lambda c: views.filter_of(c, query.compute, query.task, names))
    subscription = unit.hub.subscribe(wanted)
    try:
        start = await unit.db.read(lambda c: views.start_of(c, after, wanted))
    except BaseException:
        unit.hub.unsubscribe(subscription)
        raise
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    if ask.head:
        unit.hub.unsubscribe(subscription)
    frames = _frames(unit, subscription, wanted, start, go_on=query.follow)
    return Streamed(frames, media=EVENTS, headers=headers, stall_s=STALL_S)


def _last_seen(header: str | None, after: int | None) -> int | None:
    if header is None or header == "":
        return after
    if header.isascii() and header.isdigit() and int(header[:20]) <= CURSOR_MAX:
        return int(header[:20])
    raise InvalidRequest(
        f"Last-Event-ID must be the id of an event, a whole number; it is {short(header)!r}",
        details={"field": "Last-Event-ID", "value": short(header), "expected": "the id of an event"},
    )


async def _frames(
    unit: Services, subscription: Subscription, wanted: Filter, start: int, *, go_on: bool
) -> AsyncIterator[bytes]:
    """First what was recorded after ``start``, then where that ends, then what is new."""
    cursor = start
    try:
        yield GREETING
        ends = False
        while not ends:
            page = await _page(unit, cursor, wanted, begins=cursor == start)
            cursor, ends = page.cursor, page.ends
            if page.content:
                yield page.content
            del page  # a reader that is slow need not hold what the connection has taken
        yield b"id: %d\n\n" % cursor
        while go_on and not subscription.over:
            arrived = await subscription.next(HEARTBEAT_S)
            fresh = [d for d in arrived if d.event.seq == 0 or d.event.seq > cursor]
            if fresh:
                cursor = max(cursor, fresh[-1].event.seq)
                for piece in _pieces(d.frame for d in fresh):
                    yield piece
            elif not arrived and not subscription.over:
                yield HEARTBEAT
    finally:
        unit.hub.unsubscribe(subscription)


async def _page(unit: Services, after: int, wanted: Filter, *, begins: bool) -> Replayed:
    """The next page for a reader, in its turn: however many there are, one page is read at a time."""
    async with unit.hub.turn(begins=begins):
        try:
            return await unit.db.read(lambda c: replay_as_sent(c, after, wanted))
        except ForgottenError:  # it reads more slowly than events are dropped: it is told when it is back
            raise CutShort from None


def _pieces(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Frames joined, though not without end: what is joined is a copy that one reader has for itself."""
    held: list[bytes] = []
    size = 0
    for content in frames:
        held.append(content)
        size += len(content)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


ROUTES = (follow_events,)
