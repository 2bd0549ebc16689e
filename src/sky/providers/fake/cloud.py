"""A cloud in memory: what it sells, what was bought, and how it misbehaves.

Decides: which machines exist at a moment, and what the next call meets: a refusal, a delay, a lost answer.
Never: starts a process, or reads any time but its clock's; nothing here ends with the daemon that uses it.
Follows: a test owns a ``FakeCloud``, gives it to one daemon after another, arranges the failure that
matters, and at the end asks ``duplicates()`` and ``alive()`` what the failures have cost.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from sky.domain.offer import Market, Offer, offer_id
from sky.kit.clock import SECOND_US, Clock
from sky.providers.base import AgainLater, Gone, LaunchOrder, Machine, Refused
from sky.providers.fake.disks import FakeDisks
from sky.providers.fake.trouble import Behaviour, Chaos, LoseAnswer, Method, Refuse, TryLater


@dataclass(frozen=True, slots=True)
class Purchase:
    """One machine that was bought. ``price_micro`` is micro-dollars per hour."""

    tag: str
    machine_id: str
    provider_id: str
    offer: Offer
    market: Market
    price_micro: int
    at_us: int


@dataclass(slots=True)
class FakeMachine:
    """A machine's times in microseconds; what it is at a moment follows from them."""

    id: str
    tag: str
    deployment: str
    provider_id: str
    offer: Offer
    market: Market
    launched_us: int
    listed_us: int
    running_us: int
    gone_us: int | None = None
    reason: str | None = None
    forgotten: bool = False
    disk: str | None = None

    def is_gone(self, now_us: int) -> bool:
        return self.gone_us is not None and self.gone_us <= now_us

    def seen(self, now_us: int) -> Machine:
        """What the provider says of it at that moment."""
        gone = self.is_gone(now_us)
        running = not gone and self.running_us <= now_us
        return Machine(
            id=self.id,
            tag=self.tag,
            state="gone" if gone else "running" if running else "pending",
            address=f"fake:{self.id}" if running else None,
            launched_us=self.launched_us,
            reason=self.reason if gone else None,
            binding={
                "machine": self.id,
                "region": self.offer.region,
                "instance_type": self.offer.instance_type,
            },
            provider_id=self.provider_id,
        )


@dataclass(slots=True)
class Pace:
    """How long things take, in seconds: to be running, to be listed, to be gone, to answer at all."""

    boot_s: float = 0.0
    list_after_s: float = 0.0
    end_s: float = 0.0
    answer_s: float = 0.0


def fake_offer(
    instance_type: str = "fake-1",
    *,
    region: str | None = "here",
    cpus: int = 1,
    memory_gb: float = 2.0,
    on_demand_micro: int | None = 1_000_000,
    spot_micro: int | None = None,
    accelerator: str | None = None,
    accelerator_count: int = 0,
    available: int | None = None,
) -> Offer:
    """Something to sell. The provider that shows it fills in its own id and name."""
    return Offer(
        id=offer_id("", instance_type, region),
        provider_id="",
        provider_name="",
        kind="fake",
        instance_type=instance_type,
        cpus=cpus,
        memory_gb=memory_gb,
        accelerator=accelerator,
        accelerator_count=accelerator_count,
        vram=24.0 if accelerator else None,
        disk_gb=20.0,
        architecture="x86_64",
        region=region,
        available=available,
        on_demand_micro=on_demand_micro,
        spot_micro=spot_micro,
    )


@dataclass
class FakeCloud:
    """The world. Its attributes may be changed at any time.

    ``forgetful``: a machine that is gone is also forgotten by its tag, so that a second launch for a node
    whose machine has ended buys another. Real clouds do that after some hours, and it must not happen.
    ``unstoppable``: no machine can be ended without its disk, which some tell only when they are asked.
    """

    clock: Clock
    offers: tuple[Offer, ...] = (fake_offer("fake-1"), fake_offer("fake-2", cpus=2, memory_gb=4.0))
    pace: Pace = field(default_factory=Pace)
    chaos: Chaos | None = None
    forgetful: bool = False
    unstoppable: bool = False
    on_launch: Callable[[LaunchOrder, Machine], Awaitable[None]] | None = None
    on_end: Callable[[str], Awaitable[None]] | None = None
    purchases: list[Purchase] = field(default_factory=list[Purchase], init=False)
    calls: list[tuple[Method, str | None]] = field(
        default_factory=list[tuple[Method, str | None]], init=False
    )

    disks: FakeDisks = field(default_factory=FakeDisks, init=False)

    def __post_init__(self) -> None:
        self._machines: dict[str, FakeMachine] = {}
        self._tags: dict[tuple[str, str], str] = {}
        self._next: dict[Method, deque[Behaviour]] = {}
        self._always: dict[Method, Behaviour] = {}
        self._refused_regions: dict[str, Refuse] = {}
        self._terminate_fails_until_us = 0
        self._random = random.Random(self.chaos.seed if self.chaos else 0)

    # ── what a test arranges ────────────────────────────────────────────────────────────────────

    def then(self, method: Method, *behaviours: Behaviour) -> None:
        """The next calls of ``method`` meet these, one each, in this order."""
        self._next.setdefault(method, deque()).extend(behaviours)

    def always(self, method: Method, behaviour: Behaviour | None) -> None:
        """Every call of ``method`` meets this from now on; None makes it well again."""
        if behaviour is None:
            self._always.pop(method, None)
        else:
            self._always[method] = behaviour

    def refuse_region(self, region: str, refusal: Refuse | None) -> None:
        """Launches in ``region`` are refused from now on; None opens it again."""
        if refusal is None:
            self._refused_regions.pop(region, None)
        else:
            self._refused_regions[region] = refusal

    def fail_terminate(self, seconds: float) -> None:
        """Every terminate within the next ``seconds`` of the clock fails and does nothing."""
        self._terminate_fails_until_us = self.clock.now_us() + round(seconds * SECOND_US)

    async def preempt(self, tag: str) -> None:
        """The cloud takes the machine of ``tag`` back; it stays listed, as gone."""
        await self._end(self._of_tag(tag), "preempted", forget=False)

    async def delete_out_of_band(self, tag: str) -> None:
        """Somebody deletes the machine of ``tag`` behind our back; it is in no listing any more."""
        await self._end(self._of_tag(tag), "deleted", forget=True)

    def add_stray(self, tag: str, deployment: str, provider_id: str, offer: Offer) -> Machine:
        """A running machine of this deployment that no row knows of."""
        return self._create(tag, deployment, provider_id, offer, "on_demand").seen(self.clock.now_us())

    def restore(
        self,
        tag: str,
        deployment: str,
        provider_id: str,
        offer: Offer,
        market: Market,
        *,
        over: bool,
        disk: str | None = None,
    ) -> None:
        """A machine that was bought before this world was made."""
        machine = self._create(tag, deployment, provider_id, offer, market)
        machine.disk = disk
        if over:
            machine.gone_us, machine.reason = machine.launched_us, "ended"

    # ── what a test asks ────────────────────────────────────────────────────────────────────────

    def bought(self, tag: str) -> int:
        """How many machines were ever bought for that tag."""
        return sum(1 for purchase in self.purchases if purchase.tag == tag)

    def duplicates(self) -> tuple[str, ...]:
        """Tags that more than one machine was bought for. Must be empty at the end of every test."""
        tags = [purchase.tag for purchase in self.purchases]
        return tuple(sorted({tag for tag in tags if tags.count(tag) > 1}))

    def alive(self) -> tuple[str, ...]:
        """Tags of the machines that cost money now, listed or not."""
        now_us = self.clock.now_us()
        return tuple(machine.tag for machine in self._machines.values() if not machine.is_gone(now_us))

    # ── what the provider's calls come down to ──────────────────────────────────────────────────

    def meet(self, method: Method, tag: str | None) -> Behaviour | None:
        """Count a call, and say what it meets. Each arranged behaviour is used up by one call."""
        self.calls.append((method, tag))
        arranged = self._next.get(method)
        if arranged:
            return arranged.popleft()
        if method in self._always:
            return self._always[method]
        chaos = self.chaos
        if chaos is None or method not in chaos.methods:
            return None
        draw = self._random.random()
        for chance, behaviour in (
            (chaos.refuse, Refuse()),
            (chaos.again, TryLater()),
            (chaos.lose, LoseAnswer()),
        ):
            if draw < chance:
                return behaviour
            draw -= chance
        return None

    def launch(self, order: LaunchOrder, deployment: str, provider_id: str) -> tuple[Machine, bool]:
        """The machine of that tag, and whether it was bought just now."""
        now_us = self.clock.now_us()
        known = self._known(deployment, order.tag)
        if known is not None and not (self.forgetful and known.is_gone(now_us)):
            return known.seen(now_us), False
        offer = self._sold(order)
        if order.disk is not None:
            self._check_free(deployment, order.disk)
            self.disks.give(deployment, order.disk)
        machine = self._create(order.tag, deployment, provider_id, offer, order.market)
        machine.disk = order.disk
        return machine.seen(now_us), True

    def listed(self, deployment: str) -> tuple[Machine, ...]:
        """The machines of that deployment which the listing shows by now."""
        now_us = self.clock.now_us()
        return tuple(
            machine.seen(now_us)
            for machine in self._machines.values()
            if machine.deployment == deployment and machine.listed_us <= now_us and not machine.forgotten
        )

    def find(self, deployment: str, tag: str) -> Machine | None:
        """The machine of that tag, once it is listed and as long as it is not forgotten."""
        now_us = self.clock.now_us()
        known = self._known(deployment, tag)
        if known is None or known.forgotten or known.listed_us > now_us:
            return None
        return known.seen(now_us)

    async def terminate(self, deployment: str, tag: str, *, keep_disk: bool = False) -> None:
        """Begin the end of that machine, if there is one, and of its disk, unless that is kept."""
        now_us = self.clock.now_us()
        if now_us < self._terminate_fails_until_us:
            raise AgainLater("the machine cannot be ended now", after_s=1.0)
        known = self._known(deployment, tag)
        if known is None or known.gone_us is not None:
            return
        if known.disk is not None and keep_disk and self.unstoppable:
            raise AgainLater(f"machine {known.id} cannot be stopped", after_s=1.0)
        known.gone_us, known.reason = now_us + round(self.pace.end_s * SECOND_US), "ended"
        if self.on_end is not None:
            await self.on_end(tag)
        if known.disk is not None and not keep_disk:
            await self.disks.remove(deployment, known.disk)

    async def remove_disk(self, deployment: str, name: str) -> None:
        """The end of a disk that no machine uses."""
        self._check_free(deployment, name)
        await self.disks.remove(deployment, name)

    def _check_free(self, deployment: str, disk: str) -> None:
        now_us = self.clock.now_us()
        for machine in self._machines.values():
            if (machine.deployment, machine.disk) == (deployment, disk) and not machine.is_gone(now_us):
                raise AgainLater(f"disk {disk} is still used by machine {machine.id}", after_s=1.0)

    def _create(
        self, tag: str, deployment: str, provider_id: str, offer: Offer, market: Market
    ) -> FakeMachine:
        now_us = self.clock.now_us()
        machine = FakeMachine(
            id=f"m-{len(self._machines) + 1:04d}",
            tag=tag,
            deployment=deployment,
            provider_id=provider_id,
            offer=offer,
            market=market,
            launched_us=now_us,
            listed_us=now_us + round(self.pace.list_after_s * SECOND_US),
            running_us=now_us + round(self.pace.boot_s * SECOND_US),
        )
        self._machines[machine.id] = machine
        self._tags[deployment, tag] = machine.id
        price_micro = offer.price_micro(market) or 0
        self.purchases.append(
            Purchase(tag, machine.id, provider_id, offer, market, price_micro, at_us=now_us)
        )
        return machine

    def _sold(self, order: LaunchOrder) -> Offer:
        wanted = (order.offer.instance_type, order.offer.region)
        for offer in self.offers:
            if (offer.instance_type, offer.region) == wanted:
                break
        else:
            raise Gone(f"{order.offer.instance_type} is no longer sold in {order.offer.region}")
        if offer.price_micro(order.market) is None:
            raise Refused(f"{offer.instance_type} is not sold as {order.market}", "capability_mismatch")
        refusal = self._refused_regions.get(offer.region or "")
        if refusal is not None:
            raise Refused(refusal.message, refusal.code)
        if offer.available is not None and self._taken(wanted) >= offer.available:
            raise Refused(f"no {offer.instance_type} is left in {offer.region}", "capacity")
        return offer

    def _taken(self, wanted: tuple[str, str | None]) -> int:
        now_us = self.clock.now_us()
        return sum(
            1
            for machine in self._machines.values()
            if (machine.offer.instance_type, machine.offer.region) == wanted and not machine.is_gone(now_us)
        )

    def _known(self, deployment: str, tag: str) -> FakeMachine | None:
        return self._machines.get(self._tags.get((deployment, tag), ""))

    def _of_tag(self, tag: str) -> FakeMachine:
        found = [machine for machine in self._machines.values() if machine.tag == tag]
        if not found:
            raise LookupError(f"no machine was ever bought for {tag}")
        return found[-1]

    async def _end(self, machine: FakeMachine, reason: str, *, forget: bool) -> None:
        machine.gone_us, machine.reason, machine.forgotten = self.clock.now_us(), reason, forget
        if self.on_end is not None:
            await self.on_end(machine.tag)


def regions(offer: Offer, names: Iterable[str]) -> tuple[Offer, ...]:
    """The same machine in several regions."""
    return tuple(
        fake_offer(
            offer.instance_type,
            region=name,
            cpus=offer.cpus,
            memory_gb=offer.memory_gb,
            on_demand_micro=offer.on_demand_micro,
            spot_micro=offer.spot_micro,
            accelerator=offer.accelerator,
            accelerator_count=offer.accelerator_count,
            available=offer.available,
        )
        for name in names
    )
