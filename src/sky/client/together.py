"""Many calls at once: ``gather``, ``map`` and ``&``.

Decides: how many are under way at a time, in which order results come out, and what happens to the rest
when one fails (they are cancelled). Never: reads its input further ahead than ``OPEN_MAX`` calls.
Follows: calls go out in batches and outcomes come back in pages, whatever their number; an input without
end can be streamed; blocking and awaited reading differ in how they wait and in nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from concurrent.futures import CancelledError
from typing import Any, Generic, Literal, TypeVar, cast, overload

from sky.client.aside import warn_if_blocking
from sky.client.function import Function, Pending, Settled
from sky.client.gathering import OPEN_MAX, Gathering, Open, Submitter, result_of
from sky.client.handles import Future, in_background
from sky.client.items import Items
from sky.client.outermost import misuse, outermost, outermost_class
from sky.client.target import AsyncTarget, Target

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")

CANCELS_MAX = 16
"""Places that are left for saying that all is cancelled."""


def _one_by_one(
    calls: Iterable[Pending[R]],
    target: Submitter,
    *,
    ordered: bool,
    at_once: bool = False,
    places: queue.Queue[int | None] | None = None,
) -> Generator[R, None, None]:
    """Results as they come or in the order of the calls. None among ``places`` cancels it all."""
    ended: queue.Queue[int | None] = places or queue.Queue(maxsize=OPEN_MAX)
    opened = Open(calls, target, ended.put_nowait, ordered=ordered, at_once=at_once)
    try:
        while True:
            while opened.send():
                continue
            if opened.over:
                return
            place = ended.get()
            if place is None:
                raise CancelledError
            for future in opened.ended(place):
                yield result_of(future)
    finally:
        opened.abandon()


async def _one_by_one_awaited(
    calls: Iterable[Pending[R]], target: Submitter, *, ordered: bool
) -> AsyncGenerator[R]:
    """The same for an event loop."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Queue[int] = asyncio.Queue(maxsize=OPEN_MAX)

    def announce(place: int) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.put_nowait, place)

    opened = Open(calls, target, announce, ordered=ordered)
    try:
        while True:
            for _ in iter(opened.send, False):
                await asyncio.sleep(0)  # packing many calls must not keep everything else waiting
            if opened.over:
                return
            for future in opened.ended(await ended.get()):
                await future.printed()
                yield result_of(future)
    finally:
        opened.abandon()


def all_results(calls: Iterable[Pending[R]], target: Submitter) -> list[R]:
    """Every result, in the order of the calls; the first failure is raised and ends the rest."""
    return list(_one_by_one(calls, target, ordered=True, at_once=True))


def later(calls: Iterable[Pending[R]], target: Submitter, *, at_hand: bool = True) -> Future[list[R]]:
    """A future of every result. Cancelling it ends them all.

    ``at_hand``: the calls are there, so that reading them keeps nobody waiting; all such futures share one
    thread. What may wait for its next call is read in a thread of its own.
    """
    return Gathering(calls, target).future if at_hand else _aside(calls, target)


def _aside(calls: Iterable[Pending[R]], target: Submitter) -> Future[list[R]]:
    places: queue.Queue[int | None] = queue.Queue(maxsize=OPEN_MAX + CANCELS_MAX)

    def work() -> Settled[list[R]]:
        return Settled(list(_one_by_one(calls, target, ordered=True, at_once=True, places=places)), None)

    return in_background(work, lambda: places.full() or places.put_nowait(None))


def streamed(calls: Iterable[Pending[R]], target: Submitter, *, ordered: bool) -> Items[R]:
    """Results one by one, as they come or in the order of the calls."""
    return Items(
        lambda: _one_by_one(calls, target, ordered=ordered),
        lambda: _one_by_one_awaited(calls, target, ordered=ordered),
    )


@outermost_class
class Many(Generic[R]):
    """Calls to run side by side: ``>> compute`` gives the list of what they returned, in order."""

    def __init__(self, calls: Iterable[Pending[R]], *, at_hand: bool = True) -> None:
        self._calls = calls
        self._at_hand = at_hand

    @overload
    def __rshift__(self, target: AsyncTarget) -> Future[list[R]]: ...
    @overload
    def __rshift__(self, target: Target) -> list[R]: ...
    def __rshift__(self, target: Target | AsyncTarget) -> Any:
        """Run them all and wait for all. The first failure is raised, and the others are cancelled."""
        if target.awaits:
            return later(self._calls, target, at_hand=self._at_hand)
        warn_if_blocking("`>>`", "write `await (sky.gather(...) > compute)`")
        return all_results(self._calls, target)

    def __gt__(self, target: Submitter) -> Future[list[R]]:
        """Send them and go on: the future is what they will have returned."""
        return later(self._calls, target, at_hand=self._at_hand)

    def stream(self, *, ordered: bool = True) -> Streaming[R]:
        """The same calls, their results one by one: in order, or (``ordered=False``) as they come."""
        return Streaming(self._calls, ordered=ordered)


@outermost_class
class Streaming(Generic[R]):
    """Calls to run side by side: ``>> compute`` gives an iterator over what they return."""

    def __init__(self, calls: Iterable[Pending[R]], *, ordered: bool) -> None:
        self._calls = calls
        self._ordered = ordered

    def __rshift__(self, target: Submitter) -> Items[R]:
        """Begin as it is read, by ``for`` or ``async for``; leaving it early cancels what has not ended."""
        return streamed(self._calls, target, ordered=self._ordered)


@overload
def gather(*calls: Pending[R], stream: Literal[False] = False, ordered: bool = True) -> Many[R]: ...
@overload
def gather(*calls: Pending[R], stream: Literal[True], ordered: bool = True) -> Streaming[R]: ...
@outermost
def gather(*calls: Pending[R], stream: bool = False, ordered: bool = True) -> Many[R] | Streaming[R]:
    """Calls of any functions, side by side: ``sky.gather(a(1), b(2)) >> compute`` is a list of results.

    ``stream=True`` gives an iterator instead, in order or (``ordered=False``) as they come.
    """
    return Streaming(calls, ordered=ordered) if stream else Many(calls)


@overload
def mapped(
    function: Callable[[A], Pending[R]], first: Iterable[A], /, *, stream: Literal[False] = False
) -> Many[R]: ...
@overload
def mapped(
    function: Callable[[A], Pending[R]],
    first: Iterable[A],
    /,
    *,
    stream: Literal[True],
    ordered: bool = True,
) -> Streaming[R]: ...
@overload
def mapped(
    function: Callable[[A, B], Pending[R]],
    first: Iterable[A],
    second: Iterable[B],
    /,
    *,
    stream: Literal[False] = False,
) -> Many[R]: ...
@overload
def mapped(
    function: Callable[[A, B], Pending[R]],
    first: Iterable[A],
    second: Iterable[B],
    /,
    *,
    stream: Literal[True],
    ordered: bool = True,
) -> Streaming[R]: ...
@overload
def mapped(
    function: Callable[[A, B, C], Pending[R]],
    first: Iterable[A],
    second: Iterable[B],
    third: Iterable[C],
    /,
    *,
    stream: Literal[False] = False,
) -> Many[R]: ...
@overload
def mapped(
    function: Callable[[A, B, C], Pending[R]],
    first: Iterable[A],
    second: Iterable[B],
    third: Iterable[C],
    /,
    *,
    stream: Literal[True],
    ordered: bool = True,
) -> Streaming[R]: ...
@outermost
def mapped(
    function: Callable[..., Pending[R]],
    /,
    *iterables: Iterable[Any],
    stream: bool = False,
    ordered: bool = True,
) -> Many[R] | Streaming[R]:
    """One call per element: ``sky.map(train, range(1000)) >> compute`` is the list of results, in order.

    Several iterables are read side by side, up to the shortest. They are read as calls are sent, never far
    ahead. ``stream=True`` (or ``.stream()``) gives an iterator, in order or (``ordered=False``) as they come.
    """
    calls = itertools.starmap(_as_it_is(function), zip(*iterables, strict=False))
    if stream:
        return Streaming(calls, ordered=ordered)
    return Many(calls, at_hand=all(isinstance(one, list | tuple | range | set | dict) for one in iterables))


def _as_it_is(function: object) -> Function[..., Any]:
    if not isinstance(function, Function):
        raise misuse(TypeError(f"sky.map takes a function made with @sky.function, not {function!r}"))
    return cast("Function[..., Any]", function).as_it_is()
