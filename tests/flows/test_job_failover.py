"""A paid job of a SKU with several providers: which is tried first, what is told, and whose price counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace
from tests.flows.test_jobs import PRICE, SKU, Shop
from tests.flows.world import World

from sky.domain.catalogue import Place
from sky.domain.money import MICRO
from sky.domain.offer import Offer
from sky.providers.base import Kind
from sky.providers.fake.cloud import FakeCloud, fake_offer
from sky.providers.fake.provider import FakeProvider
from sky.providers.fake.trouble import Refuse, TryLater
from sky.providers.registry import Registry
from sky.server import wiring
from sky.store.schema import nodes
from sky.store.schema_jobs import job_events
from sky.store.views import accounts
from sky.verbs import providers
from sky.wire import admin, v1

SECONDS = 5.0
DEAR = 7_200 * MICRO
"""What the second provider asks an hour: a thousand times and more what the SKU costs."""
PLACES = (Place("fake", regions=("north",)), Place("other", "other-1", regions=("south",)))


class OtherProvider(FakeProvider):
    """The simulated cloud of another firm."""

    kind: ClassVar[str] = "other"


def south(name: str, **more: Any) -> Offer:
    """Something that the other firm sells."""
    return replace(fake_offer(name, region="south", **more), kind="other")


class Market:
    """A seller that buys from two clouds: ``fake`` in the north, and ``other``, a dear one, in the south."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.first = self.world.cloud
        self.second = FakeCloud(self.first.clock)
        self.second.on_launch, self.second.on_end = self.first.on_launch, self.first.on_end
        self.first.offers = (fake_offer(region="north", on_demand_micro=1_000),)
        self.second.offers = (
            south("tiny", on_demand_micro=1),
            south("other-1", on_demand_micro=DEAR),
        )
        known = self.world.registry.kinds()
        made = Kind.of(OtherProvider, lambda setup: OtherProvider(setup, self.second))
        self.world.registry = Registry([*known, made])
        self.world.rules = wiring.rules_of(self.world.registry, lambda told: repr(told).encode())
        self.world.die()
        self.shop = Shop(self.world, seconds=SECONDS)

    async def job(self) -> Mapping[str, Any]:
        """A job from its submit to its settlement."""
        await self.shop.open()
        body = v1.ProviderCreate(kind="other", name="other")
        await self.world.ask("other", lambda tx: providers.create(tx, body, self.world.rules))
        job_id = await self.shop.submit(sku=SKU, places=PLACES)
        await self.world.settle(self.shop.over(job_id), seconds=3_000.0, step_s=2.0)
        await self.shop.check()
        row = self.shop.job(job_id)
        assert row["state"] == "succeeded", row
        return row

    def told(self, kind: str) -> dict[str, Any]:
        """What the one event of a kind says; no event of a job says what its machine costs."""
        rows = self.world.rows(job_events)
        assert not [row for row in rows if "an hour" in str(row["data"]) or "per_hour" in str(row["data"])]
        [row] = [row for row in rows if row["type"] == kind]
        return row["data"]

    async def seen(self) -> admin.SoldJob:
        """The job as who sells it sees it."""
        [sold] = (
            await self.world.db.read(lambda c: accounts.sold(c, None, None, cursor=None, limit=9))
        ).items
        return sold

    def bought(self) -> list[str]:
        both = (*self.first.purchases, *self.second.purchases)
        return [f"{one.offer.instance_type} in {one.offer.region}" for one in both]


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Market]:
    one = Market(tmp_path)
    yield one
    one.world.close()


def settled_for(row: Mapping[str, Any]) -> None:
    """It cost what its SKU says, whatever its machine did."""
    a_second = PRICE // 3_600
    assert SECONDS * a_second <= row["settled_micro"] <= (SECONDS + 2) * a_second


async def test_the_first_provider_is_taken_although_the_second_is_cheaper(market: Market) -> None:
    market.second.offers = (south("other-1", on_demand_micro=0),)
    settled_for(await market.job())
    assert market.bought() == ["fake-1 in north"]
    assert "job.failover" not in market.shop.told(market.world.query("SELECT id FROM jobs")[0].id)


@pytest.mark.parametrize("trouble", ["full", "refuses", "silent", "away"])
async def test_the_next_one_serves_it_and_the_sku_sets_the_price(market: Market, trouble: str) -> None:
    if trouble == "full":
        market.first.offers = (fake_offer(region="north", on_demand_micro=1_000, available=0),)
        reason, plain = (
            "fake/fake-1 in north, 0.001 USD an hour: is sold out",
            "fake in north had none for it",
        )
    elif trouble == "refuses":
        market.first.always("launch", Refuse("no quota left", "quota"))
        reason, plain = (
            "fake/fake-1 in north, 0.001 USD an hour: no quota left",
            "fake in north had none for it",
        )
    elif trouble == "silent":
        market.first.always("offers", TryLater("no route", after_s=10.0))
        reason, plain = "fake: its offers are not known: no route", "fake did not answer"
    else:
        market.first.always("launch", TryLater("no answer", after_s=10.0))
        reason = "fake/fake-1 in north, 0.001 USD an hour: its machine was not there in time"
        plain = "fake in north brought none in time"
    row = await market.job()
    settled_for(row)
    assert market.bought() == ["other-1 in south"], "of the type that its place names"
    told = market.told("job.failover")
    assert told["from"] == {"cloud": "fake", "region": "north"}
    assert told["to"] == {"cloud": "other", "region": "south"}
    assert told["reason"] == plain
    where = {"cloud": "other", "region": "south", "instance_type": "other-1"}
    assert market.told("job.placed") == where
    seen = (await market.seen()).placement
    assert seen == admin.SoldPlacement(**where, cost_usd_per_hour="7200.000000", passed_over=(reason,))
    said = market.world.query("SELECT payload FROM events WHERE name = 'node.provisioning' ORDER BY seq")
    error = json.loads(said[-1].payload)["error"]
    assert error == f"passed over {reason}; takes other/other-1 in south, 7200 USD an hour"


async def test_a_full_first_provider_is_asked_again_for_the_next_job(market: Market) -> None:
    """That it was full a while ago is no reason to pay for a dearer one now."""
    market.first.offers = (fake_offer(region="north", on_demand_micro=1_000, available=0),)
    await market.job()
    market.first.offers = (fake_offer(region="north", on_demand_micro=1_000, available=1),)
    await market.world.live(120.0, step_s=10.0)
    job_id = await market.shop.submit("again", sku=SKU, places=PLACES)
    await market.world.settle(market.shop.over(job_id), seconds=3_000.0, step_s=2.0)
    assert market.bought() == ["fake-1 in north", "other-1 in south"]


async def test_where_no_provider_has_one_the_job_waits_and_says_why(market: Market) -> None:
    for cloud in (market.first, market.second):
        cloud.always("launch", Refuse("no capacity", "capacity"))
    await market.shop.open()
    body = v1.ProviderCreate(kind="other", name="other")
    await market.world.ask("other", lambda tx: providers.create(tx, body, market.world.rules))
    job_id = await market.shop.submit(sku=SKU, places=PLACES)
    await market.world.settle(market.world.compute_is("degraded"))
    await market.world.live(5.0)
    assert market.shop.job(job_id)["state"] == "provisioning"
    [row] = market.world.rows(nodes)
    reasons = [one["reason"] for one in row["passed_over"]]
    assert len(reasons) == 2
    assert all("USD an hour: no capacity" in reason for reason in reasons)
    market.second.always("launch", None)
    await market.world.settle(market.shop.over(job_id), seconds=3_000.0, step_s=2.0)
    assert market.bought() == ["other-1 in south"]
    settled_for(market.shop.job(job_id))
