"""Story (c): a paid job, from its hold to its settlement: straight, with wakes lost, and dying everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.flows.places import places
from tests.flows.world import World
from tests.proof import record

from sky.domain import job as j
from sky.domain.account import Limits
from sky.domain.catalogue import Place, Sku
from sky.domain.job_errors import JobRefused
from sky.domain.money import MICRO
from sky.kit import codec, faults
from sky.providers.fake.cloud import fake_offer, regions
from sky.providers.fake.trouble import Refuse
from sky.store.rows import jobs as job_rows
from sky.store.rows import ledger
from sky.store.schema import computes
from sky.store.schema_jobs import job_events, jobs
from sky.store.tx import Tx
from sky.verbs import accounts
from sky.verbs import jobs as verbs
from sky.wire import agent as wire
from sky.wire import steps

PRICE = 3_600 * 1_000
"""Micro-dollars an hour: a thousand a second."""
FREE = Limits(None, None, {})
SKU = Sku(
    id="cpu",
    gpu="",
    accelerator="",
    gpu_count=0,
    gpu_memory_gb=0,
    vcpus=1,
    memory_gb=1,
    price_micro=PRICE,
    tier="neocloud",
    interruptible=False,
    places=(Place("fake"),),
    available=True,
)
PARTS = 3
STEP_OF = {codec.sha256_hex(steps.function_content(name)): name for name in ("prepare", "run", "upload")}


class Shop:
    """A seller and one customer, over a world whose commands take ``seconds`` and end with ``exit_code``."""

    def __init__(
        self, world: World, *, seconds: float = 60.0, exit_code: int = 0, paid: int = 10 * MICRO
    ) -> None:
        self.world = world
        self.seconds = seconds
        self.outcome = steps.Outcome(exit_code=exit_code)
        self.prepared = steps.Outcome()
        self.uploaded = steps.Outcome(files=1)
        self.paid = paid
        self.account = ""
        self.began_s: dict[str, float] = {}
        world.answer = self._answer

    def _answer(self, item: wire.WorkItem) -> wire.Outcome | None:
        name = STEP_OF[item.function]
        result = {"prepare": self.prepared, "run": self.outcome, "upload": self.uploaded}[name]
        if name == "run":
            began_s = self.began_s.setdefault(item.execution, self.world.clock.monotonic_s())
            if self.world.clock.monotonic_s() - began_s < self.seconds:
                return None
        return wire.Outcome(
            execution=item.execution, state="succeeded", seconds=0.0, ago_s=0.0, result=steps.packed(result)
        )

    async def open(self) -> None:
        await self.world.provider()
        self.account = await self.world.ask("account", lambda tx: accounts.create(tx, "acme", enabled=True))
        await self.world.db.write(lambda tx: accounts.pay_in(tx, "acme", self.paid, "pay-1"))

    def customer(self) -> verbs.Customer:
        return verbs.Customer(f"account:{self.account}", "key_1", verbs.LOCAL, self.account, FREE)

    async def submit(self, key: str = "job", **more: Any) -> str:
        wanted = verbs.Wanted(
            more.pop("sku", SKU),
            more.pop("places", SKU.places),
            {"image": "local", "command": ["true"], **more.pop("spec", {})},
            {},
            more.pop("max_runtime_seconds", 600),
            **more,
        )
        customer = self.customer()
        return await self.world.ask(key, lambda tx: verbs.submit(tx, customer, wanted, FREE))

    async def cancel(self, job_id: str) -> None:
        def verb(tx: Tx) -> None:
            row = job_rows.find(tx.connection, job_id)
            assert row is not None
            verbs.cancel(tx, row)

        await self.world.db.write(verb)

    def job(self, job_id: str) -> Mapping[str, Any]:
        return self.world.row(jobs, job_id)

    def over(self, job_id: str) -> Any:
        return lambda: (
            self.job(job_id)["settled_us"] is not None and set(self.world.states(computes)) <= {"deleted"}
        )

    def told(self, job_id: str) -> list[str]:
        return [row["type"] for row in self.world.rows(job_events) if row["job_id"] == job_id]

    def has_told(self, job_id: str, kind: str) -> Callable[[], bool]:
        return lambda: kind in self.told(job_id)

    async def balances(self) -> tuple[int, int]:
        return await self.world.db.read(lambda c: ledger.balances(c, self.account))

    async def check(self) -> None:
        """The books, and whatever must hold beside them."""
        self.world.check_books()
        _, findings, _ = await self.world.db.write(accounts.audit)
        assert findings == []
        for row in self.world.rows(jobs):
            settled = self.world.query(
                "SELECT count(*) AS n FROM ledger WHERE reference = :r AND account LIKE '%/held'",
                r=f"settle:{row['id']}",
            )
            assert settled[0].n == (1 if row["settled_us"] is not None else 0)
            kinds = self.told(row["id"])
            ends = [k for k in kinds if k.split(".")[1] in ("succeeded", "failed", "cancelled", "preempted")]
            assert len(ends) == (1 if row["state"] in j.TERMINAL else 0), kinds


async def tell(world: World, **more: Any) -> tuple[Shop, str]:
    """The whole story, from an account to a settled job."""
    shop = Shop(world, **more)
    await shop.open()
    job_id = await shop.submit(spec={"outputs": [{"mount": "/out"}]})
    await world.settle(shop.over(job_id))
    return shop, job_id


async def check_end(shop: Shop, job_id: str, *, seconds: int = 60) -> None:
    await shop.check()
    row = shop.job(job_id)
    assert row["state"] == "succeeded"
    used_s = -(-(row["ended_us"] - row["started_us"]) // 1_000_000)
    assert row["settled_micro"] == used_s * 1_000
    assert seconds <= used_s <= seconds + 15, "pulling, uploading and giving back are free"
    assert await shop.balances() == (10 * MICRO - row["settled_micro"], 0)
    assert shop.told(job_id) == [
        "job.queued",
        "job.provisioning",
        "job.placed",
        "job.running",
        "job.succeeded",
    ]
    assert len(shop.world.cloud.purchases) == 1
    assert shop.world.cloud.alive() == ()


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_a_paid_job_is_settled_once(tmp_path: Path, hints: bool) -> None:
    world = World(tmp_path, hints=hints)
    shop, job_id = await tell(world)
    await check_end(shop, job_id)
    world.close()


@pytest.mark.parametrize(
    ("hints", "part"),
    [*((True, part) for part in range(PARTS)), (False, 1)],
    ids=[*(f"woken-{part}" for part in range(PARTS)), "every wake lost"],
)
async def test_dying_anywhere_changes_nothing(tmp_path: Path, hints: bool, part: int) -> None:
    (tmp_path / "straight").mkdir()
    world = World(tmp_path / "straight", hints=hints)
    faults.record()
    await tell(world, seconds=3.0)
    names = faults.disarm()
    world.close()
    for number in places(names, f"jobs {hints}")[part::PARTS]:
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, hints=hints)
        faults.arm(number)
        died = False
        try:
            await tell(world, seconds=3.0)
        except faults.Died:
            died = True
        finally:
            faults.disarm()
        assert died or number > len(names) - 10, "how often it looks before the end is not always the same"
        world.die()
        shop, job_id = await tell(world, seconds=3.0)
        try:
            await check_end(shop, job_id, seconds=3)
        except AssertionError as error:
            error.add_note(f"the daemon had died at point {number}: {names[number]}")
            raise
        world.close()


async def test_a_command_that_fails_is_charged_for_what_it_ran(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path), seconds=30.0, exit_code=3)
    await shop.open()
    job_id = await shop.submit()
    await shop.world.settle(shop.over(job_id))
    await shop.check()
    row = shop.job(job_id)
    assert (row["state"], row["error"]["code"], row["error"]["exit_code"]) == ("failed", "command_failed", 3)
    assert 30_000 <= row["settled_micro"] <= 40_000
    shop.world.close()


async def test_an_image_that_cannot_be_pulled_is_free(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path))
    shop.prepared = steps.Outcome(failed=steps.Failed("image_unavailable", "there is no such image"))
    await shop.open()
    job_id = await shop.submit()
    await shop.world.settle(shop.over(job_id))
    await shop.check()
    row = shop.job(job_id)
    assert (row["state"], row["error"]["code"], row["settled_micro"]) == ("failed", "image_unavailable", 0)
    assert await shop.balances() == (10 * MICRO, 0)
    shop.world.close()


async def test_a_container_that_does_not_start_is_free(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path), seconds=0.0)
    shop.outcome = steps.Outcome(failed=steps.Failed("run_failed", "the container could not be started"))
    await shop.open()
    job_id = await shop.submit(spec={"outputs": [{"mount": "/out"}]})
    await shop.world.settle(shop.over(job_id))
    await shop.check()
    row = shop.job(job_id)
    assert (row["state"], row["error"]["code"], row["settled_micro"]) == ("failed", "run_failed", 0)
    assert await shop.balances() == (10 * MICRO, 0)
    shop.world.close()


@pytest.mark.parametrize(("exit_code", "code"), [(0, "upload_failed"), (3, "command_failed")])
async def test_outputs_that_are_lost_fail_a_job_unless_its_command_did(
    tmp_path: Path, exit_code: int, code: str
) -> None:
    shop = Shop(World(tmp_path), seconds=30.0, exit_code=exit_code)
    shop.uploaded = steps.Outcome(files=2, failed=steps.Failed("upload_failed", "a file is too large"))
    await shop.open()
    job_id = await shop.submit(spec={"outputs": [{"mount": "/out"}]})
    await shop.world.settle(shop.over(job_id))
    await shop.check()
    row = shop.job(job_id)
    assert (row["state"], row["error"]["code"]) == ("failed", code)
    assert 30_000 <= row["settled_micro"] <= 40_000, "what ran is paid, and the upload is free"
    shop.world.close()


@pytest.mark.parametrize("step_s", [7_200.0, -7_200.0])
async def test_a_clock_that_is_set_while_a_job_runs_changes_no_bill(tmp_path: Path, step_s: float) -> None:
    shop = Shop(World(tmp_path), seconds=60.0)
    await shop.open()
    job_id = await shop.submit()
    await shop.world.settle(shop.has_told(job_id, "job.running"))
    await shop.world.live(20)
    shop.world.clock.step_wall(step_s)
    await shop.world.settle(shop.over(job_id), seconds=300)
    await shop.check()
    row = shop.job(job_id)
    assert row["state"] == "succeeded"
    assert 54_000 <= row["settled_micro"] <= 75_000, (
        "a minute, and what telling takes; the clock is a tenth off"
    )
    assert await shop.balances() == (10 * MICRO - row["settled_micro"], 0)
    record(clock_set_by_s=abs(step_s), ran_s=60, charged_for_s=row["settled_micro"] / 1_000)
    shop.world.close()


@pytest.mark.parametrize("after_s", [0.0, 1.0, 5.0, 20.0, 45.0])
async def test_a_cancel_stops_the_meter_at_once(tmp_path: Path, after_s: float) -> None:
    shop = Shop(World(tmp_path), seconds=600.0)
    await shop.open()
    job_id = await shop.submit()
    await shop.world.live(after_s)
    await shop.cancel(job_id)
    row = shop.job(job_id)
    assert row["state"] == "cancelled", "it is over at once"
    assert row["settled_us"] is not None
    await shop.world.settle(shop.over(job_id))
    assert shop.job(job_id)["settled_micro"] == row["settled_micro"], "giving the machine back is free"
    assert row["settled_micro"] <= (after_s + 2) * 1_000
    with pytest.raises(JobRefused, match="cancelled"):
        await shop.cancel(job_id)
    await shop.check()
    shop.world.close()


async def test_a_long_job_is_held_for_as_it_goes(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path), seconds=9_000.0, paid=100 * MICRO)
    await shop.open()
    job_id = await shop.submit(max_runtime_seconds=14_400)
    await shop.world.settle(shop.over(job_id), seconds=20_000.0, step_s=10.0)
    await shop.check()
    assert shop.told(job_id).count("billing.hold_extended") == 1
    row = shop.job(job_id)
    assert row["state"] == "succeeded"
    assert 9_000_000 <= row["settled_micro"] <= 9_100_000
    assert await shop.balances() == (100 * MICRO - row["settled_micro"], 0)
    shop.world.close()


async def test_a_balance_that_runs_out_ends_the_job_in_time(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path), seconds=14_000.0, paid=8 * MICRO)
    await shop.open()
    job_id = await shop.submit(max_runtime_seconds=14_400)
    await shop.world.settle(shop.over(job_id), seconds=20_000.0, step_s=5.0)
    await shop.check()
    row = shop.job(job_id)
    assert (row["state"], row["error"]["code"]) == ("failed", "balance_exhausted")
    told = shop.told(job_id)
    assert told.count("billing.balance_exhausted") == 1
    assert told.index("billing.balance_exhausted") < told.index("job.failed")
    assert 7_100_000 <= row["settled_micro"] <= 7_200_000, "stopped before its hold was used up"
    available, held = await shop.balances()
    assert (available, held) == (8 * MICRO - row["settled_micro"], 0)
    shop.world.close()


async def test_a_top_up_while_the_balance_runs_out_lets_the_job_go_on(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path), seconds=9_000.0, paid=8 * MICRO)
    await shop.open()
    job_id = await shop.submit(max_runtime_seconds=14_400)
    await shop.world.settle(shop.has_told(job_id, "billing.balance_exhausted"), seconds=20_000.0, step_s=5.0)
    await shop.world.db.write(lambda tx: accounts.pay_in(tx, "acme", 50 * MICRO, "pay-2"))
    await shop.world.settle(shop.over(job_id), seconds=20_000.0, step_s=5.0)
    await shop.check()
    assert shop.job(job_id)["state"] == "succeeded"
    shop.world.close()


async def test_fifty_can_be_paid_of_two_hundred_at_once(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path), paid=50 * 600 * 1_000)
    await shop.open()

    async def one(number: int) -> bool:
        try:
            await shop.submit(f"job-{number}")
        except JobRefused as refused:
            return refused.code != "insufficient_balance"
        return True

    assert sum(await asyncio.gather(*(one(number) for number in range(200)))) == 50
    assert await shop.balances() == (0, 50 * 600 * 1_000)
    await shop.check()
    shop.world.close()


async def test_a_job_that_does_not_get_its_first_place_is_told_why(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path), seconds=5.0)
    shop.world.cloud.offers = regions(fake_offer(), ["north", "south"])
    shop.world.cloud.refuse_region("north", Refuse("no capacity in north", "capacity"))
    await shop.open()
    job_id = await shop.submit(places=(Place("fake", regions=("north", "south")),))
    await shop.world.settle(shop.over(job_id))
    await shop.check()
    assert shop.job(job_id)["state"] == "succeeded"
    [told] = [row for row in shop.world.rows(job_events) if row["type"] == "job.failover"]
    assert told["data"]["from"] == {"cloud": "fake", "region": "north"}
    assert told["data"]["to"] == {"cloud": "fake", "region": "south"}
    assert told["data"]["reason"] == "fake in north had none for it"
    kinds = shop.told(job_id)
    assert kinds.index("job.failover") < kinds.index("job.placed")
    shop.world.close()


async def test_a_lost_machine_is_paid_up_to_its_last_sign_of_life(tmp_path: Path) -> None:
    shop = Shop(World(tmp_path), seconds=10_000.0, paid=100 * MICRO)
    await shop.open()
    job_id = await shop.submit(max_runtime_seconds=12_000)
    await shop.world.settle(lambda: shop.job(job_id)["state"] == "running")
    await shop.world.live(60.0)
    [tag] = [purchase.tag for purchase in shop.world.cloud.purchases]
    shop.world.agents[tag].reachable = False
    await shop.world.cloud.preempt(tag)
    await shop.world.settle(shop.over(job_id), seconds=20_000.0, step_s=5.0)
    await shop.check()
    row = shop.job(job_id)
    assert (row["state"], row["error"]["code"]) == ("failed", "node_lost")
    assert row["settled_micro"] <= 75 * 1_000
    shop.world.close()
