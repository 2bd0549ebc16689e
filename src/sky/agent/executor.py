"""Which execution goes to which worker, and what becomes of it: the node's own small scheduler.

Decides: accepting, fetching, sending (and sending ahead), retrying what a dead worker had not begun.
Never: runs an execution twice, or reports one whose outcome is not in the journal.
Follows: everything here happens in the event loop and never waits; ``stopping`` ends what must end early.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from sky.agent.blobs import Blobs, Refused
from sky.agent.causes import TERMINATED
from sky.agent.crew import Crew
from sky.agent.execution import Execution
from sky.agent.frames import Consumed, Done, Yielded
from sky.agent.journal import Journal
from sky.agent.launch import Plan
from sky.agent.log import say
from sky.agent.outcomes import Outcomes
from sky.agent.reporter import Reporter, StreamName
from sky.agent.settings import Settings
from sky.agent.stopping import Stopping
from sky.agent.window import Window
from sky.agent.worker import Worker
from sky.wire.agent import ErrorInfo, Item, Outcome, OutcomeState, WorkItem

HELD_MAX = 20_000
STARTED_TOLD_AFTER_S = 0.050
TAKE_BACK_AFTER_S = 0.010
"""A call that runs longer does not keep calls waiting that were sent behind it."""
TICK_S = 0.020
LOADS_MAX = 3
"""How many used workers may fail to load a call until that is its outcome."""
UNLOADABLE_MAX = 1_000
"""Functions that are remembered as not to be loaded in fresh workers either."""
QUIET_CALLS = 100
"""After output of subprocesses, so many calls are sent one at a time, which keeps their output apart."""


class Executor:
    """All executions and all workers of the node."""

    def __init__(
        self, settings: Settings, journal: Journal, reporter: Reporter, outcomes: Outcomes, blobs: Blobs
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._reporter = reporter
        self._outcomes = outcomes
        self._blobs = blobs
        self._loop = asyncio.get_running_loop()
        self._held: dict[str, Execution] = {}
        self._ready: deque[Execution] = deque()
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._python = ""
        self._unloadable: dict[str, None] = {}
        self._ticking = False
        self.window = Window(settings.slots, settings.spec.worker.buffer)
        self.crew = Crew(self, self._cannot_run)
        self.stopping = Stopping(self, self.crew)

    async def start(self, plan: Plan) -> str:
        """Start every worker; gives their Python's version. Raises ``StartFailed``."""
        await self.crew.start(plan, 1 if self._settings.threads else self._settings.slots)
        return self._python

    def _cannot_run(self, message: str) -> None:
        """Workers do not start any more: what waits for one fails."""
        for execution in list(self._ready):
            self.end(execution, "failed", error=ErrorInfo(code="worker_died", message=message))
        self.on_batch()

    # ── what the daemon says ──

    def accept(self, items: tuple[WorkItem, ...]) -> None:
        """Run these, each once: what is known here already is not run again."""
        fresh: dict[str, WorkItem] = {}
        for item in items:
            standing = self._journal.standing(item.execution)
            if standing is None:
                fresh.setdefault(item.execution, item)
            elif standing == "told":
                self._outcomes.repeat(item.execution)
        if len(self._held) + len(fresh) > HELD_MAX:
            say("more work than this node can hold is not accepted", held=len(self._held), sent=len(fresh))
            return
        if fresh and self._journaled(fresh):
            for item in fresh.values():
                self._take(Execution(item))
            self.pump()

    def _journaled(self, items: dict[str, WorkItem]) -> bool:
        try:
            self._journal.accept(tuple(items))
        except OSError as error:
            info = ErrorInfo(code="storage_full", message=f"the node's journal cannot be written: {error}")
            for name in items:
                refused = Outcome(execution=name, state="failed", seconds=0.0, ago_s=0.0, error=info)
                self._reporter.outcome(refused, time.monotonic())
            return False
        return True

    def _take(self, execution: Execution) -> None:
        self._held[execution.id] = execution
        item = execution.item
        if item.timeout_s is not None:
            self.stopping.at(time.monotonic() + item.timeout_s, execution)
        execution.function_path = self._blobs.pin(item.function)
        if item.args_sha256 is not None and item.args is None:
            execution.args_path = self._blobs.pin(item.args_sha256)
            lacking = execution.args_path is None
        else:
            lacking = False
        if execution.function_path is None or lacking:
            task = self._loop.create_task(self._fetch(execution))
            self._fetching[execution.id] = task
            task.add_done_callback(lambda _task: self._fetching.pop(execution.id, None))
        else:
            self._ready.append(execution)
        self._tick_later()

    async def _fetch(self, execution: Execution) -> None:
        item = execution.item
        try:
            if execution.function_path is None:
                execution.function_path = await self._blobs.fetch(item.function)
            if item.args_sha256 is not None and execution.args_path is None:
                execution.args_path = await self._blobs.fetch(item.args_sha256)
        except (Refused, OSError) as error:
            code = error.code if isinstance(error, Refused) else "storage_full"
            self.end(execution, "failed", error=ErrorInfo(code=code, message=str(error)))
            self.on_batch()
            return
        self._ready.append(execution)
        self.pump()

    def cancel(self, executions: tuple[str, ...]) -> None:
        """Stop these. One that was never seen here is ended before it can come."""
        unseen: list[str] = []
        for name in executions:
            execution = self._held.get(name)
            if execution is not None:
                self.stopping.stop(execution, "cancelled")
            elif self._journal.standing(name) is None:
                unseen.append(name)
        for name in unseen:
            item = WorkItem(execution=name, task="", ordinal=0, function="", rank=0, total=0)
            if self._journaled({name: item}):
                execution = self._held[name] = Execution(item)
                self.end(execution, "cancelled", error=self.stopping.reason(execution, "cancelled"))
        self.on_batch()

    def credit(self, name: str, consumed: int) -> None:
        """A reader has consumed the items of a generator before ``consumed``."""
        execution = self._held.get(name)
        if execution is None or consumed <= execution.consumed:
            return
        execution.consumed = consumed
        worker = self.crew.of(execution)
        if worker is not None:
            worker.send(Consumed(execution.seq, consumed))
            worker.flush()

    # ── sending ──

    def pump(self) -> None:
        """Send what is ready to workers that have room."""
        touched: set[Worker] = set()
        while self._ready:
            worker = self.crew.roomiest()
            if worker is None:
                break
            execution = self._ready.popleft()
            if not execution.ended:
                worker.call(execution)
                touched.add(worker)
        for worker in touched:
            worker.flush()

    def hold_back(self, worker: Worker) -> bool:
        """Take back what a worker has not begun; False when that must be tried again."""
        back = worker.take_back()
        if back is None:
            return False
        self._ready.extendleft(execution for execution in reversed(back) if not execution.ended)
        return True

    # ── what workers say ──

    def on_up(self, worker: Worker, python: str) -> None:
        """A worker is ready for calls."""
        self._python = python
        self.crew.came_up()
        self.pump()

    def on_wrote(
        self, worker: Worker, execution: Execution | None, stream: StreamName, content: str, lines: int
    ) -> None:
        """A call, or a worker by itself, wrote whole lines."""
        if worker.source.overfull:
            return
        if execution is not None:
            execution.console_lines += lines
        self._reporter.console(
            worker.source, stream, content, lines, None if execution is None else execution.id
        )

    def on_yielded(self, execution: Execution, frame: Yielded) -> None:
        """A generator yielded an item."""
        item = Item(execution=execution.id, index=frame.index, value=frame.value, value_sha256=frame.sha256)
        self._outcomes.item(execution, item, frame.file)

    def on_raw(self, worker: Worker) -> bool:
        """A subprocess wrote: have only one call in this worker, so that it is known whose it was."""
        worker.quiet(QUIET_CALLS)
        return self.hold_back(worker)

    def on_done(self, worker: Worker, execution: Execution, frame: Done) -> None:
        """A call ended."""
        used = worker.served > 0
        worker.note(frame.seconds)
        self.window.note(frame.seconds)
        if frame.interrupted and not worker.threads:
            self.stopping.remember(worker, execution, frame)
        elif not (frame.unloaded and self._load_anew(worker, execution, used=used)):
            self._end_of(execution, frame)
        if not self._settings.spec.worker.reuse and not worker.closing:
            self.replace(worker)
        if worker.retired and not worker.outstanding:
            worker.end()
            self.stopping.force_later(worker)

    def _load_anew(self, worker: Worker, execution: Execution, *, used: bool) -> bool:
        """Whether a call that could not be loaded is tried in a fresh worker: earlier calls may be why."""
        function = execution.item.function
        if not used:
            self._unloadable[function] = None
            if len(self._unloadable) > UNLOADABLE_MAX:
                del self._unloadable[next(iter(self._unloadable))]
            return False
        if execution.stop is not None or execution.loads >= LOADS_MAX or function in self._unloadable:
            return False
        execution.loads += 1
        execution.seq = 0
        self._ready.appendleft(execution)
        if not worker.closing:
            self.replace(worker)
        return True

    def _end_of(self, execution: Execution, frame: Done) -> None:
        if frame.interrupted and execution.stop is not None:
            self.end(execution, execution.stop, frame, error=self.stopping.reason(execution, execution.stop))
        elif frame.interrupted:
            # Nobody asked for it. When the whole node ends, how far the call got is for nobody to say.
            if not self.stopping.all_stopped:
                info = ErrorInfo(code="worker_died", message=f"the worker process that ran it {TERMINATED}")
                self.end(execution, "failed", frame, error=info)
        elif frame.error is not None:
            self.end(execution, "failed", frame, error=frame.error)
        else:
            self.end(execution, "succeeded", frame)

    def on_batch(self) -> None:
        """A burst of messages was handled: write and tell what ended, send what can go."""
        self._outcomes.flush()
        self.pump()
        self._reporter.window_changed()

    def on_exit(self, worker: Worker, cause: str) -> None:
        """A worker is gone: its calls fail or were stopped; what had not begun goes elsewhere."""
        self.crew.remove(worker)
        if self.stopping.all_stopped:
            return
        begun = worker.board.begun()
        for execution, frame in self.stopping.recall(worker):
            self._end_of(execution, frame)
        back: list[Execution] = []
        for seq, execution in worker.outstanding.items():
            execution.seq = 0
            if execution.stop is not None:
                self.end(execution, execution.stop, error=self.stopping.reason(execution, execution.stop))
            elif seq <= begun:
                info = ErrorInfo(code="worker_died", message=f"the worker process that ran it {cause}")
                self.end(execution, "failed", error=info)
            else:
                back.append(execution)
        self._ready.extendleft(reversed(back))
        self.crew.replace(worker, cause)

    # ── ends ──

    def end(
        self,
        execution: Execution,
        state: OutcomeState,
        frame: Done | None = None,
        *,
        error: ErrorInfo | None = None,
    ) -> None:
        """An execution has ended; told with the next ``on_batch``."""
        if execution.ended:
            return
        execution.ended = True
        self._held.pop(execution.id, None)
        task = self._fetching.pop(execution.id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
        self._unpin(execution)
        self._outcomes.end(
            execution,
            Outcome(
                execution=execution.id,
                state=state,
                seconds=0.0 if frame is None else frame.seconds,
                ago_s=0.0,
                result=None if frame is None else frame.value,
                result_sha256=None if frame is None else frame.sha256,
                error=error,
                console_lines=execution.console_lines,
                items=0 if frame is None else frame.items,
            ),
            None if frame is None else frame.file,
        )

    def _unpin(self, execution: Execution) -> None:
        if execution.function_path is not None:
            self._blobs.unpin(execution.item.function)
        if execution.args_path is not None and execution.item.args_sha256 is not None:
            self._blobs.unpin(execution.item.args_sha256)

    # ── time ──

    def _tick_later(self) -> None:
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        for worker in self.crew.workers:
            if worker.outstanding:
                self._look_at(worker, now)
        self.stopping.tick(now)
        self.on_batch()
        self._ticking = False
        if self._held or self.stopping.busy:
            self._tick_later()

    def _look_at(self, worker: Worker, now: float) -> None:
        """Tell long calls as started, and do not let others wait behind them."""
        begun = worker.begun()
        for execution, at in begun:
            if not execution.started_told and now - at > STARTED_TOLD_AFTER_S:
                execution.started_told = True
                self._reporter.started(execution.id, at)
        late = len(begun) == worker.slots and all(now - at > TAKE_BACK_AFTER_S for _, at in begun)
        if late and len(worker.outstanding) > len(begun):
            worker.slow(TAKE_BACK_AFTER_S)
            self.hold_back(worker)

    def replace(self, worker: Worker) -> None:
        """Go on without a worker; it ends when the calls that it has begun have."""
        worker.closing = worker.retired = True
        self.hold_back(worker)
        self.crew.spawn()
