"""The provider in front of a cloud in memory.

Decides: what one call meets, in this order: the usual delay, what was arranged, what really happens.
Never: keeps anything itself; the ``FakeCloud`` is the world, and outlives the daemons that use it.
Follows: a test shares one world between daemons (``kind_of``). A running daemon that was started with the
simulated kind switched on has one world per provider row (``separate_worlds``), whose machines never call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, ClassVar, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from sky.domain.money import to_micro
from sky.domain.offer import Offer, offer_id
from sky.kit import faults
from sky.providers.base import AgainLater, Capabilities, Gone, Kind, LaunchOrder, Machine, Refused, Setup
from sky.providers.fake.cloud import FakeCloud, Pace, fake_offer, regions
from sky.providers.fake.kept import Kept
from sky.providers.fake.trouble import Delay, LoseAnswer, Method, Refuse, TryLater, Vanish

T = TypeVar("T")
Usd = Annotated[float, Meta(ge=0, le=1_000_000)]


class FakeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The simulated kind's configuration. ``refuse``: every launch is refused with these words."""

    refuse: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    price_per_hour_usd: Usd = 0.0
    spot_price_per_hour_usd: Usd | None = None
    latency_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0
    boot_seconds: Annotated[float, Meta(ge=0, le=3_600)] = 0.0
    regions: Annotated[tuple[str, ...], Meta(min_length=1, max_length=16)] = ("here",)


class FakeProvider:
    """Sells what its world has."""

    kind: ClassVar[str] = "fake"
    credential_fields: ClassVar[tuple[str, ...]] = ("token",)
    offers_ttl_seconds: ClassVar[int] = 60
    config_fields: ClassVar[type[msgspec.Struct]] = FakeConfig
    capabilities: ClassVar[Capabilities] = Capabilities(
        volumes=False,
        apt=True,
        base_image=True,
        clustering=True,
        includes=True,
        settle_seconds=60.0,
        keeps_disks=True,
    )

    def __init__(self, setup: Setup, cloud: FakeCloud | None = None) -> None:
        self._setup = setup
        self._cloud = cloud if cloud is not None else world_of(setup)

    async def offers(self) -> tuple[Offer, ...]:
        async def act() -> tuple[Offer, ...]:
            setup = self._setup
            return tuple(
                replace(
                    offer,
                    id=offer_id(setup.provider_id, offer.instance_type, offer.region),
                    provider_id=setup.provider_id,
                    provider_name=setup.name,
                )
                for offer in self._cloud.offers
            )

        return await self._call("offers", None, act)

    async def launch(self, order: LaunchOrder) -> Machine:
        async def act() -> Machine:
            faults.point("fake.launch.before")
            setup = self._setup
            machine, new = self._cloud.launch(order, setup.context.deployment, setup.provider_id)
            if new and self._cloud.on_launch is not None:
                await self._cloud.on_launch(order, machine)
            faults.point("fake.launch.after")
            return machine

        return await self._call("launch", order.tag, act)

    async def machines(self) -> tuple[Machine, ...]:
        async def act() -> tuple[Machine, ...]:
            return self._cloud.listed(self._setup.context.deployment)

        return await self._call("machines", None, act)

    async def find(self, tag: str) -> Machine | None:
        async def act() -> Machine | None:
            return self._cloud.find(self._setup.context.deployment, tag)

        return await self._call("find", tag, act)

    async def terminate(self, tag: str, machine_id: str | None, *, keep_disk: bool = False) -> None:
        async def act() -> None:
            faults.point("fake.terminate.before")
            await self._cloud.terminate(self._setup.context.deployment, tag, keep_disk=keep_disk)
            faults.point("fake.terminate.after")

        return await self._call("terminate", tag, act)

    async def disks(self) -> tuple[str, ...]:
        async def act() -> tuple[str, ...]:
            return self._cloud.disks.names(self._setup.context.deployment)

        return await self._call("disks", None, act)

    async def remove_disk(self, name: str) -> None:
        async def act() -> None:
            faults.point("fake.remove_disk.before")
            await self._cloud.remove_disk(self._setup.context.deployment, name)
            faults.point("fake.remove_disk.after")

        return await self._call("remove_disk", name, act)

    async def _call(self, method: Method, tag: str | None, act: Callable[[], Awaitable[T]]) -> T:
        """Do ``act`` as the world has it: late, not at all, or without telling."""
        if self._cloud.pace.answer_s > 0:
            await asyncio.sleep(self._cloud.pace.answer_s)
        match self._cloud.meet(method, tag):
            case Refuse(message, code):
                raise Refused(message, code)
            case TryLater(message, after_s):
                raise AgainLater(message, after_s)
            case Vanish(message):
                raise Gone(message)
            case Delay(seconds):
                await asyncio.sleep(seconds)
                return await act()
            case LoseAnswer(after_s):
                await act()
                raise AgainLater("the answer was lost", after_s)
            case None:
                return await act()


def world_of(setup: Setup) -> FakeCloud:
    """A world made from a provider's configuration alone."""
    config = setup.config
    if not isinstance(config, FakeConfig):
        raise TypeError(f"a FakeConfig is needed, not {type(config).__name__}")
    spot = config.spot_price_per_hour_usd
    offer = fake_offer(
        "fake-1",
        cpus=2,
        memory_gb=4.0,
        on_demand_micro=to_micro(config.price_per_hour_usd),
        spot_micro=None if spot is None else to_micro(spot),
    )
    cloud = FakeCloud(
        setup.context.clock,
        offers=regions(offer, config.regions),
        pace=Pace(boot_s=config.boot_seconds, answer_s=config.latency_ms / 1000),
    )
    if config.refuse is not None:
        cloud.always("launch", Refuse(config.refuse, "capacity"))
    return cloud


def kind_of(cloud: FakeCloud) -> Kind:
    """The simulated kind in front of one shared world."""
    return Kind.of(FakeProvider, lambda setup: FakeProvider(setup, cloud))


def separate_worlds() -> Kind:
    """The simulated kind with a world per provider row, which is found again by the next daemon."""
    worlds: dict[str, FakeCloud] = {}

    def create(setup: Setup) -> FakeProvider:
        name, where = setup.provider_id, setup.context
        if name not in worlds:
            worlds[name] = world_of(setup)
            Kept(where.home / "fake" / f"{name}.jsonl", worlds[name], where.deployment, name)
        return FakeProvider(setup, worlds[setup.provider_id])

    return Kind.of(FakeProvider, create)
