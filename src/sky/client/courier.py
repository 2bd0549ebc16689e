"""Sends calls in the background and settles their futures: one thread sends, one waits for all outcomes.

Decides: how calls are grouped into requests, and how often outcomes are asked for.
Never: blocks whoever submits; runs a call twice (a batch carries its key and its bytes through every retry).
Follows: what is submitted while a request is on its way goes out together in the next one, so a single call
leaves at once and ten thousand leave in a few dozen requests; a thousand futures are one waiting request.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeVar

from sky.client import calls, flows
from sky.client.console import Console
from sky.client.errors import ApiError, DaemonUnreachable, SkyError
from sky.client.function import Settled
from sky.client.handles import Future
from sky.client.http import Http
from sky.client.outgoing import Outgoing
from sky.client.progress import Tally, sending
from sky.client.settling import Settler
from sky.wire import v1

R = TypeVar("R")

BATCH_CALLS_MAX = 500
BATCH_INLINE_BYTES_MAX = 4 * 1024 * 1024
OUTCOMES_MAX = 500
OUTCOMES_WAIT_S = 5
MANY_WAITING = 64
"""From this many open calls on, outcomes are let gather for a moment instead of fetched one by one."""
GATHER_S = 0.01
CANCEL_PATIENCE_S = 5.0
CANCELS_AT_ONCE = 16
UNENDED: tuple[v1.TaskState, ...] = ("queued", "running")


@dataclass(eq=False, slots=True)
class _Letter:
    """A call on its way out, and where its end is awaited."""

    outgoing: Outgoing
    future: Future[Any]


class Courier:
    """For one compute and one correlation id. ``close`` when nothing more is wanted."""

    def __init__(
        self,
        http: Http,
        compute: str,
        correlation: str,
        settler: Settler,
        console: Console,
        tally: Tally,
    ) -> None:
        self._http = http
        self._compute = compute
        self._correlation = correlation
        self._settler = settler
        self._console = console
        self._tally = tally
        self._ended = 0
        self._changed = threading.Condition()
        self._outbox: deque[_Letter] = deque()
        self._cancels: deque[str] = deque()
        self._doomed: set[Future[Any]] = set()
        self._waiting: dict[str, Future[Any]] = {}
        self._early: dict[str, v1.TaskOutcome] = {}
        self._cursor = 0
        self._closed = False
        self._sending: tuple[_Letter, ...] = ()
        self._threads: list[threading.Thread] = []

    # ── what callers ask for ────────────────────────────────────────────────────────────────────

    def submit(self, outgoing: Outgoing) -> Future[Any]:
        """Send a call soon; its future settles when it has ended."""
        future: Future[Any] = Future(cancel=self.cancel, abandon=self.abandon, printed=self._console)
        with self._changed:
            self._outbox.append(_Letter(outgoing, future))
            self._start()
            self._changed.notify_all()
        return future

    def cancel(self, future: Future[Any]) -> bool:
        """End a call; True when that was accepted. Asks the daemon if it has the call."""
        if self._take_back(future):
            return future.settle_cancelled()
        if not future.task:
            return True  # On its way: it is cancelled as soon as it has arrived.
        try:
            task = self._http.send(calls.cancel_task(future.task), patience_s=CANCEL_PATIENCE_S)
        except (ApiError, DaemonUnreachable):
            return False
        if task.state != "cancelled":
            return task.state in UNENDED
        with self._changed:
            self._waiting.pop(future.task, None)
        return future.settle_cancelled()

    def abandon(self, future: Future[Any]) -> None:
        """End a call without waiting for the daemon's word."""
        if self._take_back(future):
            future.settle_cancelled()
            return
        with self._changed:
            if future.task:
                self._cancels.append(future.task)
                self._start()
                self._changed.notify_all()

    @property
    def open_tasks(self) -> tuple[str, ...]:
        """Tasks that were sent and have not ended."""
        with self._changed:
            return tuple(self._waiting)

    @property
    def busy(self) -> bool:
        """Whether anything is on its way out or has not ended."""
        with self._changed:
            return bool(self._outbox or self._waiting or self._sending or self._cancels)

    def hold(self, within_s: float) -> None:
        """Send nothing more. What is still here is cancelled; what is on its way out is waited for, since
        nobody can look for it before it has arrived, and is cancelled then."""
        with self._changed:
            left = [letter.future for letter in self._outbox]
            self._outbox.clear()
            self._doomed.update(letter.future for letter in self._sending)
            self._changed.wait_for(lambda: not self._sending, within_s)
        for future in left:
            future.settle_cancelled()

    def close(self) -> None:
        """Stop; what has not ended is cancelled as far as its future is concerned."""
        with self._changed:
            self._closed = True
            left = [letter.future for letter in (*self._outbox, *self._sending)]
            left += self._waiting.values()
            self._outbox.clear()
            self._waiting.clear()
            self._changed.notify_all()
        self._tally.over()
        for future in left:
            future.settle_cancelled()

    # ── the sending thread ──────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        if self._threads:
            return
        for work, name in ((self._send_all, "sky-sender"), (self._wait_for_all, "sky-outcomes")):
            thread = threading.Thread(target=work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _take_back(self, future: Future[Any]) -> bool:
        """Whether a call was still here and now will not be sent. One on its way is cancelled on arrival."""
        with self._changed:
            for letter in self._outbox:
                if letter.future is future:
                    self._outbox.remove(letter)
                    return True
            if not future.task:
                self._doomed.add(future)
            return False

    def _send_all(self) -> None:
        try:
            while True:
                with self._changed:
                    while not (self._outbox or self._cancels or self._closed):
                        self._changed.wait()
                    if self._closed and not self._cancels:
                        return
                    # What is to end goes ahead of what is to begin, but does not keep it waiting for long.
                    cancels = self._next_cancels()
                    batch = self._next_batch() if self._outbox else ()
                    self._sending = batch
                for task in cancels:
                    self._cancel_quietly(task)
                if batch:
                    self._send(batch)
                with self._changed:
                    self._sending = ()
                    self._early.clear()
                    self._changed.notify_all()
        except BaseException as broken:
            self._fail_everything(broken)
            raise

    def _next_cancels(self) -> tuple[str, ...]:
        """Some of what is to end and, as far as is known, has not by itself."""
        found: list[str] = []
        while self._cancels and len(found) < CANCELS_AT_ONCE:
            task = self._cancels.popleft()
            if task in self._waiting:
                found.append(task)
        return tuple(found)

    def _next_batch(self) -> tuple[_Letter, ...]:
        first = self._outbox.popleft()
        batch = [first]
        size = len(first.outgoing.inline or b"")
        while self._outbox and len(batch) < BATCH_CALLS_MAX and not first.outgoing.blob:
            following = self._outbox[0].outgoing
            size += len(following.inline or b"")
            if following.kin != first.outgoing.kin or following.blob or size > BATCH_INLINE_BYTES_MAX:
                break
            batch.append(self._outbox.popleft())
        return tuple(batch)

    def _send(self, batch: tuple[_Letter, ...]) -> None:
        try:
            tasks = self._ask_for(batch)
        except SkyError as refused:
            for letter in batch:
                self._doomed.discard(letter.future)
                letter.future.settle(Settled(None, refused))
            return
        self._console.expect(*tasks)
        arrived: list[tuple[Future[Any], v1.TaskOutcome]] = []
        with self._changed:
            for letter, task in zip(batch, tasks, strict=True):
                letter.future.task = task
                outcome = self._early.pop(task, None)
                if outcome is not None:
                    arrived.append((letter.future, outcome))
                else:
                    self._waiting[task] = letter.future
                if letter.future in self._doomed:
                    self._doomed.discard(letter.future)
                    self._cancels.append(task)
            self._changed.notify_all()
        for future, outcome in arrived:
            self._settle(future, outcome)

    def _ask_for(self, batch: tuple[_Letter, ...]) -> tuple[str, ...]:
        first = batch[0].outgoing
        if len(batch) == 1:
            create = first.task(self._compute, "one", self._correlation)
            flow = flows.submit(calls.create_task(create), (first.function,), first.blobs)
            with sending(first.size, quiet=self._tally.quiet):
                return (flows.run(self._http, flow).id,)
        create = v1.TaskBatchCreate(
            compute=self._compute,
            function=first.function.sha256,
            calls=tuple(letter.outgoing.batch_call() for letter in batch),
            correlation_id=self._correlation,
            retry=first.retry,
            timeout_seconds=first.timeout_s,
        )
        flow = flows.submit(calls.create_batch(create), (first.function,))
        return flows.run(self._http, flow).tasks

    def _cancel_quietly(self, task: str) -> None:
        try:
            self._http.send(calls.cancel_task(task), patience_s=CANCEL_PATIENCE_S)
        except (ApiError, DaemonUnreachable):
            # It has ended already, or nobody is there to end it; its outcome will say.
            return

    # ── the waiting thread ──────────────────────────────────────────────────────────────────────

    def _wait_for_all(self) -> None:
        try:
            while True:
                with self._changed:
                    while not (self._waiting or self._closed):
                        if not (self._outbox or self._sending):
                            self._ended = 0
                            self._tally.over()
                        self._changed.wait()
                    if self._closed:
                        return
                    many = len(self._waiting) >= MANY_WAITING
                try:
                    arrived = self._ask_outcomes()
                except SkyError as refused:
                    self._fail_waiting(refused)
                    continue
                self._ended += arrived
                self._tally.stands(self._ended, len(self._waiting) + len(self._outbox))
                if many and arrived < OUTCOMES_MAX // 2:
                    time.sleep(GATHER_S)
        except BaseException as broken:
            self._fail_everything(broken)
            raise

    def _ask_outcomes(self) -> int:
        page = self._http.send(
            calls.outcomes(self._correlation, after=self._cursor, wait=OUTCOMES_WAIT_S, limit=OUTCOMES_MAX)
        )
        self._cursor = page.next_cursor
        if len(page.items) >= len(self._waiting):
            # Whoever is handed the last result may print it: the line must be gone by then.
            self._tally.over()
        for outcome in page.items:
            with self._changed:
                future = self._waiting.pop(outcome.task, None)
                if future is None and self._sending:
                    # It overtook the answer that names its task; a batch bounds how many can.
                    self._early[outcome.task] = outcome
            if future is not None:
                self._settle(future, outcome)
        return len(page.items)

    def _settle(self, future: Future[Any], outcome: v1.TaskOutcome) -> None:
        if outcome.state == "cancelled":
            future.console_lines = outcome.console_lines
            future.settle_cancelled()
            return
        try:
            settled = self._settler.of_outcome(outcome)
        except SkyError as refused:
            settled = Settled[Any](None, refused, outcome.task)
        future.settle(settled)

    def _fail_waiting(self, error: BaseException) -> None:
        with self._changed:
            left = list(self._waiting.values())
            self._waiting.clear()
        for future in left:
            future.settle(Settled(None, error, future.task))

    def _fail_everything(self, error: BaseException) -> None:
        with self._changed:
            left = [letter.future for letter in self._outbox]
            self._outbox.clear()
        for future in left:
            future.settle(Settled(None, error))
        self._fail_waiting(error)
