"""Many calls that wait at once: for one rank behind another, with large arguments, or lost together."""

from __future__ import annotations

from tests.flows.world import FUNCTION_SHA, World, keep_running

from sky.store.schema import nodes
from sky.verbs import mailbox, tasks
from sky.wire import v1


async def test_a_long_queue_for_one_rank_does_not_keep_another_rank_idle(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    for _ in range(20):
        await world.call(rank=0)
    behind = await world.call(rank=1)
    await world.settle(world.sent(behind), seconds=10)


async def test_places_of_one_task_that_are_lost_together_are_counted_one_by_one(world: World) -> None:
    await world.begin(nodes=3)
    await world.settle(world.compute_is("ready"))
    for one in world.live_agents():
        one.reachable = False
    task = await world.call(dispatch="all", retry=v1.RetryPolicy(safe_retries=1))
    await world.round()
    assert [t["state"] for t in world.tries(task)] == ["assigned"] * 3
    for row in world.rows(nodes)[:3]:
        await world.cloud.preempt(row["id"])
    await world.settle(world.task_is("succeeded", task))
    tries = world.tries(task)
    assert sorted(t["ordinal"] for t in tries) == list(range(1, len(tries) + 1))
    assert sorted(t["place"] for t in tries if t["state"] == "succeeded") == [0, 1, 2]


async def test_work_whose_arguments_are_too_much_for_one_message_names_them(world: World) -> None:
    world.slots, world.mail = 100, False
    await world.begin()
    await world.settle(world.compute_is("ready"))
    big = b"x" * v1.INLINE_ARGUMENT_BYTES_MAX
    batch = v1.TaskBatchCreate(
        compute="fleet",
        function=FUNCTION_SHA,
        calls=tuple(v1.BatchCall(args_inline=big) for _ in range(world.slots)),
        correlation_id="big",
    )
    await world.db.write(lambda tx: tasks.submit_batch(tx, batch))
    await world.settle()
    (one,) = world.live_agents()
    mail = await world.db.write(lambda tx: mailbox.mailbox(tx, one.node_id, frozenset()))
    assert len(mail.work) == world.slots
    inline = [item for item in mail.work if item.args is not None]
    assert sum(len(item.args or b"") for item in inline) <= mailbox.WORK_ARGUMENT_BYTES_MAX
    assert len(inline) >= 60, "what fits goes along"
    assert all((item.args is None) != (item.args_sha256 is None) for item in mail.work)
