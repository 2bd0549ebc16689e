"""The agent's side of one worker process: its socket, its pipes, its end.

Decides: to which execution bytes from the pipes belong, and what a dead worker died of.
Never: chooses what to run, or keeps a frame longer than the socket needs.
Follows: the agent never waits for a worker; a worker that does not read or does not answer stops only itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import OrderedDict
from typing import Protocol

import msgspec

from sky.agent import frames
from sky.agent.causes import cause
from sky.agent.execution import Execution
from sky.agent.frames import Call, Done, Forget, Frame, Go, Learn, ToWorker, Up, Wrote, Yielded
from sky.agent.launch import STREAMS, Plan, launch
from sky.agent.lines import Lines
from sky.agent.log import say
from sky.agent.reporter import Source, StreamName
from sky.agent.window import smooth, worker_ahead

READ_BYTES = 64 * 1024
KNOWN_FUNCTIONS_MAX = 64
LAST_WORDS_CHARS_MAX = 2000
EXIT_POLL_S = 0.05
"""How often the end of a worker is looked for where the kernel cannot announce it."""


class Listener(Protocol):
    """Who is told what a worker does."""

    def on_up(self, worker: Worker, python: str) -> None: ...

    def on_wrote(
        self, worker: Worker, execution: Execution | None, stream: StreamName, content: str, lines: int
    ) -> None: ...

    def on_yielded(self, execution: Execution, frame: Yielded) -> None: ...

    def on_done(self, worker: Worker, execution: Execution, frame: Done) -> None: ...

    def on_raw(self, worker: Worker) -> bool: ...

    def on_batch(self) -> None: ...

    def on_exit(self, worker: Worker, cause: str) -> None: ...


class Worker:
    """One worker process, from its start to its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, plan: Plan, listener: Listener) -> None:
        """Start the process. Raises OSError when that is impossible."""
        self._loop = loop
        self._listener = listener
        self.slots = plan.setup.slots
        self.threads = plan.setup.threads
        self.up = False
        self.closing = False
        self.retired = False
        self.served = 0
        self.last_words = ""
        self.room = self.slots
        self._quiet_calls_left = 0
        self._mean_s: float | None = None
        self.outstanding: dict[int, Execution] = {}
        self.source = Source(self._pause, self._resume)
        self._seq = 0
        self._known: OrderedDict[str, None] = OrderedDict()
        self._splitter = frames.Splitter()
        self._queued: list[bytes] = []
        self._unsent = bytearray()
        self._exited = False
        self._killed = False
        self._lines: dict[StreamName, Lines] = {name: Lines() for name in STREAMS}
        started = launch(plan)
        self.board = started.board
        self.pid = started.process.pid
        self._process = started.process
        self._socket = started.socket
        self._pipes = started.pipes
        self._resume()
        self._watch_exit()
        self.send(plan.setup)
        self.flush()

    # ── what is sent ──

    def send(self, frame: ToWorker) -> None:
        """Queue a message; ``flush`` writes."""
        self._queued.append(frames.framed(frame))

    def call(self, execution: Execution) -> None:
        """Queue a call, and its function before it if the worker does not know it."""
        item = execution.item
        known = self._known
        if item.function in known:
            known.move_to_end(item.function)
        else:
            known[item.function] = None
            self.send(Learn(item.function, str(execution.function_path)))
            if len(known) > KNOWN_FUNCTIONS_MAX:
                self.send(Forget(known.popitem(last=False)[0]))
        self._seq += 1
        execution.seq = self._seq
        self.outstanding[self._seq] = execution
        self.send(
            Call(
                seq=self._seq,
                execution=execution.id,
                task=item.task,
                function=item.function,
                rank=item.rank,
                total=item.total,
                args=item.args,
                args_path=None if execution.args_path is None else str(execution.args_path),
                stream=item.stream,
                consumed=execution.consumed,
                peers=item.peers,
                world=item.world,
            )
        )

    def flush(self) -> None:
        """Write what is queued, as far as the worker reads."""
        if not self._queued:
            return
        content = b"".join(self._queued) if len(self._queued) > 1 else self._queued[0]
        self._queued.clear()
        if self._unsent:
            self._unsent += content
            return
        sent = self._write(content)
        if sent < len(content):
            self._unsent += content[sent:]
            self._loop.add_writer(self._socket, self._on_writable)

    def _write(self, content: bytes | bytearray) -> int:
        try:
            return self._socket.send(content)
        except BlockingIOError:
            return 0
        except OSError:
            return len(content)

    def _on_writable(self) -> None:
        del self._unsent[: self._write(self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def note(self, seconds: float) -> None:
        """A call took so long: how many may be sent ahead follows from it."""
        self.served += 1
        self._mean_s = smooth(self._mean_s, seconds)
        if self._quiet_calls_left:
            self._quiet_calls_left -= 1
        else:
            self.room = self.slots + worker_ahead(self._mean_s, self.slots)

    def slow(self, seconds: float) -> None:
        """A call takes at least so long: nothing is sent ahead until calls are short again."""
        self._mean_s = max(self._mean_s or 0.0, seconds)
        self.room = self.slots

    def quiet(self, calls: int) -> None:
        """Send nothing ahead for so many calls."""
        self._quiet_calls_left = calls
        self.room = self.slots

    def take_back(self) -> list[Execution] | None:
        """Call off what has not begun, in order; None when that cannot be known just now."""
        begun = self.board.take_back(self._seq)
        if begun is None:
            return None
        back = [execution for seq, execution in self.outstanding.items() if seq > begun]
        for execution in back:
            del self.outstanding[execution.seq]
            execution.seq = 0
        return back

    def begun(self) -> list[tuple[Execution, float]]:
        """The executions that run now and when they began, on the monotonic clock."""
        outstanding = self.outstanding
        return [(outstanding[seq], at) for seq, at in self.board.running() if seq in outstanding]

    # ── what is read ──

    def _pause(self) -> None:
        self._loop.remove_reader(self._socket)
        for read_end in self._pipes.values():
            self._loop.remove_reader(read_end)

    def _resume(self) -> None:
        if self._exited:
            return
        self._loop.add_reader(self._socket, self._on_socket)
        for name, read_end in self._pipes.items():
            self._loop.add_reader(read_end, self._on_pipe, name)

    def _on_socket(self) -> None:
        if self._read_socket() is None:
            self._loop.remove_reader(self._socket)
        self._listener.on_batch()

    def _read_all(self) -> None:
        """Handle what the worker has sent by now, though not more than output may pile up."""
        while not self.source.paused and self._read_socket():
            continue

    def _read_socket(self) -> bool | None:
        """Handle what one read gives: True; nothing there: False; the worker closed it: None."""
        try:
            content = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            return None
        if not content:
            return None
        try:
            for body in self._splitter.feed(content):
                self._handle(frames.from_worker.decode(body))
        except (ValueError, msgspec.MsgspecError) as error:
            # Whoever wrote this, it was user code that found the socket: nothing of it can be believed.
            say("a worker sent what is no message", pid=self.pid, error=str(error))
            self.kill()
            return None
        return True

    def _handle(self, frame: Frame) -> None:
        match frame:
            case Done():
                self._on_done(frame)
            case Wrote():
                execution = self.outstanding.get(frame.seq)
                stream = STREAMS[frame.stream - 1]
                self._listener.on_wrote(self, execution, stream, frame.content, frame.lines)
            case Yielded():
                execution = self.outstanding.get(frame.seq)
                if execution is not None:
                    self._listener.on_yielded(execution, frame)
            case Up():
                self.up = True
                self._listener.on_up(self, frame.python)
            case _:
                raise ValueError(f"unexpected {type(frame).__name__}")

    def _on_done(self, frame: Done) -> None:
        execution = self.outstanding.get(frame.seq)
        if frame.dirty:
            self._read_pipes(self._sole() if self.threads else execution)
            if not self.threads:
                self.send(Go())
                self.flush()
        if not self.threads or len(self.outstanding) == 1:
            self._finish_lines(execution)
        if execution is not None:
            del self.outstanding[frame.seq]
            self._listener.on_done(self, execution, frame)

    def _on_pipe(self, name: StreamName) -> None:
        if not self.threads and len(self.outstanding) > 1 and not self._listener.on_raw(self):
            return
        self._read_all()
        if not self._read_pipe(name, self._sole()):
            self._loop.remove_reader(self._pipes[name])
        self._listener.on_batch()

    def _sole(self) -> Execution | None:
        """The one execution that runs now; None when there is none, or more than one."""
        running = self.begun()
        return running[0][0] if len(running) == 1 else None

    def _read_pipe(self, name: StreamName, execution: Execution | None) -> bool:
        """Handle one read of a pipe; False when it has ended."""
        try:
            content = os.read(self._pipes[name], READ_BYTES)
        except BlockingIOError:
            return True
        if not content:
            return False
        self._wrote(execution, name, self._lines[name].feed(content))
        return True

    def _read_pipes(self, execution: Execution | None) -> None:
        """Read what is in the pipes now; as much as they hold, for more may keep coming."""
        for name in STREAMS:
            self._read_pipe(name, execution)

    def _finish_lines(self, execution: Execution | None) -> None:
        for name, lines in self._lines.items():
            self._wrote(execution, name, lines.finish())

    def _wrote(self, execution: Execution | None, name: StreamName, content: str) -> None:
        if content:
            if not self.up:
                self.last_words = (self.last_words + content)[-LAST_WORDS_CHARS_MAX:]
            self._listener.on_wrote(self, execution, name, content, content.count("\n"))

    # ── how it ends ──

    def end(self) -> None:
        """Let it end by itself: it gets no more calls."""
        self.closing = True
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def terminate(self) -> None:
        """SIGTERM to the worker and what it started; it unwinds the call it runs."""
        self.closing = True
        self.source.drain()
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the worker and what it started."""
        self.closing = True
        self._killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._exited:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return

    def _watch_exit(self) -> None:
        if hasattr(os, "pidfd_open"):
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._on_exit)
        else:
            self._pidfd = -1
            self._loop.call_later(EXIT_POLL_S, self._poll_exit)

    def _poll_exit(self) -> None:
        if self._process.poll() is None:
            self._loop.call_later(EXIT_POLL_S, self._poll_exit)
        else:
            self._on_exit()

    def _on_exit(self) -> None:
        while self._read_socket():
            continue
        sole = self._sole()
        self._read_pipes(sole)
        self._finish_lines(sole)
        self._pause()
        self._signal(signal.SIGKILL)
        code = self._process.wait()
        self._exited = True
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for read_end in self._pipes.values():
            os.close(read_end)
        self._listener.on_exit(self, cause(code, by_us=self._killed))
        self._listener.on_batch()
        self.board.close()
