"""Machines that no row owns, when some of them cannot be ended."""

from __future__ import annotations

from pathlib import Path

from tests.flows.world import World

from sky.providers.fake.trouble import Refuse
from sky.store.schema import providers
from sky.verbs import providers as provider_verbs
from sky.wire import v1


async def test_a_stray_that_cannot_be_ended_does_not_shield_the_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.provider()
    await world.settle()
    (provider,) = world.rows(providers)
    strays = {"nod_first", "nod_second", "nod_third"}
    for tag in strays:
        world.cloud.add_stray(tag, "test", provider["id"], world.cloud.offers[0])
    world.cloud.then("terminate", Refuse("it is protected"))

    def asked() -> list[str | None]:
        return [tag for method, tag in world.cloud.calls if method == "terminate"]

    await world.settle(lambda: len(asked()) >= len(strays), seconds=90, step_s=1.0)
    assert set(asked()[: len(strays)]) == strays, "each is tried before one is tried again"
    await world.settle(lambda: not world.cloud.alive(), seconds=200, step_s=1.0)
    world.close()


async def test_two_providers_over_one_account_leave_each_others_machines_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    before = sorted(world.cloud.alive())
    second = v1.ProviderCreate(kind="fake", name="the-same-cloud")
    await world.db.write(lambda tx: provider_verbs.create(tx, second, world.rules))
    await world.live(130, step_s=2.0)
    assert sorted(world.cloud.alive()) == before
    assert "node.lost" not in world.names()
    world.close()
