"""The conformance suite: what every provider must do, as tests that any test runner can collect.

Decides: what counts as a provider. Never: imports a test framework beside the standard library's, or
knows a kind of provider. Follows: a kind that passes can be bought from, and what a crash or a lost answer
leaves behind is found again. A kind's own tests are a class with two bases:

    class TestMine(ProviderContract, unittest.IsolatedAsyncioTestCase):
        described = Kind.of(MyProvider)
        wrong_configs = (({"port": "x"}, "port"),)
        def provider(self) -> Provider: ...       called again, it is the daemon that has come back
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from sky.domain.offer import Offer
from sky.providers.base import (
    AgainLater,
    AgentSetup,
    DiskKeeper,
    Kind,
    LaunchOrder,
    Machine,
    Provider,
    Refused,
    keeper_of,
)
from sky.providers.registry import check_config, check_credentials

TERMINATE_SECONDS_MAX = 2.0
POLL_SECONDS = 0.05
UNKNOWN = "nod_never0bought0by0anybody000"

T = TypeVar("T")


class ProviderContract:
    """Tests of one kind. Each begins with nothing bought and gives back what it has bought."""

    described: ClassVar[Kind]
    wrong_configs: ClassVar[tuple[tuple[dict[str, Any], str], ...]] = ()
    """Configurations that must be refused, each with the field that is wrong."""
    running_within_seconds: ClassVar[float] = 30.0
    gone_within_seconds: ClassVar[float] = 30.0

    def provider(self) -> Provider:
        """A provider in this test's deployment; every call is another object over the same machines."""
        raise AssertionError("a conformance test must say how its provider is made")

    async def wait(self, seconds: float) -> None:
        """Let so much of the provider's time pass."""
        await asyncio.sleep(seconds)

    def agent(self) -> AgentSetup:
        """Where machines call home: by default, where nobody listens."""
        return AgentSetup("http://127.0.0.1:9", "unused")

    async def order(self, tag: str) -> LaunchOrder:
        """The cheapest machine on demand, under that tag."""
        offers = [offer for offer in await self.provider().offers() if offer.on_demand_micro is not None]
        cheapest = min(offers, key=lambda offer: (offer.on_demand_micro or 0, offer.cpus))
        return LaunchOrder(tag, cheapest, "on_demand", self.agent(), ttl_seconds=60)

    # ── what it says of itself ──────────────────────────────────────────────────────────────────

    async def test_kind_is_described(self) -> None:
        """Names, times and capabilities make sense before anything is asked."""
        kind, provider = self.described, self.provider()
        assert kind.kind, "a kind has a name"
        assert kind.kind == provider.kind, "the description and the provider agree on the name"
        assert kind.offers_ttl_seconds > 0, "offers stay fresh for some seconds"
        assert 0 <= kind.capabilities.settle_seconds < 3600, "settling takes seconds, not hours"
        assert len(set(kind.credential_fields)) == len(kind.credential_fields), "a credential is named once"

    async def test_wrong_config_is_refused_with_its_field(self) -> None:
        """What is wrong is named; nothing unknown is passed over."""
        for config, field in (({"no_such_field": 1}, "no_such_field"), *self.wrong_configs):
            refusal = _refusal(lambda config=config: check_config(self.described, config))
            assert refusal is not None, f"the configuration {config} must be refused"
            assert refusal.code == "invalid_request", refusal.code
            assert field in (refusal.field or ""), f"{refusal.field} must name {field}"
            assert field in refusal.message, f"the message must name {field}: {refusal.message}"

    async def test_unknown_credential_is_refused_without_its_value(self) -> None:
        """A credential in the wrong place does not end up in a message."""
        refusal = _refusal(lambda: check_credentials(self.described, {"no_such_field": "hidden-value"}))
        assert refusal is not None, "an unknown credential must be refused"
        assert "no_such_field" in refusal.message
        assert "hidden-value" not in refusal.message

    async def test_offers_are_sane(self) -> None:
        """Sizes and prices are possible, ids are unique, and stay the same when asked again."""
        provider = self.provider()
        offers = await provider.offers()
        assert offers, "there is something to buy"
        for offer in offers:
            _check_offer(offer, provider.kind)
        ids = [offer.id for offer in offers]
        assert len(set(ids)) == len(ids), "every offer has an id of its own"
        assert {offer.id for offer in await self.provider().offers()} == set(ids), "an offer keeps its id"

    # ── buying ──────────────────────────────────────────────────────────────────────────────────

    async def test_launched_machine_runs_and_is_listed(self) -> None:
        """Launch names a machine; find and the listing show the same one."""
        provider, order = self.provider(), await self.order("nod_listed")
        machine = await self.buy(provider, order)
        assert machine.tag == order.tag, f"the machine carries the tag, not {machine.tag}"
        assert machine.state != "gone", machine.reason
        found = await self.until_running(provider, order.tag)
        assert found.id == machine.id, "find shows the machine that was launched"
        assert found.address, "a running machine has an address"
        await self.wait(self.described.capabilities.settle_seconds if self.virtual_time() else 0)
        for _ in range(2):
            listed = [each for each in await provider.machines() if each.tag == order.tag]
            assert [each.id for each in listed] == [machine.id], "it is listed once"

    async def test_launch_twice_is_one_machine(self) -> None:
        """One after the other, and both at once."""
        provider, order = self.provider(), await self.order("nod_twice")
        first = await self.buy(provider, order)
        second = await self.buy(provider, order)
        both = self.buy(provider, order), self.buy(self.provider(), order)
        third, fourth = await asyncio.gather(*both)
        assert {first.id, second.id, third.id, fourth.id} == {first.id}, "a tag has one machine"
        await self.until_running(provider, order.tag)
        assert await self.living() == [order.tag]

    async def test_launch_whose_answer_was_lost_is_found_again(self) -> None:
        """The caller dies while it waits; another one asks for the same."""
        order = await self.order("nod_lost")
        calling = asyncio.ensure_future(self.provider().launch(order))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        machine = await self.buy(self.provider(), order)
        found = await self.until_running(self.provider(), order.tag)
        assert found.id == machine.id, "the machine is the one that was bought first"
        assert await self.living() == [order.tag]

    async def test_market_that_is_not_sold_is_refused(self) -> None:
        """Nothing is bought at a price that nobody named."""
        order = await self.order("nod_market")
        unsold = [offer for offer in await self.provider().offers() if offer.spot_micro is None]
        for offer in unsold[:1]:
            spot = LaunchOrder(order.tag, offer, "spot", order.agent, order.ttl_seconds)
            code = ""
            try:
                await self.provider().launch(spot)
            except Refused as refusal:
                code = refusal.code
            assert code == "capability_mismatch", f"a market without a price must be refused, not '{code}'"
        assert await self.living() == []

    # ── finding ─────────────────────────────────────────────────────────────────────────────────

    async def test_unknown_tag_is_none(self) -> None:
        """Asking for what was never bought is no error."""
        provider = self.provider()
        assert await provider.find(UNKNOWN) is None
        assert await provider.find(UNKNOWN) is None
        assert UNKNOWN not in [machine.tag for machine in await provider.machines()]

    async def test_machines_outlive_the_daemon(self) -> None:
        """A provider that was made later finds, and ends, what an earlier one has bought."""
        order = await self.order("nod_outlives")
        machine = await self.buy(self.provider(), order)
        found = await self.until_running(self.provider(), order.tag)
        assert found.id == machine.id
        await self.end(self.provider(), order.tag, machine.id)
        await self.until_gone(self.provider(), order.tag)

    # ── ending ──────────────────────────────────────────────────────────────────────────────────

    async def test_terminate_of_unknown_is_done(self) -> None:
        """What is not there need not be ended, with or without a machine's id."""
        provider = self.provider()
        await provider.terminate(UNKNOWN, None)
        await provider.terminate(UNKNOWN, "no-such-machine")
        assert await provider.find(UNKNOWN) is None

    async def test_terminate_twice(self) -> None:
        """Each call returns soon; the machine ends once, and ending what has ended is done."""
        provider, order = self.provider(), await self.order("nod_ends")
        machine = await self.buy(provider, order)
        await self.until_running(provider, order.tag)
        for _ in range(2):
            took_s = await self.end(provider, order.tag, machine.id)
            assert took_s < TERMINATE_SECONDS_MAX, f"terminate took {took_s:.1f} s"
        await self.until_gone(provider, order.tag)
        await provider.terminate(order.tag, machine.id)
        found = await provider.find(order.tag)
        assert found is None or found.state == "gone", "it does not come back"
        assert await self.living() == []

    async def test_terminate_without_the_machine_id(self) -> None:
        """The answer to launch was never seen, so only the tag is known."""
        order = await self.order("nod_nameless")
        await self.buy(self.provider(), order)
        await self.end(self.provider(), order.tag, None)
        await self.until_gone(self.provider(), order.tag)

    async def test_ending_one_leaves_the_others(self) -> None:
        """Tags that begin alike are different machines."""
        provider = self.provider()
        first, second = await self.order("nod_one"), await self.order("nod_one_more")
        machines = [await self.buy(provider, first), await self.buy(provider, second)]
        assert machines[0].id != machines[1].id, "two tags are two machines"
        await self.until_running(provider, second.tag)
        await self.end(provider, first.tag, machines[0].id)
        await self.until_gone(provider, first.tag)
        assert await self.living() == [second.tag]

    # ── disks ───────────────────────────────────────────────────────────────────────────────────

    async def test_a_disk_outlives_its_machine(self) -> None:
        """It is there from the launch on, once, stays when its machine ends, and is the next one's."""
        keeper = self.keeper()
        if keeper is None:
            return
        order = replace(await self.order("nod_first"), disk="dsk-one")
        first = await self.buy(keeper, order)
        await self.until_running(keeper, order.tag)
        for _ in range(2):
            assert await keeper.disks() == ("dsk-one",), "a disk is listed from the launch on"
        for _ in range(2):
            await self.end(keeper, order.tag, first.id, keep_disk=True)
        await self.until_gone(keeper, order.tag)
        assert await keeper.disks() == ("dsk-one",), "a disk that is kept outlives its machine"
        then = replace(await self.order("nod_second"), disk="dsk-one")
        second, again = await self.buy(keeper, then), await self.buy(keeper, then)
        assert second.tag == again.tag == then.tag, "the next machine carries its own tag"
        assert second.id == again.id, "launched twice, it is one machine"
        await self.until_running(keeper, then.tag)
        assert await keeper.disks() == ("dsk-one",), "the next machine has the same disk, not another one"
        found = await keeper.find(order.tag)
        assert found is None or found.state == "gone", "the first machine does not come back with its disk"

    async def test_a_disk_in_use_is_not_removed_or_shared(self) -> None:
        """The caller is told to come again, and nothing has happened."""
        keeper = self.keeper()
        if keeper is None:
            return
        order = replace(await self.order("nod_user"), disk="dsk-used")
        await self.buy(keeper, order)
        await self.until_running(keeper, order.tag)
        other = replace(await self.order("nod_other"), disk="dsk-used")
        for _ in range(2):
            assert await _again(keeper.remove_disk("dsk-used")), "a disk in use is not removed"
            assert await _again(keeper.launch(other)), "two machines do not share a disk"
        assert await keeper.disks() == ("dsk-used",)
        assert await self.living() == [order.tag]

    async def test_a_disk_is_removed_once_and_for_all(self) -> None:
        """Removing what is gone, or never was, is done; with a machine of its own name it is a new disk."""
        keeper = self.keeper()
        if keeper is None:
            return
        order = replace(await self.order("nod_last"), disk="dsk-goes")
        machine = await self.buy(keeper, order)
        await self.end(keeper, order.tag, machine.id, keep_disk=False)
        await self.until_gone(keeper, order.tag)
        await self._until(lambda: _removed(keeper, "dsk-goes"), self.gone_within_seconds, "the disk goes")
        for _ in range(2):
            await keeper.remove_disk("dsk-goes")
            await keeper.remove_disk("dsk-never")
            assert await keeper.disks() == ()

    def keeper(self) -> DiskKeeper | None:
        """The provider, where its kind keeps disks; the tests of disks have nothing to hold another to."""
        return keeper_of(self.provider())

    # ── helpers, and what is done after each test ───────────────────────────────────────────────

    def virtual_time(self) -> bool:
        """Whether ``wait`` costs nothing, so that long times can be waited for."""
        return type(self).wait is not ProviderContract.wait

    async def living(self) -> list[str]:
        """Tags of the machines that are listed and not gone."""
        if self.virtual_time():
            await self.wait(self.described.capabilities.settle_seconds)
        return sorted(machine.tag for machine in await self.provider().machines() if machine.state != "gone")

    async def buy(self, provider: Provider, order: LaunchOrder) -> Machine:
        """The machine of an order, which is given again while the provider says later, as the daemon does."""
        what = f"{order.tag} is bought"
        return await self._until(lambda: provider.launch(order), self.running_within_seconds, what)

    async def end(self, provider: Provider, tag: str, machine_id: str | None, **keep_disk: bool) -> float:
        """Ask for a machine's end until the request was taken; the seconds that the longest call took."""
        loop = asyncio.get_running_loop()
        took_s: list[float] = []

        async def asked() -> bool:
            begun_s = loop.time()
            try:
                await provider.terminate(tag, machine_id, **keep_disk)
            finally:
                took_s.append(loop.time() - begun_s)
            return True

        await self._until(asked, self.gone_within_seconds, f"the end of {tag} is asked for")
        return max(took_s)

    async def until_running(self, provider: Provider, tag: str) -> Machine:
        """The machine of ``tag`` once it runs. Fails when it is gone, or when it takes too long."""

        async def running() -> Machine | None:
            machine = await provider.find(tag)
            assert machine is None or machine.state != "gone", f"{tag} is gone: {machine}"
            return machine if machine is not None and machine.state == "running" else None

        return await self._until(running, self.running_within_seconds, f"{tag} runs")

    async def until_gone(self, provider: Provider, tag: str) -> None:
        """Returns once the provider says that the machine of ``tag`` is gone."""

        async def gone() -> bool:
            machine = await provider.find(tag)
            return machine is None or machine.state == "gone"

        await self._until(gone, self.gone_within_seconds, f"{tag} is gone")

    async def asyncTearDown(self) -> None:
        """End whatever is left."""
        provider = self.provider()
        for tag in await self.living():
            await self._until(lambda tag=tag: _ended(provider, tag), self.gone_within_seconds, f"{tag} ends")
        for tag in await self.living():
            await self.until_gone(provider, tag)
        keeper = self.keeper()
        for name in () if keeper is None else await keeper.disks():
            await self._until(lambda name=name: _removed(keeper, name), self.gone_within_seconds, name)

    async def _until(self, check: Callable[[], Awaitable[T | None]], within_seconds: float, what: str) -> T:
        tries_max = max(1, round(within_seconds / POLL_SECONDS))
        said = ""
        for _ in range(tries_max):
            try:
                result = await check()
            except AgainLater as error:  # as loops do: they ask again
                result, said = None, f" ({error.message})"
            if result:
                return result
            await self.wait(POLL_SECONDS)
        raise AssertionError(f"not within {within_seconds:.0f} s: {what}{said}")


async def _again(call: Awaitable[object]) -> bool:
    """Whether a call is to be made again later."""
    try:
        await call
    except AgainLater:
        return True
    return False


async def _ended(provider: Provider, tag: str) -> bool:
    """Ask for a machine's end; whether it was given."""
    return not await _again(provider.terminate(tag, None))


async def _removed(keeper: DiskKeeper | None, name: str) -> bool:
    """Ask for a disk's end; whether it was given."""
    return keeper is not None and not await _again(keeper.remove_disk(name))


def _refusal(call: Callable[[], object]) -> Refused | None:
    """The refusal that a call is met with."""
    try:
        call()
    except Refused as refusal:
        return refusal
    return None


def _check_offer(offer: Offer, kind: str) -> None:
    """Everything that one offer says is possible."""
    assert offer.kind == kind, f"{offer.id} says it is of kind {offer.kind}"
    assert offer.id, "an offer has an id"
    assert offer.provider_id, f"{offer.id} says whose it is"
    assert offer.instance_type, f"{offer.id} says what it is"
    assert offer.cpus >= 1, f"{offer.instance_type} has {offer.cpus} cores"
    assert 0 < offer.memory_gb < 1_000_000, f"{offer.instance_type} has {offer.memory_gb} GiB"
    assert offer.accelerator_count >= 0, f"{offer.instance_type}: {offer.accelerator_count} accelerators"
    assert (offer.accelerator is None) == (offer.accelerator_count == 0), (
        f"{offer.instance_type} has {offer.accelerator_count} of {offer.accelerator}"
    )
    prices = [price for price in (offer.on_demand_micro, offer.spot_micro) if price is not None]
    assert prices, f"{offer.instance_type} has no price on any market"
    for price in prices:
        assert isinstance(price, int), f"{offer.instance_type}: {price!r} is not in whole micro-dollars"
        assert 0 <= price <= 10**12, f"{offer.instance_type} costs {price} micro-dollars an hour"
    assert offer.available is None or offer.available >= 0, f"{offer.instance_type}: {offer.available} left"
