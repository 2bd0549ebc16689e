"""A wall clock that somebody sets: leases, deadlines, the order of events and machines do not care."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flows.world import World, keep_running, succeed

from sky.kit.clock import SECOND_US, ManualClock, SteadyClock
from sky.store.schema import computes, nodes
from sky.verbs import computes as compute_verbs
from sky.wire import v1

HOURS = 3_600.0


def test_a_steady_clock_never_steps_and_comes_nearer() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall)
    before = clock.now_us()
    wall.step_wall(2 * HOURS)
    assert clock.now_us() == before
    wall.advance(10)
    assert clock.now_us() - before == 11 * SECOND_US, "a tenth faster, until the gap is closed"
    for _ in range(25):
        wall.advance(HOURS)
        clock.now_us()
    assert clock.now_us() == wall.now_us()


def test_a_steady_clock_never_goes_back() -> None:
    wall = ManualClock()
    clock = SteadyClock(wall)
    moments = [clock.now_us()]
    for step in (-2 * HOURS, 0, 2 * HOURS, -0.5, 0):
        wall.step_wall(step)
        for seconds in (0.0, 0.001, 1.0):
            wall.advance(seconds)
            moments.append(clock.now_us())
    assert moments == sorted(moments)
    clock.not_before(moments[-1] + 5)
    assert clock.now_us() == moments[-1] + 5


@pytest.mark.parametrize("step_s", [2 * HOURS, -2 * HOURS])
async def test_a_step_while_the_daemon_runs_changes_nothing(world: World, step_s: float) -> None:
    compute = await world.begin(nodes=2, delete_on_exit=True)
    claim = v1.LeaseClaim(owner="me", ttl_seconds=60)
    await world.db.write(lambda tx: compute_verbs.claim_lease(tx, compute, claim))
    await world.settle(world.compute_is("ready"))
    world.answer = keep_running
    task = await world.call(timeout_seconds=600)
    await world.settle(world.sent(task))
    world.clock.step_wall(step_s)
    for _ in range(6):
        await world.live(15)
        await world.db.write(lambda tx: compute_verbs.claim_lease(tx, compute, claim))
    assert world.states(computes) == ["ready"]
    assert world.states(nodes) == ["ready", "ready"]
    assert world.task(task) == "running"
    world.answer = succeed
    await world.settle(world.task_is("succeeded", task), seconds=5)
    late = await world.call()
    await world.settle(world.task_is("succeeded", late), seconds=5)
    moments = [row.at_us for row in world.query("SELECT at_us FROM events ORDER BY seq")]
    assert moments == sorted(moments), "time goes with the order of events"
    await world.settle(world.compute_is("deleted"), seconds=90)


@pytest.mark.parametrize("step_s", [2 * HOURS, -2 * HOURS])
async def test_a_step_while_the_daemon_is_away_loses_no_machine(world: World, step_s: float) -> None:
    compute = await world.begin(nodes=2, delete_on_exit=True)
    claim = v1.LeaseClaim(owner="me", ttl_seconds=60)
    await world.db.write(lambda tx: compute_verbs.claim_lease(tx, compute, claim))
    await world.settle(world.compute_is("ready"))
    world.answer = keep_running
    task = await world.call()
    await world.settle(world.sent(task))
    world.clock.step_wall(step_s)
    world.die()
    await world.live(20)
    await world.db.write(lambda tx: compute_verbs.claim_lease(tx, compute, claim))
    await world.live(30)
    assert (world.states(computes), world.states(nodes)) == (["ready"], ["ready", "ready"])
    world.answer = succeed
    await world.settle(world.task_is("succeeded", task), seconds=10)
    assert len(world.cloud.purchases) == 2
    moments = [row.at_us for row in world.query("SELECT at_us FROM events ORDER BY seq")]
    assert moments == sorted(moments)


async def test_what_is_due_later_is_not_held_up_by_a_clock_that_was_set_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.begin(options=v1.Options(ssh_connect_timeout=30.0))
    world.on_agent = lambda one: setattr(one, "reachable", False)
    await world.settle(lambda: bool(world.agents))
    world.clock.step_wall(-2 * HOURS)
    world.die()
    world.on_agent = lambda _: None
    await world.settle(world.compute_is("ready"), seconds=60)
    world.check_books()
    world.close()


async def test_a_clock_that_stands_still_for_a_moment_keeps_the_order(world: World) -> None:
    await world.begin()
    tasks = await world.calls(5)
    await world.round()
    await world.round()
    await world.settle(world.task_is("succeeded", *tasks))
