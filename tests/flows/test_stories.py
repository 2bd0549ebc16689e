"""Stories (a) and (b): straight, with every wake thrown away, and dying at every commit and every effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.databases import fresh
from tests.flows.places import places
from tests.flows.world import FUNCTION_SHA, World
from tests.proof import record

from sky.kit import faults
from sky.providers.fake.cloud import Pace
from sky.store.schema import computes, executions, nodes, tasks
from sky.store.tx import Tx
from sky.verbs import computes as compute_verbs
from sky.verbs import tasks as task_verbs
from sky.wire import v1

SPEC = v1.ComputeSpec(specs=(v1.Spec(provider=v1.ProviderRef(kind="fake")),), nodes=v1.NodeBounds(desired=2))
CALLS = 5
PARTS = 3
"""The deaths are shared out, so that they can run beside each other."""


async def ask_everything(world: World) -> None:
    """What the clients ask for. Each request has a key, and may be sent again after a death."""
    await world.function()
    await world.provider()
    body = v1.ComputeCreate(spec=SPEC, name="fleet")
    compute = await world.ask("create", lambda tx: compute_verbs.create(tx, body, world.rules))
    for number in range(CALLS):
        call = v1.TaskCreate(compute=compute, function=FUNCTION_SHA, args_inline=b"%d" % number)
        await world.ask(f"call-{number}", lambda tx, call=call: task_verbs.submit(tx, call))
    batch = v1.TaskBatchCreate(
        compute=compute,
        function=FUNCTION_SHA,
        calls=tuple(v1.BatchCall(args_inline=b"b%d" % number) for number in range(CALLS)),
        correlation_id="batch",
    )
    await world.ask("batch", lambda tx: task_verbs.submit_batch(tx, batch))


async def give_back(world: World) -> None:
    """The end of it: the compute is deleted."""

    def verb(tx: Tx) -> str:
        return compute_verbs.delete(tx, world.rows(computes)[0]["id"], None)

    await world.ask("delete", verb)


def all_done(world: World) -> bool:
    return len(world.rows(tasks)) == 2 * CALLS and set(world.states(tasks)) == {"succeeded"}


def is_ready(world: World) -> bool:
    return world.states(computes) == ["ready"]


def is_deleted(world: World) -> bool:
    return world.states(computes) == ["deleted"]


async def tell(world: World) -> None:
    """The whole story, from nothing to machines given back."""
    await ask_everything(world)
    await world.settle(lambda: all_done(world) and is_ready(world))
    await give_back(world)
    await world.settle(lambda: is_deleted(world))


async def go_on(world: World) -> None:
    """The clients send again what was not answered; what was asked for already is not asked twice."""
    if world.query("SELECT 1 FROM idempotency WHERE key = 'delete'"):
        await world.settle(lambda: is_deleted(world))
    else:
        await tell(world)


def check_end(world: World) -> None:
    """The one end that every telling has."""
    world.check_books()
    assert len(world.cloud.purchases) == 2, "two nodes were wanted, two machines bought"
    assert world.cloud.alive() == (), "every machine was given back"
    assert world.states(nodes) == ["deleted", "deleted"]
    assert len(world.rows(computes)) == 1
    assert world.states(executions) == ["succeeded"] * 2 * CALLS, "each call took one attempt"
    results = world.query(
        "SELECT b.content FROM tasks t JOIN blobs b ON b.sha256 = t.result_sha256 ORDER BY t.seq"
    )
    wanted = [b"ran:%d" % n for n in range(CALLS)] + [b"ran:b%d" % n for n in range(CALLS)]
    assert [row.content for row in results] == wanted
    names = [row.name for row in world.query("SELECT name FROM events ORDER BY seq")]
    assert names.count("task.succeeded") == 2 * CALLS
    assert names.count("compute.ready") == 1
    assert names[-1] == "compute.deleted"


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_the_stories_end_well(tmp_path: Path, hints: bool) -> None:
    world = World(tmp_path, hints=hints)
    await tell(world)
    check_end(world)
    world.close()


async def test_slow_machines_and_listings_change_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, pace=Pace(boot_s=20.0, list_after_s=30.0, end_s=12.0))
    await tell(world)
    check_end(world)
    world.close()


async def points_of_the_story(world: World) -> tuple[str, ...]:
    """What the story passes when nobody dies."""
    faults.record()
    await tell(world)
    names = faults.disarm()
    check_end(world)
    world.close()
    return names


async def dies(world: World, number: int, name: str) -> None:
    """The daemon dies at a point, and the next one brings the story to its end."""
    faults.arm(number)
    try:
        await tell(world)
        died = False
    except faults.Died:
        died = True
    faults.disarm()
    assert died, f"point {number} ({name}) was reached when the story was told straight"
    world.die()
    await go_on(world)
    try:
        check_end(world)
    except AssertionError as error:
        error.add_note(f"the daemon had died at point {number}: {name}")
        raise
    world.close()


def folder_of(path: Path) -> Path:
    path.mkdir()
    return path


async def test_the_stories_end_well_on_postgresql_whoever_dies(tmp_path: Path) -> None:
    def world() -> World:
        return World(tmp_path, url=fresh(tmp_path / "none", postgresql=True))

    names = await points_of_the_story(world())
    for name in sorted(set(names))[::3]:
        await dies(world(), names.index(name), name)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_dying_at_every_step_changes_nothing(tmp_path: Path, hints: bool, part: int) -> None:
    names = await points_of_the_story(World(folder_of(tmp_path / "straight"), hints=hints))
    assert "machine bought, not written down" in names
    assert "machine given back, not written down" in names
    assert len(names) > 80
    deaths = places(names, f"stories {hints}")[part::PARTS]
    for number in deaths:
        await dies(World(folder_of(tmp_path / str(number)), hints=hints), number, names[number])
    record(deaths=len(deaths))


async def test_dying_twice_in_a_row_changes_nothing(tmp_path: Path) -> None:
    names = await points_of_the_story(World(folder_of(tmp_path / "straight")))
    for number in places(names, "stories twice")[1::3]:
        world = World(folder_of(tmp_path / str(number)))
        for budget in (number, 2):
            faults.arm(budget)
            try:
                await go_on(world)
            except faults.Died:
                world.die()
        faults.disarm()
        await go_on(world)
        check_end(world)
        world.close()
