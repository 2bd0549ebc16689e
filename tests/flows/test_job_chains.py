"""Paid jobs that run after others, and that are begun again when their machine is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.flows.places import every
from tests.flows.test_jobs import SKU, Shop
from tests.flows.world import World

from sky.domain.job_errors import JobRefused
from sky.domain.money import MICRO
from sky.kit import faults
from sky.providers.fake.cloud import fake_offer
from sky.store.schema_jobs import job_events

SPOT = replace(SKU, interruptible=True)
AGAIN = {"max": 2, "on": ["interrupted"]}
STRIDE = every(20)


async def lose_the_machine(shop: Shop, job_id: str) -> None:
    """Once its command runs, the machine of a job is taken."""
    await shop.world.settle(lambda: shop.job(job_id)["state"] == "running")
    for tag in shop.world.cloud.alive():
        if tag in shop.world.agents:
            shop.world.agents[tag].reachable = False
        await shop.world.cloud.preempt(tag)


def past(shop: Shop, job_id: str) -> list[Any]:
    return shop.job(job_id)["past"] or []


async def opened(world: World, **more: Any) -> Shop:
    """A seller of machines that may be taken, too."""
    world.cloud.offers = (fake_offer(spot_micro=10),)
    shop = Shop(world, **more)
    await shop.open()
    return shop


async def tell(world: World) -> tuple[Shop, str, str]:
    """A spot job whose machine is taken once, and a job that runs after it."""
    shop = await opened(world, seconds=4.0)
    first = await shop.submit("first", sku=SPOT, retry=AGAIN, spec={"outputs": [{"mount": "/out"}]})
    second = await shop.submit("second", after=(first,))
    if not past(shop, first) and shop.job(first)["state"] in ("queued", "provisioning", "running"):
        await lose_the_machine(shop, first)
    await world.settle(shop.over(second))
    return shop, first, second


async def check_end(shop: Shop, first: str, second: str) -> None:
    await shop.check()
    one, other = shop.job(first), shop.job(second)
    assert (one["state"], other["state"]) == ("succeeded", "succeeded")
    [before] = one["past"]
    ran_us = one["ended_us"] - one["started_us"]
    before_us = before["ended_us"] - before["started_us"]
    assert one["used_us"] == before_us
    assert one["settled_micro"] == -(-(ran_us + before_us) // 1_000_000) * 1_000, "each second counts once"
    assert other["started_us"] >= one["finished_us"], "it waited for the other's end"
    charged = one["settled_micro"] + other["settled_micro"]
    assert await shop.balances() == (10 * MICRO - charged, 0)
    assert shop.told(first) == [
        "job.queued",
        *("job.provisioning", "job.placed", "job.running", "job.retried"),
        *("job.provisioning", "job.placed", "job.running", "job.succeeded"),
    ]
    assert shop.world.cloud.alive() == ()


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_a_job_whose_machine_was_taken_is_begun_again_and_the_next_one_waits(
    tmp_path: Path, hints: bool
) -> None:
    shop, first, second = await tell(World(tmp_path, hints=hints))
    await check_end(shop, first, second)
    [told] = [row["data"] for row in shop.world.rows(job_events) if row["type"] == "job.retried"]
    assert (told["code"], told["retry"], told["of"]) == ("preempted", 1, 2)
    shop.world.close()


async def test_dying_anywhere_begins_a_job_again_once_and_charges_it_once(tmp_path: Path) -> None:
    (tmp_path / "straight").mkdir()
    world = World(tmp_path / "straight")
    faults.record()
    await tell(world)
    names = faults.disarm()
    world.close()
    for number in range(1, len(names) + 1, STRIDE):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder)
        faults.arm(number)
        try:
            await tell(world)
        except faults.Died:
            pass
        finally:
            faults.disarm()
        world.die()
        shop, first, second = await tell(world)
        try:
            await check_end(shop, first, second)
        except AssertionError as error:
            error.add_note(f"the daemon had died at point {number}: {names[number - 1]}")
            raise
        world.close()


async def test_a_job_is_begun_again_as_often_as_was_said_and_within_its_longest_runtime(
    tmp_path: Path,
) -> None:
    shop = await opened(World(tmp_path), seconds=600.0)
    often = await shop.submit("often", sku=SPOT, retry={"max": 1, "on": ["interrupted"]})
    for _ in range(2):
        await lose_the_machine(shop, often)
        await shop.world.settle(lambda: shop.job(often)["state"] != "running")
    await shop.world.settle(shop.over(often))
    row = shop.job(often)
    assert (row["state"], row["error"]["code"], len(row["past"])) == ("interrupted", "preempted", 1)
    ran_us = row["used_us"] + row["ended_us"] - row["started_us"]
    assert row["settled_micro"] == -(-ran_us // 1_000_000) * 1_000, "what both ran is paid, once"
    await shop.check()
    shop.world.close()


async def test_a_job_that_is_not_to_be_begun_again_for_that_ends(tmp_path: Path) -> None:
    shop = await opened(World(tmp_path), seconds=600.0)
    job_id = await shop.submit(retry=AGAIN)
    await lose_the_machine(shop, job_id)
    await shop.world.settle(shop.over(job_id))
    row = shop.job(job_id)
    assert (row["state"], row["error"]["code"], row["past"]) == ("failed", "node_lost", None)
    shop.world.close()


async def test_a_cancel_between_two_beginnings_charges_what_ran(tmp_path: Path) -> None:
    shop = await opened(World(tmp_path), seconds=600.0)
    job_id = await shop.submit(sku=SPOT, retry=AGAIN)
    await lose_the_machine(shop, job_id)
    await shop.world.settle(lambda: bool(past(shop, job_id)) and shop.job(job_id)["state"] != "running")
    await shop.cancel(job_id)
    row = shop.job(job_id)
    assert (row["state"], row["started_us"]) == ("cancelled", None)
    assert row["settled_micro"] == -(-row["used_us"] // 1_000_000) * 1_000
    assert await shop.balances() == (10 * MICRO - row["settled_micro"], 0)
    await shop.world.settle(shop.over(job_id))
    await shop.check()
    shop.world.close()


@pytest.mark.parametrize("end", ["failed", "cancelled"])
async def test_a_job_after_one_that_did_not_succeed_fails_for_free(tmp_path: Path, end: str) -> None:
    shop = await opened(World(tmp_path), seconds=5.0, exit_code=3)
    first = await shop.submit("first")
    second = await shop.submit("second", after=(first,))
    third = await shop.submit("third", after=(second,))
    assert (await shop.balances())[1] == 3 * 600 * 1_000, "what waits is held for too"
    if end == "cancelled":
        await shop.cancel(first)
    await shop.world.settle(shop.over(third))
    await shop.check()
    assert shop.job(first)["state"] == end
    for job_id in (second, third):
        row = shop.job(job_id)
        assert (row["state"], row["error"]["code"]) == ("failed", "dependency_failed")
        assert (row["settled_micro"], row["compute_id"]) == (0, None), "no machine was asked for"
    assert len(shop.world.cloud.purchases) <= 1
    shop.world.close()


async def test_a_job_runs_after_ones_own_jobs_only(tmp_path: Path) -> None:
    shop = await opened(World(tmp_path))
    with pytest.raises(JobRefused, match="you have no job") as refused:
        await shop.submit(after=("job_01J9ZC3W8ZK9V2N5Q6T7R8S9AB",))
    assert (refused.value.code, refused.value.param) == ("invalid_after", "after[0]")
    assert await shop.balances() == (10 * MICRO, 0)
    shop.world.close()
