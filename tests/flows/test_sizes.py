"""Computes that change: by hand, by themselves, by another definition or holder; and poisoned rows."""

from __future__ import annotations

import pytest
from tests.flows.world import World, keep_running, succeed

from sky.domain.errors import ComputeNotResizable, InvalidRequest, LeaseHeld, ReleasePending
from sky.store import passes
from sky.store.schema import computes, nodes
from sky.store.tx import Tx
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
        with pytest.raises((InvalidRequest, ComputeNotResizable)):
            await world.resize(wrong)


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


async def test_it_never_shrinks_below_its_minimum_nor_while_it_works(world: World) -> None:
    world.answer = keep_running
    await world.begin(nodes=BOUNDS(desired=3, min=1, max=3))
    await world.settle(world.compute_is("ready"))
    task = await world.call()
    await world.settle(world.sent(task))
    await world.live(120)
    assert len(world.live_agents()) == 3
    world.answer = succeed
    await world.settle(lambda: len(world.live_agents()) == 1, seconds=60)
    await world.live(120)
    assert ranks(world, "ready") == [0]


async def test_the_cooldown_holds_back_the_next_shrink(world: World) -> None:
    options = v1.Options(autoscale_idle_timeout=5.0, autoscale_cooldown=60.0)
    await world.begin(nodes=BOUNDS(desired=0, min=0, max=2), options=options)
    await world.settle(world.compute_is("ready"))
    started_s = world.clock.monotonic_s()
    task = await world.call()
    await world.settle(world.task_is("succeeded", task))
    await world.settle(lambda: world.cloud.alive() == (), seconds=100)
    assert 59 <= world.clock.monotonic_s() - started_s <= 64


# ── another definition ──────────────────────────────────────────────────────────────────────────


async def generation(world: World, *, source: int | None = None, force: bool = False) -> int:
    body = v1.GenerationCreate(source=source, force=force)
    return await world.db.write(
        lambda tx: compute_verbs.create_generation(tx, "fleet", body, None, world.rules)
    )


async def test_another_generation_replaces_every_node(world: World) -> None:
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    assert await generation(world) == 2
    task = await world.call()
    await world.settle(world.compute_is("ready"))
    await world.settle(world.task_is("succeeded", task))
    node = world.row(nodes, world.tries(task)[0]["node_id"])
    assert node["generation"] == 2, "work that came after it runs on nodes that came after it"
    assert [r["generation"] for r in world.rows(nodes) if r["state"] == "ready"] == [2, 2]
    assert world.rows(computes)[0]["observed_generation"] == 2
    assert world.names().count("compute.generation.created") == 1


async def test_another_generation_is_refused_while_there_is_work_unless_forced(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    with pytest.raises(ReleasePending):
        await generation(world)
    assert world.rows(computes)[0]["generation"] == 1
    await generation(world, force=True)
    assert world.task(task) == "indeterminate"
    await world.settle(world.compute_is("ready"))
    assert world.rows(computes)[0]["observed_generation"] == 2


async def test_a_rollback_is_a_generation_too(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    await world.resize(2)
    await generation(world)
    await generation(world, source=1)
    await world.settle(world.compute_is("ready"))
    assert world.rows(computes)[0]["generation"] == 3
    assert ranks(world, "ready") == [0], "the first definition had one node"


async def test_a_definition_that_breaks_fails(world: World) -> None:
    await world.begin()
    await world.settle(world.compute_is("ready"))
    world.on_agent = lambda one: setattr(one, "error", "its environment is broken")
    await generation(world)
    await world.settle(world.compute_is("failed"))
    await world.settle(lambda: world.cloud.alive() == ())


# ── holders ─────────────────────────────────────────────────────────────────────────────────────


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


# ── poison ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_poisoned_row_is_set_aside_and_everything_else_goes_on(world: World) -> None:
    poisoned = await world.begin(name="poisoned")
    await world.compute(name="fleet")
    await world.settle(world.compute_is("ready"))
    own = next(row["id"] for row in world.rows(nodes) if row["compute_id"] == poisoned)
    world.poisoned = {f"computes/{poisoned}", f"nodes/{own}"}
    await _break_spec(world, poisoned, "{this is no JSON")
    await world.db.write(lambda tx: tx.touch(f"computes/{poisoned}"))
    await world.live(300, step_s=5.0)
    (note,) = world.query("SELECT * FROM passes WHERE key = :key", key=f"computes/{poisoned}")
    assert note.failures >= 5
    assert note.error
    assert note.due_us - world.db.clock.now_us() <= 60_000_000, "once a minute at most"
    done = await world.calls(4)
    await world.settle(world.task_is("succeeded", *done), seconds=5)
    await world.resize(2)
    await world.settle(lambda: len(ranks(world, "ready")) == 3, seconds=10)
    await _break_spec(world, poisoned, "{this is no JSON")
    await world.delete(poisoned)
    await world.settle(lambda: world.row_state(computes, poisoned) == "deleted", seconds=10)
    assert own not in world.cloud.alive(), "its machine is given back, whatever it was asked to be"


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
