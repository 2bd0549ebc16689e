"""Everything that happens to calls while a compute is open: sending, waiting, printing, cancelling.

Decides: the way of one blocking call (two requests), of many (the courier) and of a stream.
Never: makes or ends a compute. Follows: a call that is interrupted here is cancelled there, and what was
printed on a node has been printed here before its result is returned.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from sky.client import calls, flows, outgoing
from sky.client.attempts import INTERRUPT_PATIENCE_S
from sky.client.console import Console
from sky.client.courier import UNENDED, Courier
from sky.client.errors import AccessDenied, ApiError, SkyError, TaskCancelled
from sky.client.function import Pending, Settled, require_call
from sky.client.handles import Future, in_background
from sky.client.http import Http
from sky.client.items import Items
from sky.client.progress import Tally, calling, sending
from sky.client.request import Call
from sky.client.settling import Settler
from sky.client.streaming import Source
from sky.kit.clock import SystemClock
from sky.wire import v1

R = TypeVar("R")

RESULT_WAIT_S = 30
"""How long one request waits for a result; it is asked again until there is one."""
CLEANUP_PAGE = 500
ENDS_POLL_S = 0.05

_clock = SystemClock()


class _Asked:
    """A call that one thread sends and another may cancel, perhaps before it has a task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = True
        self.task = ""

    def sent(self, task: str) -> bool:
        """It has a task now. Whether it is to be cancelled."""
        with self._lock:
            self.task = task
            return not self._wanted

    def unwanted(self) -> bool:
        """It is to be cancelled. Whether it has a task."""
        with self._lock:
            self._wanted = False
            return bool(self.task)


def take_back(http: Http, create: Call[v1.Task]) -> bool:
    """Cancel a call that was interrupted before its answer: it may be accepted already, or yet arrive.

    False: it may run all the same.
    """
    # Under its key it is the same call, asked for once more: its id is told, and no later arrival runs it.
    try:
        task = http.send(create, patience_s=INTERRUPT_PATIENCE_S).id
    except SkyError as refused:
        return _settles(refused)  # what is refused now was not accepted before
    return end(http, task, INTERRUPT_PATIENCE_S)


def end(http: Http, task: str, patience_s: float) -> bool:
    """Cancel a call, which may have ended meanwhile. False: it may go on."""
    try:
        http.send(calls.cancel_task(task), patience_s=patience_s)
    except SkyError as refused:
        return _settles(refused)
    return True


def _settles(refused: SkyError) -> bool:
    """Whether a refusal says that there is nothing to be cancelled, and not that nobody could be asked."""
    return isinstance(refused, ApiError) and not (refused.retryable or isinstance(refused, AccessDenied))


class Session:
    """Calls on one compute, from any thread of this process."""

    def __init__(self, http: Http, compute: str, console: Console, *, quiet: bool = False) -> None:
        self._http = http
        self._compute = compute
        self._console = console
        self._settler = Settler(http)
        mine = f"sdk-{secrets.token_hex(8)}"
        self._direct, self._posted = f"{mine}.direct", f"{mine}.posted"
        self._courier = Courier(http, compute, self._posted, self._settler, console, Tally(quiet=quiet))
        self._quiet = quiet
        self._interrupted = False
        self._never = threading.Event()
        self.hurried = False
        """Whether a second Ctrl-C came while the first one's call was being cancelled."""

    # ── ways to call ────────────────────────────────────────────────────────────────────────────

    def call_one(self, call: Pending[R]) -> Settled[Any]:
        """One node, wait. A generator function settles at once, with its items to come."""
        with self._calling(call):
            ready = outgoing.prepare(call)
            if ready.streams:
                return Settled(self._stream(ready), None)
            settled = self._wait(self._submit(ready, "one"))
        return self._printed(settled)

    def call_all(self, call: Pending[R]) -> Settled[Any]:
        """Every node that is ready now, wait; results by rank."""
        with self._calling(call):
            ready = outgoing.prepare(call)
            return self._all_of(ready, self._submit(ready, "all"))

    def call_all_later(self, call: Pending[R]) -> Future[Any]:
        """Every node that is ready now; a future of the results by rank."""
        ready = outgoing.prepare(call)
        asked = _Asked()

        def work() -> Settled[Any]:
            if asked.sent(self._submit(ready, "all")):
                self._cancel(asked.task)
            settled = self._all_of(ready, asked.task)
            if isinstance(settled.error, TaskCancelled):
                raise CancelledError
            return settled

        return in_background(work, lambda: self._cancel(asked.task) if asked.unwanted() else None)

    def _all_of(self, ready: outgoing.Outgoing, task: str) -> Settled[Any]:
        first = self._wait(task)
        if first.error is not None:
            return self._printed(first)
        payloads = flows.run(self._http, flows.results_by_rank(task))
        settled = self._printed(self._settler.of_payloads(payloads, task, first.console_lines))
        if ready.streams and settled.error is None:
            return Settled([iter(items) for items in settled.unwrap()], None, task)
        return settled

    def submit(self, call: Pending[R]) -> Future[Any]:
        """Send and go on. A generator function's future is the iterator over all its items."""
        ready = outgoing.prepare(call)
        future = self._courier.submit(ready)
        return future.then(iter) if ready.streams else future

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    @property
    def busy(self) -> bool:
        """Whether any call has not ended, as far as is known here."""
        return self._interrupted or self._courier.busy

    def cancel_all(self) -> None:
        """Cancel every call of this session that has not ended, also those whose answer never came."""
        self._courier.hold(INTERRUPT_PATIENCE_S)
        for correlation in (self._direct, self._posted):
            for state in UNENDED:
                for task in self._all(correlation, state):
                    self._cancel(task)

    def await_ends(self, within_s: float) -> None:
        """Wait until nothing of this session runs any more, but no longer than that."""
        until_s = _clock.monotonic_s() + within_s
        while any(True for own in (self._direct, self._posted) for _ in self._all(own, "running")):
            if _clock.monotonic_s() >= until_s:
                return
            self._never.wait(ENDS_POLL_S)

    def close(self) -> None:
        """Stop the threads; futures that have not settled are cancelled."""
        self._courier.close()
        self._console.close()

    # ── parts ───────────────────────────────────────────────────────────────────────────────────

    def _calling(self, call: Pending[Any]) -> AbstractContextManager[None]:
        return calling(require_call(call).function.name, quiet=self._quiet)

    def _submit(self, ready: outgoing.Outgoing, dispatch: v1.Dispatch) -> str:
        create = calls.create_task(ready.task(self._compute, dispatch, self._direct))
        try:
            with sending(ready.size, quiet=self._quiet):
                task = flows.run(self._http, flows.submit(create, (ready.function,), ready.blobs)).id
        except KeyboardInterrupt:
            self._interrupted = True
            try:
                take_back(self._http, create)
            except KeyboardInterrupt:
                self.hurried = True
            raise
        self._console.expect(task)
        return task

    def _wait(self, task: str) -> Settled[Any]:
        try:
            while True:
                settled = self._settler.fetch(task, RESULT_WAIT_S)
                if settled is not None:
                    return settled
        except BaseException:
            self._interrupted = True
            try:
                self._cancel(task)
            except KeyboardInterrupt:
                self.hurried = True
            raise

    def _all(self, correlation: str, state: v1.TaskState) -> Iterator[str]:
        cursor: str | None = None
        while True:
            listing = calls.list_tasks(
                cursor=cursor, limit=CLEANUP_PAGE, state=state, correlation_id=correlation
            )
            page = self._http.send(listing, patience_s=INTERRUPT_PATIENCE_S)
            yield from (task.id for task in page.items)
            cursor = page.next_cursor
            if cursor is None:
                return

    def _printed(self, settled: Settled[Any]) -> Settled[Any]:
        self._console.settle(settled.task, settled.console_lines)
        return settled

    def _stream(self, ready: outgoing.Outgoing) -> Items[Any]:
        return Source(
            self._http,
            self._settler,
            submit=lambda: self._submit(ready, "stream"),
            printed=self._console.settle,
            abandon=self._cancel,
        ).items()

    def _cancel(self, task: str) -> None:
        if not end(self._http, task, INTERRUPT_PATIENCE_S):
            # The end of the compute, or of its lease, ends it too.
            self._interrupted = True
