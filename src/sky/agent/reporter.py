"""Everything durable that this node says: one queue, told in numbered reports, one at a time.

Decides: what goes into the next report (as it happened, up to named sizes), and when output must wait.
Never: sends; the connection asks for the next report and says what was heard.
Follows: whatever happens while a report is on its way goes into the next, so busy nodes batch by themselves;
an outcome is never told before the lines that its call wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

import msgspec

from sky.wire.agent import ConsoleLines, Item, Outcome, Phase, Recall, Report, Started

REPORT_OUTCOMES_MAX = 1000
REPORT_CONSOLE_BYTES_MAX = 1024 * 1024
REPORT_PAYLOAD_BYTES_MAX = 4 * 1024 * 1024
"""Results, items and what is told of failures. A daemon hangs up on a message far beyond this, every time."""
SOURCE_CONSOLE_BYTES_MAX = 1024 * 1024
"""How much one source of output may have unheard before it is not read any more."""
MERGE_BYTES_MAX = 64 * 1024
AGO_SHOWN_FROM_S = 0.001

StreamName = Literal["stdout", "stderr"]
_encoder = msgspec.msgpack.Encoder()


class Source:
    """Where output comes from. ``pause`` and ``resume`` stop and start its reading."""

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self.pending_bytes = 0
        self.paused = False
        self._draining = False
        self.pause = pause
        self.resume = resume

    @property
    def overfull(self) -> bool:
        """It goes on being read though it has more than its share unheard."""
        return self._draining and self.pending_bytes > SOURCE_CONSOLE_BYTES_MAX

    def add(self, count: int) -> None:
        """So many more bytes wait to be heard."""
        self.pending_bytes += count
        if not (self.paused or self._draining) and self.pending_bytes > SOURCE_CONSOLE_BYTES_MAX:
            self.paused = True
            self.pause()

    def drain(self) -> None:
        """Read it whatever waits, because it has to end; what it says beyond its share is left out."""
        self._draining = True
        if self.paused:
            self.paused = False
            self.resume()

    def heard(self, count: int) -> None:
        """So many bytes were heard."""
        self.pending_bytes -= count
        if self.paused and self.pending_bytes < SOURCE_CONSOLE_BYTES_MAX // 2:
            self.paused = False
            self.resume()


class _Lines:
    """Output that may still grow while it waits."""

    __slots__ = ("bytes", "count", "execution", "parts", "source", "stream")

    def __init__(self, source: Source, stream: StreamName, execution: str | None) -> None:
        self.source = source
        self.stream: StreamName = stream
        self.execution = execution
        self.parts: list[str] = []
        self.bytes = 0
        self.count = 0


class _Ended:
    __slots__ = ("at_s", "outcome")

    def __init__(self, outcome: Outcome, at_s: float) -> None:
        self.outcome = outcome
        self.at_s = at_s


class _Began:
    __slots__ = ("at_s", "execution")

    def __init__(self, execution: str, at_s: float) -> None:
        self.execution = execution
        self.at_s = at_s


_Entry = _Lines | _Ended | _Began | Item | Phase


class _Draft:
    """A report being put together."""

    def __init__(self) -> None:
        self.console: list[_Lines] = []
        self.started: list[_Began] = []
        self.items: list[Item] = []
        self.outcomes: list[_Ended] = []
        self.phases: list[Phase] = []
        self._console_bytes = 0
        self._payload_bytes = 0

    def take(self, entry: _Entry) -> bool:
        """Put it in; False when there is no room for it."""
        match entry:
            case _Ended():
                size = _weight(entry.outcome)
                if len(self.outcomes) >= REPORT_OUTCOMES_MAX or not self._room(size):
                    return False
                self.outcomes.append(entry)
            case _Lines():
                if self._console_bytes and self._console_bytes + entry.bytes > REPORT_CONSOLE_BYTES_MAX:
                    return False
                self._console_bytes += entry.bytes
                self.console.append(entry)
            case Item():
                size = 0 if entry.value is None else len(entry.value)
                if len(self.items) >= REPORT_OUTCOMES_MAX or not self._room(size):
                    return False
                self.items.append(entry)
            case _Began():
                self.started.append(entry)
            case Phase():
                self.phases.append(entry)
        return True

    def _room(self, size: int) -> bool:
        if self._payload_bytes and self._payload_bytes + size > REPORT_PAYLOAD_BYTES_MAX:
            return False
        self._payload_bytes += size
        return True


def _weight(outcome: Outcome) -> int:
    """Bytes of an outcome that matter: what it brings, and what is told of its failure."""
    brought = 0 if outcome.result is None else len(outcome.result)
    error = outcome.error
    if error is None:
        return brought
    return brought + sum(len(text.encode()) for text in (error.message, error.type, error.traceback))


class _Sent:
    """The report that is on its way."""

    def __init__(self, number: int, content: bytes, draft: _Draft) -> None:
        self.number = number
        self.content = content
        self.executions = [ended.outcome.execution for ended in draft.outcomes]
        self.console = [(lines.source, lines.bytes) for lines in draft.console]


class Reporter:
    """The queue. ``on_heard`` is given the executions whose outcomes a daemon has written down."""

    def __init__(self, window: Callable[[], int], on_heard: Callable[[list[str]], None]) -> None:
        self.wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._window = window
        self._on_heard = on_heard
        self._queue: deque[_Entry] = deque()
        self._number = 0
        self._sent: _Sent | None = None
        self._ready = False
        self._ready_told = False
        self._recall: Recall | None = None
        self._window_told: int | None = None

    async def settled(self, seconds_max: float) -> None:
        """Until nothing waits and nothing is on its way, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await self._settled.wait()

    def phase(self, phase: Phase) -> None:
        """A step of making the node ready."""
        self._push(phase)

    def ready(self) -> None:
        """The node takes calls from now on."""
        self._ready = True
        self.wake.set()

    def recalled(self, recall: Recall) -> None:
        """The machine is about to be taken back."""
        self._recall = recall
        self._settled.clear()
        self.wake.set()

    def started(self, execution: str, at_s: float) -> None:
        """An execution began, at this monotonic moment."""
        self._push(_Began(execution, at_s))

    def item(self, item: Item) -> None:
        """A generator yielded."""
        self._push(item)

    def outcome(self, outcome: Outcome, at_s: float) -> None:
        """An execution ended, at this monotonic moment; it is in the journal already."""
        self._push(_Ended(outcome, at_s))

    def console(
        self, source: Source, stream: StreamName, content: str, lines: int, execution: str | None
    ) -> None:
        """Whole lines were written; ``content`` ends with a newline."""
        size = len(content) if content.isascii() else len(content.encode())
        last = self._queue[-1] if self._queue else None
        if not (
            isinstance(last, _Lines)
            and last.execution == execution
            and last.stream == stream
            and last.source is source
            and last.bytes + size <= MERGE_BYTES_MAX
        ):
            last = _Lines(source, stream, execution)
            self._push(last)
        last.parts.append(content)
        last.bytes += size
        last.count += lines
        source.add(size)

    def window_changed(self) -> None:
        """The window may differ from what was told."""
        if self._window_told is not None and self._window() != self._window_told:
            self.wake.set()

    def _push(self, entry: _Entry) -> None:
        self._queue.append(entry)
        self._settled.clear()
        self.wake.set()

    def again(self) -> bytes | None:
        """The report that was sent and not heard, to be sent on a new connection."""
        return None if self._sent is None else self._sent.content

    def next(self) -> bytes | None:
        """The next report, when there is something to say and nothing is on its way."""
        if self._sent is not None:
            return None
        window = self._window()
        told = self._ready == self._ready_told and window == self._window_told and self._recall is None
        if told and not self._queue:
            return None
        draft = _Draft()
        queue = self._queue
        while queue and draft.take(queue[0]):
            queue.popleft()
        self._settled.clear()
        self._number += 1
        report = self._report(draft, window)
        self._sent = _Sent(self._number, _encoder.encode(report), draft)
        self._ready_told, self._window_told, self._recall = self._ready, window, None
        return self._sent.content

    def _report(self, draft: _Draft, window: int) -> Report:
        now = time.monotonic()
        return Report(
            number=self._number,
            ready=self._ready,
            window=None if window == self._window_told else window,
            phases=tuple(draft.phases),
            console=tuple(
                ConsoleLines(
                    stream=lines.stream,
                    content="".join(lines.parts),
                    lines=lines.count,
                    execution=lines.execution,
                )
                for lines in draft.console
            ),
            started=tuple(
                Started(execution=began.execution, ago_s=now - began.at_s) for began in draft.started
            ),
            items=tuple(draft.items),
            outcomes=tuple(_aged(ended, now) for ended in draft.outcomes),
            recall=self._recall,
        )

    def heard(self, number: int) -> None:
        """A daemon has written down every report up to ``number``."""
        sent = self._sent
        if sent is None or number < sent.number:
            return
        self._sent = None
        for source, count in sent.console:
            source.heard(count)
        if sent.executions:
            self._on_heard(sent.executions)
        if not self._queue and self._recall is None:
            self._settled.set()
        self.wake.set()


def _aged(ended: _Ended, now: float) -> Outcome:
    ago = now - ended.at_s
    return msgspec.structs.replace(ended.outcome, ago_s=ago) if ago >= AGO_SHOWN_FROM_S else ended.outcome
