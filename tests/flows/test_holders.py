"""Leases of computes: claimed, renewed, lapsed, let go of, and never taken."""

from __future__ import annotations

import pytest
from tests.flows.world import World

from sky.domain.errors import LeaseHeld
from sky.store.schema import computes
from sky.store.views import computes as views
from sky.verbs import computes as compute_verbs
from sky.wire import v1


async def shown(world: World) -> v1.Compute:
    return await world.db.read(lambda c: views.get(c, "fleet", world.db.clock.now_us()))


async def claim(world: World, owner: str, seconds: int = 60) -> None:
    body = v1.LeaseClaim(owner=owner, ttl_seconds=seconds)
    await world.db.write(lambda tx: compute_verbs.claim_lease(tx, "fleet", body))


async def test_a_lapsed_lease_deletes_what_asked_for_that(world: World) -> None:
    await world.begin(delete_on_exit=True)
    await claim(world, "me")
    await world.settle(world.compute_is("ready"))
    for _ in range(10):
        await world.live(20)
        await claim(world, "me")
    await world.live(55)
    assert world.compute_is("ready")()
    await world.settle(world.compute_is("deleted"), seconds=20)
    assert world.names().count("compute.abandoned") == 1
    assert world.cloud.alive() == ()


async def test_a_lapsed_lease_leaves_what_did_not_ask_for_that_to_the_next(world: World) -> None:
    await world.begin()
    await claim(world, "first")
    with pytest.raises(LeaseHeld):
        await claim(world, "second")
    await world.settle(lambda: world.rows(computes)[0]["lease_owner"] is None, seconds=90)
    await claim(world, "second")
    assert world.rows(computes)[0]["lease_owner"] == "second"
    assert world.compute_is("ready")()
    told = [name for name in world.names() if "lease" in name or "adopt" in name]
    assert told == ["compute.lease.claimed", "compute.lease.released", "compute.lease.claimed"]


async def test_a_lease_that_has_lapsed_is_taken_over_before_any_loop_has_looked(world: World) -> None:
    await world.begin(delete_on_exit=True)
    await claim(world, "first", 5)
    world.clock.advance(6)
    await claim(world, "second", 60)
    assert "compute.adopted" in world.names()
    await world.live(30)
    assert world.rows(computes)[0]["lease_owner"] == "second"
    with pytest.raises(LeaseHeld):
        await claim(world, "first")


async def test_what_nobody_ever_holds_is_deleted_where_that_was_asked_for(world: World) -> None:
    await world.begin(delete_on_exit=True)
    await world.settle(world.compute_is("ready"))
    await world.settle(world.compute_is("deleted"), seconds=70)
    assert world.names().count("compute.abandoned") == 1
    assert world.cloud.alive() == ()


async def test_what_was_let_go_of_waits_for_the_next_holder(world: World) -> None:
    await world.begin(delete_on_exit=True)
    for _ in range(3):
        await claim(world, "first")
        await world.live(50)
    await world.db.write(lambda tx: compute_verbs.release_lease(tx, "fleet", "first"))
    assert (await shown(world)).lease == v1.Lease()
    await world.live(50)
    await claim(world, "second")
    await world.live(50)
    assert world.compute_is("ready")()
    await world.db.write(lambda tx: compute_verbs.release_lease(tx, "fleet"))
    await world.settle(world.compute_is("deleted"), seconds=80)


async def test_holding_on_makes_no_events_and_no_work(world: World) -> None:
    await world.begin()
    await claim(world, "me")
    await world.settle(world.compute_is("ready"))
    before = len(world.names())
    for _ in range(30):
        await claim(world, "me")
    assert len(world.names()) == before


async def test_a_daemon_that_was_away_lets_holders_speak_first(world: World) -> None:
    await world.begin(delete_on_exit=True)
    await claim(world, "me")
    await world.settle(world.compute_is("ready"))
    world.clock.advance(300)
    for one in world.live_agents():
        one.heard_s = world.clock.monotonic_s()
    world.die()
    await world.live(50)
    assert world.compute_is("ready")()
    await claim(world, "me")
    await world.live(50)
    assert world.compute_is("ready")()
    await world.settle(world.compute_is("deleted"), seconds=60)
