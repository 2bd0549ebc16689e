"""Computes that change: by hand, by themselves, by another definition or holder; and poisoned rows."""

from __future__ import annotations

import pytest
from tests.databases import IN_A_FILE
from tests.flows.world import World, keep_running, succeed

from sky.domain.errors import (
    ComputeNotResizable,
    InvalidRequest,
)
from sky.store import passes
from sky.store.schema import computes, nodes
from sky.store.tx import Tx
from sky.store.views import computes as views
from sky.store.views import nodes as node_views
from sky.verbs import computes as compute_verbs
from sky.wire import v1

BOUNDS = v1.NodeBounds
PROVIDER = v1.ProviderRef(kind="fake")


def ranks(world: World, *states: str) -> list[int]:
    """The ranks of nodes in those states."""
    return sorted(row["rank"] for row in world.rows(nodes) if row["state"] in states)


# ── by hand ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_compute_grows_and_shrinks_from_the_top(world: World) -> None:
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    await world.resize(4)
    await world.settle(world.compute_is("ready"))
    assert ranks(world, "ready") == [0, 1, 2, 3]
    await world.resize(1)
    await world.settle(lambda: len(world.live_agents()) == 1)
    assert ranks(world, "ready") == [0]
    assert world.compute_is("ready")()


async def test_busy_nodes_finish_what_they_have_before_they_go(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    low, high = await world.call(rank=0), await world.call(rank=1)
    await world.settle(lambda: len(world.ran) == 2)
    await world.resize(1)
    await world.settle(lambda: ranks(world, "draining") == [1])
    await world.live(60)
    assert ranks(world, "draining") == [1]
    more = await world.call()
    await world.settle(world.sent(more))
    assert world.tries(more)[0]["rank"] == 0, "a draining node takes no more"
    busy = next(a for a in world.live_agents() if a.place[1] == 1)
    busy.end(world.tries(high)[0]["id"], "succeeded")
    await world.settle(lambda: len(world.live_agents()) == 1, seconds=3)
    assert (world.task(high), world.task(low)) == ("succeeded", "running")


async def test_a_drain_is_aborted_when_the_node_is_wanted_again(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    task = await world.call(rank=1)
    await world.settle(world.sent(task))
    await world.resize(1)
    await world.settle(lambda: ranks(world, "draining") == [1])
    await world.resize(2)
    await world.settle(lambda: ranks(world, "ready") == [0, 1])
    assert len(world.cloud.purchases) == 2, "nothing was bought for it"
    again = await world.call(rank=1)
    await world.settle(world.sent(again))


async def test_what_waits_for_a_rank_that_is_given_up_fails_and_says_so(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    running = [await world.call(rank=1) for _ in range(world.slots)]
    await world.settle(lambda: len(world.ran) == world.slots)
    waiting = await world.call(rank=1)
    await world.resize(1)
    await world.settle(world.task_is("failed", waiting), seconds=20)
    assert "waits for rank 1" in world.tries(waiting)[0]["error"]["message"]
    assert {world.task(task) for task in running} == {"running"}


async def test_a_retry_at_a_rank_that_is_no_more_fails_and_says_so(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    task = await world.call(dispatch="all")
    await world.cancel(task)
    await world.resize(1)
    await world.settle(lambda: len(world.live_agents()) == 1)
    world.answer = succeed
    await world.retry(task)
    await world.settle(world.task_is("failed", task), seconds=20)
    assert [t["state"] for t in world.tries(task)] == ["cancelled", "cancelled", "succeeded", "failed"]


async def test_bounds_that_cannot_be_meant_are_refused(world: World) -> None:
    await world.begin(nodes=1)
    for wrong in (BOUNDS(desired=0), BOUNDS(desired=3, min=4), BOUNDS(desired=3, min=2, max=1)):
        with pytest.raises(InvalidRequest):
            await world.resize(wrong)


async def test_nodes_that_are_at_work_together_cannot_become_more_or_fewer(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2, plugins=(v1.PluginRef(kind="torch"),))
    await world.settle(world.compute_is("ready"))
    single = await world.call()
    await world.settle(world.sent(single))
    await world.resize(3)
    await world.settle(world.compute_is("ready"))
    together = await world.call(dispatch="all")
    await world.settle(lambda: len(world.ran) == 4)
    for many in (2, 4):
        with pytest.raises(ComputeNotResizable, match="at work together"):
            await world.resize(many)
    await world.resize(3)
    for one in world.tries(together):
        agent = next(a for a in world.live_agents() if a.place[1] == one["rank"])
        agent.end(one["id"], "succeeded")
    await world.settle(world.task_is("succeeded", together))
    await world.resize(2)
    await world.settle(world.compute_is("ready"))


# ── by themselves ───────────────────────────────────────────────────────────────────────────────


async def test_it_grows_at_once_shrinks_to_nothing_and_comes_back(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=BOUNDS(desired=0, min=0, max=3), worker=v1.Worker(concurrency=2))
    await world.settle(world.compute_is("ready"))
    assert world.cloud.purchases == []
    first = await world.calls(3)
    await world.settle(lambda: len(world.ran) == 3, seconds=10)
    assert ranks(world, "ready") == [0, 1], "two calls to a node"
    more = await world.calls(9)
    await world.settle(lambda: len(ranks(world, "ready")) == 3, seconds=10)
    world.answer = succeed
    await world.settle(world.task_is("succeeded", *first, *more))
    idle_s = world.clock.monotonic_s()
    await world.settle(lambda: world.cloud.alive() == (), seconds=60)
    assert 29 <= world.clock.monotonic_s() - idle_s <= 33, "after the idle time, and not before"
    await world.settle(world.compute_is("ready"))
    last = await world.call()
    await world.settle(world.task_is("succeeded", last), seconds=10)
    await world.live(120)
    assert world.cloud.alive() == ()


async def test_a_queue_that_outgrows_ready_nodes_grows_them(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=BOUNDS(desired=1, min=1, max=4))
    await world.settle(world.compute_is("ready"))
    await world.calls(8)
    await world.settle(lambda: len(world.ran) == 8, seconds=10)
    assert ranks(world, "ready") == [0, 1, 2, 3]


async def test_a_rank_that_is_waited_for_is_bought(world: World) -> None:
    await world.begin(nodes=BOUNDS(desired=0, min=0, max=4))
    await world.settle(world.compute_is("ready"))
    task = await world.call(rank=2)
    await world.settle(world.task_is("succeeded", task), seconds=20)
    assert world.tries(task)[0]["rank"] == 2


async def test_it_never_shrinks_below_its_minimum(world: World) -> None:
    await world.begin(nodes=BOUNDS(desired=3, min=2, max=3))
    await world.settle(world.compute_is("ready"))
    await world.live(120)
    assert ranks(world, "ready") == [0, 1]


async def test_a_node_at_work_is_never_taken_and_does_not_keep_idle_ones(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=BOUNDS(desired=4, min=0, max=4))
    await world.settle(world.compute_is("ready"))
    task = await world.call(rank=2)
    await world.settle(world.sent(task))
    busy = world.live_agents()[2]
    await world.live(120)
    assert ranks(world, "ready", "draining") == [0, 1, 2], "what is bound to a rank keeps it and those below"
    busy.end(world.tries(task)[0]["id"], "succeeded")
    await world.settle(world.task_is("succeeded", task))
    await world.settle(lambda: world.live_agents() == [], seconds=60)
    assert world.task(task) == "succeeded"


async def test_a_call_that_outlasts_the_load_drains_its_node_and_keeps_rank_0(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=BOUNDS(desired=0, min=0, max=3), worker=v1.Worker(concurrency=2))
    await world.settle(world.compute_is("ready"))
    calls = await world.calls(6)
    await world.settle(lambda: len(world.ran) == 6)
    (kept,) = (x for x in calls if world.tries(x)[0]["rank"] == 2 and x == calls[-1])
    for one in calls[:-1]:
        agent = next(a for a in world.live_agents() if a.place[1] == world.tries(one)[0]["rank"])
        agent.end(world.tries(one)[0]["id"], "succeeded")
    await world.settle(world.task_is("succeeded", *calls[:-1]))
    await world.settle(lambda: ranks(world, "draining") == [2], seconds=60)
    await world.live(60)
    assert (ranks(world, "draining"), ranks(world, "ready")) == ([2], [0])
    assert world.task(kept) == "running"
    more = await world.calls(6)
    await world.settle(lambda: ranks(world, "ready") == [0, 1, 2], seconds=20)
    assert len(world.cloud.purchases) == 4, "the load that came back aborts the drain"
    assert world.names().count("node.draining") == 1
    assert {world.task(one) for one in more} <= {"queued", "running"}


async def test_a_load_that_flaps_does_not_make_machines_flap(world: World) -> None:
    await world.begin(nodes=BOUNDS(desired=0, min=0, max=3))
    await world.settle(world.compute_is("ready"))
    for _ in range(20):
        burst = await world.calls(6)
        await world.settle(world.task_is("succeeded", *burst), seconds=20)
        await world.live(20)
    assert len(world.cloud.purchases) == 3
    await world.settle(lambda: world.cloud.alive() == (), seconds=60)
    assert world.names().count("node.draining") == 0


async def test_the_cooldown_holds_back_the_next_shrink(world: World) -> None:
    options = v1.Options(autoscale_idle_timeout=5.0, autoscale_cooldown=60.0)
    await world.begin(nodes=BOUNDS(desired=0, min=0, max=2), options=options)
    await world.settle(world.compute_is("ready"))
    started_s = world.clock.monotonic_s()
    task = await world.call()
    await world.settle(world.task_is("succeeded", task))
    await world.settle(lambda: world.cloud.alive() == (), seconds=100)
    assert 59 <= world.clock.monotonic_s() - started_s <= 64


# ── one node ────────────────────────────────────────────────────────────────────────────────────


async def test_a_busy_node_given_back_by_hand_drains_first_and_is_then_replaced(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    task = await world.call(rank=1)
    await world.settle(world.sent(task))
    busy = world.live_agents()[1]
    await world.db.write(lambda tx: compute_verbs.delete_node(tx, "fleet", busy.node_id))
    await world.live(60)
    told = await world.db.read(lambda c: node_views.get(c, "fleet", busy.node_id))
    assert (told.state, told.desired) == ("draining", "deleted"), "a drain that was asked for is not aborted"
    assert world.task(task) == "running"
    await world.resize(3)
    await world.settle(lambda: ranks(world, "ready") == [0, 2])
    busy.end(world.tries(task)[0]["id"], "succeeded")
    await world.settle(world.task_is("succeeded", task))
    await world.settle(lambda: ranks(world, "ready") == [0, 1, 2])
    assert world.row(nodes, busy.node_id)["state"] == "deleted"


async def test_a_busy_node_given_back_by_force_goes_at_once(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    (busy,) = world.live_agents()
    await world.db.write(lambda tx: compute_verbs.delete_node(tx, "fleet", busy.node_id))
    await world.db.write(lambda tx: compute_verbs.delete_node(tx, "fleet", busy.node_id, force=True))
    await world.settle(world.task_is("indeterminate", task))
    await world.settle(world.compute_is("ready"))
    assert world.row(nodes, busy.node_id)["state"] == "deleted"


# ── poison ──────────────────────────────────────────────────────────────────────────────────────


@IN_A_FILE
@pytest.mark.parametrize("how", ["{this is no JSON", "[]", "{}", '{"specs": 3, "nodes": {"desired": 1}}'])
async def test_a_poisoned_row_is_set_aside_and_everything_else_goes_on(world: World, how: str) -> None:
    poisoned = await world.begin(name="poisoned")
    await world.compute(name="fleet")
    await world.settle(world.compute_is("ready"))
    own = next(row["id"] for row in world.rows(nodes) if row["compute_id"] == poisoned)
    world.poisoned = {f"computes/{poisoned}", f"nodes/{own}"}
    await _break_spec(world, poisoned, how)
    await world.db.write(lambda tx: tx.touch(f"computes/{poisoned}"))
    await world.live(300, step_s=5.0)
    (note,) = world.query("SELECT * FROM passes WHERE key = :key", key=f"computes/{poisoned}")
    assert note.failures >= 5
    assert note.error
    assert note.due_us - world.db.clock.now_us() <= 60_000_000, "once a minute at most"
    listed = await world.db.read(lambda c: views.page(c, world.db.clock.now_us(), cursor=None, limit=50))
    assert {one.name: one.status.state for one in listed.items} == {"poisoned": "ready", "fleet": "ready"}
    told = next(one for one in listed.items if one.id == poisoned)
    assert told.status.last_error is not None
    assert "cannot be read" in told.status.last_error.message
    assert await world.db.read(lambda c: views.get(c, poisoned, world.db.clock.now_us())) == told
    done = await world.calls(4)
    await world.settle(world.task_is("succeeded", *done), seconds=5)
    await world.resize(2)
    await world.settle(lambda: len(ranks(world, "ready")) == 3, seconds=10)
    await _break_spec(world, poisoned, how)
    await world.delete(poisoned)
    await world.settle(lambda: world.row_state(computes, poisoned) == "deleted", seconds=10)
    assert own not in world.cloud.alive(), "its machine is given back, whatever it was asked to be"


@IN_A_FILE
async def test_a_poisoned_row_that_is_repaired_is_looked_at_like_any_other(world: World) -> None:
    poisoned = await world.begin(name="poisoned")
    await world.settle(world.compute_is("ready"))
    own = world.rows(nodes)[0]["id"]
    world.poisoned = {f"computes/{poisoned}", f"nodes/{own}"}
    spec = world.query("SELECT spec FROM computes WHERE id = :id", id=poisoned)[0].spec
    await _break_spec(world, poisoned, "[]")
    await world.db.write(lambda tx: tx.touch(f"computes/{poisoned}"))
    await world.live(20)
    await _break_spec(world, poisoned, spec)
    await world.live(90, step_s=5.0)
    row = await world.db.read(lambda c: passes.row(c, f"computes/{poisoned}"))
    assert row is not None
    assert (row.failures, row.error) == (0, None), "healed, it is looked at like any other"


async def _break_spec(world: World, compute: str, text: str) -> None:
    def verb(tx: Tx) -> None:
        tx.connection.exec_driver_sql("UPDATE computes SET spec = ? WHERE id = ?", (text, compute))

    await world.db.write(verb)
