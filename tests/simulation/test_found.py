"""What the histories have found, each as a test of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.flows.test_clusters import is_in, state_of, up
from tests.flows.test_jobs import Shop
from tests.flows.world import World, keep_running
from tests.simulation.world import Elsewhere

from sky.domain.compute import ComputeResized, ComputeScaled
from sky.domain.money import MICRO
from sky.kit import faults
from sky.kit.clock import SECOND_US
from sky.providers.fake.cloud import Pace
from sky.providers.fake.trouble import Refuse
from sky.store.rows import jobs
from sky.store.schema import computes, executions, nodes
from sky.store.tx import Tx
from sky.verbs import reports
from sky.wire import agent as wire


async def resize(world: World, many: int) -> None:
    """Want so many nodes of the compute of a job or a cluster, as an earlier release let anybody do."""
    [compute] = world.rows(computes)
    assert compute["owner"] is not None
    spec = {**compute["spec"], "nodes": {**compute["spec"]["nodes"], "desired": many}}

    def write(tx: Tx) -> None:
        tx.apply(ComputeResized(compute["id"], spec))
        tx.apply(ComputeScaled(compute["id"], many, tx.now_us))

    await world.db.write(write)


async def test_a_report_that_arrives_late_makes_no_call_last_longer(tmp_path: Path) -> None:
    """A command of a paid job that ran for 5 s was charged for the minute that its report was on its way."""
    world = World(tmp_path)
    world.answer = keep_running
    await world.begin()
    await world.settle(world.compute_is("ready"))
    task = await world.call()
    await world.settle(lambda: world.tries(task)[-1]["state"] == "started")
    [agent] = world.live_agents()
    await world.live(5.0)
    execution = world.tries(task)[-1]["id"]
    report = wire.Report(
        number=agent.number + 1,
        outcomes=(wire.Outcome(execution=execution, state="succeeded", seconds=5.0, ago_s=0.0),),
    )
    await world.live(60.0)
    await world.db.write(lambda tx: reports.record(tx, agent.node_id, agent.boot, report))
    row = world.row(executions, execution)
    assert row["finished_us"] - row["started_us"] == 5 * SECOND_US
    step = await world.db.read(lambda connection: jobs.step_of(connection, task))
    assert step is not None
    assert step.finished_us == row["finished_us"], "what its job is charged for"
    world.close()


async def test_a_job_is_charged_by_the_machine_it_ran_on_and_no_other_of_its_compute(tmp_path: Path) -> None:
    """Somebody gave a job's compute a second node, and the job's own machine was lost: the job was charged
    until the newest node was heard, or for nothing where that was not heard yet."""
    shop = Shop(World(tmp_path), seconds=10_000.0, paid=100 * MICRO)
    world = shop.world
    await shop.open()
    job_id = await shop.submit(max_runtime_seconds=12_000)
    await world.settle(lambda: shop.job(job_id)["state"] == "running")
    [own] = world.live_agents()
    await resize(world, 2)
    await world.settle(lambda: world.states(nodes).count("ready") == 2)
    await world.live(60.0, step_s=2.0)
    ran_s = (world.clock.now_us() - shop.job(job_id)["started_us"]) / SECOND_US
    own.reachable = False
    await world.live(100.0, step_s=2.0)
    await world.cloud.preempt(own.node_id)
    await world.settle(shop.over(job_id), seconds=2_000.0, step_s=5.0)
    await shop.check()
    assert abs(shop.job(job_id)["settled_micro"] / 1_000 - ran_s) <= 15.0
    world.close()


@pytest.mark.parametrize("many", [1, 3])
async def test_a_cluster_has_as_many_nodes_as_it_was_launched_with(tmp_path: Path, many: int) -> None:
    """Somebody resized the compute of a cluster: what needed all of its nodes waited for them for ever."""
    world = World(tmp_path)
    user = await up(world)
    await resize(world, many)
    await world.settle(user.is_over(await user.launch()))
    await world.settle(user.jobs_are("SUCCEEDED", "SUCCEEDED"))
    await world.settle(lambda: world.states(nodes).count("ready") == 2 == len(world.cloud.alive()))
    assert state_of(world) == "UP"
    world.close()


@pytest.mark.parametrize("state", ["STOPPING", "STOPPED"])
async def test_a_cluster_that_is_stopped_gets_no_machines_behind_its_back(tmp_path: Path, state: str) -> None:
    """Somebody resized the compute of a cluster that was stopping: the stop waited for its end for ever."""
    world = World(tmp_path)
    user = await up(world)
    world.cloud.pace.end_s = 30.0
    stop = await user.ask("stop", cluster_name="dev")
    await world.settle(is_in(world, state))
    await resize(world, 3)
    await world.settle(user.is_over(stop))
    await world.settle(lambda: not world.cloud.alive() and set(world.states(nodes)) == {"deleted"})
    assert state_of(world) == "STOPPED"
    world.close()


@pytest.mark.parametrize("ends", [False, True], ids=["wanted", "given back"])
async def test_a_clock_that_was_set_makes_no_machine_late_in_a_listing(tmp_path: Path, ends: bool) -> None:
    """A daemon that started after the clock was set two hours forward took a machine that it had just bought,
    and that was not listed yet, for one that its provider had lost; and was done with it while it ran."""
    world = World(tmp_path, pace=Pace(list_after_s=30.0, end_s=25.0))
    await world.begin()
    await world.settle(world.compute_is("ready"))
    world.clock.step_wall(7_200.0)
    if ends:
        await world.delete()
    world.die()
    if ends:
        await world.settle(lambda: world.states(nodes) == ["deleted"], seconds=120.0, step_s=5.0)
        assert world.cloud.alive() == ()
    else:
        await world.live(20.0, step_s=5.0)
        assert world.states(nodes) == ["ready"]
    world.close()


async def test_a_machine_that_is_long_in_coming_is_not_taken_for_a_lost_one(tmp_path: Path) -> None:
    """A launch that took a minute to arrive counted from before it was asked for: its machine, of a moment
    ago and not listed yet, was called gone, and was written off while it ran."""
    world = World(tmp_path, pace=Pace(list_after_s=30.0))
    world.cloud.on_launch = None
    faults.watch(lambda point: world.clock.advance(70.0) if point == "fake.launch.before" else None)
    try:
        await world.begin()
        await world.settle(lambda: world.states(nodes) == ["connecting"])
        await world.live(20.0)
    finally:
        faults.watch(None)
    assert world.states(nodes) == ["connecting"]
    assert len(world.cloud.alive()) == 1
    [node] = world.rows(nodes)
    assert node["launched_us"] == world.cloud.purchases[0].at_us
    world.close()


async def test_a_provider_whose_clock_is_hours_behind_loses_no_machine(tmp_path: Path) -> None:
    """Our clock was set forth while a node waited for an offer: its machine of a moment ago was two hours old
    by its provider's, not listed, and so written off while it ran."""
    world = World(tmp_path, pace=Pace(list_after_s=30.0, end_s=20.0))
    world.cloud.clock = Elsewhere(world.clock)
    world.cloud.on_launch = None
    world.cloud.always("launch", Refuse())
    await world.begin()
    await world.settle(lambda: bool(world.rows(nodes)))
    await world.live(100.0, step_s=5.0)
    world.clock.step_wall(7_200.0)
    world.die()
    await world.live(100.0, step_s=5.0)
    world.cloud.always("launch", None)
    await world.settle(lambda: world.states(nodes) == ["connecting"], seconds=300.0, step_s=5.0)
    await world.live(20.0, step_s=5.0)
    assert world.states(nodes) == ["connecting"]
    world.close()
