"""What requests that only read cost, and looks at clusters: by what is told or decided, never by what is
there besides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.event import listen, remove
from tests.databases import IN_A_FILE
from tests.flows.test_requests import User
from tests.flows.world import World

from sky.store.rows import requests as rows
from sky.store.schema_requests import cluster_jobs, clusters, requests
from sky.verbs import request_reads
from sky.verbs import requests as verbs
from sky.wire import requests as wire

pytestmark = IN_A_FILE

FEW, MANY = 2, 9
JOBS = 12


class Trace:
    """The statements of every connection to the database, in their order, while ``on``."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.on = False

    def connected(self, connection: Any, _record: Any) -> None:
        connection.set_trace_callback(self._say)

    def _say(self, statement: str) -> None:
        if self.on:
            self.said.append(statement)

    @contextmanager
    def during(self) -> Iterator[list[str]]:
        self.said, self.on = [], True
        yield self.said
        self.on = False


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    """From before the first connection of a world."""
    one = Trace()
    listen(sa.Engine, "connect", one.connected)
    yield one
    remove(sa.Engine, "connect", one.connected)


@pytest.fixture
def slow(trace: Trace, world: World) -> World:
    """A world from whose machines nothing is heard yet."""
    del trace
    world.on_agent = lambda one: setattr(one, "reachable", False)
    return world


@pytest.fixture
def traced(trace: Trace, world: World) -> tuple[World, Trace]:
    return world, trace


async def ask(world: World, name: str, **body: Any) -> dict[str, Any]:
    """As the face does: told from a snapshot, then written down."""
    shape = wire.BODIES[name](**body)
    assert request_reads.only_reads(name, shape)
    now_us = world.db.clock.now_us()
    told = await world.db.read(lambda c: request_reads.tell(c, name, "ann", shape, now_us))
    return await world.db.write(lambda tx: verbs.record(tx, name, shape, "ann", told))


async def launch(user: User, count: int, first: int = 0) -> None:
    """Clusters whose machines are on their way, and a request that waits for each."""
    for number in range(first, first + count):
        await user.launch(f"c-{number}")
    await begun(user.world, first + count)


async def begun(world: World, count: int) -> None:
    """So many launches have looked at offers, and made their clusters; their machines are not there yet."""
    await world.settle(lambda: world.states(clusters) == ["INIT"] * count, step_s=0.1)


async def test_a_status_is_as_many_statements_however_many_launches_are_beside_it(
    slow: World, trace: Trace
) -> None:
    world, user = slow, User(slow)
    await world.provider()
    await launch(user, FEW)
    counts: list[int] = []
    for more in (0, MANY - FEW):
        await launch(user, more, FEW)
        await ask(world, "status")
        with trace.during() as said:
            row = await ask(world, "status")
        shown = world.row(requests, row["id"])["result"]
        assert len(shown) == FEW + more
        assert {one["status"] for one in shown} == {"INIT"}
        counts.append(len(said))
        begins = [place for place, text in enumerate(said) if text.startswith("BEGIN")]
        assert [said[place] for place in begins] == ["BEGIN", "BEGIN IMMEDIATE"]
        writing = said[begins[1] :]
        assert not [text for text in writing if "FROM clusters" in text or "FROM nodes" in text], writing
    assert counts[0] == counts[1]
    with trace.during() as said:
        row = await ask(world, "status", cluster_names=["c-0", "nosuch"])
    assert [one["name"] for one in world.row(requests, row["id"])["result"]] == ["c-0"]
    assert len(said) == counts[0]


async def test_a_request_that_only_reads_is_over_when_it_is_written_and_no_loop_looks_at_it(
    slow: World,
) -> None:
    world, user = slow, User(slow)
    await world.provider()
    launched = await user.launch()
    await begun(world, 1)
    good, bad = await ask(world, "queue", cluster_name="dev"), await ask(world, "queue", cluster_name="div")
    [shown] = world.row(requests, good["id"])["result"]
    assert (shown["job_id"], shown["status"], shown["resources"]) == (1, "INIT", "2x[CPU:1+]")
    kept = world.row(requests, bad["id"])
    assert (kept["state"], kept["error"]["type"]) == ("FAILED", "ClusterDoesNotExist")
    assert "did you mean 'dev'?" in kept["error"]["message"]
    said = await world.db.read(lambda c: rows.lines(c, bad["id"], 0, 9))
    assert said == [(1, f"failed: {kept['error']['message']}")]
    mine = [f"requests/{one['id']}" for one in (good, bad)]
    assert not [row for row in world.query("SELECT key FROM passes") if row.key in mine]
    world.die()
    await user.cancel(launched)
    await world.settle(lambda: world.states(clusters) == ["DOWN"])
    assert world.row(requests, good["id"])["result"] == [shown], "its end is what it was told"


async def test_one_for_which_machines_are_looked_at_first_is_not_told_at_once(world: World) -> None:
    assert not request_reads.only_reads("status", wire.StatusBody(refresh="FORCE"))
    user = User(world)
    await world.provider()
    launched = await user.launch()
    await world.settle(user.is_over(launched))
    asked = await user.ask("status", refresh="FORCE")
    await world.settle(user.is_over(asked))
    assert [one["status"] for one in user.request(asked)["result"]] == ["UP"]


async def test_a_look_at_a_cluster_reads_as_many_jobs_however_many_wait(traced: tuple[World, Trace]) -> None:
    world, trace = traced
    user = User(world, seconds=10_000.0)
    await world.provider()
    await world.settle(user.is_over(await user.launch()))
    [cluster] = world.rows(clusters)
    task = wire.TaskConfig(run="true", envs={"LONG": "x" * 5_000})
    looks: list[list[str]] = []
    for _ in range(2):
        for _ in range(JOBS):
            await user.ask("exec", task=task, cluster_name="dev")
        await world.settle(lambda: set(user.jobs()) <= {"RUNNING", "PENDING"})
        with trace.during() as said:
            await world.runner.look(f"clusters/{cluster['id']}")
        looks.append(said)
    states = [row["state"] for row in world.rows(cluster_jobs)]
    assert states == ["RUNNING"] * 4 + ["PENDING"] * (1 + 2 * JOBS - 4)
    assert len(looks[0]) == len(looks[1])
    assert not [text for text in looks[1] if "body" in text and "CASE" not in text]
    [note] = world.query("SELECT decision FROM passes WHERE key = :key", key=f"clusters/{cluster['id']}")
    assert note.decision == f"{1 + 2 * JOBS} jobs are under way"
