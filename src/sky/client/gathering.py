"""Calls that are under way side by side, and the one thread that all futures of several calls share.

Decides: how many are under way at a time, and how much is sent before another future has its turn.
Never: waits in that thread, for an end, a line of output or a place: it is woken by calls that have ended.
Follows: a thousand futures of several calls each cost no more threads than one does.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any, Generic, Protocol, TypeVar

from sky.client.errors import TaskCancelled
from sky.client.function import Pending, Settled
from sky.client.handles import Future

R = TypeVar("R")

OPEN_MAX = 1_000
"""Calls that are under way, or ended and not yet handed out, at one time."""
TURN_CALLS = 50
"""Calls of one future that are sent before others have their turn."""
WORK_MAX = 1_000_000
"""Things that may wait for the thread: ends of calls, of which a future has ``OPEN_MAX`` at most."""


class Submitter(Protocol):
    """What calls can be sent to: a compute, of either kind."""

    def submit(self, call: Pending[R]) -> Future[R]:
        """Send a call and go on."""
        ...


class Open(Generic[R]):
    """The calls that are under way. ``announce`` is told a place when its call has ended, in any thread.

    With ``ordered``, results wait for their turn; ``at_once`` lets a failure pass them.
    """

    def __init__(
        self,
        calls: Iterable[Pending[R]],
        target: Submitter,
        announce: Callable[[int], None],
        *,
        ordered: bool,
        at_once: bool = False,
    ) -> None:
        self._source = enumerate(calls)
        self._target = target
        self._announce = announce
        self._ordered = ordered
        self._at_once = at_once
        self._under_way: dict[int, Future[R]] = {}
        self._waiting: dict[int, Future[R]] = {}
        self._turn = 0
        self._more = True

    def send(self) -> bool:
        """Send one more call, if there may be one more; False when it is time to wait instead."""
        if not self._more or len(self._under_way) + len(self._waiting) >= OPEN_MAX:
            return False
        following = next(self._source, None)
        if following is None:
            self._more = False
            return False
        place, call = following
        future = self._under_way[place] = self._target.submit(call)
        future.add_done_callback(lambda _: self._announce(place))
        return True

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return not (self._more or self._under_way or self._waiting)

    def ended(self, place: int) -> Iterator[Future[R]]:
        """The futures that are next to be handed out, now that this one has ended."""
        future = self._under_way.pop(place)
        if not self._ordered or (self._at_once and _failed(future)):
            yield future
            return
        self._waiting[place] = future
        while self._turn in self._waiting:
            self._turn += 1
            yield self._waiting.pop(self._turn - 1)

    def abandon(self) -> None:
        """End what has not ended."""
        for future in self._under_way.values():
            future.abandon()


def _failed(future: Future[Any]) -> bool:
    return future.cancelled() or future.exception() is not None


def result_of(future: Future[R]) -> R:
    """What a call returned, or raise what it raised; TaskCancelled when it was cancelled."""
    try:
        return future.result()
    except CancelledError:
        raise TaskCancelled(f"{future.task}: the call was cancelled", future.task) from None


class Gathering(Generic[R]):
    """The future of what several calls return. All of it happens in the shared thread."""

    def __init__(self, calls: Iterable[Pending[R]], target: Submitter) -> None:
        self._printed = _AllPrinted()
        self.future: Future[list[R]] = Future(
            cancel=self._cancel, abandon=self._cancel, printed=self._printed
        )
        self._results: list[R] = []
        self._opened = Open(calls, target, self._announce, ordered=True, at_once=True)
        _shared.do(self._send)

    def _cancel(self, _: Future[Any]) -> bool:
        _shared.do(lambda: self._end(None))
        return True

    def _announce(self, place: int) -> None:
        _shared.do(lambda: self._take(place))

    def _send(self) -> None:
        """Send some. Listed supervisor: what the caller's calls raise when they are read is the caller's."""
        if self.future.done():
            return
        try:
            for _ in range(TURN_CALLS):
                if not self._opened.send():
                    break
            else:
                _shared.do(self._send)
        except BaseException as error:
            self._end(error)
            return
        if self._opened.over:
            self.future.settle(Settled(self._results, None, console_lines=self._printed.count))

    def _take(self, place: int) -> None:
        if self.future.done():
            return
        for ended in self._opened.ended(place):
            self._printed.add(ended)
            if (error := _error_of(ended)) is not None:
                self._end(error)
                return
            self._results.append(ended.value())
        self._send()

    def _end(self, error: BaseException | None) -> None:
        """End it early, and with it all that has not ended. No error: it was cancelled."""
        if self.future.done():
            return
        self._opened.abandon()
        if error is None:
            self.future.settle_cancelled()
        else:
            self.future.settle(Settled(None, error, console_lines=self._printed.count))


def _error_of(future: Future[Any]) -> BaseException | None:
    if future.cancelled():
        return TaskCancelled(f"{future.task}: the call was cancelled", future.task)
    return future.exception()


class _AllPrinted:
    """What several calls print, as one."""

    def __init__(self) -> None:
        self._parts: list[Future[Any]] = []

    @property
    def count(self) -> int:
        return sum(part.console_lines for part in self._parts)

    def add(self, part: Future[Any]) -> None:
        if part.console_lines:
            self._parts.append(part)

    def settle(self, task: str, lines: int) -> None:
        """Wait for each, but not for long."""
        del task, lines
        for part in self._parts:
            part.printer.settle(part.task, part.console_lines)

    def when(self, task: str, lines: int, call: Callable[[], None]) -> Callable[[], None] | None:
        """Call ``call`` when the last of them is."""
        del task, lines
        lock = threading.Lock()
        left = len(self._parts)

        def one_less() -> None:
            nonlocal left
            with lock:
                left -= 1
                last = left == 0
            if last:
                call()

        leaves = [part.printer.when(part.task, part.console_lines, one_less) for part in self._parts]
        waited = [leave for leave in leaves if leave is not None]
        if not waited:
            return None
        for _ in range(len(leaves) - len(waited)):
            one_less()

        def leave() -> None:
            for each in waited:
                each()

        return leave


class _Shared:
    """One thread, begun when there is something for it, that does one small thing after another."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None]] = queue.Queue(WORK_MAX)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def do(self, what: Callable[[], None]) -> None:
        """Have it done in that thread, soon."""
        self._queue.put(what)
        if self._thread is None or not self._thread.is_alive():  # as in a process that was forked
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._work, name="sky-gather", daemon=True)
                    self._thread.start()

    def _work(self) -> None:
        while True:
            self._queue.get()()


_shared = _Shared()
