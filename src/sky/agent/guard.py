"""Stopping a call from outside: an exception that is raised where the user's code is, and nowhere else.

Decides: when the exception may be raised (inside of the call, never in the middle of a message of ours).
Never: kills; that is the agent's, after a grace. Follows: a call that is stopped unwinds, so its ``finally``
blocks run; a call that ended first is never mistaken for a stopped one, nor the next call for this one.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

POLL_S = 0.0005


class Cancelled(BaseException):
    """The call was told to stop. Not an ``Exception``, so that ordinary handlers let it pass."""


class Scope:
    """One call, as something that can be stopped. Subclasses differ in how the exception gets there."""

    def __init__(self) -> None:
        self.wanted = False
        self.opened = False
        self.finished = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def open(self) -> None:
        """The call begins: from now on ``Cancelled`` may be raised in it (at once, if it was due)."""
        self.opened = True
        if self.wanted:
            raise Cancelled

    def follow(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any] | None) -> None:
        """The call is a coroutine now: stop it by cancelling its task."""
        self._loop, self._task = loop, task
        if self.wanted and task is not None:
            task.cancel()

    def unfollow(self) -> None:
        """The coroutine has ended; what goes on is ordinary code."""
        self._loop = self._task = None

    def cancel_task(self) -> bool:
        """Stop the coroutine, if the call is one just now."""
        loop, task = self._loop, self._task
        if loop is None or task is None:
            return False
        loop.call_soon_threadsafe(task.cancel)
        return True

    def settle(self) -> bool:
        """The call is over: from now on nothing is raised in it. Says whether it had been told to stop.

        May itself raise ``Cancelled`` once; call it again then.
        """
        self.finished = True
        return self.wanted


class ThreadScope(Scope):
    """A call in a thread of its own; stopped from the thread that reads messages."""

    def __init__(self, thread: int) -> None:
        super().__init__()
        self._thread = thread
        self._decided = False

    def interrupt(self) -> None:
        """Raise ``Cancelled`` in the call, as soon as its thread runs Python code again."""
        self.wanted = True
        if self.opened and not self.finished and not self.cancel_task():
            _raise_in(self._thread, Cancelled)
        self._decided = True

    def settle(self) -> bool:
        self.finished = True
        while self.wanted and not self._decided:
            time.sleep(POLL_S)
        _raise_in(self._thread, None)
        return self.wanted


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    argument = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), argument)


class SignalGuard:
    """SIGTERM in a worker that runs one call at a time in its main thread.

    Idle: the worker ends. In a call: ``Cancelled`` there, put off while a message is being written.
    Between the two: the worker ends once it has said how the call went.
    """

    def __init__(self) -> None:
        self.ending = False
        self._main = threading.get_ident()
        self._scope: Scope | None = None
        self._idle = False
        self._held = 0
        self._due = False

    def install(self) -> None:
        """Take over SIGTERM."""
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self.ending = True
        scope = self._scope
        if self._idle:
            raise SystemExit(0)
        if scope is None or scope.finished:
            return
        scope.wanted = True
        if not scope.opened or scope.cancel_task():
            return
        if self._held:
            self._due = True
            return
        raise Cancelled

    def idle(self, value: bool) -> None:
        """Whether the worker waits for a call, and may end at any moment."""
        self._idle = value
        if value and self.ending:
            raise SystemExit(0)

    def watch(self, scope: Scope) -> None:
        """From now on ``scope`` is the call that a signal stops."""
        self._scope = scope

    def hold(self) -> None:
        """The main thread is writing a message: put off what a signal would raise."""
        if threading.get_ident() == self._main:
            self._held += 1

    def release(self) -> None:
        """The message is written. Raises ``Cancelled`` if a signal came meanwhile."""
        if threading.get_ident() != self._main:
            return
        self._held -= 1
        if self._due and not self._held:
            self._due = False
            if self._scope is not None and not self._scope.finished:
                raise Cancelled
