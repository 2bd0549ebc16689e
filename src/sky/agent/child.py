"""A worker process: runs the calls of one agent, one at a time or in several threads.

Decides: how a worker begins (limits, streams, signals) and how it ends (told to, or its agent is gone).
Never: outlives its agent, opens a connection, or reads the agent's files other than payloads it is given.
Follows: started by ``worker``, as ``python -P -m sky.agent.child <socket> <board> <agent's pid>``.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time
import types
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

import msgspec

from sky.agent import streams
from sky.agent.board import Board
from sky.agent.causes import TERMINATED_CODE
from sky.agent.frames import Call, Consumed, Done, Forget, Interrupt, Learn, Setup, ToWorker, Up, Wrote
from sky.agent.functions import Function, Functions
from sky.agent.guard import Scope, SignalGuard, ThreadScope
from sky.agent.order import Order
from sky.agent.port import Closed, Credits, Inbox, Port
from sky.agent.run import Lane, Surroundings
from sky.agent.streams import STDERR, Router, Sink
from sky.kit import context

PR_SET_PDEATHSIG = 1
CALLS_QUEUED_MAX = 100_000
END_GRACE_S = 3.0
"""How long a worker with threads waits for its calls to unwind when it is told to end."""


def main() -> None:
    """Serve until told to end. The process's arguments are two descriptors and the agent's pid."""
    endpoint_fd, board_fd, agent = (int(argument) for argument in sys.argv[1:4])
    _die_with(agent)
    endpoint = socket.socket(fileno=endpoint_fd)
    endpoint.set_inheritable(False)
    os.set_inheritable(board_fd, False)
    guard = SignalGuard()
    port = Port(endpoint, guard)
    setup = _read_setup(port)
    board = Board(board_fd, setup.slots)
    router = Router(port)
    _prepare(setup, router, port)
    gc.collect()
    gc.freeze()
    port.send(Up(".".join(str(part) for part in sys.version_info[:3])))
    try:
        if setup.threads:
            _Threads(setup, port, router, board).serve()
        else:
            _serve_one(setup, port, router, board, guard)
    except Closed:
        return


def _die_with(agent: int) -> None:
    """Have the kernel kill this process when the agent dies, and end now if it has already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        sys.exit(0)


def _read_setup(port: Port) -> Setup:
    messages: list[ToWorker] = []
    while not messages:
        messages = port.receive()
    first = messages[0]
    if not isinstance(first, Setup) or len(messages) > 1:
        raise ValueError("the first message is not the setup")
    return first


def _prepare(setup: Setup, router: Router, port: Port) -> None:
    """Limits, streams, folders, and a ``__main__`` that is not this module."""
    faulthandler.enable(file=2)
    if setup.memory_bytes is not None:
        # What may be had at most stays: a container of a paid job has a limit of its own.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        limit = setup.memory_bytes if most == resource.RLIM_INFINITY else min(most, setup.memory_bytes)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, most))
    streams.install(router)
    os.register_at_fork(after_in_child=lambda: _after_fork(router, port))
    os.chdir(setup.work)
    if setup.included is not None:
        # As beside a script: before what is installed, and behind what Python itself brings.
        sys.path.insert(_installed_at(), setup.included)
    sys.path.append(setup.work)
    sys.argv = [""]
    sys.modules["__main__"] = types.ModuleType("__main__")


def _installed_at() -> int:
    """Where on the path installed packages begin."""
    places = (n for n, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages")))
    return next(places, len(sys.path))


def _after_fork(router: Router, port: Port) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    port.forget_after_fork()
    router.detach_after_fork()


def _serve_one(setup: Setup, port: Port, router: Router, board: Board, guard: SignalGuard) -> None:
    """One call at a time, in the main thread, stopped by SIGTERM."""
    inbox = Inbox(port, guard, Functions())
    around = Surroundings(
        setup, port, router, inbox.credits, lambda wait: inbox.pump(wait=wait), Path(setup.results)
    )
    lane = Lane(around)
    guard.install()
    order = Order()
    while True:
        call, function = inbox.next_call()
        if not board.begin(0, call.seq, time.monotonic()):
            continue
        scope, sink = Scope(), Sink(call.seq)
        router.alone = sink
        order.tell_peers(call.peers)
        context.enter_process(around.context_of(call))
        guard.watch(scope)
        done = lane.run(call, function, scope, sink)
        done = _marked(done, router)
        router.alone = None
        context.enter_process(None)
        port.send(done)
        if guard.ending:
            return
        broken = order.restore()
        if broken is not None:
            _give_up(port, broken)
        if done.dirty:
            inbox.wait_go()


def _give_up(port: Port, why: str) -> NoReturn:
    """End, for a call has left the process in a state that no other call may begin in.

    What was sent ahead has not begun, and goes to the worker that takes this one's place.
    """
    port.send(Wrote(0, STDERR, f"sky: a worker process is replaced: {why}\n", 1))
    os._exit(0)


def _marked(done: Done, router: Router) -> Done:
    """With a mark if subprocesses of the call wrote what the agent has still to read."""
    return msgspec.structs.replace(done, dirty=True) if router.dirty() else done


class _Threads:
    """Several calls at a time, each in a thread; the main thread reads messages."""

    def __init__(self, setup: Setup, port: Port, router: Router, board: Board) -> None:
        self._port = port
        self._router = router
        self._board = board
        self._slots = setup.slots
        self._functions = Functions()
        self._credits = Credits()
        self._around = Surroundings(
            setup,
            port,
            router,
            self._credits,
            lambda wait: self._credits.wait() if wait else None,
            Path(setup.results),
        )
        self._calls: SimpleQueue[tuple[Call, Function]] = SimpleQueue()
        self._lock = threading.Lock()
        self._running: dict[int, tuple[ThreadScope, Sink, Call]] = {}
        self._broken: str | None = None

    def serve(self) -> None:
        """Read messages until the agent is gone or SIGTERM comes."""
        signal.signal(signal.SIGTERM, _raise_exit)
        bell = _bell()
        self._order = Order()
        for slot in range(self._slots):
            threading.Thread(target=self._work, args=(slot,), name=f"call-{slot}", daemon=True).start()
        try:
            while True:
                self._port.wait(bell)
                for message in self._port.receive(wait=False):
                    self._take(message)
        except SystemExit:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._unwind()
            raise

    def _take(self, message: ToWorker) -> None:
        match message:
            case Call():
                if self._calls.qsize() >= CALLS_QUEUED_MAX:
                    raise ValueError(f"more than {CALLS_QUEUED_MAX} calls sent ahead")
                self._calls.put((message, self._functions.get(message.function)))
            case Learn():
                self._functions.learn(message)
            case Forget():
                self._functions.forget(message)
            case Consumed():
                self._credits.add(message)
            case Interrupt():
                with self._lock:
                    running = self._running.get(message.seq)
                if running is not None:
                    running[0].interrupt()
            case _:
                raise ValueError(f"unexpected {type(message).__name__}")

    def _unwind(self) -> None:
        """Interrupt every call and give them a moment."""
        for scope, _sink, _call in list(self._running.values()):
            scope.interrupt()
        deadline = time.monotonic() + END_GRACE_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.01)

    def _work(self, slot: int) -> None:
        try:
            self._run_calls(slot, Lane(self._around), threading.get_ident())
        except Closed:
            os._exit(0)
        finally:
            # A call broke what this code stands on. A thread that ended alone would leave it without an end.
            os._exit(1)

    def _run_calls(self, slot: int, lane: Lane, thread: int) -> NoReturn:
        while True:
            call, function = self._calls.get()
            with self._lock:
                if self._broken is not None or not self._board.begin(slot, call.seq, time.monotonic()):
                    continue
                scope, sink = ThreadScope(thread), Sink(call.seq)
                self._running[call.seq] = (scope, sink, call)
                self._order.tell_peers(call.peers)
                self._share()
            done = _marked(lane.run(call, function, scope, sink), self._router)
            with self._lock:
                del self._running[call.seq]
                self._share()
                broken = None if self._running else self._order.restore()
                self._broken = self._broken or broken
            self._port.send(done)
            if broken is not None:
                _give_up(self._port, broken)

    def _share(self) -> None:
        """With one call alone in the process, threads of its own belong to it too."""
        if len(self._running) == 1:
            [(_scope, sink, call)] = self._running.values()
            self._router.alone = sink
            context.enter_process(self._around.context_of(call))
        else:
            self._router.alone = None
            context.enter_process(None)


def _bell() -> int:
    """A pipe that can be read when a signal has come, whichever thread the kernel gave it to: a handler runs
    in the main thread alone, which would not wake for one that another thread was given."""
    bell, rope = os.pipe()
    os.set_blocking(rope, False)
    signal.set_wakeup_fd(rope, warn_on_full_buffer=False)
    return bell


def _raise_exit(_number: int, _frame: types.FrameType | None) -> None:
    raise SystemExit(TERMINATED_CODE)


if __name__ == "__main__":
    main()
