"""A whole daemon in one process, on virtual time: real store, verbs, plans and loops, a simulated cloud.

The agents here stand at the other end of the wire: they speak ``wire/agent`` to the same verbs that the
agents' door calls. Everything of the daemon dies with ``World.die``; the database file, the cloud and the
agents live on, as they would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from sky.domain.errors import SkyError
from sky.domain.snapshots import NodeCase
from sky.kit import codec
from sky.kit.clock import ManualClock, SteadyClock
from sky.providers.base import AgentSetup, Context, LaunchOrder, Machine
from sky.providers.fake.cloud import FakeCloud, Pace
from sky.providers.fake.provider import kind_of
from sky.providers.registry import Registry
from sky.reconcile import wakes
from sky.reconcile.pool import RowPool
from sky.reconcile.runner import Runner
from sky.server import wiring
from sky.store import blobs
from sky.store.db import Database
from sky.store.migrate import upgrade
from sky.store.schema import computes, events, executions, nodes, tasks
from sky.store.tx import Tx
from sky.verbs import functions, mailbox, providers, reports
from sky.wire import agent as wire
from sky.wire import v1

T = TypeVar("T")
FUNCTION = b"a function, unread by anybody but a worker"
FUNCTION_SHA = codec.sha256_hex(FUNCTION)


class SimAgent:
    """An agent that runs what it is given at once, once per execution, and reports until it is heard.

    ``answer`` decides each outcome; None keeps the execution running.
    """

    def __init__(self, node_id: str, world: World) -> None:
        self.node_id = node_id
        self.world = world
        self.boot = f"boot-{node_id}"
        self.connected_to: Database | None = None
        self.stopped = False
        self.reachable = True
        self.number = 0
        self.known: dict[str, wire.WorkItem] = {}
        self.running: dict[str, wire.WorkItem] = {}
        self.unheard: list[wire.Outcome] = []
        self.cancelled: set[str] = set()

    async def turn(self) -> bool:
        """One exchange with the daemon; True when anything was said."""
        if self.stopped or not self.reachable:
            return False
        if self.connected_to is not self.world.db and not await self._hello():
            return False
        mail = await self.world.db.write(lambda tx: mailbox.mailbox(tx, self.node_id, frozenset(self.known)))
        if mail.stop is not None:
            self.stopped = True
            return False
        for item in mail.work:
            if item.execution not in self.known:
                self.known[item.execution] = item
                self.running[item.execution] = item
                self.world.ran[item.execution] = self.world.ran.get(item.execution, 0) + 1
        for execution in mail.cancel:
            if self.running.pop(execution, None) is not None:
                self.unheard.append(
                    wire.Outcome(execution=execution, state="cancelled", seconds=0.0, ago_s=0.0)
                )
        for execution, item in list(self.running.items()):
            outcome = self.world.answer(item)
            if outcome is not None:
                del self.running[execution]
                self.unheard.append(outcome)
        if not self.unheard:
            return bool(mail.work or mail.cancel)
        report = wire.Report(number=self.number + 1, outcomes=tuple(self.unheard))
        await self.world.db.write(lambda tx: reports.record(tx, self.node_id, report))
        self.number += 1
        self.unheard = []
        return True

    async def _hello(self) -> bool:
        said = wire.Hello(
            protocol=wire.PROTOCOL,
            boot=self.boot,
            pid=1,
            python="3.11",
            release="0",
            slots=self.world.slots,
            window=self.world.slots,
            ready=True,
            known=tuple(self.known),
        )
        try:
            welcome = await self.world.db.write(lambda tx: reports.hello(tx, self.node_id, said))
        except SkyError as refused:
            self.stopped = refused.status == 403
            return False
        self.number = max(self.number, welcome.heard)
        self.connected_to = self.world.db
        return True

    async def ping(self) -> None:
        """Say that it is still there."""
        if self.connected_to is self.world.db and self.reachable and not self.stopped:
            await self.world.db.write(lambda tx: reports.seen(tx, self.node_id, self.world.slots))


def succeed(item: wire.WorkItem) -> wire.Outcome | None:
    """The usual answer: the arguments come back as the result."""
    result = b"ran:" + (item.args or b"")
    return wire.Outcome(execution=item.execution, state="succeeded", seconds=0.01, ago_s=0.0, result=result)


@cache
def _template() -> bytes:
    """The file of a database with the newest schema and nothing in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        upgrade(f"sqlite:///{path}")
        return path.read_bytes()


def _empty_database(path: Path) -> None:
    path.write_bytes(_template())


class World:
    """One daemon over a file, a cloud, and the agents on its machines."""

    def __init__(self, folder: Path, *, hints: bool = True, slots: int = 2, pace: Pace | None = None) -> None:
        self.clock = ManualClock()
        self.url = f"sqlite:///{folder / 'sky.db'}"
        self.folder = folder
        self.hints = hints
        self.slots = slots
        self.answer: Callable[[wire.WorkItem], wire.Outcome | None] = succeed
        self.ran: dict[str, int] = {}
        self.agents: dict[str, SimAgent] = {}
        self.cloud = FakeCloud(self.clock, pace=pace or Pace())
        self.cloud.on_launch = self._launched
        self.cloud.on_end = self._ended
        self.registry = Registry([kind_of(self.cloud)])
        self.rules = wiring.rules_of(self.registry, lambda credentials: repr(credentials).encode())
        self._looking = sa.create_engine(self.url)
        _empty_database(folder / "sky.db")
        self.start()

    # ── the daemon's life ───────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """A new daemon process on what is there."""
        steady = SteadyClock(self.clock)
        self.db = Database(self.url, steady, wakes.keys, threaded=False)
        steady.not_before(self.query("SELECT max(at_us) FROM events")[0][0] or 0)
        pool = RowPool(self.db, self.registry, Context(self.folder, "test", steady), lambda _: {})
        self.runner: Runner = wiring.make_runner(
            self.db, steady, pool, lambda node_id: f"hash of {node_id}", self._setup, hints=self.hints
        )
        self.db.listen(lambda committed: self._wake(committed.keys))

    def _wake(self, keys: tuple[str, ...]) -> None:
        """Keys are only offered: passes run when the test drains."""
        if self.hints:
            for key in keys:
                if not key.startswith("~"):
                    self.runner.offer(key)

    def die(self) -> None:
        """The daemon is gone with everything it had in memory; another one starts."""
        self.db.close()
        self.start()

    def close(self) -> None:
        """End for good."""
        self.db.close()
        self._looking.dispose()

    def _setup(self, node_id: str, case: NodeCase) -> AgentSetup:
        return AgentSetup(
            url="http://127.0.0.1:1", token=f"token of {node_id}", spec={"rank": case.node.rank}
        )

    async def _launched(self, order: LaunchOrder, _machine: Machine) -> None:
        self.agents[order.tag] = SimAgent(order.tag, self)

    async def _ended(self, tag: str) -> None:
        if tag in self.agents:
            self.agents[tag].stopped = True

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    async def settle(self, done: Callable[[], bool] | None = None, *, seconds: float = 600.0) -> None:
        """Let daemon and agents take turns, and time pass, until ``done`` (default: nothing is due)."""
        deadline_s = self.clock.monotonic_s() + seconds
        while True:
            await self.round()
            if done is not None and done():
                return
            if done is None and not await self._anything_due():
                return
            if self.clock.monotonic_s() >= deadline_s:
                raise AssertionError(f"did not settle in {seconds} virtual seconds: {self.describe()}")
            self.clock.advance(0.5)
            for one in list(self.agents.values()):
                await one.ping()
            await self.runner.tick()

    async def round(self) -> None:
        """Turns until nobody has anything more to say now."""
        for _ in range(200):
            busy = await self.runner.drain() > 0
            for one in list(self.agents.values()):
                busy = await one.turn() or busy
            if not busy:
                return
        raise AssertionError(f"the daemon and its agents never come to rest: {self.describe()}")

    async def _anything_due(self) -> bool:
        return bool(self.query("SELECT 1 FROM passes WHERE due_us <= :now", now=self.db.clock.now_us()))

    # ── asking and looking ──────────────────────────────────────────────────────────────────────

    async def ask(self, key: str, make: Callable[[Tx], Any]) -> Any:
        """What a client asks for, with its key: repeated after a death, it is still one request."""
        return await self.db.write(lambda tx: tx.once(key, key, lambda: make(tx))[0])

    async def function(self) -> None:
        """Register the one function."""

        def verb(tx: Tx) -> None:
            blobs.store_inline(tx, [(FUNCTION_SHA, FUNCTION)])
            functions.register(tx, FUNCTION_SHA, v1.FunctionCreate(codec="cloudpickle-lz4"))

        await self.db.write(verb)

    async def provider(self) -> None:
        """Add the simulated cloud."""
        body = v1.ProviderCreate(kind="fake", name="fake")
        await self.ask("provider", lambda tx: providers.create(tx, body, self.rules))

    def query(self, sql: str, **values: Any) -> list[Any]:
        """Rows, as they are committed."""
        with self._looking.connect() as connection:
            return list(connection.execute(sa.text(sql), values))

    def rows(self, table: sa.Table) -> list[Mapping[str, Any]]:
        """All rows of a table in order."""
        with self._looking.connect() as connection:
            order = table.c.seq if "seq" in table.c else next(iter(table.c))
            return [dict(r) for r in connection.execute(sa.select(table).order_by(order)).mappings()]

    def states(self, table: sa.Table) -> list[str]:
        """The states of all rows of a table in order."""
        return [row["state"] for row in self.rows(table)]

    def describe(self) -> str:
        """Where everything stands, for a failure's message."""
        parts = [f"{t.name}: {self.states(t)}" for t in (computes, nodes, tasks, executions)]
        notes = self.query("SELECT key, due_us, decision, error FROM passes ORDER BY key")
        return "\n".join([*parts, *map(str, notes)])

    def check_books(self) -> None:
        """What must hold at every moment, whatever happened."""
        seqs = [row["seq"] for row in self.rows(events)]
        assert seqs == list(range(1, len(seqs) + 1)), "the event log has no gap"
        assert not self.cloud.duplicates(), "no machine was bought twice for one node"
        known = {row["id"] for row in self.rows(nodes)}
        assert {p.tag for p in self.cloud.purchases} <= known, "every machine belongs to a row"
        assert all(count == 1 for count in self.ran.values()), "no execution ran twice"
