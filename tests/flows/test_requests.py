"""Requests, clusters and their jobs: launched, queued, cancelled, taken down; straight, with wakes lost,
dying."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.flows.places import every
from tests.flows.world import World

from sky.kit import faults
from sky.store.rows import requests as rows
from sky.store.schema import computes
from sky.store.schema_requests import cluster_jobs, clusters, request_lines, requests
from sky.store.tx import Tx
from sky.verbs import requests as verbs
from sky.wire import agent as wire_agent
from sky.wire import requests as wire
from sky.wire import scripts, steps

PARTS = 3
STRIDE = every(9)


class User:
    """Somebody with clusters, over a world whose scripts take ``seconds`` and end with ``codes``."""

    def __init__(self, world: World, *, seconds: float = 5.0) -> None:
        self.world = world
        self.seconds = seconds
        self.codes: dict[tuple[str, int], int] = {}
        self.began_s: dict[str, float] = {}
        world.answer = self._answer

    def _answer(self, item: wire_agent.WorkItem) -> wire_agent.Outcome | None:
        content = self.world.query("SELECT content FROM blobs WHERE sha256 = :s", s=item.function)[0].content
        step = scripts.step_of(bytes(content))
        code = 0
        if isinstance(step, scripts.Script):
            rank = int(step.env["SKY_NODE_RANK"])
            code = self.codes.get((step.kind, rank), 0)
            began_s = self.began_s.setdefault(item.execution, self.world.clock.monotonic_s())
            takes_s = self.seconds if code == 0 else 1.0
            if step.kind == "run" and self.world.clock.monotonic_s() - began_s < takes_s:
                return None
        result = steps.packed(steps.Outcome(exit_code=code))
        return wire_agent.Outcome(
            execution=item.execution, state="succeeded", seconds=0.0, ago_s=0.0, result=result
        )

    async def ask(self, name: str, key: str | None = None, **body: Any) -> str:
        shape = wire.BODIES[name](**body)

        def verb(tx: Tx) -> str:
            return tx.once(key, key or "", lambda: verbs.submit(tx, name, shape, "ann"))[0]

        return await self.world.db.write(verb)

    async def launch(self, cluster: str = "dev", key: str | None = None, nodes: int = 2, **more: Any) -> str:
        task = wire.TaskConfig(
            name="t",
            num_nodes=nodes,
            machines=(wire.Machine(infra="fake"),),
            **{"run": "true", **more.pop("task", {})},
        )
        return await self.ask("launch", key, task=task, cluster_name=cluster, **more)

    async def cancel(self, request_id: str) -> None:
        def verb(tx: Tx) -> None:
            row = rows.find(tx.connection, request_id)
            assert row is not None
            verbs.cancel(tx, row)

        await self.world.db.write(verb)

    def request(self, request_id: str) -> Mapping[str, Any]:
        return self.world.row(requests, request_id)

    def is_over(self, *ids: str) -> Any:
        return lambda: all(self.request(one)["finished_us"] is not None for one in ids)

    def jobs(self) -> list[str]:
        return [row["state"] for row in self.world.rows(cluster_jobs)]

    def jobs_are(self, *states: str) -> Any:
        return lambda: self.jobs() == list(states)


async def tell(world: World) -> tuple[str, str, str]:
    """A cluster from nothing to nothing, with two jobs on it."""
    user = User(world)
    await world.provider()
    launch = await user.launch(key="launch", task={"setup": "true"})
    await world.settle(user.is_over(launch))
    if world.query("SELECT 1 FROM idempotency WHERE key = 'down'"):
        second = await user.ask("exec", "exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
    else:
        second = await user.ask("exec", "exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
        await world.settle(user.jobs_are("SUCCEEDED", "SUCCEEDED"))
    down = await user.ask("down", "down", cluster_name="dev")
    await world.settle(lambda: user.is_over(down)() and set(world.states(computes)) == {"deleted"})
    return launch, second, down


def check_end(world: World) -> None:
    world.check_books()
    assert world.states(requests) == ["SUCCEEDED"] * 3
    assert world.states(clusters) == ["DOWN"]
    assert world.states(cluster_jobs) == ["SUCCEEDED", "SUCCEEDED"]
    assert len(world.cloud.purchases) == 2
    assert world.cloud.alive() == ()


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_a_cluster_from_launch_to_down(tmp_path: Path, hints: bool) -> None:
    world = World(tmp_path, hints=hints)
    launch, second, _ = await tell(world)
    check_end(world)
    assert world.row(requests, launch)["result"]["job_id"] == 1
    assert world.row(requests, second)["result"]["job_id"] == 2
    world.close()


@pytest.mark.parametrize("part", range(PARTS))
async def test_dying_anywhere_changes_nothing(tmp_path: Path, part: int) -> None:
    (tmp_path / "straight").mkdir()
    world = World(tmp_path / "straight")
    faults.record()
    await tell(world)
    names = faults.disarm()
    world.close()
    for number in range(1 + part, len(names) + 1, PARTS * STRIDE):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder)
        faults.arm(number)
        died = False
        try:
            await tell(world)
        except faults.Died:
            died = True
        finally:
            faults.disarm()
        assert died or number > len(names) - 10
        world.die()
        await tell(world)
        try:
            check_end(world)
        except AssertionError as error:
            error.add_note(f"the daemon had died at point {number}: {names[number - 1]}")
            raise
        world.close()


async def test_a_node_whose_script_fails_ends_the_job_on_all(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world, seconds=300.0)
    user.codes["run", 1] = 7
    await world.provider()
    await user.launch()
    await world.settle(user.jobs_are("FAILED"), seconds=200.0)
    [job] = world.rows(cluster_jobs)
    assert job["error"]["returncode"] == 7
    world.close()


async def test_a_setup_that_fails_fails_the_launch_with_its_code(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world)
    user.codes["setup", 0] = 3
    await world.provider()
    launch = await user.launch(task={"setup": "false"})
    await world.settle(user.is_over(launch))
    row = user.request(launch)
    assert (row["state"], row["error"]["type"]) == ("FAILED", "CommandError")
    assert row["error"]["message"] == (
        "the setup of job 1 on cluster 'dev' ended with 3; `sky logs dev 1` shows what it printed"
    )
    said = [line["text"] for line in world.rows(request_lines)]
    assert said[-1] == "the setup of job 1 runs: `sky logs dev 1` follows what it prints"
    assert user.jobs() == ["FAILED_SETUP"]
    assert world.states(clusters) == ["UP"], "the cluster is there for another try"
    world.close()


async def test_jobs_run_in_their_order_and_a_cancelled_one_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world, seconds=600.0)
    await world.provider()
    launch = await user.launch()
    await world.settle(user.is_over(launch))
    for _ in range(5):
        await user.ask("exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
    await world.live(5.0)
    assert user.jobs() == ["RUNNING"] * 4 + ["PENDING"] * 2
    cancel = await user.ask("cancel", cluster_name="dev", job_ids=(1, 6))
    assert user.request(cancel)["result"] == [1, 6]
    await world.settle(user.jobs_are("CANCELLED", "RUNNING", "RUNNING", "RUNNING", "RUNNING", "CANCELLED"))
    world.close()


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 2.0, 3.0, 5.0])
async def test_a_cancelled_launch_leaves_no_machine(tmp_path: Path, after_s: float) -> None:
    world = World(tmp_path)
    user = User(world)
    await world.provider()
    launch = await user.launch()
    await world.live(after_s, step_s=0.5)
    was_up = world.states(clusters) == ["UP"]
    await user.cancel(launch)
    await world.live(60.0)
    world.check_books()
    if not was_up:
        assert world.cloud.alive() == ()
        assert user.request(launch)["state"] == "CANCELLED"
    else:
        assert world.states(clusters) == ["UP"], "what was there before stays"
    world.close()


async def test_two_launches_on_one_name_are_one_cluster_and_two_jobs_in_order(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world)
    await world.provider()
    first, second = await user.launch(), await user.launch()
    await world.settle(user.is_over(first, second))
    assert [user.request(one)["result"]["job_id"] for one in (first, second)] == [1, 2]
    assert len(world.cloud.purchases) == 2
    await world.settle(user.jobs_are("SUCCEEDED", "SUCCEEDED"))
    world.close()


async def test_down_during_a_launch_ends_it_and_buys_nothing_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world)
    await world.provider()
    launch = await user.launch()
    down = await user.ask("down", cluster_name="dev")
    await world.settle(user.is_over(launch, down))
    assert user.request(launch)["error"]["type"] == "ClusterDoesNotExist"
    await world.live(30.0)
    assert world.cloud.alive() == ()
    world.close()


async def test_an_idle_cluster_is_taken_down_when_that_was_asked(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world)
    await world.provider()
    launch = await user.launch(idle_minutes_to_autostop=2, down=True)
    await world.settle(user.is_over(launch))
    await world.live(60.0)
    assert world.states(clusters) == ["UP"]
    await world.settle(lambda: world.states(clusters) == ["DOWN"], seconds=400.0, step_s=2.0)
    await world.live(30.0)
    assert world.cloud.alive() == ()
    world.close()


async def test_a_request_is_kept_for_thirty_days_after_its_end_and_no_longer(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world)
    await user.ask("status")
    await world.db.write(lambda tx: tx.touch("forget/old"))
    await world.live(5.0)
    assert len(world.rows(requests)) == 1
    world.clock.advance(31 * 24 * 3600.0)
    await world.live(5.0)
    assert world.rows(requests) == []
    world.close()


async def test_what_cannot_be_had_fails_by_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world)
    await world.provider()
    asked = [
        await user.ask("exec", task=wire.TaskConfig(run="true"), cluster_name="nosuch"),
        await user.ask("down", cluster_name="nosuch"),
        await user.ask("queue", cluster_name="nosuch"),
        await user.ask("launch", task=wire.TaskConfig(run="true", machines=(wire.Machine(infra="gpc"),))),
    ]
    kinds = [user.request(one)["error"]["type"] for one in asked]
    assert kinds == ["ClusterDoesNotExist"] * 3 + ["ResourcesUnavailableError"]
    assert user.request(await user.ask("status"))["result"] == []
    world.close()


@pytest.mark.parametrize("begun", [False, True], ids=["yet to begin", "begun"])
async def test_a_request_that_this_release_cannot_read_fails_and_holds_nobody(
    tmp_path: Path, begun: bool
) -> None:
    world = World(tmp_path)
    user = User(world)
    await world.provider()

    def unreadable(tx: Tx) -> str:
        body = wire.LaunchBody(task=wire.TaskConfig(run="true"), cluster_name="dev")
        request_id = verbs.submit(tx, "launch", body, "ann")
        values: dict[str, Any] = {"body": {"of": "another release"}}
        if begun:
            values |= {"state": "RUNNING", "started_us": tx.now_us}
        tx.connection.execute(sa.update(requests).where(requests.c.id == request_id).values(**values))
        return request_id

    broken = await world.db.write(unreadable)
    beside = await user.launch("other")
    await world.settle(user.is_over(broken, beside))
    assert user.request(beside)["state"] == "SUCCEEDED"
    error = user.request(broken)["error"]
    assert error["type"] == "InternalError"
    assert ("`sky status` shows it" if begun else "nothing was begun") in error["message"]
    world.close()


async def test_a_launch_without_a_name_never_lands_on_a_cluster_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    user = User(world)
    await world.provider()
    monkeypatch.setattr("secrets.token_hex", lambda size: "a" * 2 * size)
    asked = [
        await user.ask("launch", task=wire.TaskConfig(machines=(wire.Machine(infra="fake"),))) for _ in "ab"
    ]
    await world.settle(user.is_over(*asked))
    assert world.states(requests) == ["SUCCEEDED"] * 2
    assert [row["name"] for row in world.rows(clusters)] == ["sky-aaaa-ann", "sky-aaaaaaaa-ann"]
    world.close()
