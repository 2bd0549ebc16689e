"""One random history: clients that ask, agents and clouds that fail, daemons that die, clocks that are set.

Decides: what happens next, from a seed alone, and what must hold after every step and at the end.
Never: reads the real clock or any other chance, so that a seed tells the same history every time.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.flows.world import FUNCTION_SHA, World, succeed

from sky.domain import task as t
from sky.domain.errors import SkyError
from sky.kit import faults, ids
from sky.providers.fake.cloud import Pace, fake_offer, regions
from sky.providers.fake.trouble import Chaos, Refuse
from sky.store.schema import computes, executions, nodes, tasks
from sky.store.tx import Tx
from sky.verbs import computes as compute_verbs
from sky.verbs import tasks as task_verbs
from sky.wire import agent as wire
from sky.wire import v1

STEPS = 30
HEAL_S = 5_000.0
STATES: tuple[wire.OutcomeState, ...] = ("succeeded", "succeeded", "succeeded", "failed", "indeterminate")


class History:
    """A world and the chance that drives it. ``log`` is what happened, for whoever reads a failure."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.numbers = random.Random(seed + 1)
        self.log: list[str] = []
        self.asked = 0
        self.over: dict[str, tuple[Any, ...]] = {}
        self.retried: dict[str, int] = {}
        self.accepted: set[str] = set()
        draw = self.random
        pace = Pace(
            boot_s=draw.choice((0.0, 3.0, 20.0)),
            list_after_s=draw.choice((0.0, 0.0, 5.0, 30.0)),
            end_s=draw.choice((0.0, 2.0, 20.0)),
        )
        self.world = World(folder, hints=draw.random() < 0.7, slots=draw.randint(1, 3), pace=pace)
        self.world.cloud.offers = regions(fake_offer(spot_micro=10), ["north", "south"])
        self.world.cloud.chaos = Chaos(seed=seed, again=draw.choice((0.0, 0.2)), lose=draw.choice((0.0, 0.2)))
        self.world.cloud.__post_init__()
        self.world.answer = self._answer

    async def tell(self) -> None:
        """The whole history, and what must hold at its end."""
        with ids.numbered(lambda: self.numbers.getrandbits(128)):
            await self._do("begin", self._begin)
            for number in range(STEPS):
                name, act = self._choose()
                if self.random.random() < 0.12:
                    faults.arm(self.random.randint(0, 25))
                await self._do(name, act)
                await self._do("live", self._live)
                faults.disarm()
                if number % 3 == 0:
                    self._check()
            await self._heal()
        self.world.check_books()
        self.world.close()

    # ── what happens ────────────────────────────────────────────────────────────────────────────

    def _choose(self) -> tuple[str, Callable[[], Awaitable[None]]]:
        acts: tuple[tuple[int, str, Callable[[], Awaitable[None]]], ...] = (
            (8, "call", self._call),
            (3, "batch", self._batch),
            (3, "cancel", self._cancel),
            (2, "retry", self._retry),
            (2, "resize", self._resize),
            (1, "generation", self._generation),
            (1, "want otherwise", self._change),
            (1, "another compute", self._another),
            (1, "delete", self._delete),
            (1, "delete a node", self._delete_node),
            (2, "claim", self._claim),
            (4, "an agent fails", self._agent_fails),
            (1, "an agent heals", self._agent_heals),
            (2, "a machine is taken", self._machine_goes),
            (2, "the cloud fails", self._cloud_fails),
            (1, "the daemon dies", self._die),
            (1, "the clock is set", self._clock),
        )
        _, name, act = self.random.choices(acts, [weight for weight, _, _ in acts])[0]
        return name, act

    async def _do(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        """One act; a death in it is followed by a new daemon, a refusal is an answer like any other."""
        try:
            await act()
            self.log.append(name)
        except faults.Died as died:
            self.world.die()
            self.log.append(f"{name}; the daemon died: {died}")
        except SkyError as refused:
            self.log.append(f"{name}; refused: {refused.message}")

    async def _begin(self) -> None:
        await self.world.function()
        await self.world.provider()
        await self._another()

    async def _another(self) -> None:
        low = self.random.randint(0, 1)
        high = self.random.randint(1, 3)
        bounds = (
            v1.NodeBounds(desired=high, min=low, max=high)
            if self.random.random() < 0.4
            else v1.NodeBounds(desired=high)
        )
        self.asked += 1
        spec = v1.ComputeSpec(
            specs=(v1.Spec(provider=v1.ProviderRef(kind="fake")),),
            nodes=bounds,
            ttl=self.random.choice((60, 600)),
            delete_on_exit=self.random.random() < 0.3,
            options=v1.Options(autoscale_idle_timeout=10.0, ssh_connect_timeout=60.0),
        )
        body = v1.ComputeCreate(spec=spec, name=f"c{self.asked}")
        rules = self.world.rules
        await self._keyed(f"compute {self.asked}", lambda tx: compute_verbs.create(tx, body, rules))

    async def _live(self) -> None:
        seconds = self.random.choice((0.5, 1.0, 5.0, 5.0, 20.0, 90.0, 150.0))
        await self.world.live(seconds, step_s=max(0.5, seconds / 8))

    def _any(self, table: Any, *states: str) -> str | None:
        rows = [row["id"] for row in self.world.rows(table) if not states or row["state"] in states]
        return self.random.choice(rows) if rows else None

    async def _keyed(self, key: str, verb: Callable[[Tx], Any]) -> Any:
        """Ask with a key; a client that got no answer from a daemon that died asks again."""
        try:
            return await self.world.ask(key, verb)
        except faults.Died as died:
            self.world.die()
            self.log.append(f"asking for {key}, the daemon died: {died}")
            return await self.world.ask(key, verb)

    async def _call(self) -> None:
        compute = self._any(computes)
        if compute is None:
            return
        self.asked += 1
        body = v1.TaskCreate(
            compute=compute,
            function=FUNCTION_SHA,
            args_inline=b"%d" % self.asked,
            dispatch=self.random.choice(("one", "one", "one", "all")),
            retry=v1.RetryPolicy(
                safe_retries=self.random.randint(0, 3), ambiguous_retries=self.random.choice((0, 0, 1))
            ),
            timeout_seconds=self.random.choice((None, None, 5, 60)),
        )
        self.accepted.add(await self._keyed(f"call {self.asked}", lambda tx: task_verbs.submit(tx, body)))

    async def _batch(self) -> None:
        compute = self._any(computes)
        if compute is not None:
            self.asked += 1
            many = self.random.randint(2, 9)
            body = v1.TaskBatchCreate(
                compute=compute,
                function=FUNCTION_SHA,
                calls=tuple(v1.BatchCall(args_inline=b"b%d" % number) for number in range(many)),
                correlation_id=f"batch {self.asked}",
            )
            found = await self._keyed(f"batch {self.asked}", lambda tx: task_verbs.submit_batch(tx, body))
            self.accepted.update(found)

    async def _cancel(self) -> None:
        task = self._any(tasks, *t.UNDONE)
        if task is not None:
            await self.world.cancel(task)

    async def _retry(self) -> None:
        task = self._any(tasks, *(t.DONE - {t.SUCCEEDED}))
        if task is not None:
            await self.world.retry(task, acknowledge_duplication=self.random.random() < 0.7)

    async def _resize(self) -> None:
        compute = self._any(computes)
        if compute is not None:
            await self.world.resize(self.random.randint(1, 4), compute)

    async def _generation(self) -> None:
        compute = self._any(computes)
        if compute is not None:
            source = self.random.choice((None, None, 1))
            body = v1.GenerationCreate(source=source, force=self.random.random() < 0.5)
            rules = self.world.rules
            await self.world.db.write(
                lambda tx: compute_verbs.create_generation(tx, compute, body, None, rules)
            )

    async def _change(self) -> None:
        compute = self._any(computes)
        if compute is not None:
            wanted = v1.Image(env={"A": str(self.random.randrange(3))})
            body = v1.ComputeSpecPatch(image=wanted)
            rules = self.world.rules
            await self.world.db.write(lambda tx: compute_verbs.change(tx, compute, body, None, rules))

    async def _delete(self) -> None:
        compute = self._any(computes)
        if compute is not None:
            await self.world.delete(compute)

    async def _delete_node(self) -> None:
        node = self._any(nodes)
        if node is not None:
            compute = self.world.row(nodes, node)["compute_id"]
            force = self.random.random() < 0.5
            await self.world.db.write(lambda tx: compute_verbs.delete_node(tx, compute, node, force=force))

    async def _claim(self) -> None:
        compute = self._any(computes)
        if compute is not None:
            body = v1.LeaseClaim(owner=self.random.choice(("me", "you")), ttl_seconds=30)
            await self.world.db.write(lambda tx: compute_verbs.claim_lease(tx, compute, body))

    async def _agent_fails(self) -> None:
        agents = self.world.live_agents()
        if agents:
            one = self.random.choice(agents)
            match self.random.randrange(5):
                case 0:
                    for another in agents:
                        another.reachable = another is not one and another.reachable
                case 1:
                    one.deaf = True
                case 2:
                    one.twice = True
                case 3:
                    one.connected_to = None
                case _:
                    self._start_anew(one)

    def _start_anew(self, one: Any) -> None:
        """Its process was killed: what it had begun and not finished is lost, and it says so."""
        one.boot, one.number, one.connected_to = f"{one.boot}'", 0, None
        for execution in list(one.running):
            one.end(execution, "indeterminate")

    async def _agent_heals(self) -> None:
        for one in self.world.live_agents():
            one.reachable, one.deaf, one.twice = True, False, False

    async def _machine_goes(self) -> None:
        alive = [tag for tag in self.world.cloud.alive() if tag in self.world.agents]
        if alive:
            tag = self.random.choice(alive)
            if self.random.random() < 0.5:
                await self.world.cloud.preempt(tag)
            else:
                await self.world.cloud.delete_out_of_band(tag)

    async def _cloud_fails(self) -> None:
        match self.random.randrange(4):
            case 0:
                self.world.cloud.fail_terminate(60)
            case 1:
                self.world.cloud.refuse_region("north", Refuse())
            case 2:
                for region in ("north", "south"):
                    self.world.cloud.refuse_region(region, Refuse())
            case _:
                self._cloud_heals()

    def _cloud_heals(self) -> None:
        for region in ("north", "south"):
            self.world.cloud.refuse_region(region, None)

    async def _die(self) -> None:
        self.world.die()

    async def _clock(self) -> None:
        self.world.clock.step_wall(self.random.choice((-7_200.0, 7_200.0, -1.0, 600.0)))

    def _answer(self, item: wire.WorkItem) -> wire.Outcome | None:
        if self.random.random() < 0.6:
            return None
        state = self.random.choice(STATES)
        if state == "succeeded":
            return succeed(item)
        return wire.Outcome(execution=item.execution, state=state, seconds=0.1, ago_s=0.0)

    # ── what must hold ──────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        """What is over stays as it is, unless a person wanted it tried again; and it ends once each time."""
        queued = "SELECT task_id, count(*) AS many FROM events WHERE name = 'task.queued' GROUP BY task_id"
        for row in self.world.query(queued):
            if row.many - 1 != self.retried.get(row.task_id, 0):
                self.retried[row.task_id] = row.many - 1
                self.over.pop(row.task_id, None)
        for row in self.world.rows(tasks):
            self._stays(
                row["id"], row["state"] in t.DONE, (row["state"], row["result_sha256"], row["finished_us"])
            )
        for row in self.world.rows(executions):
            self._stays(row["id"], row["state"] in t.DONE, (row["state"], row["result_sha256"], row["error"]))
        for table in (computes, nodes):
            for row in self.world.rows(table):
                self._stays(row["id"], row["state"] == "deleted", (row["state"],))
        ends = self.world.query(
            "SELECT task_id, count(*) AS many FROM events WHERE name IN ('task.succeeded', 'task.failed',"
            " 'task.cancelled', 'task.timed_out', 'task.indeterminate') GROUP BY task_id"
        )
        for row in ends:
            assert row.many <= 1 + self.retried.get(row.task_id, 0), f"{row.task_id} ended {row.many} times"
        assert {row["id"] for row in self.world.rows(tasks)} == self.accepted, "each ask is one effect"
        self._begun_as_often_as_allowed()
        self.world.check_books()

    def _begun_as_often_as_allowed(self) -> None:
        """A call that may have begun is begun again only where that was allowed."""
        place = {row["id"]: (row["task_id"], row["place"]) for row in self.world.rows(executions)}
        allowed = {row["id"]: row["ambiguous_retries"] for row in self.world.rows(tasks)}
        begun = Counter(place[execution] for execution in self.world.ran)
        for (task, _), times in begun.items():
            limit = (1 + allowed[task]) * (1 + self.retried.get(task, 0))
            assert times <= limit, f"{task} was begun {times} times, of {limit}"

    def _stays(self, key: str, over: bool, value: tuple[Any, ...]) -> None:
        if key in self.over:
            assert over, f"{key} was over, and is not any more"
            assert self.over[key] == value, f"{key} was {self.over[key]}, and is {value}"
        elif over:
            self.over[key] = value

    async def _heal(self) -> None:
        """Everything is well again: all work ends, all machines are given back."""
        world = self.world
        world.cloud.chaos = None
        self._cloud_heals()
        world.answer = succeed
        await self._agent_heals()
        await world.settle(self._all_told, seconds=HEAL_S, step_s=2.0)
        for row in world.rows(computes):
            await world.delete(row["id"])
        await world.settle(lambda: set(world.states(computes)) == {"deleted"}, seconds=HEAL_S, step_s=2.0)
        await world.settle(lambda: world.cloud.alive() == (), seconds=HEAL_S, step_s=5.0)
        self._check()

    def _all_told(self) -> bool:
        """Every call has its outcome, and no compute is on its way to anywhere."""
        done = set(self.world.states(tasks)) <= t.DONE
        return done and set(self.world.states(computes)) <= {"ready", "failed", "deleted"}
