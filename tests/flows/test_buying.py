"""Buying machines where clouds refuse, lose answers and take machines back; and giving them back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.flows.world import SimAgent, World, keep_running
from tests.proof import record

from sky.domain.errors import NameTaken, NotFound, ProviderInUse, ReleasePending
from sky.kit.clock import SECOND_US
from sky.providers.fake.cloud import Pace, fake_offer
from sky.providers.fake.trouble import Chaos, LoseAnswer, Refuse, TryLater, Vanish
from sky.store.schema import computes, nodes, providers
from sky.store.views import nodes as node_views
from sky.verbs import computes as compute_verbs
from sky.verbs import providers as provider_verbs
from sky.wire import v1

PROVIDER = v1.ProviderRef(kind="fake")


async def create(world: World) -> str:
    """Ask for another compute with the name ``fleet``."""
    spec = v1.ComputeSpec(specs=(v1.Spec(provider=PROVIDER),), nodes=v1.NodeBounds(desired=1))
    body = v1.ComputeCreate(spec=spec, name="fleet")
    return await world.db.write(lambda tx: compute_verbs.create(tx, body, world.rules))


def errors(world: World, name: str) -> list[str]:
    """What the events of that name say went wrong."""
    found = world.query("SELECT payload FROM events WHERE name = :name ORDER BY seq", name=name)
    return [error for row in found if (error := json.loads(row.payload)["error"])]


async def test_a_refused_offer_is_passed_over_and_the_next_one_taken(world: World) -> None:
    cheapest_first = ("north", "east", "south")
    world.cloud.offers = tuple(
        fake_offer(region=region, on_demand_micro=price) for price, region in enumerate(cheapest_first, 1)
    )
    for region in ("east", "north"):
        world.cloud.refuse_region(region, Refuse(f"no capacity in {region}", "capacity"))
    await world.begin()
    await world.settle(world.compute_is("ready"))
    (bought,) = world.cloud.purchases
    assert bought.offer.region == "south"
    told = errors(world, "node.requested")
    assert told
    assert all("no capacity in" in reason for reason in told), "the events say why each was passed over"
    shown = await world.db.read(lambda c: node_views.get(c, "fleet", bought.tag))
    assert shown.provider_binding["passed_over"] == [
        "fake/fake-1 in north, 1e-06 USD an hour: no capacity in north",
        "fake/fake-1 in east, 2e-06 USD an hour: no capacity in east",
    ], "and so does the node"
    assert world.row(computes, world.rows(computes)[0]["id"])["last_error"] is None


async def test_spot_that_is_refused_is_bought_on_demand_from_the_same_offer(world: World) -> None:
    world.cloud.offers = (fake_offer(spot_micro=10, on_demand_micro=100),)
    world.cloud.then("launch", Refuse("no spot capacity", "capacity"))
    await world.begin()
    await world.settle(world.compute_is("ready"), seconds=10)
    (bought,) = world.cloud.purchases
    assert world.row(nodes, bought.tag)["market"] == "on_demand"
    assert world.row(nodes, bought.tag)["price_micro"] == 100


async def test_when_all_are_refused_it_is_degraded_with_the_reason_and_then_recovers(world: World) -> None:
    world.cloud.refuse_region("here", Refuse("the quota is used up"))
    await world.begin()
    await world.settle(world.compute_is("degraded"))
    (row,) = world.rows(computes)
    assert row["last_error"]["message"] == "fake/fake-2 in here was refused: the quota is used up"
    assert row["last_error"]["retryable"]
    calls = len([c for c in world.cloud.calls if c[0] == "launch"])
    await world.live(120)
    more = len([c for c in world.cloud.calls if c[0] == "launch"]) - calls
    assert 4 <= more <= 10, "each offer about every half a minute, and not in a loop"
    assert world.names().count("compute.degraded") == 1
    world.cloud.refuse_region("here", None)
    await world.settle(world.compute_is("ready"), seconds=60)
    assert len(world.cloud.purchases) == 1


async def test_a_provider_without_room_is_asked_by_one_node_and_not_by_all(world: World) -> None:
    world.cloud.refuse_region("here", Refuse("no capacity", "capacity"))
    await world.begin(nodes=12)
    await world.settle(world.compute_is("degraded"))
    await world.live(20)

    def launches() -> int:
        return len([c for c in world.cloud.calls if c[0] == "launch"])

    asked = launches()
    await world.live(120)
    assert 4 <= launches() - asked <= 16, "each of two offers about twice a minute, for all twelve together"
    waiting = [row["last_error"] for row in world.rows(nodes)]
    assert all("refused" in error["message"] for error in waiting), "and each says what it waits for"
    world.cloud.refuse_region("here", None)
    await world.settle(world.compute_is("ready"), seconds=60)
    assert len(world.cloud.purchases) == 12


async def test_what_is_sold_out_may_be_had_later(world: World) -> None:
    world.cloud.offers = (fake_offer(available=0),)
    await world.begin()
    await world.settle(world.compute_is("degraded"))
    assert "sold out" in world.rows(computes)[0]["last_error"]["message"]
    world.cloud.offers = (fake_offer(available=1),)
    await world.settle(world.compute_is("ready"), seconds=200)


async def test_a_compute_that_serves_outlives_that_no_more_can_be_bought(world: World) -> None:
    world.cloud.offers = (fake_offer(available=1),)
    await world.begin()
    await world.settle(world.compute_is("ready"))
    await world.resize(3)
    await world.settle(world.compute_is("degraded"))
    task = await world.call()
    await world.settle(world.task_is("succeeded", task))
    world.cloud.offers = (fake_offer(on_demand_micro=None),)
    await world.live(300, step_s=2.0)
    assert world.compute_is("degraded")()
    assert len(world.live_agents()) == 1, "what is there stays"
    world.cloud.offers = (fake_offer(),)
    await world.settle(world.compute_is("ready"), seconds=900, step_s=2.0)


async def test_what_can_never_be_bought_fails_at_once_and_says_why(world: World) -> None:
    compute = await world.begin(specs=(v1.Spec(provider=PROVIDER, cpus=64),))
    queued = await world.call()
    await world.settle(world.compute_is("failed"), seconds=5)
    error = world.row(computes, compute)["last_error"]
    assert error["code"] == "capability_mismatch"
    assert not error["retryable"]
    assert "fake/fake-1 in here: has 1 cpus, 64 wanted" in error["message"]
    assert "fake/fake-2 in here: has 2 cpus, 64 wanted" in error["message"]
    await world.settle(world.task_is("cancelled", queued))
    assert world.cloud.purchases == []
    await world.delete()
    await world.settle(world.compute_is("deleted"))


async def test_dearer_offers_than_allowed_are_not_bought(world: World) -> None:
    world.cloud.offers = (
        fake_offer("dear", on_demand_micro=3_000_000),
        fake_offer("fair", on_demand_micro=2_000_000),
    )
    await world.begin(specs=(v1.Spec(provider=PROVIDER, max_hourly_cost=2.0),), selection="first")
    await world.settle(world.compute_is("ready"))
    assert [p.offer.instance_type for p in world.cloud.purchases] == ["fair"]


async def test_an_offer_that_was_withdrawn_is_passed_over(world: World) -> None:
    world.cloud.then("launch", Vanish())
    await world.begin()
    await world.settle(world.compute_is("ready"))
    assert [p.offer.instance_type for p in world.cloud.purchases] == ["fake-2"]


@pytest.mark.parametrize("times", [1, 5])
async def test_a_lost_answer_buys_one_machine(world: World, times: int) -> None:
    world.cloud.then("launch", *[LoseAnswer()] * times)
    await world.begin()
    await world.settle(world.compute_is("ready"))
    assert len(world.cloud.purchases) == 1
    assert [c for c in world.cloud.calls if c[0] == "launch"][times:] != []


async def test_a_cloud_that_is_away_is_asked_again_after_its_time(world: World) -> None:
    world.cloud.always("launch", TryLater("an outage", after_s=10.0))
    await world.begin()
    await world.settle(world.compute_is("degraded"))
    assert "an outage" in world.rows(computes)[0]["last_error"]["message"]
    before = len(world.cloud.calls)
    await world.live(100)
    asked = [c for c in world.cloud.calls[before:] if c[0] == "launch"]
    assert 8 <= len(asked) <= 12, "not more often than it said"
    world.cloud.always("launch", None)
    await world.settle(world.compute_is("ready"))


async def test_offers_that_cannot_be_read_are_told(world: World) -> None:
    world.cloud.always("offers", Refuse("the token is wrong", "unauthorized"))
    await world.begin()
    await world.settle(world.compute_is("degraded"))
    assert "the token is wrong" in world.rows(computes)[0]["last_error"]["message"]
    world.cloud.always("offers", None)
    await world.settle(world.compute_is("ready"), seconds=180)


async def test_a_machine_that_does_not_call_is_given_back_and_another_bought(world: World) -> None:
    world.on_agent = lambda one: setattr(one, "reachable", len(world.agents) > 1)
    await world.begin(options=v1.Options(ssh_connect_timeout=20.0))
    await world.settle(lambda: bool(world.agents))
    (mute,) = world.agents.values()
    await world.settle(world.compute_is("ready"), seconds=60)
    assert world.row(nodes, mute.node_id)["last_error"]["message"].endswith("its agent did not call in time")
    assert len(world.cloud.purchases) == 2
    await world.settle(lambda: world.row(nodes, mute.node_id)["state"] == "deleted")


async def test_machines_that_break_again_and_again_fail_a_compute_that_was_never_ready(world: World) -> None:
    world.on_agent = breaks
    await world.begin()
    await world.settle(world.compute_is("failed"))
    assert len(world.cloud.purchases) == 3
    assert "no such package" in world.rows(computes)[0]["last_error"]["message"]
    await world.settle(lambda: world.cloud.alive() == ())


async def test_machines_that_break_later_do_not_end_a_compute_that_was_ready(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    world.on_agent = breaks
    await world.cloud.preempt(world.live_agents()[0].node_id)
    await world.live(900)
    assert world.compute_is("degraded")()
    assert "no such package" in world.rows(computes)[0]["last_error"]["message"]
    assert 4 <= len(world.cloud.purchases) <= 8, "ever later, and not in a loop"


def breaks(one: SimAgent) -> None:
    """A machine whose environment cannot be made."""
    one.error, one.ready = "no such package: nummpy", False


async def test_a_machine_that_is_taken_before_it_is_ready_says_nothing_about_the_next(world: World) -> None:
    world.on_agent = lambda one: setattr(one, "reachable", len(world.agents) > 4)
    await world.begin()
    for number in range(1, 5):
        await world.settle(lambda n=number: len(world.cloud.purchases) == n, seconds=600, step_s=1.0)
        await world.cloud.preempt(world.cloud.purchases[-1].tag)
    await world.settle(world.compute_is("ready"), seconds=900, step_s=1.0)


# ── giving back ─────────────────────────────────────────────────────────────────────────────────


async def test_a_terminate_that_fails_for_an_hour_keeps_trying_and_says_so(world: World) -> None:
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    world.cloud.fail_terminate(3_600)
    await world.delete()
    await world.live(3_590, step_s=10.0)
    assert world.compute_is("deleting")()
    assert world.states(nodes) == ["deleting", "deleting"]
    assert len(world.cloud.alive()) == 2
    assert world.names().count("compute.deletion_failed") == 2, "once for each machine"
    assert "still costs" in errors(world, "compute.deletion_failed")[0]
    tried = len([c for c in world.cloud.calls if c[0] == "terminate"])
    assert 100 <= tried <= 400, "about twice a minute for each, and not in a loop"
    with pytest.raises(ReleasePending):
        await create(world)
    await world.settle(world.compute_is("deleted"), seconds=60)
    assert world.cloud.alive() == ()
    record(ends_refused=tried, machines_left=0)


async def test_machines_that_take_their_time_are_deleted_on_their_providers_word(tmp_path: Path) -> None:
    world = World(tmp_path, pace=Pace(end_s=30.0))
    await world.begin()
    await world.settle(world.compute_is("ready"))
    await world.delete()
    await world.live(29)
    assert world.states(nodes) == ["deleting"]
    await world.settle(world.compute_is("deleted"), seconds=10)
    world.check_books()
    world.close()


async def test_a_purchase_whose_answer_was_lost_is_given_back_too(tmp_path: Path) -> None:
    """The machine is listed late, its purchase was never confirmed, and nobody wants it any more."""
    world = World(tmp_path, pace=Pace(list_after_s=30.0))
    world.cloud.always("launch", LoseAnswer())
    await world.begin()
    await world.settle(lambda: len(world.cloud.purchases) == 1)
    await world.delete()
    await world.settle(world.compute_is("deleted"), seconds=200)
    assert world.cloud.alive() == ()
    world.check_books()
    world.close()


async def test_machines_that_no_row_owns_are_ended(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    (provider,) = world.rows(providers)
    world.cloud.add_stray("nod_nobody", "test", provider["id"], world.cloud.offers[0])
    world.cloud.add_stray("nod_other", "another deployment", provider["id"], world.cloud.offers[0])
    del world.cloud.purchases[-2:]
    await world.settle(lambda: "nod_nobody" not in world.cloud.alive(), seconds=90, step_s=1.0)
    assert "nod_other" in world.cloud.alive(), "what another deployment has is its own"
    assert len(world.live_agents()) == 1


async def test_a_machine_that_shows_up_after_its_node_was_over_is_ended_and_told(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    (provider,) = world.rows(providers)
    gone = world.live_agents()[0].node_id
    await world.db.write(lambda tx: compute_verbs.delete_node(tx, "fleet", gone))
    await world.settle(lambda: world.row(nodes, gone)["state"] == "deleted")
    world.cloud.add_stray(gone, "test", provider["id"], world.cloud.offers[0])
    world.cloud.purchases.pop()
    await world.settle(lambda: "compute.strays_terminated" in world.names(), seconds=90, step_s=1.0)
    assert gone not in world.cloud.alive()
    await world.settle(world.compute_is("ready"))


async def test_one_node_given_back_by_hand_is_replaced(world: World) -> None:
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    first = world.live_agents()[0].node_id
    await world.db.write(lambda tx: compute_verbs.delete_node(tx, "fleet", first))
    await world.settle(lambda: world.row(nodes, first)["state"] == "deleted")
    await world.settle(world.compute_is("ready"))
    assert len(world.cloud.purchases) == 3


@pytest.mark.parametrize(("deaf", "ran_as"), [(False, "cancelled"), (True, "indeterminate")])
async def test_deleting_a_compute_cancels_its_calls_as_far_as_nodes_confirm_that(
    world: World, deaf: bool, ran_as: str
) -> None:
    world.answer = keep_running
    await world.begin()
    await world.settle(world.compute_is("ready"))
    running = await world.calls(2)
    await world.settle(lambda: len(world.ran) == 2)
    waiting = await world.calls(3)
    await world.round()
    for agent in world.live_agents():
        agent.deaf = deaf
    asked_us = world.clock.now_us()
    await world.delete()
    await world.settle(world.compute_is("deleted"))
    assert {world.task(task) for task in waiting} == {"cancelled"}
    assert {world.task(task) for task in running} == {ran_as}
    waited_s = (world.clock.now_us() - asked_us) / SECOND_US
    assert waited_s < (90 if deaf else 10), "no machine is kept for longer than that"
    assert world.cloud.alive() == ()
    again = await create(world)
    assert again != world.rows(computes)[0]["id"], "the name of a deleted compute is free"


async def test_a_name_is_taken_while_its_compute_lives(world: World) -> None:
    await world.begin()
    with pytest.raises(NameTaken):
        await create(world)


async def test_a_provider_in_use_cannot_be_removed(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    with pytest.raises(ProviderInUse):
        await world.db.write(lambda tx: provider_verbs.delete(tx, "fake"))
    await world.delete()
    with pytest.raises(ProviderInUse):
        await world.db.write(lambda tx: provider_verbs.delete(tx, "fake"))
    await world.settle(world.compute_is("deleted"))
    await world.db.write(lambda tx: provider_verbs.delete(tx, "fake"))
    with pytest.raises(NotFound):
        await world.db.write(lambda tx: provider_verbs.delete(tx, "fake"))
    await world.live(70)


async def test_a_cloud_in_trouble_with_everything_costs_time_and_nothing_else(world: World) -> None:
    world.cloud.chaos = Chaos(seed=7, again=0.3, lose=0.2)
    await world.begin(nodes=4)
    tasks = await world.calls(12)
    await world.settle(world.task_is("succeeded", *tasks))
    await world.settle(world.compute_is("ready"), seconds=900, step_s=1.0)
    await world.delete()
    await world.settle(world.compute_is("deleted"), seconds=900, step_s=1.0)
    assert world.cloud.alive() == ()
