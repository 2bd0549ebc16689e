"""The lease of an agent, which is as long as its compute's spec says, and how often it is heard within it."""

from __future__ import annotations

import pytest
from tests.flows.world import World

from sky.verbs import reports
from sky.wire import agent as wire


@pytest.mark.parametrize(("ttl", "pings_s"), [(600, 4.0), (10, 2.5), (1, 0.25), (0, 4.0)])
async def test_an_agent_is_heard_several_times_within_its_lease(
    world: World, ttl: int, pings_s: float
) -> None:
    await world.begin(ttl=ttl)
    await world.settle(world.compute_is("ready"))
    (one,) = world.live_agents()
    said = wire.Hello(
        protocol=wire.PROTOCOL,
        boot=one.boot,
        pid=1,
        python="3.11",
        release="0",
        slots=1,
        window=1,
        ready=True,
    )
    welcome = await world.db.write(lambda tx: reports.hello(tx, one.node_id, said))
    assert (welcome.lease_seconds, welcome.ping_seconds) == (ttl, pings_s)
