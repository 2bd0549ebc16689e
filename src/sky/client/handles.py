"""A call that was sent: a future that follows ``concurrent.futures`` and can be awaited.

Decides: how waiting, cancelling and awaiting look to the caller. Never: asks the daemon itself; the courier
that sent the call settles the future, and is asked to cancel it.
Follows: ``concurrent.futures.wait`` and ``as_completed`` take these like any others, a thousand of them cost
one waiting request, and cancelling an ``await`` cancels the call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

from sky.client.console import SETTLE_S
from sky.client.function import Settled
from sky.client.outermost import outermost, outermost_class

R = TypeVar("R")


class Printer(Protocol):
    """What prints here what calls print on nodes: a ``Console``."""

    def settle(self, task: str, lines: int) -> None:
        """Wait until so many lines of a task were printed, but not for long."""
        ...

    def when(self, task: str, lines: int, call: Callable[[], None]) -> Callable[[], None] | None:
        """Call ``call`` when they are; returns how to wait no longer, None when they have been."""
        ...


class Silent:
    """Prints nothing, so nothing has to be waited for."""

    def settle(self, task: str, lines: int) -> None:
        """Return."""

    def when(self, task: str, lines: int, call: Callable[[], None]) -> None:
        """It has been."""


@outermost_class
class Future(concurrent.futures.Future[R]):
    """What a call will have returned. ``task`` is its id once the daemon has accepted it, before that ''."""

    def __init__(
        self,
        *,
        cancel: Callable[[Future[Any]], bool],
        abandon: Callable[[Future[Any]], object],
        printed: Printer,
    ) -> None:
        super().__init__()
        self.task = ""
        self.console_lines = 0
        self._cancelling = threading.RLock()
        self._ask_cancel = cancel
        self._ask_abandon = abandon
        self.printer = printed

    def result(self, timeout: float | None = None) -> R:
        """What the function returned, or raise what it raised.

        Raises TimeoutError when it has not ended after ``timeout`` seconds, CancelledError when cancelled.
        Everything it printed has been printed here before this returns, or a second has passed.
        """
        try:
            return super().result(timeout)
        finally:
            if self.done():
                self.printer.settle(self.task, self.console_lines)

    def value(self) -> R:
        """What the function returned, of one that has ended: without waiting for what it printed."""
        return super().result(0)

    def cancel(self) -> bool:
        """Ask for the call's end. True when that was accepted; False when it has ended, or nobody answers.

        A call that waits is cancelled when this returns. One that runs is being stopped, and ``cancelled``
        becomes true once its node has confirmed that, unless the future ends otherwise before.
        """
        if self.done():
            return self.cancelled()
        return self._ask_cancel(self)

    def abandon(self) -> None:
        """Ask for the call's end without waiting for an answer."""
        if not self.done():
            self._ask_abandon(self)

    def then(self, change: Callable[[R], Any]) -> Future[Any]:
        """A future of this one's result, changed."""
        later: Future[Any] = Future(
            cancel=lambda _: self.cancel(), abandon=lambda _: self.abandon(), printed=self.printer
        )

        def pass_on(ended: concurrent.futures.Future[R]) -> None:
            later.task, later.console_lines = self.task, self.console_lines
            if ended.cancelled():
                later.settle_cancelled()
                return
            error = ended.exception()
            value = None if error is not None else change(self.value())
            later.settle(Settled(value, error, self.task, self.console_lines))

        self.add_done_callback(pass_on)
        return later

    def running(self) -> bool:
        """Whether it has been sent and has not ended."""
        return not self.done()

    def settle(self, settled: Settled[R]) -> None:
        """For whoever sent the call: this is how it ended. Later words about it change nothing."""
        if self.done():
            return
        self.console_lines = settled.console_lines
        try:
            if settled.error is not None:
                self.set_exception(settled.error)
            else:
                self.set_result(settled.unwrap())
        except concurrent.futures.InvalidStateError:
            # Cancelled in another thread since it was looked at: that came first.
            return

    def settle_cancelled(self) -> bool:
        """For whoever sent the call: it is certain that it was cancelled."""
        with self._cancelling:
            # The base class wants each of these said once; the canceller and the outcome may say both.
            if not self.done() and super().cancel():
                self.set_running_or_notify_cancel()
            return self.cancelled()

    def __await__(self) -> Generator[Any, None, R]:
        return self._wait().__await__()

    @outermost
    async def _wait(self) -> R:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def wake(_: concurrent.futures.Future[R]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        self.add_done_callback(wake)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            self.abandon()
            raise
        await self.printed()
        if self.cancelled():
            raise asyncio.CancelledError
        return self.value()

    async def printed(self) -> None:
        """Until what it printed has been printed here, in an event loop; as ``result`` waits for it."""
        if not self.console_lines:
            return
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        leave = self.printer.when(self.task, self.console_lines, wake)
        if leave is None:
            return
        try:
            async with asyncio.timeout(SETTLE_S):
                await done.wait()
        except TimeoutError:
            return  # its lines are late: a result is not held back for them any longer
        finally:
            leave()


def in_background(work: Callable[[], Settled[R]], cancel: Callable[[], object]) -> Future[R]:
    """A future of blocking work in a thread of its own. ``cancel`` has it raise CancelledError soon."""

    def ask(_: Future[Any]) -> bool:
        cancel()
        return True

    future: Future[R] = Future(cancel=ask, abandon=lambda _: ask(future), printed=Silent())

    def run() -> None:
        try:
            future.settle(work())
        except concurrent.futures.CancelledError:
            future.settle_cancelled()
        except BaseException as error:
            future.settle(Settled(None, error))

    threading.Thread(target=run, name="sky-call", daemon=True).start()
    return future
