"""A launch that is cancelled, or whose cluster is taken down, right after any of its writes: it has one end,
and nothing of it is left but what was there for others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.flows.places import every
from tests.flows.test_requests import User
from tests.flows.world import World

from sky.domain import request as r
from sky.providers.fake.trouble import Refuse
from sky.store.schema_requests import cluster_jobs, clusters
from sky.store.tx import Tx

T = TypeVar("T")

STRIDE = every(14)
DONE_JOBS = {"SUCCEEDED", "CANCELLED", "FAILED_SETUP", "FAILED"}


class Moment:
    """Counts the writes of a world once it has begun, and asks for an end right behind one of them."""

    def __init__(self, world: World, number: int | None) -> None:
        self.writes = 0
        self.begun = False
        self.asked = False
        self.ask: Callable[[], Awaitable[object]]
        self._write = world.db.write
        self._number = number
        vars(world.db)["write"] = self._counted

    async def _counted(self, verb: Callable[[Tx], T], **how: Any) -> T:
        result = await self._write(verb, **how)
        if self.begun and not self.asked:
            self.writes += 1
            if self.writes == self._number:
                self.asked = True
                await self.ask()
        return result


async def tell(world: World, how: str, number: int | None) -> tuple[User, str, Moment]:
    """A launch with a setup and a script, which is ended behind one of its writes; None: it is not."""
    user, moment = User(world), Moment(world, number)
    await world.provider()
    launch = await user.launch(task={"setup": "true"})

    async def end() -> None:
        if how == "cancel":
            await user.cancel(launch)
        else:
            await user.ask("down", "down", cluster_name="dev")

    moment.ask, moment.begun = end, True
    await world.settle(user.is_over(launch))
    await world.settle(lambda: set(world.states(cluster_jobs)) <= DONE_JOBS)
    return user, launch, moment


async def writes_of_a_launch(folder: Path) -> int:
    folder.mkdir()
    world = World(folder)
    user, launch, moment = await tell(world, "cancel", None)
    assert user.request(launch)["state"] == r.SUCCEEDED
    world.close()
    return moment.writes


@pytest.mark.parametrize("how", ["cancel", "down"])
@pytest.mark.parametrize("part", range(2))
async def test_whenever_a_launch_is_ended_nothing_is_left(tmp_path: Path, how: str, part: int) -> None:
    writes = await writes_of_a_launch(tmp_path / "straight")
    ends: set[str] = set()
    for number in range(1 + part * STRIDE // 2, writes + 1, STRIDE):
        folder = tmp_path / str(number)
        folder.mkdir()
        world = World(folder)
        user, launch, moment = await tell(world, how, number)
        try:
            assert moment.asked
            await check(world, user, launch, how)
        except AssertionError as error:
            error.add_note(f"{how} behind write {number} of {writes}")
            raise
        ends.add(user.request(launch)["state"])
        world.close()
    assert ends >= ({r.CANCELLED} if how == "cancel" else {r.FAILED}), "some were ended before they were done"


async def check(world: World, user: User, launch: str, how: str) -> None:
    row = user.request(launch)
    if how == "cancel":
        assert row["state"] in (r.CANCELLED, r.SUCCEEDED)
        for cluster in world.rows(clusters):
            assert cluster["up_us"] is not None or cluster["state"] == "DOWN", "what never was up goes"
        if row["state"] == r.CANCELLED:
            assert world.states(cluster_jobs) in ([], ["CANCELLED"])
        await user.ask("down", "down", cluster_name="dev")
    elif row["state"] == r.FAILED:
        assert row["error"]["type"] == "ClusterDoesNotExist"
    await world.settle(lambda: world.cloud.alive() == ())
    await world.live(30.0)
    world.check_books()
    assert world.cloud.alive() == ()
    assert world.states(clusters) in (["DOWN"], [])
    assert user.request(launch)["state"] == row["state"], "an end is final"


async def test_a_start_that_found_no_machine_and_was_cancelled_leaves_no_word_of_that(tmp_path: Path) -> None:
    world = World(tmp_path)
    user = User(world)
    await world.provider()
    launch = await user.launch()
    await world.settle(user.is_over(launch))
    stop = await user.ask("stop", cluster_name="dev")
    await world.settle(user.is_over(stop))
    world.cloud.always("launch", Refuse("no machine is left here", "capacity"))
    start = await user.ask("start", cluster_name="dev", retry_until_up=True)
    await world.live(20.0)
    [tried] = user.request(await user.ask("status"))["result"]
    assert (tried["status"], "no machine is left" in tried["status_message"]) == ("INIT", True)
    await user.cancel(start)
    await world.live(30.0)
    [there] = user.request(await user.ask("status"))["result"]
    assert (there["status"], there["status_message"]) == ("STOPPED", None)
    world.close()
