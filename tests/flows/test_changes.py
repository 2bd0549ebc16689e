"""A compute that is changed in every way by daemons that die or hear no wake; and one that is left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.flows.places import every
from tests.flows.world import World

from sky.domain import node as n
from sky.kit import faults
from sky.store.schema import computes, nodes
from sky.store.tx import Tx
from sky.verbs import computes as verbs
from sky.wire import v1

STRIDE = every(13)
"""Of so many steps, a daemon dies at one."""


class Step(NamedTuple):
    """What is asked for under a key, and what has come of it when the next is asked for."""

    key: str
    ask: Callable[[World, Tx], Any]
    done: Callable[[World], bool]


def changed(**wanted: Any) -> Callable[[World, Tx], Any]:
    body = v1.ComputeSpecPatch(**wanted)
    return lambda world, tx: verbs.change(tx, "fleet", body, None, world.rules)


def generation(**how: Any) -> Callable[[World, Tx], Any]:
    body = v1.GenerationCreate(**how)
    return lambda world, tx: verbs.create_generation(tx, "fleet", body, None, world.rules)


def give_back_rank_1(world: World, tx: Tx) -> str:
    node = next(x for x in world.rows(nodes) if (x["state"], x["rank"]) == ("ready", 1))
    return verbs.delete_node(tx, "fleet", node["id"])


def applied(number: int, *, many: int, bought: int) -> Callable[[World], bool]:
    """That definition is on so many nodes, all of them ready, after so many purchases."""

    def done(world: World) -> bool:
        (row,) = world.rows(computes)
        live = [(x["generation"], x["state"]) for x in world.rows(nodes) if x["state"] not in n.FINAL]
        return (
            (row["state"], row["observed_generation"]) == ("ready", number)
            and live == [(number, "ready")] * many
            and len(world.cloud.purchases) == bought
        )

    return done


STEPS = (
    Step("otherwise", changed(image=v1.Image(env={"A": "1"})), applied(1, many=2, bought=2)),
    Step("second", generation(), applied(2, many=2, bought=4)),
    Step("give back", give_back_rank_1, applied(2, many=2, bought=5)),
    Step("fewer", changed(nodes=v1.NodeBounds(desired=1)), applied(2, many=1, bought=5)),
    Step("third", generation(source=1), applied(3, many=2, bought=7)),
    Step(
        "delete",
        lambda _, tx: verbs.delete(tx, "fleet", None),
        lambda world: world.states(computes) == ["deleted"],
    ),
)


async def tell(world: World) -> None:
    """The whole story, or what of it was not told yet: what was asked for is not asked for again."""
    await world.begin(nodes=2)
    asked = {row.key for row in world.query("SELECT key FROM idempotency")}
    for number, step in enumerate(STEPS):
        await world.ask(step.key, lambda tx, step=step: step.ask(world, tx))
        if not asked & {later.key for later in STEPS[number + 1 :]}:
            await world.settle(lambda step=step: step.done(world))


def check_end(world: World) -> None:
    """The one end that every telling has."""
    world.check_books()
    assert world.cloud.alive() == ()
    assert len(world.cloud.purchases) == 7
    assert world.rows(computes)[0]["generation"] == 3
    names = Counter(world.names())
    assert (names["compute.generation.created"], names["compute.generation.applied"]) == (2, 3)
    assert names["compute.deleted"] == 1


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_every_change_ends_as_it_was_asked_for(tmp_path: Path, hints: bool) -> None:
    world = World(tmp_path, hints=hints)
    await tell(world)
    check_end(world)
    world.close()


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_dying_while_it_changes_changes_nothing(tmp_path: Path, hints: bool) -> None:
    folder = tmp_path / "straight"
    folder.mkdir()
    world = World(folder, hints=hints)
    faults.record()
    await tell(world)
    names = faults.disarm()
    world.close()
    for number in range(3 + hints, len(names), STRIDE):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder, hints=hints)
        faults.arm(number)
        with pytest.raises(faults.Died):
            await tell(world)
        faults.disarm()
        world.die()
        await tell(world)
        try:
            check_end(world)
        except AssertionError as error:
            error.add_note(f"the daemon had died at point {number}: {names[number]}")
            raise
        world.close()


# ── a fleet to which nothing happens ────────────────────────────────────────────────────────────


async def test_a_fleet_that_is_heard_costs_one_listing_a_minute(world: World) -> None:
    await world.begin(nodes=20)
    await world.settle(world.compute_is("ready"))
    await world.live(60)
    before = len(world.cloud.calls)
    await world.live(300, step_s=2.0)
    assert Counter(method for method, _ in world.cloud.calls[before:]) == {"machines": 5}


async def test_machines_that_never_call_are_listed_and_not_asked_after_one_by_one(world: World) -> None:
    world.on_agent = lambda one: setattr(one, "reachable", False)
    await world.begin(nodes=20, options=v1.Options(ssh_connect_timeout=86_400.0))
    await world.settle(lambda: len(world.cloud.purchases) == 20)
    await world.live(90)
    before = len(world.cloud.calls)
    await world.live(300, step_s=2.0)
    assert Counter(method for method, _ in world.cloud.calls[before:]) == {"machines": 5}
    gone = world.cloud.purchases[7].tag
    world.on_agent = lambda _: None
    await world.cloud.delete_out_of_band(gone)
    await world.settle(lambda: world.row(nodes, gone)["state"] == "deleted", seconds=90)
    await world.settle(lambda: len(world.cloud.purchases) == 21, seconds=90)
