"""How calls end when somebody, or a clock, wants them to; and what a person may try again."""

from __future__ import annotations

import pytest
from tests.flows.world import World, keep_running, succeed

from sky.domain.errors import (
    ComputeNotConnected,
    DuplicationNotAcknowledged,
    InvalidRequest,
    TaskNotRetryable,
)
from sky.providers.fake.trouble import Refuse
from sky.store.schema import executions, tasks
from sky.wire import agent as wire
from sky.wire import v1


async def test_a_cancel_before_the_start_is_certain(world: World) -> None:
    await world.begin()
    queued = await world.call()
    await world.cancel(queued)
    assert world.task(queued) == "cancelled"
    await world.settle(world.compute_is("ready"))
    world.mail = False
    assigned = await world.call()
    await world.round()
    assert world.tries(assigned)[0]["state"] == "assigned"
    await world.cancel(assigned)
    assert world.task(assigned) == "cancelled"
    world.mail = True
    await world.live(5)
    assert world.ran == {}
    assert world.names().count("task.cancelled") == 2


async def test_a_cancel_after_the_start_is_confirmed_by_the_agent(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    await world.cancel(task)
    assert world.task(task) == "running"
    assert world.tries(task)[0]["state"] == "cancel_requested"
    await world.settle(world.task_is("cancelled", task), seconds=5)
    await world.cancel(task)
    assert world.names().count("task.cancelled") == 1, "asked again, it changes nothing"


async def test_a_cancel_that_comes_too_late_changes_no_result(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    (one,) = world.live_agents()
    one.deaf = True
    await world.cancel(task)
    one.end(world.tries(task)[0]["id"], "succeeded")
    await world.settle(world.task_is("succeeded", task))
    await world.cancel(task)
    assert world.task(task) == "succeeded"


async def test_a_cancel_that_is_never_confirmed_is_indeterminate(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    world.live_agents()[0].deaf = True
    await world.cancel(task)
    await world.live(58)
    assert world.task(task) == "running"
    await world.settle(world.task_is("indeterminate", task), seconds=5)
    assert world.tries(task)[0]["error"]["message"] == "the node did not confirm that it stopped"


async def test_a_cancel_does_not_wait_in_the_queue_behind_what_it_cancels(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    many = await world.calls(10)
    await world.settle(lambda: len(world.ran) == world.slots)
    for task in many:
        await world.cancel(task)
    await world.settle(world.task_is("cancelled", *many), seconds=5)


async def test_a_deadline_passes_in_the_queue(world: World) -> None:
    await world.begin()
    task = await world.call(timeout_seconds=5)
    world.cloud.refuse_region("here", Refuse())
    await world.settle(world.task_is("timed_out", task), seconds=8)
    assert world.tries(task)[0]["error"]["message"] == "its deadline passed before it began"
    world.cloud.refuse_region("here", None)
    await world.settle(world.compute_is("ready"))
    assert world.ran == {}


async def test_a_deadline_passes_while_it_runs_and_the_node_says_so(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    await world.settle(world.compute_is("ready"))
    task = await world.call(timeout_seconds=5)
    await world.settle(world.sent(task))
    (one,) = world.live_agents()
    assert one.known[world.tries(task)[0]["id"]].timeout_s == 5.0
    await world.live(5)
    one.end(world.tries(task)[0]["id"], "timed_out")
    await world.settle(world.task_is("timed_out", task), seconds=2)


async def test_a_node_that_says_nothing_of_a_deadline_is_told_to_stop(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    await world.settle(world.compute_is("ready"))
    task = await world.call(timeout_seconds=5)
    await world.settle(world.task_is("timed_out", task), seconds=25)
    assert world.tries(task)[0]["state"] == "timed_out", "stopped by its deadline, and by nobody else"


async def test_a_node_that_does_not_stop_at_a_deadline_leaves_it_indeterminate(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    await world.settle(world.compute_is("ready"))
    task = await world.call(timeout_seconds=5)
    await world.settle(world.sent(task))
    world.live_agents()[0].deaf = True
    await world.settle(world.task_is("indeterminate", task), seconds=90)


async def test_a_default_deadline_comes_with_the_compute(world: World) -> None:
    world.answer = keep_running
    await world.begin(options=v1.Options(default_compute_timeout=7))
    task = await world.call()
    assert world.row(tasks, task)["timeout_seconds"] == 7
    await world.settle(world.task_is("timed_out", task), seconds=40)


async def test_a_persons_retry_of_what_may_have_run_must_accept_that(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    with pytest.raises(TaskNotRetryable, match="is queued"):
        await world.retry(task)
    await world.settle(world.sent(task))
    await world.cloud.preempt(world.live_agents()[0].node_id)
    await world.settle(world.task_is("indeterminate", task))
    with pytest.raises(DuplicationNotAcknowledged):
        await world.retry(task)
    assert len(world.tries(task)) == 1, "nothing was written"
    world.answer = succeed
    await world.retry(task, acknowledge_duplication=True)
    assert world.task(task) in {"queued", "running"}, "it is on its way again"
    await world.settle(world.task_is("succeeded", task))
    assert [t["retry_kind"] for t in world.tries(task)] == [None, "person"]
    with pytest.raises(TaskNotRetryable):
        await world.retry(task, acknowledge_duplication=True)


async def test_a_persons_retry_of_what_failed_needs_nothing_more(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    world.live_agents()[0].end(world.tries(task)[0]["id"], "failed")
    await world.settle(world.task_is("failed", task))
    world.answer = succeed
    await world.retry(task)
    await world.settle(world.task_is("succeeded", task))
    row = world.row(tasks, task)
    assert row["outcome_seq"] == world.query("SELECT seq FROM events WHERE name = 'task.succeeded'")[0].seq


async def test_a_retry_of_no_rank_or_of_another_is_refused(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.cancel(task)
    for ranks in ((), (7,)):
        with pytest.raises(InvalidRequest, match="ranks"):
            await world.retry(task, ranks=ranks)
    assert world.task(task) == "cancelled"


# ── every rank ──────────────────────────────────────────────────────────────────────────────────


async def test_a_call_on_every_rank_succeeds_when_all_have(world: World) -> None:
    await world.begin(nodes=3)
    with pytest.raises(ComputeNotConnected):
        await world.call(dispatch="all")
    await world.settle(world.compute_is("ready"))
    task = await world.call(dispatch="all")
    await world.settle(world.task_is("succeeded", task))
    assert [(t["rank"], t["place"], t["state"]) for t in world.tries(task)] == [
        (0, 0, "succeeded"),
        (1, 1, "succeeded"),
        (2, 2, "succeeded"),
    ]


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        (("succeeded", "failed", "succeeded"), "failed"),
        (("succeeded", "cancelled", "timed_out"), "timed_out"),
        (("succeeded", "cancelled", "succeeded"), "cancelled"),
        (("failed", "indeterminate", "timed_out"), "indeterminate"),
    ],
)
async def test_the_worst_rank_is_the_outcome_of_all(
    world: World, ends: tuple[wire.OutcomeState, ...], outcome: str
) -> None:
    world.answer = keep_running
    await world.begin(nodes=3)
    await world.settle(world.compute_is("ready"))
    task = await world.call(dispatch="all")
    await world.settle(lambda: len(world.ran) == 3)
    for one, state in zip(world.live_agents(), ends, strict=True):
        (execution,) = one.running
        one.end(execution, state)
        await world.round()
    assert world.task(task) == outcome
    assert (
        world.query("SELECT count(*) FROM events WHERE name LIKE 'task.%' AND name != 'task.queued'")[0][0]
        == 2
    )


async def test_a_retry_of_some_ranks_leaves_the_others_results(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    task = await world.call(dispatch="all")
    await world.settle(lambda: len(world.ran) == 2)
    first, second = world.live_agents()
    first.end(next(iter(first.running)), "succeeded")
    second.end(next(iter(second.running)), "failed")
    await world.settle(world.task_is("failed", task))
    world.answer = succeed
    await world.retry(task, ranks=(1,))
    await world.settle(world.task_is("succeeded", task))
    assert [(t["place"], t["wanted_rank"], t["state"]) for t in world.tries(task)] == [
        (0, 0, "succeeded"),
        (1, 1, "failed"),
        (1, 1, "succeeded"),
    ]


async def test_a_cancel_reaches_every_rank(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=3)
    await world.settle(world.compute_is("ready"))
    task = await world.call(dispatch="all")
    await world.settle(lambda: len(world.ran) == 3)
    await world.cancel(task)
    await world.settle(world.task_is("cancelled", task), seconds=5)
    assert set(world.states(executions)) == {"cancelled"}


async def test_a_lost_rank_is_tried_again_at_its_own_rank(world: World) -> None:
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    world.mail = False
    task = await world.call(dispatch="all")
    await world.round()
    await world.cloud.preempt(world.live_agents()[1].node_id)
    await world.settle(lambda: len(world.tries(task)) == 3)
    world.mail = True
    await world.settle(world.task_is("succeeded", task))
    assert [(t["place"], t["rank"], t["state"]) for t in world.tries(task)] == [
        (0, 0, "succeeded"),
        (1, 1, "failed"),
        (1, 1, "succeeded"),
    ]
