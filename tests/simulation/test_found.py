"""What the histories have found, each as a test of its own."""

from __future__ import annotations

from pathlib import Path

from tests.flows.world import World, keep_running

from sky.kit.clock import SECOND_US
from sky.store.schema import executions
from sky.verbs import reports
from sky.wire import agent as wire


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
    world.close()
