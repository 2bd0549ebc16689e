"""Ending executions early: cancels, deadlines, and workers that will not let go.

Decides: who is told to stop, when a worker is killed, and what is said of it.
Never: says that something was stopped before it is certain.
Follows: before it began, stopping is certain and at once; in a process it takes a grace at most; in a thread
it may take until the thread's process is given up.
"""

from __future__ import annotations

import heapq
import time
from typing import Protocol

from sky.agent.crew import Crew
from sky.agent.execution import Execution, Stop
from sky.agent.frames import Done, Interrupt
from sky.agent.worker import Worker
from sky.wire.agent import ErrorInfo, OutcomeState

TERMINATE_GRACE_S = 5.0
"""Between SIGTERM and SIGKILL."""
THREAD_GRACE_S = 10.0
"""How long a thread may go on after it was interrupted before its process is given up."""
SWEEP_AT_MIN = 1000
"""From so many deadlines on, those of ended executions are cleared away."""


class Owner(Protocol):
    """What this part needs of the executor."""

    def end(
        self,
        execution: Execution,
        state: OutcomeState,
        frame: Done | None = None,
        *,
        error: ErrorInfo | None = None,
    ) -> None: ...

    def hold_back(self, worker: Worker) -> bool: ...

    def replace(self, worker: Worker) -> None: ...


class Stopping:
    """Everything that is on its way to an early end."""

    def __init__(self, owner: Owner, crew: Crew) -> None:
        self._owner = owner
        self._crew = crew
        self._deadlines: list[tuple[float, int, Execution]] = []
        self._order = 0
        self._sweep_at = SWEEP_AT_MIN
        self._wanted: dict[str, Execution] = {}
        self._told: dict[str, Execution] = {}
        self._forced: list[tuple[float, Worker]] = []
        self._remembered: dict[Worker, list[tuple[Execution, Done]]] = {}
        self.all_stopped = False

    @property
    def busy(self) -> bool:
        """Whether time must go on being looked at."""
        return bool(self._forced or self._wanted or self._told)

    def at(self, deadline_s: float, execution: Execution) -> None:
        """Stop it at this moment of the monotonic clock, if it has not ended."""
        self._order += 1
        if len(self._deadlines) > self._sweep_at:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].ended]
            heapq.heapify(self._deadlines)
            self._sweep_at = max(SWEEP_AT_MIN, 2 * len(self._deadlines))
        heapq.heappush(self._deadlines, (deadline_s, self._order, execution))

    def stop(self, execution: Execution, why: Stop) -> None:
        """Stop it now. It has an outcome at once if it had not begun, otherwise when it really ended."""
        if execution.ended or execution.stopping_since_s is not None:
            return
        if execution.stop is None:
            execution.stop = why
        worker = self._crew.of(execution)
        if worker is not None and not self._owner.hold_back(worker):
            self._wanted[execution.id] = execution
            return
        self._wanted.pop(execution.id, None)
        worker = self._crew.of(execution)
        if worker is None:
            self._owner.end(execution, execution.stop, error=self.reason(execution, execution.stop))
            return
        execution.stopping_since_s = time.monotonic()
        self._told[execution.id] = execution
        if worker.threads:
            worker.send(Interrupt(execution.seq))
            worker.flush()
        else:
            worker.terminate()

    def reason(self, execution: Execution, why: OutcomeState) -> ErrorInfo:
        """The error of an outcome that came early."""
        begun = "while it ran" if execution.stopping_since_s is not None else "before it began"
        if why == "timed_out":
            # What was left of its time when it came here: a few milliseconds less than was asked for.
            limit = round(execution.item.timeout_s or 0.0, 1)
            return ErrorInfo(code="timed_out", message=f"its time of {limit:g} s was over {begun}")
        return ErrorInfo(code="cancelled", message=f"cancelled {begun}")

    def remember(self, worker: Worker, execution: Execution, frame: Done) -> None:
        """An interrupted call has unwound; it is told when its process has ended."""
        self._remembered.setdefault(worker, []).append((execution, frame))

    def recall(self, worker: Worker) -> list[tuple[Execution, Done]]:
        """What was remembered for a worker that has ended."""
        return self._remembered.pop(worker, [])

    def force_later(self, worker: Worker) -> None:
        """Kill a worker that was told to end, if it has not after the grace."""
        self._forced.append((time.monotonic() + TERMINATE_GRACE_S, worker))

    def tick(self, now: float) -> None:
        """Look at what is due."""
        while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].ended):
            self.stop(heapq.heappop(self._deadlines)[2], "timed_out")
        for execution in list(self._wanted.values()):
            self.stop(execution, execution.stop or "cancelled")
        for execution in list(self._told.values()):
            self._press(execution, now)
        for due, worker in self._forced:
            if due <= now and worker in self._crew.workers:
                worker.kill()
        self._forced = [(due, worker) for due, worker in self._forced if due > now]

    def _press(self, execution: Execution, now: float) -> None:
        worker = self._crew.of(execution)
        since = execution.stopping_since_s
        if execution.ended or worker is None or since is None:
            del self._told[execution.id]
        elif not worker.threads:
            if now - since > TERMINATE_GRACE_S:
                worker.kill()
        elif now - since > THREAD_GRACE_S:
            if not worker.closing:
                self._owner.replace(worker)
            if all(other.stop is not None for other in worker.outstanding.values()):
                worker.kill()

    async def stop_all(self) -> None:
        """End every worker: SIGTERM, a grace, SIGKILL."""
        self.all_stopped = True
        self._crew.stop()
        for worker in self._crew.workers:
            worker.terminate()
        await self._crew.gone(TERMINATE_GRACE_S)
        for worker in self._crew.workers:
            worker.kill()
        await self._crew.gone(TERMINATE_GRACE_S)
