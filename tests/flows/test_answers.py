"""What would be bought, asked of a cloud whose offers are not there yet, or that does not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.flows.test_requests import User
from tests.flows.world import World

from sky.providers.fake.cloud import TryLater, fake_offer
from sky.store.schema import computes
from sky.store.schema_requests import requests
from sky.wire import requests as wire

GPUS = (
    fake_offer("plain", on_demand_micro=100_000),
    fake_offer("one", accelerator="L4", accelerator_count=1, on_demand_micro=800_000, spot_micro=200_000),
    fake_offer("two", accelerator="L4", accelerator_count=2, on_demand_micro=1_500_000, region="east"),
)


def task(*machines: wire.Machine, **more: Any) -> wire.TaskConfig:
    return wire.TaskConfig(run="true", machines=machines or (wire.Machine(infra="fake"),), **more)


async def told(world: World, request_id: str) -> Any:
    user = User(world)
    await world.settle(user.is_over(request_id), seconds=60)
    return world.row(requests, request_id)


@pytest.mark.parametrize("hints", [True, False], ids=["woken", "every wake lost"])
async def test_a_question_waits_for_offers_and_tells_prices_of_all_nodes(tmp_path: Path, hints: bool) -> None:
    world = World(tmp_path, hints=hints)
    world.cloud.offers = GPUS
    user = User(world)
    await world.provider()
    gpu = wire.Machine(infra="fake", accelerator="l4")
    cheap = await user.ask("optimize", tasks=(task(gpu, num_nodes=4), task()))
    row = await told(world, cheap)
    first, second = row["result"]
    assert first["chosen"]["instance_type"] == "one"
    assert (first["chosen"]["hourly_cost"], first["chosen"]["total_cost"]) == (0.8, 3.2)
    assert [c["instance_type"] for c in first["candidates"]] == ["one", "two"]
    assert [p["what"].split("/")[1].split(" ")[0] for p in first["passed_over"]] == ["plain"]
    assert second["chosen"]["instance_type"] == "plain"
    fast = await user.ask("optimize", tasks=(task(gpu),), minimize="TIME")
    assert (await told(world, fast))["result"][0]["chosen"]["instance_type"] == "two"
    spot = await user.ask("optimize", tasks=(task(msgspec.structs.replace(gpu, use_spot=True)),))
    [only] = (await told(world, spot))["result"]
    assert [(c["instance_type"], c["use_spot"], c["hourly_cost"]) for c in only["candidates"]] == [
        ("one", True, 0.2)
    ]
    anywhere = (wire.Machine(accelerator="L4", accelerator_count=2), wire.Machine(cpus=1))
    ordered = await user.ask("optimize", tasks=(task(*anywhere, ordered=True),))
    [by_preference] = (await told(world, ordered))["result"]
    assert [c["instance_type"] for c in by_preference["candidates"]] == ["two", "plain", "one"]
    assert world.cloud.purchases == []
    world.close()


async def test_a_cloud_that_does_not_answer_keeps_nobody_waiting_and_is_named(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cloud.always("offers", TryLater())
    user = User(world)
    await world.provider()
    began_s = world.clock.monotonic_s()
    asked = await user.ask("optimize", tasks=(task(),))
    short = await user.ask("status")
    assert user.request(short)["state"] == "SUCCEEDED"
    row = await told(world, asked)
    assert world.clock.monotonic_s() - began_s <= 15
    assert (row["state"], row["error"]["type"]) == ("FAILED", "ResourcesUnavailableError")
    assert "fake: " in row["error"]["message"]
    checked = await told(world, await user.ask("check", infra_list=("fake",)))
    [record] = checked["result"]
    assert (record["enabled"], record["name"]) == (False, "fake")
    assert record["reason"]
    assert "sky check fake" in record["hint"]
    world.cloud.always("offers", None)
    await world.step(1.0)
    checked = await told(world, await user.ask("check", infra_list=("fake",)))
    assert checked["result"][0]["enabled"]
    world.close()


async def test_a_launch_buys_what_it_told_and_another_for_which_nothing_will_do_buys_nothing(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.cloud.offers = GPUS
    user = User(world)
    await world.provider()
    strong = await user.ask(
        "launch",
        task=task(wire.Machine(infra="fake", accelerator="L4")),
        cluster_name="strong",
        optimize_target="TIME",
    )
    exact = await user.ask(
        "launch", task=task(wire.Machine(infra="fake", instance_type="one")), cluster_name="exact"
    )
    never = await user.ask(
        "launch",
        task=task(wire.Machine(infra="fake", accelerator="L4", accelerator_count=8)),
        cluster_name="never",
        retry_until_up=True,
    )
    await world.settle(user.is_over(strong, exact, never))
    assert [user.request(one)["state"] for one in (strong, exact, never)] == [
        "SUCCEEDED",
        "SUCCEEDED",
        "FAILED",
    ]
    assert sorted(order.offer.instance_type for order in world.cloud.purchases) == ["one", "two"]
    assert len(world.states(computes)) == 2
    world.close()
