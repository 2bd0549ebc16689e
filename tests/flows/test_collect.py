"""What is over goes with all that was its, once nothing that is there names it; what goes on is left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from tests.flows.test_clusters import do, up
from tests.flows.world import FUNCTION_SHA, World, keep_running

from sky.domain.keeping import FRESH_US, Keeping
from sky.kit import codec
from sky.kit.clock import SECOND_US
from sky.reconcile.collect import EVERY_US, QUIET_US, Collect
from sky.store.blobs import store_inline
from sky.store.rows import requests as request_rows
from sky.store.schema import blobs, computes, executions, functions, generations, nodes, tasks
from sky.store.schema_jobs import deliveries, jobs, webhooks
from sky.store.schema_requests import cluster_jobs, clusters, requests
from sky.store.views.garbage import KINDS, LOOKS
from sky.verbs import reports
from sky.wire import agent as wire

NOW = Keeping(ended_us=0, calls_us=0, requests_us=0, deliveries_us=0, unnamed_us=0)
OF_COMPUTE = (nodes, tasks, executions, generations)


async def collect(world: World, loop: Collect) -> None:
    """Passes of every kind until none has anything to remove."""
    for kind in KINDS:
        for _ in range(50):
            done = await loop.look(kind)
            if done.write is None:
                break
            await world.db.write(done.write)
        else:
            raise AssertionError(f"{kind} does not come to an end: {done.why}")


def of(world: World, table: sa.Table, compute: str) -> list[Mapping[str, Any]]:
    return [row for row in world.rows(table) if row["compute_id"] == compute]


async def test_what_is_over_goes_once_nothing_names_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    loop = Collect(world.db, world.clock, NOW)
    user = await up(world)
    [cluster] = world.rows(clusters)
    await world.function()
    ends, stays = await world.compute(name="ends"), await world.compute(name="stays")
    await world.calls(3, "ends")
    [kept] = await world.calls(1, "stays")
    old = await world.call("stays", args_inline=b"old")
    await world.settle(world.task_is("succeeded", kept, old))
    await world.delete("ends")
    await do(user, "down")
    await world.settle(lambda: world.row_state(computes, ends) == "deleted")
    world.clock.advance((QUIET_US + 3 * FRESH_US) / SECOND_US)

    await collect(world, Collect(world.db, world.clock, Keeping()))
    assert {row["id"] for row in world.rows(computes)} == {ends, stays, cluster["compute_id"]}, "too early"

    until_us = world.row(tasks, old)["finished_us"]
    by_hand = Keeping(ended_us=0, calls_us=world.clock.now_us() - until_us, unnamed_us=0)
    loop = Collect(world.db, world.clock, by_hand)
    world.clock.advance(QUIET_US / SECOND_US)
    await world.db.write(
        lambda tx: tx.connection.execute(
            sa.update(tasks).where(tasks.c.id == kept).values(finished_us=world.clock.now_us())
        )
    )
    await collect(world, loop)
    assert {row["id"] for row in world.rows(computes)} == {stays, cluster["compute_id"]}
    assert [of(world, table, ends) for table in OF_COMPUTE] == [[], [], [], []]
    assert all(of(world, table, cluster["compute_id"]) for table in OF_COMPUTE), (
        "its cluster is still told of"
    )
    assert [row["id"] for row in of(world, tasks, stays)] == [kept]
    assert [row["task_id"] for row in of(world, executions, stays)] == [kept]
    assert of(world, nodes, stays), "what goes on is not touched"
    there = {row["sha256"] for row in world.rows(blobs)}
    named = {row[key] for row in world.rows(tasks) for key in ("args_sha256", "result_sha256")} - {None}
    assert named <= there

    await world.db.write(lambda tx: request_rows.forget(tx, tx.now_us + 1, 100))
    assert world.rows(requests) == []
    await collect(world, loop)
    assert (world.rows(clusters), world.rows(cluster_jobs)) == ([], [])
    assert {row["id"] for row in world.rows(computes)} == {stays}
    assert {row["compute_id"] for table in OF_COMPUTE for row in world.rows(table)} == {stays}
    assert [row["sha256"] for row in world.rows(functions)] == [FUNCTION_SHA], "no step of a job is left"
    left = {row["sha256"] for row in world.rows(blobs)}
    assert left == {FUNCTION_SHA} | {
        row[key] for row in world.rows(tasks) for key in ("args_sha256", "result_sha256")
    }
    world.close()


async def test_what_a_job_that_is_not_settled_has_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.provider()
    ids = [await world.compute(name=name) for name in ("settled", "held", "lately")]
    for name in ("settled", "held", "lately"):
        await world.delete(name)
    await world.settle(world.compute_is("deleted"))
    world.clock.advance(10.0)
    now_us = world.clock.now_us()
    ended = {"settled": (1, 1), "held": (1, None), "lately": (now_us, now_us)}
    empty = {column.name: _empty(column) for column in jobs.columns if not column.nullable}
    for seq, (name, (finished_us, settled_us)) in enumerate(ended.items(), 1):
        row = {**empty, "seq": seq, "id": f"job_{name}", "finished_us": finished_us, "settled_us": settled_us}
        owned = sa.update(computes).where(computes.c.id == ids[seq - 1]).values(owner=f"jobs/job_{name}")

        def write(tx: Any, row: Any = row, owned: Any = owned) -> None:
            tx.connection.execute(sa.insert(jobs), row)
            tx.connection.execute(owned)

        await world.db.write(write)
    gone = await world.db.read(lambda c: LOOKS["computes"](c, now_us))
    assert [one.key for one in gone] == [ids[0]]
    world.close()


def _empty(column: sa.Column[Any]) -> Any:
    if isinstance(column.type, sa.Boolean):
        return False
    if isinstance(column.type, sa.Integer):
        return 0
    return {} if isinstance(column.type, sa.JSON) else ""


async def test_what_a_node_names_just_as_it_would_go_stays(tmp_path: Path) -> None:
    world = World(tmp_path)
    loop = Collect(world.db, world.clock, NOW)
    await world.begin()
    world.answer = keep_running
    task = await world.call()
    await world.settle(world.sent(task))
    execution = world.tries(task)[-1]["id"]
    brought = {name: codec.sha256_hex(name.encode()) for name in ("item", "result", "nobody's")}
    await world.db.write(lambda tx: store_inline(tx, [(brought[name], name.encode()) for name in brought]))
    world.clock.advance((QUIET_US + 3 * FRESH_US) / SECOND_US)
    found = await loop.look("content")
    assert found.write is not None
    item = wire.Item(execution=execution, index=0, value_sha256=brought["item"])
    ended = wire.Outcome(
        execution=execution,
        state="succeeded",
        seconds=1.0,
        ago_s=0.0,
        result_sha256=brought["result"],
        items=1,
    )
    report = wire.Report(number=1, items=(item,), outcomes=(ended,))
    [node] = world.rows(nodes)
    await world.db.write(lambda tx: reports.take(tx, node["id"], report))
    await world.db.write(found.write)
    there = {row["sha256"] for row in world.rows(blobs)}
    assert {name for name, sha256 in brought.items() if sha256 in there} == {"item", "result"}
    world.close()


async def test_messages_that_are_to_be_sent_stay_and_an_endpoint_with_its_last_goes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.clock.advance(10.0)
    states = ("pending", "delivered", "failed")
    endpoint = {column.name: _empty(column) for column in webhooks.columns if not column.nullable}
    message = {column.name: _empty(column) for column in deliveries.columns if not column.nullable}

    def write(tx: Any) -> None:
        for number, (name, deleted_us) in enumerate((("there", None), ("deleted", 1)), 1):
            row = {**endpoint, "seq": number, "id": name, "secrets": b"", "deleted_us": deleted_us}
            tx.connection.execute(sa.insert(webhooks), row)
        for number, state in enumerate(states, 1):
            row = {**message, "seq": number, "id": state, "event_seq": number, "webhook_id": "deleted"}
            tx.connection.execute(sa.insert(deliveries), {**row, "state": state, "created_us": number})

    await world.db.write(write)
    loop = Collect(world.db, world.clock, NOW)
    found = await loop.look("deliveries")
    assert found.write is not None
    failed = sa.update(deliveries).where(deliveries.c.id == "failed")
    await world.db.write(lambda tx: tx.connection.execute(failed.values(state="pending")))
    await world.db.write(found.write)
    there = {row["id"] for row in world.rows(deliveries)}
    assert there == {"pending", "failed"}, "somebody has it sent once more"
    await world.db.write(lambda tx: tx.connection.execute(failed.values(state="failed")))
    world.clock.advance(EVERY_US / SECOND_US)
    await collect(world, loop)
    assert [row["id"] for row in world.rows(deliveries)] == ["pending"]
    assert [row["id"] for row in world.rows(webhooks)] == ["there", "deleted"]
    await world.db.write(lambda tx: tx.connection.execute(sa.update(deliveries).values(state="delivered")))
    await collect(world, loop)
    assert world.rows(deliveries) == []
    assert [row["id"] for row in world.rows(webhooks)] == ["there"]
    world.close()
