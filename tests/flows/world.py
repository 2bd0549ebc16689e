"""A whole daemon in one process, on virtual time: real store, verbs, plans and loops, a simulated cloud.

The agents here stand at the other end of the wire: they speak ``wire/agent`` to the same verbs that the
agents' door calls. Everything of the daemon dies with ``World.die``; the database file, the cloud and the
agents live on, as they would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from tests.databases import fresh

from sky.console.bridge import Bridge
from sky.domain.errors import SkyError
from sky.domain.snapshots import NodeCase
from sky.kit import codec
from sky.kit.clock import ManualClock, SteadyClock
from sky.providers.base import AgentSetup, Context, LaunchOrder, Machine
from sky.providers.fake.cloud import FakeCloud, Pace
from sky.providers.fake.provider import kind_of
from sky.providers.registry import Registry
from sky.reconcile import wakes
from sky.reconcile.dispatch import Dispatch
from sky.reconcile.pool import RowPool
from sky.reconcile.requests import Requests
from sky.reconcile.runner import Runner
from sky.server import wiring
from sky.store import blobs
from sky.store.db import Database
from sky.store.schema import computes, events, executions, nodes, tasks
from sky.store.tx import Tx
from sky.store.views.errors import TOLD_AS
from sky.verbs import computes as compute_verbs
from sky.verbs import functions, mailbox, providers, reports
from sky.verbs import tasks as task_verbs
from sky.verbs.job_steps import JobRules
from sky.wire import agent as wire
from sky.wire import v1
from sky.wire.error import CODES

T = TypeVar("T")
FUNCTION = b"a function, unread by anybody but a worker"
FUNCTION_SHA = codec.sha256_hex(FUNCTION)


class SimAgent:
    """An agent that runs what it is given at once, once per execution, and reports until it is heard.

    ``World.answer`` decides each outcome; None keeps the execution running. ``deaf``: it does not stop what
    it is asked to stop. ``twice``: it says every report twice. ``reachable``: what it says arrives, and what
    it is told. It ends itself when it has heard from no daemon for as long as its lease.
    """

    def __init__(self, node_id: str, world: World) -> None:
        self.node_id = node_id
        self.world = world
        self.boot = f"boot-{node_id}"
        self.connected_to: Database | None = None
        self.stopped = False
        self.ended_itself = False
        self.reachable = True
        self.deaf = False
        self.twice = False
        self.knocked = True
        self.ready = True
        self.error: str | None = None
        self.number = 0
        self.lease_s = 0.0
        self.heard_s = world.clock.monotonic_s()
        self.place: tuple[str, int] = ("", -1)
        self.known: dict[str, wire.WorkItem] = {}
        self.running: dict[str, wire.WorkItem] = {}
        self.begun: list[str] = []
        self.unheard: list[wire.Outcome] = []
        self.said: list[wire.Report] = []

    async def turn(self) -> bool:
        """One exchange with the daemon; True when anything was said."""
        self.watch_lease()
        if self.stopped:
            return False
        self._work()
        if not self.reachable or (self.connected_to is not self.world.db and not await self._hello()):
            return False
        self.heard_s = self.world.clock.monotonic_s()
        read = await self._read() if self.knocked and self.world.mail else False
        if self.stopped or not (self.unheard or self.begun):
            return read
        report = wire.Report(
            number=self.number + 1,
            started=tuple(wire.Started(execution=x, ago_s=0.0) for x in self.begun),
            outcomes=tuple(self.unheard),
        )
        for _ in range(2 if self.twice else 1):
            await self.world.db.write(lambda tx: reports.record(tx, self.node_id, self.boot, report))
        self.said.append(report)
        self.number += 1
        self.unheard, self.begun = [], []
        return True

    async def _read(self) -> bool:
        """Read its mailbox, as happens at a knock and at every ping; True if it had anything."""
        self.knocked = False
        mail = await self.world.db.write(lambda tx: mailbox.mailbox(tx, self.node_id, frozenset(self.known)))
        if mail.stop is not None:
            self.stopped = True
            return False
        self._take(mail)
        self._work()
        return bool(mail.work or (mail.cancel and not self.deaf))

    def _open(self, tx: Tx) -> mailbox.Mail | None:
        """Its mail, in the transaction that put something in; None where it does not arrive."""
        if self.reachable and self.world.mail and not self.stopped and self.connected_to is self.world.db:
            return mailbox.mailbox(tx, self.node_id, frozenset(self.known))
        return None

    def _mailed(self, mail: mailbox.Mail | None, _error: BaseException | None) -> None:
        if mail is None:
            self.knocked = True
        elif mail.stop is not None:
            self.stopped = True
        else:
            self._take(mail)

    def _take(self, mail: mailbox.Mail) -> None:
        for item in mail.work:
            if item.execution not in self.known:
                self.known[item.execution] = item
                self.running[item.execution] = item
                self.begun.append(item.execution)
                self.world.ran[item.execution] = self.world.ran.get(item.execution, 0) + 1
                self.world.began.append((item.task, item.execution, self.node_id))
        for execution in () if self.deaf else mail.cancel:
            if execution not in self.known or self.running.pop(execution, None) is not None:
                self.known.setdefault(execution, UNSEEN)
                self.end(execution, "cancelled")

    def _work(self) -> None:
        for execution, item in list(self.running.items()):
            outcome = self.world.answer(item)
            if outcome is not None:
                del self.running[execution]
                self.unheard.append(outcome)

    def end(self, execution: str, state: wire.OutcomeState) -> None:
        """What it does with an execution is over."""
        self.running.pop(execution, None)
        self.unheard.append(wire.Outcome(execution=execution, state=state, seconds=0.0, ago_s=0.0))

    def watch_lease(self) -> None:
        """End itself when its lease is over."""
        if not self.stopped and self.lease_s and self.world.clock.monotonic_s() - self.heard_s > self.lease_s:
            self.stopped = self.ended_itself = True

    async def _hello(self) -> bool:
        said = wire.Hello(
            protocol=wire.PROTOCOL,
            boot=self.boot,
            pid=1,
            python="3.11",
            release="0",
            slots=self.world.slots,
            window=self.world.slots,
            ready=self.ready,
            known=tuple(self.known),
            error=self.error,
        )
        try:
            welcome = await self.world.db.write(lambda tx: reports.hello(tx, self.node_id, said))
        except SkyError as refused:
            self.stopped = refused.status == 403
            return False
        self.number = max(self.number, welcome.heard)
        self.lease_s = welcome.lease_seconds
        self.connected_to = self.world.db
        self.knocked = True
        if self.world.hints:
            self.world.db.attend(f"mail/{self.node_id}", self._open, self._mailed)
        self.world.watch_overlap(self)
        return True

    async def ping(self) -> None:
        """Say that it is still there."""
        self.watch_lease()
        if self.connected_to is self.world.db and self.reachable and not self.stopped:
            self.knocked = True
            self.heard_s = self.world.clock.monotonic_s()
            await self.world.db.write(lambda tx: reports.seen(tx, self.node_id, self.world.slots))


UNSEEN = wire.WorkItem(execution="", task="", ordinal=0, function="", rank=0, total=0)
"""What an agent keeps of an execution that it was asked to stop before it had it."""


def succeed(item: wire.WorkItem) -> wire.Outcome | None:
    """The usual answer: the arguments come back as the result."""
    result = b"ran:" + (item.args or b"")
    return wire.Outcome(execution=item.execution, state="succeeded", seconds=0.01, ago_s=0.0, result=result)


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
    """One daemon over a file, a cloud, and the agents on its machines."""

    def __init__(
        self,
        folder: Path,
        *,
        hints: bool = True,
        slots: int = 2,
        pace: Pace | None = None,
        bridge: Bridge | None = None,
        url: str | None = None,
    ) -> None:
        self.bridge = bridge
        self.clock = ManualClock()
        self.url = fresh(folder / "sky.db") if url is None else url
        self.folder = folder
        self.hints = hints
        self.slots = slots
        self.answer: Callable[[wire.WorkItem], wire.Outcome | None] = succeed
        self.on_agent: Callable[[SimAgent], None] = lambda _: None
        self.poisoned: set[str] = set()  # keys whose passes are expected to fail
        self.mail = True  # False: agents are there, and nothing is handed to any of them
        self.ran: dict[str, int] = {}
        self.began: list[tuple[str, str, str]] = []
        self.overlaps: list[tuple[str, str]] = []
        self.agents: dict[str, SimAgent] = {}
        self.cloud = FakeCloud(Elsewhere(self.clock), pace=pace or Pace())
        self.cloud.on_launch = self._launched
        self.cloud.on_end = self._ended
        self.registry = Registry([kind_of(self.cloud)])
        self.rules = wiring.rules_of(self.registry, lambda credentials: repr(credentials).encode())
        self._looking = sa.create_engine(self.url)
        self.start()

    # ── the daemon's life ───────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """A new daemon process on what is there."""
        steady = SteadyClock(self.clock)
        self.db = Database(self.url, steady, wakes.keys, threaded=False)
        steady.not_before(self.query("SELECT max(at_us) FROM events")[0][0] or 0)
        pool = RowPool(self.db, self.registry, Context(self.folder, "test", steady), lambda _: {})
        self.runner: Runner = wiring.make_runner(
            self.db,
            steady,
            pool,
            lambda node_id: f"hash of {node_id}",
            self._setup,
            hints=False,
            jobs=JobRules(self.rules, lambda job_id: f"token of {job_id}", host_jobs=True),
            bridge=self.bridge,
        )
        if self.hints:
            self.db.follow(frozenset({Dispatch.name, Requests.name}), self.runner.follow)
        self.db.listen(lambda committed: self._wake(committed.keys))

    def _wake(self, keys: tuple[str, ...]) -> None:
        """Keys are only offered: passes run when the test drains. The runner's own timers are off: they
        run on the real clock."""
        if self.hints:
            for key in keys:
                if not key.startswith("~"):
                    self.runner.offer(key)
                elif key.startswith("~mail/") and (one := self.agents.get(key[6:])) is not None:
                    one.knocked = True

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
        self.agents[order.tag] = one = SimAgent(order.tag, self)
        self.on_agent(one)

    async def _ended(self, tag: str) -> None:
        if tag in self.agents:
            self.agents[tag].stopped = True

    def watch_overlap(self, one: SimAgent) -> None:
        """Note when an agent calls while another one of the same rank may still be working."""
        row = self.query("SELECT compute_id, rank FROM nodes WHERE id = :id", id=one.node_id)[0]
        one.place = (row.compute_id, row.rank)
        self.overlaps.extend(
            (other.node_id, one.node_id)
            for other in self.agents.values()
            if other is not one and other.place == one.place and not other.stopped
        )

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    async def settle(
        self, done: Callable[[], bool] | None = None, *, seconds: float = 600.0, step_s: float = 0.5
    ) -> None:
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
            await self.step(step_s)

    async def step(self, seconds: float) -> None:
        """Time passes; who is there says so, and what is due is offered."""
        self.clock.advance(seconds)
        for one in list(self.agents.values()):
            await one.ping()
        await self.runner.tick()

    async def live(self, seconds: float, *, step_s: float = 1.0) -> None:
        """Let that much time pass."""
        for _ in range(round(seconds / step_s)):
            await self.step(step_s)
            await self.round()

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
        assert not self.overlaps, "no rank was at work on two machines"
        for row in self.rows(nodes):
            if not str((row["last_error"] or {}).get("message")).endswith("beyond its lease"):
                continue
            machine = self.cloud.find("test", row["id"])
            taken = machine is None or machine.reason in ("preempted", "deleted")
            assert taken or self.agents[row["id"]].ended_itself, "only a node that is over was given up"
        newest = "SELECT max(ordinal) FROM executions WHERE task_id = t.id AND place = e.place"
        disagree = self.query(
            f"SELECT t.id, t.state, e.state FROM tasks t JOIN executions e ON e.task_id = t.id"
            f" WHERE e.ordinal = ({newest}) AND (t.finished_us IS NULL) !="
            f" EXISTS (SELECT 1 FROM executions x WHERE x.task_id = t.id AND x.finished_us IS NULL)"
        )
        assert not disagree, "a task is over exactly when its attempts are"
        waits = "(state = 'created') != (node_id IS NULL AND finished_us IS NULL)"
        works = (
            "(state IN ('assigned', 'dispatching', 'accepted', 'started', 'cancel_requested'))"
            " != (node_id IS NOT NULL AND finished_us IS NULL)"
        )
        differ = self.query(f"SELECT id, state FROM executions WHERE {waits} OR {works}")
        assert not differ, "what indexes find by other columns is what the states say"
        errors = [row["error"] for row in self.rows(executions)]
        errors += [row["last_error"] for row in self.rows(nodes)]
        codes = {error["code"] for error in errors if error is not None}
        assert codes <= CODES | set(TOLD_AS), "every error has a code that is known"

    # ── what tests ask for and look at ──────────────────────────────────────────────────────────

    async def begin(self, *, name: str = "fleet", nodes: int = 1, **more: Any) -> str:
        """A function, the cloud and a compute of so many nodes; returns the compute's id."""
        await self.function()
        await self.provider()
        return await self.compute(name=name, nodes=nodes, **more)

    async def compute(self, *, name: str = "fleet", nodes: int | v1.NodeBounds = 1, **more: Any) -> str:
        """Ask for a compute; returns its id."""
        bounds = nodes if isinstance(nodes, v1.NodeBounds) else v1.NodeBounds(desired=nodes)
        spec = v1.ComputeSpec(
            **{"specs": (v1.Spec(provider=v1.ProviderRef(kind="fake")),), "nodes": bounds, **more}
        )
        body = v1.ComputeCreate(spec=spec, name=name)
        return await self.ask(f"compute {name}", lambda tx: compute_verbs.create(tx, body, self.rules))

    async def call(self, compute: str = "fleet", **more: Any) -> str:
        """Ask for a call; returns its task's id."""
        body = v1.TaskCreate(**{"compute": compute, "function": FUNCTION_SHA, "args_inline": b"x", **more})
        return await self.db.write(lambda tx: task_verbs.submit(tx, body))

    async def calls(self, count: int, compute: str = "fleet", **more: Any) -> list[str]:
        """Ask for many calls."""
        return [await self.call(compute, args_inline=b"%d" % number, **more) for number in range(count)]

    async def cancel(self, task: str) -> None:
        """Ask for a task's end."""
        await self.db.write(lambda tx: task_verbs.cancel(tx, task))

    async def retry(self, task: str, **more: Any) -> None:
        """A person's retry."""
        await self.db.write(lambda tx: task_verbs.retry(tx, task, v1.ExecutionCreate(**more)))

    async def resize(self, nodes: int | v1.NodeBounds, compute: str = "fleet") -> None:
        """Ask for another number of nodes."""
        bounds = nodes if isinstance(nodes, v1.NodeBounds) else v1.NodeBounds(desired=nodes)
        body = v1.ComputeSpecPatch(nodes=bounds)
        await self.db.write(lambda tx: compute_verbs.change(tx, compute, body, None, self.rules))

    async def delete(self, compute: str = "fleet") -> None:
        """Ask for a compute's end."""
        await self.db.write(lambda tx: compute_verbs.delete(tx, compute, None))

    def row(self, table: sa.Table, key: str) -> Mapping[str, Any]:
        """One row by id."""
        return next(row for row in self.rows(table) if row["id"] == key)

    def row_state(self, table: sa.Table, key: str) -> str:
        """The state of one row."""
        return self.query(f"SELECT state FROM {table.name} WHERE id = :id", id=key)[0].state

    def task(self, key: str) -> str:
        """The state of a task."""
        return self.row(tasks, key)["state"]

    def tries(self, task: str) -> list[Mapping[str, Any]]:
        """A task's executions in order."""
        return [row for row in self.rows(executions) if row["task_id"] == task]

    def compute_is(self, state: str, compute: str | None = None) -> Callable[[], bool]:
        """A condition for ``settle``: every compute (or one) is in that state."""
        return lambda: {r["state"] for r in self.rows(computes) if compute in (None, r["id"])} == {state}

    def task_is(self, state: str, *keys: str) -> Callable[[], bool]:
        """A condition for ``settle``: those tasks are all in that state."""
        return lambda: {self.task(key) for key in keys} == {state}

    def names(self) -> list[str]:
        """The names of all events in order."""
        return [row.name for row in self.query("SELECT name FROM events ORDER BY seq")]

    def live_agents(self) -> list[SimAgent]:
        """The agents of machines that are there, by rank."""
        found = [one for one in self.agents.values() if not one.stopped]
        return sorted(found, key=lambda one: one.place)

    def sent(self, task: str) -> Callable[[], bool]:
        """A condition for ``settle``: the task's newest execution is at an agent."""
        return lambda: self.tries(task)[-1]["id"] in self.ran


def keep_running(_item: wire.WorkItem) -> wire.Outcome | None:
    """An answer that never comes."""
    return None
