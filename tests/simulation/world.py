"""Several daemons on one database, a cloud, and the agents on its machines, in one process on virtual time.

Decides: what exists, and what the network and the disks do at a moment. Never: what is asked for, or what
must hold. Follows: the database's file, the cloud and the agents outlive every daemon.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation import storage
from tests.simulation.agent import SimAgent, Truth
from tests.simulation.cloud import kind_of
from tests.simulation.daemon import HERE, Daemon
from tests.simulation.virtual import VirtualLoop

from sky.domain.errors import Busy, StorageFull
from sky.kit.clock import ManualClock, SteadyClock
from sky.providers.base import LaunchOrder, Machine
from sky.providers.fake.cloud import FakeCloud, Pace, fake_offer, regions
from sky.providers.registry import Registry
from sky.server import wiring
from sky.store.commits import Committed
from sky.wire import agent as wire

Call = tuple[str, str]
CLAIM_S = 30.0
Answer = tuple[float, wire.Outcome]


class Violation(AssertionError):
    """Something that was promised does not hold."""


@dataclass(slots=True)
class Faults:
    """Chances from 0 to 1; all 0 is a world in which everything is well."""

    disk: float = 0.0
    repeats: float = 0.0
    slow_line: float = 0.0
    slow_call: float = 0.0
    lost_wake: float = 0.0


class Elsewhere:
    """The clock of the cloud, which nobody here can set."""

    def __init__(self, here: ManualClock) -> None:
        self._here = here
        self._start_us = here.now_us()

    def now_us(self) -> int:
        return self._start_us + round(self._here.monotonic_s() * 1_000_000)

    def monotonic_s(self) -> float:
        return self._here.monotonic_s()


class World:
    """What is there. ``told`` is what happened, for whoever reads a failure."""

    def __init__(self, folder: Path, chance: random.Random, daemons: int, *, postgresql: bool) -> None:
        self.folder = folder
        self.random = chance
        self.clock = ManualClock()
        self.agreed = SteadyClock(self.clock)
        """What daemons that share a database go by."""
        self.loop = VirtualLoop(self.clock)
        self.loop.set_task_factory(_task)
        self.loop.set_exception_handler(self._broke)
        self.nowhere = contextvars.copy_context()
        self.storage = storage.begin(postgresql=postgresql)
        self.faults = Faults()
        self.leases_s: tuple[int, ...] = (60, 600)
        self.slots, self.spare = chance.randint(1, 3), chance.choice((0, 0, 2))
        self.shared = daemons > 1
        self.told: list[str] = []
        self.truth: dict[str, Truth] = {}
        self.agents: dict[str, SimAgent] = {}
        self.answer: Callable[[wire.WorkItem], Answer] = _succeed
        self.violations: list[str] = []
        self.failed_s = -CLAIM_S
        self.clock_was_set = False
        self.clock_is_believed = False
        """A daemon began after the clock was set, as on a computer that was started anew: it cannot know."""
        self._under_way: dict[Call, tuple[Daemon | None, float]] = {}
        pace = Pace(
            boot_s=chance.choice((0.0, 3.0, 20.0)),
            list_after_s=chance.choice((0.0, 0.0, 5.0, 30.0)),
            end_s=chance.choice((0.0, 2.0, 20.0)),
        )
        self.cloud = FakeCloud(Elsewhere(self.clock), pace=pace)
        self.cloud.offers = regions(fake_offer(spot_micro=10), ["north", "south"])
        self.cloud.on_launch = self._launched
        self.cloud.on_end = self._ended
        self.registry = Registry([kind_of(self)])
        self.rules = wiring.rules_of(self.registry, lambda credentials: repr(credentials).encode())
        self.daemons = [Daemon(self, number) for number in range(daemons)]

    def close(self) -> None:
        """End for good."""
        for daemon in self.daemons:
            daemon.end()

    # ── chance ──────────────────────────────────────────────────────────────────────────────────

    def chance(self, share: float) -> bool:
        """Whether something happens that happens in so many of all cases."""
        return share > 0 and self.random.random() < share

    def delay_s(self) -> float:
        """How long a message of a connection is on its way."""
        return self.random.choice((0.05, 0.5, 2.0)) if self.chance(self.faults.slow_line) else 0.0

    def call_s(self) -> float:
        """How long a call to the cloud is on its way, in one direction."""
        if self.chance(self.faults.slow_call):
            return self.random.choice((0.1, 1.0, 5.0, 30.0, 130.0))
        return 0.0

    # ── what happens to it ──────────────────────────────────────────────────────────────────────

    def say(self, what: str) -> None:
        """Note what happened."""
        self.told.append(f"{self.clock.monotonic_s():9.2f}  {what}")

    def wrong(self, what: str) -> None:
        """Something does not hold; the history ends with it."""
        self.violations.append(what)

    def _broke(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task ended with an error that nobody asked for, or a timer raised."""
        error = context.get("exception")
        if error is not None and not isinstance(error, Busy | StorageFull):
            self.wrong(f"{context['message']}: {type(error).__name__}: {error}")

    def committed(self, by: Daemon, committed: Committed) -> None:
        """Tell the other daemons, unless that is lost."""
        keys = tuple(key for key in committed.keys if key.startswith("~"))
        for other in self.daemons if keys and self.shared else ():
            if other is not by and other.alive and not self.chance(self.faults.lost_wake):
                self.loop.call_soon(other.hear, keys, context=self.nowhere)

    def calls(self, by: Daemon | None, call: Call) -> None:
        """A daemon begins a call that changes something: no other one may be at the same, unless its claim
        could not be renewed since it began, or clocks differ."""
        other, since_s = self._under_way.get(call, (None, 0.0))
        sure = since_s - self.failed_s > CLAIM_S and not self.clock_was_set
        if other is not None and other is not by and other.alive and sure:
            self.wrong(f"daemons {other.number} and {by and by.number} are both at {call}")
        self._under_way[call] = by, self.loop.time()

    def called(self, call: Call) -> None:
        """That call has its answer."""
        self._under_way.pop(call, None)

    def lost(self, node_id: str) -> None:
        """A node was written down as lost: that is for good, so its agent must be no more by then."""
        one = self.agents.get(node_id)
        if one is not None and one.served and not one.over:
            self.wrong(f"{node_id} is called lost, and its agent is there and may run anything")

    def begins(self, truth: Truth) -> None:
        """An agent begins an execution."""
        if truth.execution in self.truth:
            self.wrong(f"execution {truth.execution} was begun a second time")
        self.truth[truth.execution] = truth

    async def _launched(self, order: LaunchOrder, _machine: Machine) -> None:
        self.agents[order.tag] = one = SimAgent(self, order.tag, order.ttl_seconds)
        self.loop.call_later(self.cloud.pace.boot_s, one.start, context=self.nowhere)

    async def _ended(self, tag: str) -> None:
        agent = self.agents.get(tag)
        if agent is not None and not self.cloud.pace.end_s:
            self.nowhere.copy().run(agent.die)  # by now the cloud says that its machine is gone
        elif agent is not None:
            self.loop.call_later(self.cloud.pace.end_s, agent.die, context=self.nowhere)

    def live_agents(self) -> list[SimAgent]:
        """Those whose machine is there."""
        return [one for one in self.agents.values() if not one.over]

    # ── what can be seen from outside ───────────────────────────────────────────────────────────

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Rows, as they are committed."""
        return self.storage.query(sql, values)


def _task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    """A task, known to the daemon that it belongs to."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
    context = more.get("context")
    here = HERE.get() if context is None else context.get(HERE)
    if here is not None:
        here.began(task)
    return task


def _succeed(item: wire.WorkItem) -> Answer:
    result = b"ran:" + (item.args or b"")
    return 0.0, wire.Outcome(
        execution=item.execution, state="succeeded", seconds=0.0, ago_s=0.0, result=result
    )
