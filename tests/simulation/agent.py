"""An agent that keeps its promises: a journal, one numbered report at a time, an end when its lease is over.

Decides: how long a call takes and how it ends, from the history's chance. Never: begins an execution twice.
Follows: what really happened is kept in ``Truth``, where no daemon can see it, for the checks to compare.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from tests.simulation.line import Line

from sky.wire import agent as wire

if TYPE_CHECKING:
    from tests.simulation.world import World

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[wire.FromDaemon] = msgspec.msgpack.Decoder(wire.FromDaemon)
REFUSED, OVER = 4403, 4000 + 403
LOST_S = 12.0
RETRY_S = (0.2, 1.0, 5.0)
STOP_S = 0.2


@dataclass(slots=True)
class Truth:
    """What really became of an execution. ``ended``: how, or ``lost`` with its machine or process."""

    execution: str
    task: str
    node: str
    begun_s: float
    ended: str | None = None
    ended_s: float | None = None
    result: bytes | None = None


class SimAgent:
    """One machine's agent. Everything it does is a timer; it dies with its machine."""

    def __init__(self, world: World, node_id: str, first_lease_s: float) -> None:
        self.world = world
        self.node_id = node_id
        self.boots = 1
        self.over = False
        self.cut = False
        self.deaf = False
        self.ended_itself = False
        self.served = False
        """Whether a daemon has welcomed this process: before, it has nothing that it could run."""
        self.daemon: Any = None
        self.line: Line | None = None
        self._loop = world.loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._heard_s = self._begun_line_s = self._loop.time()
        self._welcomed = False
        self._lease_s = first_lease_s
        self._ping_s = 4.0
        self._failures = 0
        self._refused = 0
        self.journal: dict[str, wire.Outcome | None] = {}
        self._forget()

    def _forget(self) -> None:
        """What a process has in memory."""
        self.queue: deque[wire.WorkItem] = deque()
        self.running: dict[str, wire.WorkItem] = {}
        self.unheard: deque[wire.Outcome] = deque()
        self.begun: list[str] = []
        self._number = 0
        self._sent: wire.Report | None = None

    @property
    def boot(self) -> str:
        return f"{self.node_id}.{self.boots}"

    # ── its life ────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """The machine is up."""
        if not self.over:
            self._watch()
            self._connect()

    def restart(self) -> None:
        """Its process is killed, and another one begins with what the disk has."""
        if self.over:
            return
        self._hang_up()
        for execution in list(self.running):
            self._ends(execution, "lost")
        self._forget()
        self.served = False
        self.boots += 1
        for execution, outcome in self.journal.items():
            lost = wire.Outcome(execution=execution, state="indeterminate", seconds=0.0, ago_s=0.0)
            self.journal[execution] = outcome or lost
            self.unheard.append(outcome or lost)
        self._after("connect", self.world.random.choice(RETRY_S), self._connect)

    def die(self) -> None:
        """The machine is gone."""
        if not self.over:
            self.over = True
            for execution in list(self.running):
                self._ends(execution, "lost")
            self._hang_up()
            for timer in self._timers.values():
                timer.cancel()
            self._timers.clear()

    def part(self, *, cut: bool) -> None:
        """The network between it and every daemon breaks, or is mended."""
        self.cut = cut
        if self.line is not None:
            if cut:
                self.line.cut = True
            else:
                self.line.heal()

    def _after(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        old = self._timers.pop(name, None)
        if old is not None:
            old.cancel()
        if not self.over:
            self._timers[name] = self._loop.call_later(seconds, act)

    def _watch(self) -> None:
        """End itself when no daemon was heard for as long as the lease."""
        left_s = self._lease_s - (self._loop.time() - self._heard_s)
        if self._lease_s and left_s < 0:
            self.ended_itself = True
            self.die()
        else:
            self._after("lease", max(0.0, left_s) + 0.01 if self._lease_s else 60.0, self._watch)

    # ── its line ────────────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        if self.over:
            return
        self._hang_up()
        there = [] if self.cut else [daemon for daemon in self.world.daemons if daemon.alive]
        if not there:
            self._again()
            return
        self.daemon = self.world.random.choice(there)
        line = self.line = Line(self._loop, self.world.delay_s(), self._hear, self._lost)
        self._begun_line_s = self._loop.time()
        self.daemon.serve(line, self.node_id)
        known = (*self.journal, *(item.execution for item in self.queue))
        slots = self.world.slots
        self._say(
            wire.Hello(
                protocol=wire.PROTOCOL,
                boot=self.boot,
                pid=1,
                python="3.11",
                release="0",
                slots=slots,
                window=slots + self.world.spare,
                ready=True,
                known=known,
            )
        )
        self._after("ping", LOST_S, self._ping)

    def _again(self) -> None:
        self._failures = min(self._failures + 1, len(RETRY_S))
        self._after("connect", RETRY_S[self._failures - 1], self._connect)

    def _hang_up(self) -> None:
        if self.line is not None:
            self.line.leave()
            self.line = None
        self._welcomed = False

    def _lost(self, code: int) -> None:
        self.line, self._welcomed = None, False
        self._refused = self._refused + 1 if code in (REFUSED, OVER) else 0
        if self._refused >= 2:
            self.die()
        elif not self.over:
            self._again()

    def _say(self, message: wire.FromAgent) -> None:
        if self.line is not None:
            self.line.say(_encoder.encode(message))

    def _ping(self) -> None:
        silent_s = self._loop.time() - max(self._heard_s, self._begun_line_s)
        if silent_s >= LOST_S:
            self._connect()
        else:
            if self._welcomed:
                self._say(wire.Ping(window=self.world.slots + self.world.spare))
            self._after("ping", self._ping_s, self._ping)

    def _hear(self, content: bytes) -> None:
        if self.over:
            return
        self._heard_s = self._loop.time()
        match _decoder.decode(content):
            case wire.Welcome() as welcome:
                self._lease_s, self._ping_s = welcome.lease_seconds, welcome.ping_seconds
                self._welcomed, self.served = True, True
                self._failures = self._refused = 0
                self._watch()
                self._ping()
                self._was_heard(welcome.heard)
                self._send()
                self._report()
            case wire.Work(items=items):
                self._take(items)
            case wire.Cancel(executions=executions):
                for execution in executions:
                    self._stop(execution)
            case wire.Heard(number=number):
                self._was_heard(number)
            case wire.Stop():
                self.die()
            case _:
                pass

    # ── what it says ────────────────────────────────────────────────────────────────────────────

    def _report(self) -> None:
        if self._sent is not None or not self._welcomed or not (self.unheard or self.begun):
            return
        self._number += 1
        started = tuple(wire.Started(execution=x, ago_s=0.0) for x in self.begun)
        self._sent = wire.Report(number=self._number, started=started, outcomes=tuple(self.unheard))
        self.unheard.clear()
        self.begun = []
        self._send()
        if self.line is not None and self.world.chance(self.world.faults.repeats):
            self._send()

    def _send(self) -> None:
        """Say the report that was not heard yet: how long ago something was, it is by now."""
        report = self._sent
        if report is None:
            return
        at = [wire.Started(execution=x.execution, ago_s=self._ago_s(x.execution)) for x in report.started]
        ends = [
            msgspec.structs.replace(x, ago_s=self._ago_s(x.execution, ended=True)) for x in report.outcomes
        ]
        self._say(wire.Report(number=report.number, started=tuple(at), outcomes=tuple(ends)))

    def _ago_s(self, execution: str, *, ended: bool = False) -> float:
        truth = self.world.truth.get(execution)
        at_s = None if truth is None else truth.ended_s if ended else truth.begun_s
        return 0.0 if at_s is None else self._loop.time() - at_s

    def _was_heard(self, number: int) -> None:
        if self._sent is not None and number >= self._sent.number:
            for outcome in self._sent.outcomes:
                self.journal.pop(outcome.execution, None)
            self._sent = None
            self._report()

    # ── what it does ────────────────────────────────────────────────────────────────────────────

    def _take(self, items: tuple[wire.WorkItem, ...]) -> None:
        for item in items:
            known = item.execution in self.journal or any(x.execution == item.execution for x in self.queue)
            if not known:
                self.queue.append(item)
        self._work()

    def _work(self) -> None:
        while self.queue and len(self.running) < self.world.slots and not self.over:
            item = self.queue.popleft()
            self.journal[item.execution] = None
            self.running[item.execution] = item
            self.begun.append(item.execution)
            self.world.begins(Truth(item.execution, item.task, self.node_id, self._loop.time()))
            seconds, outcome = self.world.answer(item)
            if item.timeout_s is not None and item.timeout_s < seconds:
                seconds, outcome = (
                    item.timeout_s,
                    wire.Outcome(
                        execution=item.execution, state="timed_out", seconds=item.timeout_s, ago_s=0.0
                    ),
                )
            self._after(item.execution, seconds, lambda outcome=outcome: self._done(outcome))
        self._report()

    def _done(self, outcome: wire.Outcome) -> None:
        if outcome.execution in self.running:
            self._ends(outcome.execution, outcome.state, outcome.result)
            truth = self.world.truth[outcome.execution]
            seconds = self._loop.time() - truth.begun_s
            self._tells(msgspec.structs.replace(outcome, seconds=seconds))
            self._work()

    def _tells(self, outcome: wire.Outcome) -> None:
        self.journal[outcome.execution] = outcome
        self.unheard.append(outcome)
        self._report()

    def _stop(self, execution: str) -> None:
        if self.deaf:
            return
        cancelled = wire.Outcome(execution=execution, state="cancelled", seconds=0.0, ago_s=0.0)
        if execution in self.running:
            self._after(execution, STOP_S, lambda: self._done(cancelled))
        elif execution not in self.journal:
            self.queue = deque(item for item in self.queue if item.execution != execution)
            self._tells(cancelled)

    def _ends(self, execution: str, how: str, result: bytes | None = None) -> None:
        self.running.pop(execution, None)
        timer = self._timers.pop(execution, None)
        if timer is not None:
            timer.cancel()
        truth = self.world.truth[execution]
        truth.ended, truth.ended_s, truth.result = how, self._loop.time(), result

    def hurry(self) -> None:
        """Whatever would run for ever ends soon."""
        for execution, item in self.running.items():
            self._after(execution, 1.0, lambda item=item: self._done(self.world.answer(item)[1]))
