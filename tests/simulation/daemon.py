"""A daemon of a simulation: the real loops, door and store; its death takes all that it has in memory.

Decides: when a daemon is dead. Never: lets a dead one write, or call out.
Follows: every task that a daemon begins is in its context, so that it can be ended with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import sqlalchemy.exc
from tests.simulation import storage
from tests.simulation.line import Line, Socket

from sky.api.agent.connect import Lines
from sky.api.gauges import Gauges
from sky.api.masking import Masking
from sky.domain.errors import SkyError
from sky.domain.snapshots import NodeCase
from sky.kit import codec, faults, supervise
from sky.kit.clock import SteadyClock
from sky.providers.base import AgentSetup, Context
from sky.reconcile import wakes
from sky.reconcile.pool import RowPool
from sky.server import wiring
from sky.store.commits import Committed
from sky.store.db import Database
from sky.store.events import Hub, last_at_us
from sky.store.rows import providers
from sky.store.tx import Tx
from sky.verbs.job_steps import JobRules

if TYPE_CHECKING:
    from tests.simulation.world import World

HERE: contextvars.ContextVar[Daemon | None] = contextvars.ContextVar("daemon", default=None)
FORGETS = 0.1
"""How many of the daemons that start look for what is old, which costs more than all else at a start."""
NOT_NOW = (
    (sqlite3.SQLITE_BUSY, "database is locked"),
    (sqlite3.SQLITE_FULL, "database or disk is full"),
)


def token_of(node_id: str) -> str:
    """What an agent brings."""
    return f"token of {node_id}"


class Daemon:
    """One of the daemons on the world's database."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.alive = False
        self.doom: int | None = None
        """It dies at the point that it passes after so many others."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._lines: list[Line] = []
        self._dead: Database | None = None
        """What a dead one had open, until it is let go of."""

    # ── its life ────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """A new process on what is there."""
        world = self.world
        self._bury()
        self.alive, self.doom = True, None
        self._context = contextvars.copy_context()
        self._context.run(HERE.set, self)
        clock = world.agreed if world.shared else SteadyClock(world.clock)
        world.clock_is_believed |= world.clock_was_set and not world.shared
        self.db = Database(world.storage.of(self.number), clock, wakes.keys, threaded=False)
        clock.not_before(self.db._read_here(last_at_us))
        pool = RowPool(self.db, world.registry, Context(world.folder, "test", clock), lambda _: {})
        self.runner = wiring.make_runner(
            self.db,
            clock,
            pool,
            lambda node_id: codec.sha256_hex(token_of(node_id).encode()),
            _setup,
            holder=f"daemon-{self.number}",
            shared=world.shared,
            jobs=JobRules(world.rules, lambda job_id: f"token of {job_id}", host_jobs=True),
        )
        self.db.listen(self._committed)
        self._door = Lines()
        self._unit: Any = SimpleNamespace(
            db=self.db, clock=clock, gauges=Gauges(), hub=Hub(), masking=Masking()
        )
        self.spawn(self._serve())

    async def _serve(self) -> None:
        forgets = self.world.chance(FORGETS)
        try:
            await self.db.write(lambda tx: _look_around(tx, forgets=forgets))
        except SkyError as error:
            self.kill(f"it could not start: {error.message}")
            return
        await supervise.forever("loops", self.runner.run_forever)

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Do something in this daemon."""
        return self.world.loop.create_task(work, context=self._context.copy())

    def began(self, task: asyncio.Task[Any]) -> None:
        """A task of this daemon exists."""
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and isinstance(task._exception, faults.Died):
            task.exception()  # is known; what else nobody asks for is told to the loop (World.broke)

    def kill(self, why: str, again_s: float | None = None) -> None:
        """As ``kill -9`` does. It starts again after ``again_s``, or some time."""
        if not self.alive:
            return
        self.alive = False
        self.world.say(f"daemon {self.number} died: {why}")
        self.db._closed = True
        self._dead = self.db
        self.world.loop.call_soon(self._bury)
        if again_s is None:
            again_s = self.world.random.choice((0.1, 1.0, 10.0, 60.0))
        self.world.loop.call_later(again_s, self.revive, context=self.world.nowhere)

    def revive(self) -> None:
        """Whoever looks after daemons starts it again."""
        if not self.alive and not self.world.loop.is_closed():
            self.start()

    def end(self) -> None:
        """The history is over."""
        self._bury()
        if self.alive:
            storage.let_go(self.db)

    def _bury(self) -> None:
        dead, self._dead = self._dead, None
        if dead is None:
            return
        for task in list(self._tasks):
            task.cancel()
        for line in self._lines:
            line.break_off()
        self._lines.clear()
        storage.let_go(dead)

    # ── who calls, and who is told ──────────────────────────────────────────────────────────────

    async def ask(self, verb: Callable[[Tx], Any]) -> Any:
        """What a request does here. Raises Died when nobody will answer any more."""
        task = self.spawn(_refusable(self.db, verb))
        try:
            answer = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                raise
            raise faults.Died("while it was asked") from None
        if isinstance(answer, SkyError):
            raise answer
        return answer[0]

    def serve(self, line: Line, node_id: str) -> None:
        """An agent dials."""
        self._lines = [one for one in self._lines if not one.daemon_gone]
        self._lines.append(line)
        socket: Any = Socket(line, self._unit, node_id, token_of(node_id))
        self.spawn(self._talk(socket, line))

    async def _talk(self, socket: Any, line: Line) -> None:
        try:
            await self._door.serve(self._unit, socket)
        finally:
            line.break_off()

    def _committed(self, committed: Committed) -> None:
        if self.alive:
            self.runner.wake(committed.keys)
            self.world.committed(self, committed)
            for event in committed.events:
                if event.name == "node.lost" and event.node_id is not None:
                    self.world.lost(event.node_id)

    def hear(self, keys: tuple[str, ...]) -> None:
        """Another daemon has committed: whoever is attended here is given what concerns it."""
        mine = [key for key in keys if key in self.db._attended] if self.alive else []
        if mine:
            self.spawn(_refusable(self.db, lambda tx: [tx.signal(key[1:]) for key in mine]))


async def _refusable(db: Database, verb: Callable[[Tx], Any]) -> Any:
    try:
        return (await db.write(verb),)
    except SkyError as refused:
        return refused


def _look_around(tx: Tx, *, forgets: bool) -> None:
    if forgets:
        tx.touch("forget/old")
    for provider_id in providers.ids(tx.connection):
        tx.touch(f"sweep/{provider_id}")


def _setup(node_id: str, _case: NodeCase) -> AgentSetup:
    return AgentSetup(url="http://127.0.0.1:1", token=token_of(node_id), spec={})


def at_point(name: str) -> None:
    """A daemon passes a marked point: here it may die, or its disk may fail it."""
    here = HERE.get()
    if here is None:
        return
    if not here.alive:
        raise faults.Died(name)
    if here.doom is not None:
        here.doom -= 1
        if here.doom < 0:
            here.kill(name)
            raise faults.Died(name)
    world = here.world
    if name == "before commit" and world.chance(world.faults.disk):
        world.failed_s = world.loop.time()
        code, text = world.random.choice(NOT_NOW)
        failed = sqlite3.OperationalError(text)
        failed.sqlite_errorcode = code
        raise sqlalchemy.exc.OperationalError("COMMIT", {}, failed)
