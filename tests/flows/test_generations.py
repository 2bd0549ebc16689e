"""Computes that are wanted otherwise: drift, generations, the way back, and definitions that break."""

from __future__ import annotations

from typing import Any

import pytest
from tests.flows.world import SimAgent, World, keep_running

from sky.domain.errors import InvalidRequest, ReleasePending, SecretInDefinition, UnsupportedProvider
from sky.store.schema import computes, nodes, tasks
from sky.store.views import computes as views
from sky.verbs import computes as compute_verbs
from sky.wire import v1

BOUNDS = v1.NodeBounds


def ranks(world: World, *states: str) -> list[int]:
    """The ranks of nodes in those states."""
    return sorted(row["rank"] for row in world.rows(nodes) if row["state"] in states)


async def shown(world: World) -> v1.Compute:
    return await world.db.read(lambda c: views.get(c, "fleet", world.db.clock.now_us()))


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


async def test_a_definition_that_breaks_costs_one_node_and_going_back_buys_one(world: World) -> None:
    compute = await world.begin(nodes=3)
    await world.settle(world.compute_is("ready"))
    world.on_agent = lambda one: setattr(one, "error", "its environment is broken")
    await change(world, image=v1.Image(env={"BROKEN": "yes"}))
    assert await generation(world) == 2
    await world.settle(lambda: len(world.cloud.purchases) >= 6, seconds=200)
    await world.settle(world.compute_is("degraded"), seconds=20)
    assert "its environment is broken" in world.row(computes, compute)["last_error"]["message"]
    assert [r["rank"] for r in world.rows(nodes) if (r["state"], r["generation"]) == ("ready", 1)] == [0, 1]
    world.on_agent = lambda _: None
    before = len(world.cloud.purchases)
    assert await generation(world, source=1) == 3
    await world.settle(world.compute_is("ready"), seconds=60)
    assert len(world.cloud.purchases) == before + 1, "the nodes that were left are as it wants them"
    assert [r["generation"] for r in world.rows(nodes) if r["state"] == "ready"] == [3, 3, 3]
    assert world.row(computes, compute)["observed_generation"] == 3
    assert world.names().count("compute.generation.applied") == 2


async def test_a_definition_is_tried_with_one_node_before_the_others_are_replaced(world: World) -> None:
    await world.begin(nodes=4)
    await world.settle(world.compute_is("ready"))
    slow: list[SimAgent] = []

    def hold(one: SimAgent) -> None:
        one.ready = False
        slow.append(one)

    world.on_agent = hold
    await generation(world)
    await world.live(60)
    assert ranks(world, "ready") == [0, 1, 2]
    assert ranks(world, "bootstrapping") == [3]
    world.on_agent = lambda _: None
    slow[0].ready, slow[0].connected_to = True, None
    await world.settle(world.compute_is("ready"))
    assert [r["generation"] for r in world.rows(nodes) if r["state"] == "ready"] == [2] * 4
    assert len(world.cloud.purchases) == 8


async def test_work_at_nodes_that_stay_does_not_refuse_going_back(world: World) -> None:
    world.answer = keep_running
    await world.begin()
    task = await world.call()
    await world.settle(world.sent(task))
    assert await generation(world, source=1) == 2
    await world.settle(lambda: world.rows(computes)[0]["observed_generation"] == 2)
    assert world.task(task) == "running"
    assert len(world.cloud.purchases) == 1


# ── drift ───────────────────────────────────────────────────────────────────────────────────────


async def change(world: World, **wanted: Any) -> None:
    body = v1.ComputeSpecPatch(**wanted)
    await world.db.write(lambda tx: compute_verbs.change(tx, "fleet", body, None, world.rules))


async def test_what_is_wanted_otherwise_is_drift_until_a_generation_is_created(world: World) -> None:
    await world.begin(nodes=2)
    await world.settle(world.compute_is("ready"))
    before = await shown(world)
    await change(world, image=v1.Image(env={"A": "1"}), ttl=60, retry=v1.RetryPolicy(safe_retries=9))
    await world.live(60)
    told = await shown(world)
    assert told.status.drift == ("image.env", "retry.safe_retries", "ttl")
    assert (told.spec.image.env, told.spec.ttl) == ({"A": "1"}, 60), "what is wanted is what is shown"
    assert told.revision == before.revision + 1
    assert (told.generation, told.status.observed_generation, told.status.state) == (1, 1, "ready")
    assert len(world.cloud.purchases) == 2, "nothing of it is applied"
    task = await world.call()
    assert world.row(tasks, task)["safe_retries"] == 3
    await world.settle(world.task_is("succeeded", task))
    await change(world, nodes=BOUNDS(desired=1), ttl=before.spec.ttl)
    await world.settle(lambda: len(world.live_agents()) == 1)
    assert (await shown(world)).status.drift == ("image.env", "retry.safe_retries"), "nodes change in place"
    await generation(world)
    applied = await shown(world)
    assert (applied.status.drift, applied.generation) == ((), 2)
    assert applied.spec.image.env == {"A": "1"}
    await world.settle(world.compute_is("ready"))
    assert [r["generation"] for r in world.rows(nodes) if r["state"] == "ready"] == [2]
    await generation(world, source=1)
    back = await shown(world)
    assert (back.spec.image.env, back.spec.nodes.desired) == ({}, 2)


async def test_drift_that_is_taken_back_is_none(world: World) -> None:
    await world.begin()
    await change(world, selection="first")
    assert (await shown(world)).status.drift == ("selection",)
    await change(world, selection="cheapest")
    told = await shown(world)
    assert told.status.drift == ()
    assert told.revision == 3


@pytest.mark.parametrize(
    ("wanted", "refusal"),
    [
        ({}, InvalidRequest),
        ({"specs": ()}, InvalidRequest),
        ({"specs": (v1.Spec(provider=v1.ProviderRef(kind="nowhere")),)}, UnsupportedProvider),
        ({"image": v1.Image(env={"AWS_SECRET_ACCESS_KEY": "abcdef"})}, SecretInDefinition),
    ],
)
async def test_a_change_that_could_never_be_applied_is_refused(
    world: World, wanted: dict[str, Any], refusal: type[Exception]
) -> None:
    await world.begin()
    with pytest.raises(refusal):
        await change(world, **wanted)
    assert (await shown(world)).revision == 1
