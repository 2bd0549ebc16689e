"""Many calls at once: ``gather``, ``map`` and ``&``.

Decides: how many are under way at a time, in which order results come out, and what happens to the rest
when one fails (they are cancelled). Never: reads its input further ahead than ``OPEN_MAX`` calls.
Follows: calls go out in batches and outcomes come back in pages, whatever their number; an input without
end can be streamed.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, overload

from sky.client.errors import TaskCancelled
from sky.client.function import Function, Pending
from sky.client.handles import Future

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")

OPEN_MAX = 1_000
"""Calls that are under way, or ended and not yet handed out, at one time."""


class Submitter(Protocol):
    """What calls can be sent to: a ``sky.Compute``."""

    def submit(self, call: Pending[R]) -> Future[R]:
        """Send a call and go on."""
        ...


def results(
    calls: Iterable[Pending[R]], target: Submitter, *, ordered: bool, at_once: bool
) -> Iterator[tuple[int, R]]:
    """Places and results. ``at_once`` raises the first failure whatever its place; otherwise at its turn."""
    source = enumerate(calls)
    ended: queue.Queue[tuple[int, Future[R]]] = queue.Queue(maxsize=OPEN_MAX)
    under_way: dict[int, Future[R]] = {}
    waiting: dict[int, Future[R]] = {}
    turn = 0
    more = True
    try:
        while True:
            while more and len(under_way) + len(waiting) < OPEN_MAX:
                following = next(source, None)
                if following is None:
                    more = False
                    break
                place, call = following
                future = target.submit(call)
                under_way[place] = future
                future.add_done_callback(_announce(ended, place))
            if not under_way and not waiting:
                return
            place, future = ended.get()
            del under_way[place]
            if not ordered or (at_once and _failed(future)):
                yield place, _result(future)
                continue
            waiting[place] = future
            while turn in waiting:
                yield turn, _result(waiting.pop(turn))
                turn += 1
    finally:
        for future in under_way.values():
            future.abandon()


def _announce(ended: queue.Queue[tuple[int, Future[R]]], place: int) -> Callable[[Any], None]:
    return lambda future: ended.put_nowait((place, future))


def _failed(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None


def _result(future: Future[R]) -> R:
    try:
        return future.result()
    except CancelledError:
        raise TaskCancelled(f"{future.task}: the call was cancelled", future.task) from None


def all_results(calls: Iterable[Pending[R]], target: Submitter) -> list[R]:
    """Every result, in the order of the calls; the first failure is raised and ends the rest."""
    return [result for _, result in results(calls, target, ordered=True, at_once=True)]


def streamed(calls: Iterable[Pending[R]], target: Submitter, *, ordered: bool) -> Iterator[R]:
    """Results one by one, as they come or in the order of the calls."""
    for _, result in results(calls, target, ordered=ordered, at_once=False):
        yield result


class Many(Generic[R]):
    """Calls to run side by side: ``>> compute`` gives the list of what they returned, in order."""

    def __init__(self, calls: Iterable[Pending[R]]) -> None:
        self._calls = calls

    def __rshift__(self, target: Submitter) -> list[R]:
        """Run them all and wait for all. The first failure is raised, and the others are cancelled."""
        return all_results(self._calls, target)

    def stream(self, *, ordered: bool = True) -> Streaming[R]:
        """The same calls, their results one by one: in order, or (``ordered=False``) as they come."""
        return Streaming(self._calls, ordered=ordered)


class Streaming(Generic[R]):
    """Calls to run side by side: ``>> compute`` gives an iterator over what they return."""

    def __init__(self, calls: Iterable[Pending[R]], *, ordered: bool) -> None:
        self._calls = calls
        self._ordered = ordered

    def __rshift__(self, target: Submitter) -> Iterator[R]:
        """Begin as the iterator is read; leaving it early cancels what has not ended."""
        return streamed(self._calls, target, ordered=self._ordered)


@overload
def gather(*calls: Pending[R], stream: Literal[False] = False, ordered: bool = True) -> Many[R]: ...
@overload
def gather(*calls: Pending[R], stream: Literal[True], ordered: bool = True) -> Streaming[R]: ...
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
    return Streaming(calls, ordered=ordered) if stream else Many(calls)


def _as_it_is(function: object) -> Function[..., Any]:
    if not isinstance(function, Function):
        raise TypeError(f"sky.map takes a function made with @sky.function, not {function!r}")
    return cast("Function[..., Any]", function).as_it_is()
