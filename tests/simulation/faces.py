"""The other two faces of a history: a customer with paid jobs, and a user with clusters.

Decides: what is asked for, and how its steps end on a node. Never: when. Follows: as with calls, whoever got
no answer asks again with the same key.
"""

from __future__ import annotations

from typing import Any

import msgspec
from tests.flows.test_jobs import FREE, SKU, STEP_OF
from tests.simulation.acts import FOR_EVER_S, Act, Clients
from tests.simulation.checks import SECOND_MICRO, Checks
from tests.simulation.world import Answer, World

from sky.domain.job_errors import JobRefused
from sky.store.rows import jobs as job_rows
from sky.store.rows import requests as request_rows
from sky.store.tx import Tx
from sky.verbs import accounts
from sky.verbs import jobs as job_verbs
from sky.verbs import requests as request_verbs
from sky.wire import agent as wire
from sky.wire import requests as asks
from sky.wire import scripts, steps

RETRIES = None, None, {"max": 2, "on": ["node_lost"]}
CLUSTERS = "a", "b"


def answered(item: wire.WorkItem, seconds: float, outcome: steps.Outcome) -> Answer:
    """A step's end as an agent tells it."""
    result = steps.packed(outcome)
    told = wire.Outcome(
        execution=item.execution, state="succeeded", seconds=seconds, ago_s=0.0, result=result
    )
    return seconds, told


class Jobs(Clients):
    """Face 3: an account with some money, and jobs that cost more of it than there is."""

    account = ""

    def acts(self) -> list[tuple[int, str, Act]]:
        """What may be asked for, and how often."""
        return [(7, "job", self.submit), (3, "cancel a job", self.cancel), (1, "pay in", self.pay)]

    async def begin(self) -> None:
        """An account."""
        self.account = await self.ask("account", lambda tx: accounts.create(tx, "acme", enabled=True))
        await self.pay()

    async def pay(self) -> None:
        payment, amount = self.next("payment"), self.world.random.choice((60, 100, 500)) * SECOND_MICRO
        await self.ask(payment, lambda tx: accounts.pay_in(tx, "acme", amount, payment))

    async def submit(self) -> None:
        draw = self.world.random
        before = self.any("jobs")
        outputs = [{"mount": "/out"}] if draw.random() < 0.3 else []
        wanted = job_verbs.Wanted(
            SKU,
            SKU.places,
            {"image": "local", "command": ["true"], "outputs": outputs},
            {},
            draw.choice((30, 100, 300)),
            after=(before,) if before is not None and draw.random() < 0.2 else (),
            retry=draw.choice(RETRIES),
        )
        customer = job_verbs.Customer(f"account:{self.account}", "key_1", job_verbs.LOCAL, self.account, FREE)
        try:
            await self.ask(self.next("job"), lambda tx: job_verbs.submit(tx, customer, wanted, FREE))
        except JobRefused as refused:
            self.world.say(f"refused: {refused.message}")

    async def cancel(self) -> None:
        job = self.any("jobs", "state IN ('queued', 'provisioning', 'running')")
        if job is None:
            return

        def verb(tx: Tx) -> None:
            row = job_rows.find(tx.connection, job)
            assert row is not None
            job_verbs.cancel(tx, row)

        try:
            await self.do(verb)
        except JobRefused as refused:
            if refused.code != "job_terminal":  # it may have ended since it was looked for
                raise
            self.world.say(f"refused: {refused.message}")

    def answer(self, item: wire.WorkItem) -> Answer | None:
        """How long a step takes, and how it ends; None: it is no step of a job."""
        draw, name = self.world.random, STEP_OF.get(item.function)
        if name is None:
            return None
        if name == "run":
            seconds = draw.choice((0.5, 5.0, 40.0, 90.0, FOR_EVER_S))
            most = seconds_allowed(self.world, item)
            if seconds > most:
                return answered(item, most, steps.Outcome(exit_code=143, timed_out=True))
            return answered(item, seconds, steps.Outcome(exit_code=draw.choice((0, 0, 1))))
        failed = steps.Failed("image_pull_failed", "no such image") if draw.random() < 0.1 else None
        return answered(item, draw.choice((0.0, 1.0)), steps.Outcome(failed=failed, files=1))


def seconds_allowed(world: World, item: wire.WorkItem) -> float:
    """For how long a command may run, as its node is told."""
    args = item.args
    if args is None:
        args = world.query("SELECT content FROM blobs WHERE sha256 = ?", item.args_sha256)[0][0]
    return float(msgspec.json.decode(bytes(args), type=steps.Order).max_runtime_seconds)


class Requests(Clients):
    """Face 2: a few clusters that are launched, used, stopped, started and taken down."""

    def __init__(self, world: World, checks: Checks) -> None:
        super().__init__(world, checks)
        self._taken_down: set[str] = set()

    def acts(self) -> list[tuple[int, str, Act]]:
        """What may be asked for, and how often."""
        return [
            (5, "launch", self.launch),
            (3, "exec", self.execute),
            (1, "stop", self.about("stop")),
            (1, "start", self.about("start")),
            (1, "down", self.about("down")),
            (1, "cancel jobs", self.cancel_jobs),
            (2, "cancel a request", self.cancel),
        ]

    async def begin(self) -> None:
        """A cluster."""
        await self.launch()

    async def _submit(self, name: str, **body: Any) -> None:
        shape = asks.BODIES[name](**body)
        await self.ask(self.next(name), lambda tx: request_verbs.submit(tx, name, shape, "ann"))

    def _task(self) -> asks.TaskConfig:
        draw = self.world.random
        return asks.TaskConfig(
            name="t",
            num_nodes=draw.choice((1, 1, 2)),
            machines=(asks.Machine(infra="fake"),),
            run="true",
            setup=draw.choice((None, "true")),
        )

    def _name(self) -> str:
        return self.world.random.choice(CLUSTERS)

    async def launch(self) -> None:
        await self._submit("launch", task=self._task(), cluster_name=self._name())

    async def execute(self) -> None:
        await self._submit("exec", task=self._task(), cluster_name=self._name())

    def about(self, name: str) -> Act:
        """Ask for something about one cluster."""

        async def act() -> None:
            await self._submit(name, cluster_name=self._name())

        return act

    async def cancel_jobs(self) -> None:
        await self._submit("cancel", cluster_name=self._name(), all=self.world.random.random() < 0.5)

    async def cancel(self) -> None:
        request = self.any("requests", "finished_us IS NULL")
        if request is None:
            return

        def verb(tx: Tx) -> bool:
            row = request_rows.find(tx.connection, request)
            assert row is not None
            return request_verbs.cancel(tx, row)

        await self.do(verb)

    async def down_all(self, state: str | None = None) -> None:
        """Take down whatever is there, or what is in that state; once each."""
        there = self.world.query("SELECT id, name, state FROM clusters WHERE state != 'DOWN'")
        for cluster, name in [(x, name) for x, name, now in there if state in (None, now)]:
            if cluster in self._taken_down:
                continue
            self._taken_down.add(cluster)
            shape = asks.BODIES["down"](cluster_name=name)
            await self.ask(
                f"down {cluster}",
                lambda tx, body=shape: request_verbs.submit(tx, "down", body, "ann"),
            )

    def answer(self, item: wire.WorkItem) -> Answer | None:
        """How long a script takes, and how it ends; None: it is none."""
        content = self.world.query("SELECT content FROM blobs WHERE sha256 = ?", item.function)[0][0]
        step = scripts.step_of(bytes(content))
        if step is None:
            return None
        draw = self.world.random
        seconds = draw.choice((0.1, 1.0, 10.0, FOR_EVER_S)) if getattr(step, "kind", "") == "run" else 0.5
        return answered(item, seconds, steps.Outcome(exit_code=draw.choice((0, 0, 0, 1))))
