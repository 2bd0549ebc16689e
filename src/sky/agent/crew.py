"""The worker processes of a node: how many, started when, replaced when.

Decides: when a worker is started again, and when starting them is given up. Never: knows what they run.
Follows: a worker that ends is replaced at once; workers that end as soon as they start are tried again with a
growing pause, and a node where none has ever started is not ready and says why.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from sky.agent.execution import Execution
from sky.agent.launch import Plan
from sky.agent.log import say
from sky.agent.worker import Listener, Worker
from sky.kit import backoff

START_FAILURES_MAX = 3
WORDS_CHARS_MAX = 500


class StartFailed(Exception):
    """Workers cannot be started; the message has their last words."""


class Crew:
    """All workers there are. ``on_failing`` is told when they do not start any more."""

    def __init__(self, listener: Listener, on_failing: Callable[[str], None]) -> None:
        self.workers: list[Worker] = []
        self._listener = listener
        self._on_failing = on_failing
        self._loop = asyncio.get_running_loop()
        self._plan: Plan | None = None
        self._failures = 0
        self._words = ""
        self._changed = asyncio.Event()

    async def start(self, plan: Plan, count: int) -> None:
        """Start ``count`` workers and wait until they are up. Raises ``StartFailed``."""
        self._plan = plan
        for _ in range(count):
            self.spawn()
        while not self.workers or not all(worker.up for worker in self.workers):
            if self._failures >= START_FAILURES_MAX:
                self.stop()
                raise StartFailed(f"worker processes end as soon as they start: {self._words}")
            self._changed.clear()
            await self._changed.wait()

    def stop(self) -> None:
        """Start no more of them."""
        self._plan = None

    def spawn(self) -> None:
        """Start one more."""
        if self._plan is None:
            return
        try:
            self.workers.append(Worker(self._loop, self._plan, self._listener))
        except OSError as error:
            self._failed(str(error))

    def came_up(self) -> None:
        """A worker has started well."""
        self._failures = 0
        self._changed.set()

    def remove(self, worker: Worker) -> None:
        """A worker has ended."""
        self.workers.remove(worker)
        self._changed.set()

    def replace(self, worker: Worker, cause: str) -> None:
        """Start another in the place of one that ended, unless that was done before."""
        if worker.retired:
            return
        if worker.up:
            self.spawn()
        else:
            self._failed(f"it {cause}; {worker.last_words}")

    def _failed(self, words: str) -> None:
        self._failures += 1
        self._words = words.strip()[-WORDS_CHARS_MAX:]
        self._changed.set()
        say("a worker did not start", failures=self._failures, words=self._words)
        self._loop.call_later(backoff.delay_s(self._failures), self.spawn)
        if self._failures >= START_FAILURES_MAX:
            self._on_failing(f"no worker process can be started on the node: {self._words}")

    def roomiest(self) -> Worker | None:
        """The worker with the fewest calls, if it has room for another."""
        best: Worker | None = None
        least = 0
        for worker in self.workers:
            if not worker.up or worker.closing:
                continue
            count = len(worker.outstanding)
            if (best is None or count < least) and count < worker.room:
                best, least = worker, count
                if not count:
                    break
        return best

    def of(self, execution: Execution) -> Worker | None:
        """The worker that an execution was sent to and that has not answered yet."""
        seq = execution.seq
        if not seq:
            return None
        return next((worker for worker in self.workers if worker.outstanding.get(seq) is execution), None)

    async def gone(self, seconds_max: float) -> None:
        """Until every worker has ended, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while self.workers:
                    self._changed.clear()
                    await self._changed.wait()
