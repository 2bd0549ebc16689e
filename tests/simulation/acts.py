"""What may happen in a history: what people ask for, and what goes wrong.

Decides: each act's own chances. Never: when it happens. Follows: a client that got no answer asks again with
the same key, of whichever daemon is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from tests.flows.world import FUNCTION, FUNCTION_SHA
from tests.simulation.checks import Checks
from tests.simulation.world import Answer, Faults, Violation, World

from sky.domain import task as t
from sky.domain.errors import Busy, StorageFull
from sky.kit import faults
from sky.providers.fake.trouble import Chaos, Refuse
from sky.store import blobs
from sky.store.tx import Tx
from sky.verbs import computes as compute_verbs
from sky.verbs import functions, providers
from sky.verbs import tasks as task_verbs
from sky.wire import agent as wire
from sky.wire import v1

Act = Callable[[], Awaitable[None]]
ASK_AGAIN_S = 0.5
ASKED_MAX = 400
FOR_EVER_S = 1e6
OUTAGE_S = 60.0


class Clients:
    """Whoever asks, of any daemon that is there."""

    def __init__(self, world: World, checks: Checks) -> None:
        self.world = world
        self.checks = checks
        self.asked = 0

    async def ask(self, key: str, verb: Callable[[Tx], Any]) -> Any:
        """Ask with a key until there is an answer; now and then once more, for the answer was lost."""

        def once(tx: Tx) -> Any:
            return tx.once(key, key, lambda: verb(tx))[0]

        for _ in range(ASKED_MAX):
            there = [daemon for daemon in self.world.daemons if daemon.alive]
            if there:
                try:
                    answer = await self.world.random.choice(there).ask(once)
                except (faults.Died, Busy, StorageFull):
                    self.world.say(f"no answer to {key}; it is asked again")
                else:
                    first = self.checks.answers.setdefault(key, answer)
                    if first != answer:
                        self.world.wrong(f"{key} was answered with {first}, and then with {answer}")
                    if not self.world.chance(self.world.faults.repeats):
                        return answer
            await asyncio.sleep(ASK_AGAIN_S)
        raise Violation(f"{key} was asked {ASKED_MAX} times, and never answered")

    async def do(self, verb: Callable[[Tx], Any]) -> Any:
        """Ask without a key, once; nobody knows what became of it where there is no answer."""
        there = [daemon for daemon in self.world.daemons if daemon.alive]
        if not there:
            return None
        try:
            return await self.world.random.choice(there).ask(verb)
        except (faults.Died, Busy, StorageFull):
            self.world.say("no answer")
            return None

    def next(self, what: str) -> str:
        """A fresh key."""
        self.asked += 1
        return f"{what} {self.asked}"

    def any(self, table: str, where: str = "1 = 1") -> str | None:
        """The id of some row."""
        rows = self.world.query(f"SELECT id FROM {table} WHERE {where} ORDER BY seq")
        return self.world.random.choice(rows)[0] if rows else None


class Calls(Clients):
    """Face 1: computes and calls."""

    def acts(self) -> list[tuple[int, str, Act]]:
        """What may be asked for, and how often."""
        return [
            (9, "call", self.call),
            (3, "batch", self.batch),
            (3, "cancel", self.cancel),
            (2, "retry", self.retry),
            (2, "resize", self.resize),
            (1, "generation", self.generation),
            (1, "another compute", self.compute),
            (1, "delete", self.delete),
            (1, "delete a node", self.delete_node),
            (0, "a node that is cut off is deleted", self.delete_silent_node),
        ]

    async def begin(self) -> None:
        """A function, the cloud, and a compute."""

        def verb(tx: Tx) -> str:
            blobs.store_inline(tx, [(FUNCTION_SHA, FUNCTION)])
            functions.register(tx, FUNCTION_SHA, v1.FunctionCreate(codec="cloudpickle-lz4"))
            return FUNCTION_SHA

        await self.ask("function", verb)
        await self.compute()

    async def compute(self) -> None:
        draw = self.world.random
        low, high = draw.randint(0, 1), draw.randint(1, 3)
        fixed = draw.random() < 0.6
        bounds = v1.NodeBounds(desired=high) if fixed else v1.NodeBounds(desired=high, min=low, max=high)
        spec = v1.ComputeSpec(
            specs=(v1.Spec(provider=v1.ProviderRef(kind="fake")),),
            nodes=bounds,
            ttl=draw.choice(self.world.leases_s),
            options=v1.Options(autoscale_idle_timeout=10.0, ssh_connect_timeout=60.0),
        )
        body = v1.ComputeCreate(spec=spec)
        await self.ask(self.next("compute"), lambda tx: compute_verbs.create(tx, body, self.world.rules))

    async def call(self) -> None:
        compute = self.any("computes", "state NOT IN ('deleting', 'deleted', 'failed')")
        if compute is None:
            return
        draw = self.world.random
        body = v1.TaskCreate(
            compute=compute,
            function=FUNCTION_SHA,
            args_inline=b"%d" % self.asked,
            dispatch=draw.choice(("one", "one", "one", "all")),
            retry=v1.RetryPolicy(
                safe_retries=draw.choice((0, 0, 1, 3)), ambiguous_retries=draw.choice((0, 0, 1, 2))
            ),
            timeout_seconds=draw.choice((None, None, 5, 60)),
        )
        await self.ask(self.next("call"), lambda tx: task_verbs.submit(tx, body))

    async def batch(self) -> None:
        compute = self.any("computes", "state NOT IN ('deleting', 'deleted', 'failed')")
        if compute is not None:
            many = self.world.random.randint(2, 9)
            body = v1.TaskBatchCreate(
                compute=compute,
                function=FUNCTION_SHA,
                calls=tuple(v1.BatchCall(args_inline=b"b%d" % number) for number in range(many)),
                correlation_id=f"batch {self.asked}",
            )
            await self.ask(self.next("batch"), lambda tx: task_verbs.submit_batch(tx, body))

    async def cancel(self) -> None:
        task = self.any("tasks", "state IN ('queued', 'running')")
        if task is not None:
            await self.do(lambda tx: task_verbs.cancel(tx, task))

    async def retry(self) -> None:
        task = self.any("tasks", "state IN ('failed', 'cancelled', 'timed_out', 'indeterminate')")
        if task is not None:
            body = v1.ExecutionCreate(acknowledge_duplication=self.world.random.random() < 0.7)
            await self.do(lambda tx: task_verbs.retry(tx, task, body))

    async def resize(self) -> None:
        compute = self.any("computes")
        if compute is not None:
            body = v1.ComputeSpecPatch(nodes=v1.NodeBounds(desired=self.world.random.randint(1, 4)))
            await self.do(lambda tx: compute_verbs.change(tx, compute, body, None, self.world.rules))

    async def generation(self) -> None:
        compute = self.any("computes")
        if compute is not None:
            draw = self.world.random
            body = v1.GenerationCreate(source=draw.choice((None, None, 1)), force=draw.random() < 0.5)
            await self.do(
                lambda tx: compute_verbs.create_generation(tx, compute, body, None, self.world.rules)
            )

    async def delete(self) -> None:
        compute = self.any("computes")
        if compute is not None:
            await self.do(lambda tx: compute_verbs.delete(tx, compute, None))

    async def delete_silent_node(self) -> None:
        at_work = [one for one in self.world.live_agents() if one.running]
        if at_work:
            one = self.world.random.choice(at_work)
            one.part(cut=True)
            await self.delete_node(one.node_id)

    async def delete_node(self, silent: str | None = None) -> None:
        node = silent or self.any("nodes")
        if node is not None:
            compute = self.world.query("SELECT compute_id FROM nodes WHERE id = ?", node)[0][0]
            force = silent is not None or self.world.random.random() < 0.5
            await self.do(lambda tx: compute_verbs.delete_node(tx, compute, node, force=force))

    def answer(self, item: wire.WorkItem) -> Answer:
        """How long a call takes, and how it ends."""
        draw = self.world.random
        seconds = draw.choice((0.0, 0.1, 2.0, 20.0, 100.0, FOR_EVER_S))
        state: wire.OutcomeState = draw.choice(("succeeded", "succeeded", "succeeded", "failed"))
        result = b"ran:" + (item.args or b"") if state == t.SUCCEEDED else None
        return seconds, wire.Outcome(
            execution=item.execution, state=state, seconds=0.0, ago_s=0.0, result=result
        )


class Trouble:
    """What goes wrong, and is mended at the end."""

    def __init__(self, world: World, *, rough: bool) -> None:
        self.world = world
        self._more = 3 if rough else 1
        self.sets_clock = world.random.random() < 0.5

    def acts(self) -> list[tuple[int, str, Act]]:
        """What may go wrong, and how often."""
        return [
            (4 * self._more, "an agent is cut off", self.cut),
            (1 + self._more, "an agent is back", self.mend),
            (2, "an agent's process is killed", self.restart),
            (self._more, "an agent does not stop its work", self.deaf),
            (2 * self._more, "a machine is taken", self.machine_goes),
            (2, "the cloud is unwell", self.cloud),
            (1, "a stray", self.stray),
            (3, "a daemon dies", self.die),
            (3, "a daemon is about to die", self.doom),
            (2, "the network", self.network),
            (1 if self.sets_clock else 0, "the clock is set", self.clock),
            (0, "a machine that is cut off is taken", self.silent_machine_goes),
            (0, "every daemon is away, and a machine goes", self.outage),
        ]

    def _agent(self) -> Any:
        there = self.world.live_agents()
        return self.world.random.choice(there) if there else None

    async def cut(self) -> None:
        if (one := self._agent()) is not None:
            one.part(cut=True)

    async def mend(self) -> None:
        if (one := self._agent()) is not None:
            one.part(cut=False)

    async def restart(self) -> None:
        if (one := self._agent()) is not None:
            one.restart()

    async def deaf(self) -> None:
        if (one := self._agent()) is not None:
            one.deaf = True

    async def silent_machine_goes(self) -> None:
        await self.machine_goes({one.node_id for one in self.world.live_agents() if one.cut})

    async def outage(self) -> None:
        for daemon in self.world.daemons:
            daemon.kill("an outage", OUTAGE_S)
        await self.machine_goes({one.node_id for one in self.world.live_agents() if one.running})

    async def machine_goes(self, of: Collection[str] | None = None) -> None:
        there = self.world.agents if of is None else of
        alive = [tag for tag in self.world.cloud.alive() if tag in there]
        if alive:
            tag = self.world.random.choice(alive)
            cloud = self.world.cloud
            await (cloud.preempt(tag) if self.world.random.random() < 0.5 else cloud.delete_out_of_band(tag))
            self.world.agents[tag].die()

    async def cloud(self) -> None:
        draw, cloud = self.world.random, self.world.cloud
        match draw.randrange(4):
            case 0:
                cloud.fail_terminate(60)
            case 1:
                for region in draw.choice((("north",), ("north", "south"))):
                    cloud.refuse_region(region, Refuse())
            case 2:
                cloud.chaos = Chaos(seed=0, again=draw.choice((0.0, 0.2)), lose=draw.choice((0.0, 0.2, 0.5)))
            case _:
                self._well()

    def _well(self) -> None:
        self.world.cloud.chaos = None
        for region in ("north", "south"):
            self.world.cloud.refuse_region(region, None)

    async def stray(self) -> None:
        provider = self.world.query("SELECT id FROM providers WHERE kind = 'fake'")[0][0]
        tag = f"nod_stray{len(self.world.told)}"
        self.world.cloud.add_stray(tag, "test", provider, self.world.cloud.offers[0])

    async def die(self) -> None:
        there = [daemon for daemon in self.world.daemons if daemon.alive]
        if there:
            self.world.random.choice(there).kill("killed")

    async def doom(self) -> None:
        there = [daemon for daemon in self.world.daemons if daemon.alive]
        if there:
            self.world.random.choice(there).doom = self.world.random.randint(0, 25)

    async def network(self) -> None:
        draw = self.world.random
        self.world.faults = Faults(
            disk=draw.choice((0.0, 0.0, 0.02, 0.2)),
            repeats=draw.choice((0.0, 0.2)),
            slow_line=draw.choice((0.0, 0.5)),
            slow_call=draw.choice((0.0, 0.3)),
            lost_wake=draw.choice((0.0, 0.3, 1.0)),
        )

    async def clock(self) -> None:
        self.world.clock_was_set = True
        self.world.clock.step_wall(self.world.random.choice((-7_200.0, 7_200.0, -1.0, 600.0)))

    def mend_all(self) -> None:
        """Everything is well from now on."""
        world = self.world
        world.faults = Faults()
        self._well()
        world.cloud.fail_terminate(0)
        for daemon in world.daemons:
            daemon.doom = None
            daemon.revive()
        for one in world.live_agents():
            one.deaf = False
            one.part(cut=False)
            one.hurry()


async def provider(clients: Clients) -> None:
    """Add the simulated cloud."""
    body = v1.ProviderCreate(kind="fake", name="fake")
    await clients.ask("provider", lambda tx: providers.create(tx, body, clients.world.rules))
