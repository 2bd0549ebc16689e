"""How executions end: written to the journal, then told, large payloads before the words about them.

Decides: the order of journal, upload and report. Never: runs or stops anything.
Follows: an outcome that is in the journal is told sooner or later, by this agent or by the next one in the
same home; what was running when an agent died is told as ``indeterminate``.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Coroutine

from sky.agent.blobs import Blobs, Refused
from sky.agent.execution import Execution
from sky.agent.journal import Ended, Journal
from sky.agent.log import say
from sky.agent.reporter import Reporter
from sky.agent.settings import Settings
from sky.kit.clock import SECOND_US, Clock
from sky.wire.agent import ErrorInfo, Item, Outcome


class Outcomes:
    """The way out for everything that executions produce."""

    def __init__(
        self, settings: Settings, journal: Journal, reporter: Reporter, blobs: Blobs, clock: Clock
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._reporter = reporter
        self._blobs = blobs
        self._clock = clock
        self._batch: list[tuple[Outcome, asyncio.Task[None] | None]] = []
        self._files: dict[str, str] = {}
        self._uses: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    # ── this agent's executions ──

    def end(self, execution: Execution, outcome: Outcome, file: str | None = None) -> None:
        """An execution ended, its payload perhaps in ``file``; ``flush`` writes and tells it."""
        if file is not None and outcome.result_sha256 is not None:
            (self._settings.results / file).replace(self._settings.results / outcome.result_sha256)
        self._batch.append((outcome, execution.tail))

    def flush(self) -> None:
        """Write what ended since the last time, in one piece, and tell it."""
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        try:
            self._journal.end([outcome for outcome, _ in batch], self._clock.now_us())
        except OSError as error:
            say("the journal cannot be written; outcomes are told from memory", error=str(error))
        now = time.monotonic()
        for outcome, after in batch:
            self._tell(outcome, now, after)

    def item(self, execution: Execution, item: Item, file: str | None = None) -> None:
        """A generator yielded; told after everything it yielded before."""
        after = execution.tail
        if file is None and (after is None or after.done()):
            self._reporter.item(item)
            return
        execution.tail = self._later(self._send_item(item, file, after))

    async def _send_item(self, item: Item, file: str | None, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        if file is not None and item.value_sha256 is not None:
            path = self._settings.results / file
            try:
                await self._blobs.upload(item.value_sha256, path)
            except (Refused, OSError) as error:
                say("an item cannot be stored", execution=item.execution, index=item.index, error=str(error))
            path.unlink(missing_ok=True)
        self._reporter.item(item)

    def _tell(self, outcome: Outcome, at_s: float, after: asyncio.Task[None] | None) -> None:
        if outcome.result_sha256 is None and (after is None or after.done()):
            self._reporter.outcome(outcome, at_s)
        else:
            if outcome.result_sha256 is not None:
                self._files[outcome.execution] = outcome.result_sha256
                self._uses[outcome.result_sha256] += 1
            self._later(self._send_outcome(outcome, at_s, after))

    async def _send_outcome(self, outcome: Outcome, at_s: float, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait([after])
        if outcome.result_sha256 is not None:
            path = self._settings.results / outcome.result_sha256
            try:
                await self._blobs.upload(outcome.result_sha256, path)
            except (Refused, OSError) as error:
                outcome = self._without_payload(outcome, error)
        self._reporter.outcome(outcome, at_s)

    def _without_payload(self, outcome: Outcome, error: Refused | OSError) -> Outcome:
        """What is told when the payload cannot be stored at the daemon, now in the journal as well."""
        code = error.code if isinstance(error, Refused) else "internal"
        info = outcome.error or ErrorInfo(code=code, message=f"the call ran, but its result is lost: {error}")
        told = Outcome(
            execution=outcome.execution,
            state="failed",
            seconds=outcome.seconds,
            ago_s=0.0,
            error=info,
            console_lines=outcome.console_lines,
            items=outcome.items,
        )
        try:
            self._journal.end([told], self._clock.now_us())
        except OSError as second:
            say("the journal cannot be written", error=str(second))
        return told

    def _later(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ── what was told, and what an earlier agent left ──

    def heard(self, executions: list[str]) -> None:
        """A daemon has written down these outcomes."""
        try:
            self._journal.tell(executions)
        except OSError as error:
            say("the journal cannot be written", error=str(error))
        if self._files:
            for execution in executions:
                self._release(self._files.pop(execution, None))

    def _release(self, sha256: str | None) -> None:
        """One outcome less needs this file."""
        if sha256 is None:
            return
        self._uses[sha256] -= 1
        if self._uses[sha256] <= 0:
            del self._uses[sha256]
            (self._settings.results / sha256).unlink(missing_ok=True)

    def repeat(self, execution: str) -> None:
        """The daemon asks again for an execution that ended here and was told."""
        ended = self._journal.outcome(execution)
        if ended is None:
            outcome = Outcome(
                execution=execution,
                state="indeterminate",
                seconds=0.0,
                ago_s=0.0,
                error=ErrorInfo(code="task_indeterminate", message="it ran here; its result is not kept"),
            )
            self._reporter.outcome(outcome, time.monotonic())
        else:
            self._tell_again(ended)

    def resume(self) -> None:
        """Tell what an earlier agent in this home did not: outcomes, and what it was running."""
        for execution in self._journal.known():
            if self._journal.standing(execution) == "accepted":
                message = "the agent restarted while it ran, and its worker is gone"
                outcome = Outcome(
                    execution=execution,
                    state="indeterminate",
                    seconds=0.0,
                    ago_s=0.0,
                    error=ErrorInfo(code="task_indeterminate", message=message),
                )
                self._batch.append((outcome, None))
            else:
                ended = self._journal.outcome(execution)
                if ended is not None:
                    self._tell_again(ended)
        self.flush()
        for path in self._settings.results.iterdir():
            if path.name not in self._uses:
                path.unlink()

    def _tell_again(self, ended: Ended) -> None:
        ago_s = max(0.0, (self._clock.now_us() - ended.at_us) / SECOND_US)
        self._tell(ended.outcome, time.monotonic() - ago_s, None)
