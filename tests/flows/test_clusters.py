"""Clusters that stop, start, stop by themselves and change their size; straight, with wakes lost, dying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from tests.databases import IN_A_FILE
from tests.flows.places import every
from tests.flows.test_requests import User
from tests.flows.world import World, keep_running

from sky.domain.compute import ComputeResized
from sky.domain.errors import ComputeNotResizable
from sky.domain.node import FINAL
from sky.kit import faults
from sky.providers.fake.cloud import fake_offer
from sky.providers.fake.trouble import Refuse, TryLater
from sky.store.rows import clusters as job_rows
from sky.store.schema import computes, nodes
from sky.store.schema import disks as disk_rows
from sky.store.schema_requests import cluster_jobs, clusters, requests
from sky.verbs import cluster_power
from sky.verbs import computes as compute_verbs
from sky.wire import requests as wire
from sky.wire import v1

PARTS = 3
STRIDE = every(37)
MINUTE_S = 60.0


def state_of(world: World) -> str:
    [state] = world.states(clusters)
    return state


def is_in(world: World, state: str) -> Any:
    return lambda: state_of(world) == state


async def up(world: World, **more: Any) -> User:
    """A cluster that is up, whose job has ended."""
    user = User(world)
    await world.provider()
    launch = await user.launch(**more)
    await world.settle(user.is_over(launch))
    assert user.request(launch)["state"] == "SUCCEEDED", user.request(launch)["error"]
    await world.settle(user.jobs_are("SUCCEEDED"))
    return user


async def do(user: User, name: str, **body: Any) -> None:
    """Ask for something about the cluster, which must succeed."""
    request = await user.ask(name, cluster_name="dev", **body)
    await user.world.settle(user.is_over(request))
    assert user.request(request)["state"] == "SUCCEEDED", user.request(request)["error"]


async def fails(user: User, name: str, **body: Any) -> dict[str, Any]:
    """Ask for something about the cluster, which must fail; its error."""
    request = await user.ask(name, cluster_name="dev", **body)
    await user.world.settle(user.is_over(request))
    assert user.request(request)["state"] == "FAILED"
    return user.request(request)["error"]


def nothing_is_left(world: World) -> bool:
    return world.cloud.alive() == () and world.cloud.disks.names("test") == () and not world.rows(disk_rows)


# ── the story of a stop and a start ─────────────────────────────────────────────────────────────


async def tell(world: World) -> None:
    """Launched, used, stopped while a job runs, started, used, stopped, and taken down. Told again after a
    death, each request under its key is the same one."""
    user = User(world)
    await world.provider()
    task = wire.TaskConfig(run="true")
    launch = await user.launch(key="launch")
    await world.settle(user.is_over(launch))
    for turn, name in enumerate(("stop", "start", "stop", "down")):
        if name == "stop" and turn == 0:
            job = await user.ask("exec", "exec", task=task, cluster_name="dev")
            await world.settle(user.is_over(job))
        request = await user.ask(name, f"{name} {turn}", cluster_name="dev")
        await world.settle(user.is_over(request))
    await world.settle(lambda: set(world.states(computes)) == {"deleted"})


def check_end(world: World) -> None:
    world.check_books()
    assert world.states(requests) == ["SUCCEEDED"] * 6
    assert world.states(clusters) == ["DOWN"]
    first, second = world.states(cluster_jobs)
    assert {first, second} <= {"SUCCEEDED", "CANCELLED"}
    assert len(world.cloud.purchases) == 4, "two machines twice"
    assert len(world.cloud.disks.made) == 2, "and the disks of the first two were those of the others"
    assert nothing_is_left(world)


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_stopped_and_started_with_the_same_disks(tmp_path: Path, hints: bool) -> None:
    world = World(tmp_path, hints=hints)
    await tell(world)
    check_end(world)
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
        try:
            await tell(world)
        except faults.Died:
            world.die()
        finally:
            faults.disarm()
        try:
            await tell(world)
            check_end(world)
        except AssertionError as error:
            error.add_note(f"the daemon had died at point {number}: {names[number - 1]}")
            raise
        world.close()


@pytest.mark.parametrize(
    "point",
    [
        "fake.remove_disk.before",
        "fake.remove_disk.after",
        "disk removed, not written down",
        "machine given back, not written down",
        "machine bought, not written down",
    ],
)
async def test_dying_at_each_effect_on_a_disk(tmp_path: Path, point: str) -> None:
    (tmp_path / "straight").mkdir()
    world = World(tmp_path / "straight")
    faults.record()
    await tell(world)
    places = [number for number, name in enumerate(faults.disarm(), 1) if name == point]
    world.close()
    assert places
    world = World(tmp_path)
    faults.arm(places[-1])
    with pytest.raises(faults.Died):
        await tell(world)
    faults.disarm()
    world.die()
    await tell(world)
    check_end(world)
    world.close()


# ── stop ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_stop_cancels_what_runs_and_keeps_what_has_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    user.seconds = 600.0
    for _ in range(2):
        await user.ask("exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
    await world.settle(user.jobs_are("SUCCEEDED", "RUNNING", "RUNNING"))
    await do(user, "stop")
    assert state_of(world) == "STOPPED"
    assert world.cloud.alive() == ()
    assert user.jobs() == ["SUCCEEDED", "CANCELLED", "CANCELLED"]
    errors = [job["error"] for job in world.rows(cluster_jobs)]
    assert "stopped" in errors[1]["message"]
    await do(user, "stop")
    error = await fails(user, "exec", task=wire.TaskConfig(run="true"))
    assert error["type"] == "ClusterNotUpError"
    assert "sky start dev" in error["message"]
    world.check_books()
    world.close()


@pytest.mark.parametrize("way", ["cancel", "stop", "down"])
async def test_every_open_job_ends_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(job_rows, "OPEN_JOBS_PAGE", 2)
    world = World(tmp_path)
    user = await up(world)
    user.seconds = 600.0
    for _ in range(5):
        await user.ask("exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
    await world.settle(lambda: len(user.jobs()) == 6 and "RUNNING" in user.jobs())
    await do(user, way, **({"all": True} if way == "cancel" else {}))
    await world.settle(user.jobs_are("SUCCEEDED", *["CANCELLED"] * 5))
    world.close()


async def test_what_would_lose_its_disks_is_refused_before_anything_happens(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    keeping = dict(world.rules.kinds)
    kind = keeping["fake"]
    msgspec.structs.force_setattr(kind.abilities, "keeps_disks", False)
    before = [(row["state"], row["version"]) for row in world.rows(nodes)]
    for name, more in (("stop", {}), ("autostop", {"idle_minutes": 5})):
        error = await fails(user, name, **more)
        assert error["type"] == "NotSupportedError"
        assert "'fake'" in error["message"]
        assert "down" in error["message"], "and says the way out"
    assert [(row["state"], row["version"]) for row in world.rows(nodes)] == before
    assert state_of(world) == "UP"
    await do(user, "autostop", idle_minutes=5, down=True)
    await do(user, "down")
    world.close()


async def test_a_graceful_stop_waits_for_what_runs_up_to_its_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    user.seconds = 40.0
    await user.ask("exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
    await world.settle(user.jobs_are("SUCCEEDED", "RUNNING"))
    await do(user, "stop", graceful=True)
    assert user.jobs() == ["SUCCEEDED", "SUCCEEDED"]
    await do(user, "start")
    user.seconds = 600.0
    await user.ask("exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
    await world.settle(user.jobs_are("SUCCEEDED", "SUCCEEDED", "RUNNING"))
    began_s = world.clock.monotonic_s()
    await do(user, "down", graceful=True, graceful_timeout=60)
    assert 60.0 <= world.clock.monotonic_s() - began_s < 120.0
    assert user.jobs() == ["SUCCEEDED", "SUCCEEDED", "CANCELLED"]
    assert nothing_is_left(world)
    world.close()


async def test_a_provider_that_takes_nothing_back_is_told_and_a_purge_waits_for_nobody(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    user = await up(world)
    world.cloud.fail_terminate(300.0)
    error = await fails(user, "stop")
    assert error["type"] == "CloudError"
    assert "could not be given back" in error["message"]
    assert "--purge" in error["message"]
    down = await user.ask("down", cluster_name="dev", purge=True)
    await world.settle(user.is_over(down), seconds=5.0)
    assert user.request(down)["state"] == "SUCCEEDED"
    told = [row.text for row in world.query("SELECT text FROM request_lines WHERE request_id = :r", r=down)]
    assert any("may still be there" in text for text in told), told
    assert state_of(world) == "DOWN"
    await world.settle(lambda: nothing_is_left(world), seconds=900.0)
    world.close()


# ── start ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_launch_starts_a_cluster_that_is_stopped(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    await do(user, "stop")
    launch = await user.launch(task={"setup": "true"})
    await world.settle(user.is_over(launch))
    assert user.request(launch)["result"]["job_id"] == 2
    await world.settle(user.jobs_are("SUCCEEDED", "SUCCEEDED"))
    assert len(world.cloud.disks.made) == 2
    world.close()


async def test_what_comes_while_it_stops_starts_it_again_or_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world, idle_minutes_to_autostop=1)
    world.cloud.pace.end_s = 30.0
    await world.settle(is_in(world, "STOPPING"), seconds=200.0)
    error = await fails(user, "exec", task=wire.TaskConfig(run="true"))
    assert error["type"] == "ClusterNotUpError"
    launch = await user.launch()
    assert user.request(launch)["state"] == "WAITING"
    await world.settle(user.is_over(launch))
    assert user.request(launch)["state"] == "SUCCEEDED"
    await world.settle(user.jobs_are("SUCCEEDED", "SUCCEEDED"))
    world.close()


@pytest.mark.parametrize("retry", [False, True])
async def test_a_start_that_finds_no_machine_stops_again_or_waits(tmp_path: Path, retry: bool) -> None:
    world = World(tmp_path)
    user = await up(world)
    await do(user, "stop")
    world.cloud.always("launch", Refuse("no capacity", "capacity"))
    start = await user.ask("start", cluster_name="dev", retry_until_up=retry)
    if retry:
        await world.live(60.0)
        assert user.request(start)["finished_us"] is None
        world.cloud.always("launch", None)
        await world.settle(user.is_over(start))
        assert state_of(world) == "UP"
    else:
        await world.settle(user.is_over(start), seconds=60.0)
        assert user.request(start)["error"]["type"] == "ResourcesUnavailableError"
        assert "no capacity" in user.request(start)["error"]["message"]
        await world.settle(is_in(world, "STOPPED"), seconds=60.0)
        world.cloud.always("launch", None)
        await do(user, "start")
    assert len(world.cloud.disks.made) == 2, "what is on its disks was never lost"
    world.close()


async def test_a_launch_that_finds_no_machine_fails_although_there_may_be_one_later(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cloud.offers = (fake_offer("fake-1"), fake_offer("fake-2"))
    user = User(world)
    await world.provider()
    world.cloud.always("launch", Refuse("no capacity", "capacity"))
    launch = await user.launch(nodes=1)
    await world.settle(user.is_over(launch), seconds=60.0)
    assert user.request(launch)["error"]["type"] == "ResourcesUnavailableError"
    assert {tag for name, tag in world.cloud.calls if name == "launch"} == {world.rows(nodes)[0]["id"]}
    assert len([name for name, _ in world.cloud.calls if name == "launch"]) == 2, "each offer was tried once"
    await world.settle(lambda: nothing_is_left(world), seconds=60.0)
    world.close()


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("name", ["start", "stop", "launch"])
async def test_cancelled_at_any_moment_it_is_up_or_stopped_and_nothing_between(
    tmp_path: Path, name: str, after_s: float
) -> None:
    world = World(tmp_path)
    user = await up(world)
    world.cloud.pace.boot_s = world.cloud.pace.end_s = 1.0
    if name != "stop":
        await do(user, "stop")
    body = {"task": wire.TaskConfig(run="true")} if name == "launch" else {}
    request = await user.ask(name, cluster_name="dev", **body)
    await world.live(after_s, step_s=0.5)
    await user.cancel(request)
    await world.live(60.0)
    world.check_books()
    state = state_of(world)
    assert state in ("UP", "STOPPED")
    assert len(world.cloud.alive()) == (2 if state == "UP" else 0)
    assert [row for row in world.rows(nodes) if row["state"] not in FINAL and state == "STOPPED"] == []
    await do(user, "start")
    assert len(world.cloud.disks.made) == 2
    world.close()


async def test_a_lost_machine_comes_back_with_its_disk(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    await world.cloud.preempt(world.live_agents()[1].node_id)
    await world.settle(lambda: len(world.cloud.purchases) == 3, seconds=120.0)
    await world.settle(is_in(world, "UP"))
    assert len(world.cloud.alive()) == 2
    assert len(world.cloud.disks.made) == 2
    await do(user, "down")
    assert nothing_is_left(world)
    world.close()


async def test_a_second_provider_is_not_asked_for_a_disk_that_is_at_the_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cloud.offers = (fake_offer("fake-1", on_demand_micro=2_000_000),)
    user = await up(world)
    await do(user, "stop")
    cheaper = fake_offer("fake-0", on_demand_micro=1_000)
    world.cloud.offers = (*world.cloud.offers, cheaper)
    await world.live(120.0)
    await do(user, "start")
    assert {purchase.offer.instance_type for purchase in world.cloud.purchases} == {"fake-1"}
    world.close()


# ── autostop ────────────────────────────────────────────────────────────────────────────────────


async def test_idle_time_counts_from_the_last_use_and_outlives_a_daemon(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world, idle_minutes_to_autostop=2)
    user.seconds = 5 * MINUTE_S
    await user.ask("exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
    await world.settle(user.jobs_are("SUCCEEDED", "SUCCEEDED"), seconds=900.0, step_s=2.0)
    await world.live(90.0, step_s=5.0)
    assert state_of(world) == "UP", "it was in use until its job ended"
    world.die()
    await world.live(20.0, step_s=5.0)
    assert state_of(world) == "UP"
    await world.settle(is_in(world, "STOPPED"), seconds=60.0)
    await do(user, "start")
    await world.live(100.0, step_s=5.0)
    assert state_of(world) == "UP", "a start begins the idle time anew"
    await do(user, "autostop", idle_minutes=-1)
    await world.live(600.0, step_s=10.0)
    assert state_of(world) == "UP"
    world.close()


@pytest.mark.parametrize(("wait", "stops"), [("none", True), ("jobs", False), ("jobs_and_ssh", False)])
async def test_what_counts_as_use(tmp_path: Path, wait: str, stops: bool) -> None:
    world = World(tmp_path)
    user = await up(world)
    world.answer = keep_running
    await user.ask("exec", task=wire.TaskConfig(run="true"), cluster_name="dev")
    await do(user, "autostop", idle_minutes=1, wait_for=wait)
    await world.live(180.0, step_s=2.0)
    assert state_of(world) == ("STOPPED" if stops else "UP")
    assert user.jobs() == ["SUCCEEDED", "CANCELLED" if stops else "RUNNING"]
    world.close()


@pytest.mark.parametrize(("wait", "stops"), [("jobs", True), ("jobs_and_ssh", False)])
async def test_an_open_shell_is_use_unless_only_jobs_are(tmp_path: Path, wait: str, stops: bool) -> None:
    world = World(tmp_path)
    user = await up(world)
    await do(user, "autostop", idle_minutes=1, wait_for=wait)
    compute = world.rows(clusters)[0]["compute_id"]
    for _ in range(9):
        await world.db.write(lambda tx: cluster_power.in_session(tx, compute, more=True))
        await world.live(20.0, step_s=2.0)
    assert state_of(world) == ("STOPPED" if stops else "UP")
    await world.db.write(lambda tx: cluster_power.in_session(tx, compute, more=False))
    await world.settle(is_in(world, "STOPPED"), seconds=120.0)
    world.close()


# ── size and order ──────────────────────────────────────────────────────────────────────────────


async def test_a_launch_changes_the_size_where_that_is_asked_for(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    refused = await user.launch(nodes=3)
    await world.settle(user.is_over(refused))
    assert user.request(refused)["error"]["type"] == "ResourcesMismatchError"
    wide = await user.launch(nodes=3, resize=True)
    await world.settle(user.is_over(wide))
    await world.settle(user.jobs_are("SUCCEEDED", "SUCCEEDED"))
    assert (state_of(world), len(world.cloud.alive())) == ("UP", 3)
    narrow = await user.launch(nodes=1, resize=True)
    await world.settle(user.is_over(narrow))
    await world.settle(lambda: len(world.cloud.alive()) == 1 and len(world.cloud.disks.names("test")) == 1)
    await do(user, "stop")
    await do(user, "start")
    assert len(world.cloud.alive()) == 1
    await do(user, "down")
    assert nothing_is_left(world)
    world.close()


async def test_a_cluster_does_not_shrink_by_itself_where_its_compute_was_allowed_to(tmp_path: Path) -> None:
    world = World(tmp_path)
    await up(world)
    [compute], may = world.rows(computes), v1.ComputeSpecPatch(nodes=v1.NodeBounds(desired=1, min=1, max=2))
    with pytest.raises(ComputeNotResizable, match="a launch with resize"):
        await world.db.write(lambda tx: compute_verbs.change(tx, compute["id"], may, None, world.rules))
    spec = {**compute["spec"], "nodes": {"desired": 1, "min": 1, "max": 2}}  # as an earlier release let it
    await world.db.write(lambda tx: tx.apply(ComputeResized(compute["id"], spec)))
    await world.live(200.0, step_s=5.0)
    assert (state_of(world), len(world.cloud.alive())) == ("UP", 2)
    world.close()


@pytest.mark.parametrize("spec", ["{}", pytest.param("{nonsense", marks=IN_A_FILE)])
async def test_a_cluster_whose_definition_cannot_be_read_is_taken_down(tmp_path: Path, spec: str) -> None:
    world = World(tmp_path)
    user = await up(world)
    await world.db.write(lambda tx: tx.connection.execute(sa.text(f"UPDATE computes SET spec = '{spec}'")))
    await do(user, "down")
    await world.settle(lambda: nothing_is_left(world) and state_of(world) == "DOWN")
    world.close()


async def test_a_machine_whose_disk_is_not_wanted_is_ended_with_it_and_need_not_be_stopped(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    user = await up(world)
    world.cloud.unstoppable = True
    await user.launch(nodes=1, resize=True)
    await world.settle(lambda: len(world.cloud.alive()) == 1 and len(world.cloud.disks.names("test")) == 1)
    await world.settle(lambda: len(world.rows(disk_rows)) == 1)
    await do(user, "down")
    assert nothing_is_left(world)
    world.close()


async def test_a_rank_that_is_wanted_again_waits_until_its_old_disk_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    wide: list[str] = []
    had: list[int] = []

    async def meanwhile(_: str) -> None:
        """The provider takes its time to remove the disk, and its rank is wanted again."""
        world.cloud.disks.on_remove = None
        wide.append(await user.launch(nodes=2, resize=True))
        owned = (("clusters", clusters), ("computes", computes), ("nodes", nodes))
        for _ in range(5):  # every other loop goes on
            await world.runner.look(f"requests/{wide[0]}")
            for loop, table in owned:
                for row in world.rows(table):
                    await world.runner.look(f"{loop}/{row['id']}")
        had.append(len(world.cloud.alive()))

    world.cloud.disks.on_remove = meanwhile
    await user.launch(nodes=1, resize=True)
    await world.settle(lambda: bool(had) and user.is_over(*wide)())
    assert had == [1], "its disk might have been taken from under a machine"
    await world.settle(lambda: len(world.cloud.alive()) == 2 and len(world.cloud.disks.names("test")) == 2)
    assert len(world.cloud.disks.made) == 3
    await do(user, "down")
    assert nothing_is_left(world)
    world.close()


async def test_a_rank_that_waits_for_a_disk_that_does_not_go_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    world.cloud.always("remove_disk", TryLater("not now"))
    await world.settle(user.is_over(await user.launch(nodes=1, resize=True)))
    await world.settle(lambda: len(world.cloud.alive()) == 1)
    wide = await user.launch(nodes=2, resize=True)
    await world.live(60.0)
    [compute] = world.rows(computes)
    assert "could not be removed and may still cost: not now" in compute["last_error"]["message"]
    world.cloud.always("remove_disk", None)
    await world.settle(user.is_over(wide))
    await world.settle(lambda: len(world.cloud.alive()) == 2 and world.rows(computes)[0]["state"] == "ready")
    world.close()


async def test_what_jobs_need_is_not_taken_away_by_a_change_of_size(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    world.answer = keep_running
    await user.ask("exec", task=wire.TaskConfig(run="true", num_nodes=2), cluster_name="dev")
    await world.settle(user.jobs_are("SUCCEEDED", "RUNNING"))
    narrow = await user.launch(nodes=1, resize=True)
    await world.settle(user.is_over(narrow))
    assert user.request(narrow)["error"]["type"] == "ResourcesMismatchError"
    assert "2" in user.request(narrow)["error"]["message"]
    assert world.rows(clusters)[0]["num_nodes"] == 2
    world.close()


async def test_a_disk_that_nothing_owns_is_found_and_removed(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = await up(world)
    world.cloud.disks.give("test", "cmp_of_long_ago-0")
    await world.settle(lambda: len(world.cloud.disks.names("test")) == 2, seconds=200.0)
    assert "cmp_of_long_ago-0" not in world.cloud.disks.names("test")
    await do(user, "down")
    world.close()
