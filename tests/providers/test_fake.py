"""The simulated kind: the conformance suite over it, and that it misbehaves exactly as it is told to.

Decides: what a test may rely on when it arranges trouble. Never: waits on the real clock.
Follows: a story that ends well over this kind has met the trouble it says it has met.
"""

from __future__ import annotations

import asyncio
import unittest
from pathlib import Path

import pytest

from sky.domain.offer import Offer
from sky.kit.clock import ManualClock
from sky.providers.base import (
    AgainLater,
    AgentSetup,
    Context,
    Gone,
    Kind,
    LaunchOrder,
    Machine,
    Provider,
    Refused,
)
from sky.providers.contract import ProviderContract
from sky.providers.fake.cloud import FakeCloud, Pace, fake_offer, regions
from sky.providers.fake.provider import FakeProvider, kind_of
from sky.providers.fake.trouble import Chaos, Delay, LoseAnswer, Refuse, TryLater, Vanish
from sky.providers.registry import Registry, standard


def provider_over(cloud: FakeCloud, deployment: str = "test") -> Provider:
    context = Context(Path("unused"), deployment, cloud.clock)
    return Registry([kind_of(cloud)]).build("fake", "prv_fake", "fake", {}, {}, context)


def order_for(tag: str, offer: Offer) -> LaunchOrder:
    return LaunchOrder(tag, offer, "on_demand", AgentSetup("http://127.0.0.1:9", "t"), 60)


class TestContract(ProviderContract, unittest.IsolatedAsyncioTestCase):
    """Machines that boot slowly, are listed late and end slowly."""

    described = Kind.of(FakeProvider)
    wrong_configs = (
        ({"latency_ms": -1}, "latency_ms"),
        ({"price_per_hour_usd": "free"}, "price_per_hour_usd"),
        ({"regions": []}, "regions"),
        ({"refuse": ""}, "refuse"),
    )

    def setUp(self) -> None:
        self.clock = ManualClock()
        self.cloud = FakeCloud(self.clock, pace=Pace(boot_s=5, list_after_s=3, end_s=4))

    def provider(self) -> Provider:
        return provider_over(self.cloud)

    async def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    async def asyncTearDown(self) -> None:
        await super().asyncTearDown()
        assert self.cloud.alive() == ()
        assert self.cloud.duplicates() == ()


class TestContractWithLostAnswers(TestContract):
    """The same, when each first answer to a launch is lost and the caller asks again."""

    def setUp(self) -> None:
        super().setUp()
        self.lost: set[str] = set()

    def provider(self) -> Provider:
        return _Persistent(self)


class _Persistent(FakeProvider):
    """A caller that repeats what it got no answer to, once."""

    def __init__(self, test: TestContractWithLostAnswers) -> None:
        built = provider_over(test.cloud)
        assert isinstance(built, FakeProvider)
        super().__init__(built._setup, test.cloud)
        self._test = test

    async def launch(self, order: LaunchOrder) -> Machine:
        if order.market == "on_demand" and order.tag not in self._test.lost:
            self._test.lost.add(order.tag)
            self._test.cloud.then("launch", LoseAnswer())
            with pytest.raises(AgainLater):
                await super().launch(order)
        return await super().launch(order)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cloud(clock: ManualClock) -> FakeCloud:
    return FakeCloud(clock)


async def test_arranged_behaviours_are_met_once_each_and_in_order(cloud: FakeCloud) -> None:
    provider = provider_over(cloud)
    offer = (await provider.offers())[0]
    cloud.then("launch", Refuse("no quota"), TryLater(after_s=7), Vanish(), LoseAnswer(), Delay(0))
    with pytest.raises(Refused, match="no quota") as refused:
        await provider.launch(order_for("nod_1", offer))
    assert refused.value.code == "quota"
    with pytest.raises(AgainLater) as again:
        await provider.launch(order_for("nod_1", offer))
    assert again.value.after_s == 7
    with pytest.raises(Gone):
        await provider.launch(order_for("nod_1", offer))
    assert cloud.purchases == [], "nothing was bought so far"
    with pytest.raises(AgainLater):
        await provider.launch(order_for("nod_1", offer))
    assert cloud.bought("nod_1") == 1, "the answer was lost, the machine was not"
    machine = await provider.launch(order_for("nod_1", offer))
    assert machine.id == cloud.purchases[0].machine_id
    assert [call for call in cloud.calls if call[0] == "launch"] == [("launch", "nod_1")] * 5


async def test_late_listing_follows_the_clock(cloud: FakeCloud, clock: ManualClock) -> None:
    cloud.pace = Pace(list_after_s=20)
    provider = provider_over(cloud)
    machine = await provider.launch(order_for("nod_1", cloud.offers[0]))
    assert await provider.machines() == ()
    assert await provider.find("nod_1") is None
    assert cloud.alive() == ("nod_1",), "it costs although it is not listed"
    clock.advance(20)
    assert [each.id for each in await provider.machines()] == [machine.id]


async def test_preempted_is_listed_as_gone_and_deleted_is_not_listed(cloud: FakeCloud) -> None:
    provider = provider_over(cloud)
    for tag in ("nod_1", "nod_2"):
        await provider.launch(order_for(tag, cloud.offers[0]))
    await cloud.preempt("nod_1")
    await cloud.delete_out_of_band("nod_2")
    found = await provider.find("nod_1")
    assert found is not None
    assert (found.state, found.reason) == ("gone", "preempted")
    assert await provider.find("nod_2") is None
    assert cloud.alive() == ()
    again = await provider.launch(order_for("nod_1", cloud.offers[0]))
    assert again.state == "gone", "a tag is not bought for twice"
    assert cloud.duplicates() == ()


async def test_forgetful_cloud_shows_who_buys_twice(cloud: FakeCloud) -> None:
    cloud.forgetful = True
    provider = provider_over(cloud)
    await provider.launch(order_for("nod_1", cloud.offers[0]))
    await cloud.preempt("nod_1")
    await provider.launch(order_for("nod_1", cloud.offers[0]))
    assert cloud.duplicates() == ("nod_1",)


async def test_terminate_fails_for_a_while(cloud: FakeCloud, clock: ManualClock) -> None:
    provider = provider_over(cloud)
    machine = await provider.launch(order_for("nod_1", cloud.offers[0]))
    cloud.fail_terminate(30)
    with pytest.raises(AgainLater):
        await provider.terminate("nod_1", machine.id)
    assert cloud.alive() == ("nod_1",)
    clock.advance(30)
    await provider.terminate("nod_1", machine.id)
    assert cloud.alive() == ()


async def test_regions_prices_and_stock(cloud: FakeCloud) -> None:
    cloud.offers = regions(fake_offer("g", on_demand_micro=5, spot_micro=2, available=1), ("east", "west"))
    provider = provider_over(cloud)
    east, west = await provider.offers()
    assert (east.region, west.region) == ("east", "west")
    assert east.id != west.id
    cloud.refuse_region("east", Refuse("no capacity in east", "capacity"))
    with pytest.raises(Refused, match="east"):
        await provider.launch(order_for("nod_1", east))
    await provider.launch(order_for("nod_1", west))
    with pytest.raises(Refused) as refused:
        await provider.launch(order_for("nod_2", west))
    assert refused.value.code == "capacity"
    cloud.offers = ()
    with pytest.raises(Gone):
        await provider.launch(order_for("nod_3", west))
    purchase = cloud.purchases[0]
    assert (purchase.tag, purchase.price_micro, purchase.market) == ("nod_1", 5, "on_demand")


async def test_deployments_do_not_see_each_other(cloud: FakeCloud) -> None:
    ours, theirs = provider_over(cloud), provider_over(cloud, "other")
    await ours.launch(order_for("nod_1", cloud.offers[0]))
    assert await theirs.machines() == ()
    await theirs.terminate("nod_1", None)
    assert cloud.alive() == ("nod_1",)
    stray = cloud.add_stray("nod_stray", "test", "prv_fake", cloud.offers[0])
    assert stray.id in [machine.id for machine in await ours.machines()]


async def test_hooks_hear_of_each_machine_once(cloud: FakeCloud) -> None:
    begun: list[str] = []
    ended: list[str] = []

    async def on_launch(order: LaunchOrder, machine: Machine) -> None:
        begun.append(order.tag)

    async def on_end(tag: str) -> None:
        ended.append(tag)

    cloud.on_launch, cloud.on_end = on_launch, on_end
    provider = provider_over(cloud)
    for _ in range(2):
        await provider.launch(order_for("nod_1", cloud.offers[0]))
    for _ in range(2):
        await provider.terminate("nod_1", None)
    assert (begun, ended) == (["nod_1"], ["nod_1"])


async def test_chaos_is_the_same_for_the_same_seed(clock: ManualClock) -> None:
    async def story(seed: int) -> list[str]:
        cloud = FakeCloud(clock, chaos=Chaos(seed, refuse=0.2, again=0.2, lose=0.2))
        provider = provider_over(cloud)
        told: list[str] = []
        for number in range(40):
            try:
                await provider.launch(order_for(f"nod_{number}", cloud.offers[0]))
                told.append("ok")
            except (Refused, AgainLater) as error:
                told.append(error.message)
        return told

    assert await story(1) == await story(1)
    assert await story(1) != await story(2)
    assert len(set(await story(1))) == 4, "every kind of trouble was met, and none"


async def test_in_a_daemon_each_row_has_a_world_of_its_own_that_lasts(tmp_path: Path) -> None:
    registry = standard({"SKY_FAKE_PROVIDER": "1"})
    context = Context(tmp_path, "test", ManualClock())

    def built(provider_id: str, config: dict[str, object]) -> Provider:
        return registry.build("fake", provider_id, provider_id, config, {}, context)

    cheap = built("prv_1", {"price_per_hour_usd": 0.5, "regions": ["a", "b"]})
    offers = await cheap.offers()
    assert [(offer.region, offer.on_demand_micro) for offer in offers] == [("a", 500_000), ("b", 500_000)]
    await cheap.launch(order_for("nod_1", offers[0]))
    assert await built("prv_1", {}).find("nod_1") is not None
    refusing = built("prv_2", {"refuse": "sold out"})
    assert await refusing.find("nod_1") is None
    with pytest.raises(Refused, match="sold out"):
        await refusing.launch(order_for("nod_2", (await refusing.offers())[0]))
