"""Nodes that are lost, unreachable or taken away, and what becomes of the calls they had."""

from __future__ import annotations

import pytest
from tests.flows.world import World, keep_running, succeed

from sky.store.schema import computes, executions, nodes, tasks
from sky.verbs.reports import Superseded
from sky.verbs.reports import apart as reports_apart
from sky.verbs.reports import record as reports_record
from sky.verbs.reports import take as reports_take
from sky.wire import agent as wire
from sky.wire import v1

RETRY = v1.RetryPolicy


async def test_a_call_that_was_not_handed_out_is_tried_again(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    (one,) = world.live_agents()
    one.reachable = False
    task = await world.call()
    await world.round()
    assert [t["state"] for t in world.tries(task)] == ["assigned"]
    await world.cloud.preempt(one.node_id)
    await world.settle(world.task_is("succeeded", task))
    first, second = world.tries(task)
    assert (first["state"], first["error"]["code"]) == ("failed", "node_lost")
    assert (second["state"], second["retry_kind"], second["retry_of"]) == ("succeeded", "safe", first["id"])
    assert world.names().count("task.failed") == 0, "the task never failed, only an attempt did"


async def test_safe_retries_are_counted_and_then_it_fails(world: World) -> None:
    await world.begin()
    world.mail = False
    task = await world.call(retry=RETRY(safe_retries=2))
    for tries in (1, 2, 3):
        await world.settle(lambda n=tries: [t["state"] for t in world.tries(task)][n - 1 :] == ["assigned"])
        await world.cloud.preempt(world.live_agents()[0].node_id)
    await world.settle(world.task_is("failed", task))
    assert [t["retry_kind"] for t in world.tries(task)] == [None, "safe", "safe"]
    assert world.ran == {}, "none of the attempts ever began"


async def test_a_call_that_was_handed_out_is_indeterminate(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    await world.cloud.preempt(world.live_agents()[0].node_id)
    await world.settle(world.task_is("indeterminate", task))
    (only,) = world.tries(task)
    assert (only["state"], only["error"]["code"]) == ("indeterminate", "node_lost")
    assert len(world.ran) == 1


async def test_ambiguous_retries_are_honoured_and_counted(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call(retry=RETRY(ambiguous_retries=1))
    for tries in (1, 2):
        await world.settle(lambda n=tries: len(world.tries(task)) == n and world.sent(task)())
        await world.cloud.preempt(world.live_agents()[0].node_id)
    await world.settle(world.task_is("indeterminate", task))
    assert [(t["state"], t["retry_kind"]) for t in world.tries(task)] == [
        ("indeterminate", None),
        ("indeterminate", "ambiguous"),
    ]


async def test_an_ambiguous_retry_that_succeeds_is_the_outcome(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call(retry=RETRY(ambiguous_retries=1))
    await world.settle(world.sent(task))
    world.answer = succeed
    await world.cloud.preempt(world.live_agents()[0].node_id)
    await world.settle(world.task_is("succeeded", task))
    assert world.names().count("task.indeterminate") == 0


async def test_a_preempted_machine_is_replaced_and_the_compute_recovers(world: World) -> None:
    compute = await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    lost = world.live_agents()[1]
    await world.cloud.preempt(lost.node_id)
    await world.settle(lambda: "compute.recovering" in world.names())
    await world.settle(world.compute_is("ready"))
    row = world.row(nodes, lost.node_id)
    assert row["state"] == "deleted"
    assert row["last_error"]["message"].endswith("preempted")
    ready = [(r["rank"], r["compute_id"]) for r in world.rows(nodes) if r["state"] == "ready"]
    assert sorted(ready) == [(0, compute), (1, compute)]
    told = [name for name in world.names() if name.startswith("compute.")]
    assert told == [
        "compute.created",
        "compute.provisioning",
        "compute.bound",
        "compute.generation.applied",
        "compute.ready",
        "compute.recovering",
        "compute.ready",
    ]
    assert world.names().count("node.lost") == 1


async def test_a_machine_deleted_behind_our_back_is_noticed_and_replaced(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    await world.live(120)
    gone = world.live_agents()[0]
    await world.cloud.delete_out_of_band(gone.node_id)
    await world.settle(lambda: world.row(nodes, gone.node_id)["state"] == "deleted")
    await world.settle(world.compute_is("ready"))
    assert len(world.cloud.purchases) == 2


async def test_an_unreachable_agent_on_a_machine_that_is_there_ends_nothing(world: World) -> None:
    await world.begin(ttl=3_600)
    world.answer = keep_running
    task = await world.call()
    await world.settle(world.sent(task))
    (one,) = world.live_agents()
    one.reachable = False
    world.answer = succeed
    before = (world.states(nodes), world.states(tasks), world.states(executions), world.states(computes))
    await world.live(600, step_s=5.0)
    after = (world.states(nodes), world.states(tasks), world.states(executions), world.states(computes))
    assert after == before
    assert len(world.cloud.purchases) == 1
    one.reachable = True
    await world.settle(world.task_is("succeeded", task))
    assert world.names().count("task.succeeded") == 1
    assert len(world.tries(task)) == 1


async def test_silence_beyond_the_lease_is_a_loss_and_the_agent_has_ended_itself(world: World) -> None:
    await world.begin(ttl=120)
    world.answer = keep_running
    task = await world.call()
    await world.settle(world.sent(task))
    (one,) = world.live_agents()
    one.reachable = False
    await world.live(119, step_s=1.0)
    assert not one.stopped
    assert world.task(task) == "running"
    await world.settle(world.task_is("indeterminate", task), seconds=60)
    assert one.stopped, "its own lease was over before its rank was given away"
    await world.settle(world.compute_is("ready"))
    lost = world.row(nodes, one.node_id)
    assert "beyond its lease" in lost["last_error"]["message"]
    assert lost["fenced_us"] is not None


async def test_a_late_report_is_kept_and_moves_nothing(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    (one,) = world.live_agents()
    one.deaf = True
    await world.cancel(task)
    await world.settle(world.task_is("indeterminate", task))
    one.end(world.tries(task)[0]["id"], "succeeded")
    await world.settle(lambda: world.tries(task)[0]["late_report"] is not None)
    (only,) = world.tries(task)
    assert (world.task(task), only["state"]) == ("indeterminate", "indeterminate")
    assert only["late_report"]["state"] == "succeeded"
    assert world.row(tasks, task)["result_sha256"] is None
    one.unheard.append(wire.Outcome(execution=only["id"], state="failed", seconds=0.0, ago_s=0.0))
    await world.round()
    assert world.tries(task)[0]["late_report"]["state"] == "succeeded", "the first word is kept"


async def test_reports_said_twice_and_in_another_order_count_once(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    (one,) = world.live_agents()
    one.twice = True
    done = await world.calls(6)
    await world.settle(world.task_is("succeeded", *done))
    before = world.query("SELECT count(*) FROM events")[0][0]
    for report in reversed(one.said):
        await world.db.write(lambda tx, r=report: reports_record(tx, one.node_id, one.boot, r))
    assert world.query("SELECT count(*) FROM events")[0][0] == before
    assert [len(world.tries(task)) for task in done] == [1] * 6


async def test_news_about_another_nodes_work_moves_nothing(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    task = await world.call(rank=0)
    await world.settle(world.sent(task))
    stranger = world.live_agents()[1]
    stranger.end(world.tries(task)[0]["id"], "succeeded")
    await world.round()
    assert world.task(task) == "running"


async def test_an_agent_that_was_started_anew_on_its_machine_goes_on(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    (one,) = world.live_agents()
    one.boot, one.number, one.connected_to = "another boot", 0, None
    one.end(world.tries(task)[0]["id"], "indeterminate")
    await world.settle(world.task_is("indeterminate", task))
    world.answer = succeed
    again = await world.call()
    await world.settle(world.task_is("succeeded", again))


async def test_a_report_of_an_earlier_agent_does_not_make_the_new_ones_look_written(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    (one,) = world.live_agents()
    earlier = one.boot
    one.boot, one.number, one.connected_to = "another boot", 0, None
    await world.settle(lambda: world.row(nodes, one.node_id)["boot"] == "another boot")
    late = wire.Report(number=500, window=1)
    with pytest.raises(Superseded):
        await world.db.write(lambda tx: reports_record(tx, one.node_id, earlier, late))
    one.end(world.tries(task)[0]["id"], "succeeded")
    await world.settle(world.task_is("succeeded", task))


async def test_work_that_arrived_is_accepted_when_its_agent_calls_again(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    await world.settle(world.compute_is("ready"))
    (one,) = world.live_agents()
    task = await world.call()
    await world.settle(world.sent(task))
    execution = world.tries(task)[0]["id"]
    await world.db.write(
        lambda tx: tx.connection.execute(
            executions.update().where(executions.c.id == execution).values(state="dispatching")
        )
    )
    one.connected_to = None
    await world.round()
    assert world.tries(task)[0]["state"] == "accepted"
    one.end(execution, "succeeded")
    await world.settle(world.task_is("succeeded", task))


async def test_a_recall_is_heard_though_what_was_told_beside_it_cannot_be_written(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    (one,) = world.live_agents()
    told = wire.Report(
        number=1,
        console=(wire.ConsoleLines(stream="stdout", content="beside it\n", lines=1),),
        recall=wire.Recall(reason="spot_interruption", message="in two minutes"),
    )
    for piece in reports_apart(told):
        await world.db.write(lambda tx, said=piece: reports_take(tx, one.node_id, said))
    assert world.row_state(nodes, one.node_id) == "draining"
    await world.settle(lambda: any(agent.node_id != one.node_id for agent in world.live_agents()))
