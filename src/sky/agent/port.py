"""A worker's end of the socket to the agent: whole messages out, calls in.

Decides: that messages are never torn or mixed, and how a generator waits for its reader.
Never: runs a call. Follows: when the agent is gone the socket says so, and the worker ends.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque

from sky.agent import frames
from sky.agent.frames import Call, Consumed, Forget, FromWorker, Go, Learn, ToWorker
from sky.agent.functions import Function, Functions
from sky.agent.guard import SignalGuard

READ_BYTES = 256 * 1024
CREDIT_POLL_S = 0.05


class Closed(Exception):
    """The agent has closed the socket, or is gone."""


class Port:
    """The socket, shared by the threads of a worker for writing; one thread reads."""

    def __init__(self, endpoint: socket.socket, guard: SignalGuard) -> None:
        self._socket = endpoint
        self._guard = guard
        self._lock = threading.Lock()
        self._splitter = frames.Splitter()

    def send(self, frame: FromWorker) -> None:
        """Write one message, waiting while the agent does not read. Raises ``Closed``."""
        content = frames.framed(frame)
        self._guard.hold()
        try:
            with self._lock:
                self._socket.sendall(content)
        except OSError as error:
            raise Closed from error
        finally:
            self._guard.release()

    def receive(self, *, wait: bool = True) -> list[ToWorker]:
        """The next messages; waits for at least one byte unless told not to. Raises ``Closed``."""
        try:
            content = self._socket.recv(READ_BYTES, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError as error:
            raise Closed from error
        if not content:
            raise Closed
        return [frames.to_worker.decode(body) for body in self._splitter.feed(content)]

    def wait(self, bell: int) -> None:
        """Wait until there is something to receive, or until something is written to the pipe ``bell``."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(bell, select.POLLIN)
        if any(ready == bell for ready, _ in poll.poll()):
            os.read(bell, READ_BYTES)

    def forget_after_fork(self) -> None:
        """In a child that user code forked: this socket is not ours any more."""
        self._lock = threading.Lock()
        os.close(self._socket.detach())


class Credits:
    """How far the readers of generators are, by call."""

    def __init__(self) -> None:
        self._consumed: dict[int, int] = {}
        self._changed = threading.Condition()

    def open(self, call: Call) -> None:
        """A generator begins."""
        with self._changed:
            self._consumed[call.seq] = max(call.consumed, self._consumed.get(call.seq, 0))

    def close(self, seq: int) -> None:
        """A generator has ended."""
        with self._changed:
            self._consumed.pop(seq, None)

    def add(self, frame: Consumed) -> None:
        """A reader got further; never goes back."""
        with self._changed:
            if frame.consumed > self._consumed.get(frame.seq, -1):
                self._consumed[frame.seq] = frame.consumed
            self._changed.notify_all()

    def consumed(self, seq: int) -> int:
        """How many items the reader of this generator has consumed."""
        return self._consumed.get(seq, 0)

    def wait(self) -> None:
        """Until something changed, or a short while has passed (so that an interrupt gets in)."""
        with self._changed:
            self._changed.wait(CREDIT_POLL_S)


class Inbox:
    """Calls for a worker that runs one at a time: read by the thread that runs them."""

    def __init__(self, port: Port, guard: SignalGuard, functions: Functions) -> None:
        self._port = port
        self._guard = guard
        self._functions = functions
        self._calls: deque[tuple[Call, Function]] = deque()
        self._going = False
        self.credits = Credits()

    def next_call(self) -> tuple[Call, Function]:
        """The next call, waiting for it. Raises ``Closed`` when there will be none."""
        while not self._calls:
            self._guard.idle(True)
            messages = self._port.receive()
            self._guard.idle(False)
            self._take(messages)
        return self._calls.popleft()

    def wait_go(self) -> None:
        """Until the agent has read what is in the pipes. Raises ``Closed``."""
        self._going = False
        while not self._going:
            self._take(self._port.receive())

    def pump(self, *, wait: bool) -> None:
        """Take what the agent has sent meanwhile. Raises ``Closed``."""
        self._take(self._port.receive(wait=wait))

    def _take(self, messages: list[ToWorker]) -> None:
        for message in messages:
            match message:
                case Call():
                    self._calls.append((message, self._functions.get(message.function)))
                case Learn():
                    self._functions.learn(message)
                case Forget():
                    self._functions.forget(message)
                case Consumed():
                    self.credits.add(message)
                case Go():
                    self._going = True
                case _:
                    raise ValueError(f"unexpected {type(message).__name__}")
