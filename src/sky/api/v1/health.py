"""Is it there, can it serve, and what does it stand on.

Decides: how long a check may take. Never: repairs anything.
Follows: a check that does not answer in time counts as failed, and the answer comes anyway.
"""

from __future__ import annotations

import asyncio

from litestar.response.base import ASGIResponse

from sky.api.auth import liveness
from sky.api.operation import Ask, operation, reply
from sky.api.unit import Check
from sky.wire import v1

TAG = "Health"
CHECK_S = 2.0


@operation("GET", "/v1/health/live", tag=TAG, answers=v1.Liveness)
async def get_liveness(ask: Ask) -> ASGIResponse:
    """Whether the process answers."""
    return reply(liveness(ask.unit.settings))


@operation("GET", "/v1/health/ready", tag=TAG, answers=v1.Readiness)
async def get_readiness(ask: Ask) -> ASGIResponse:
    """Whether it can serve: its database answers, and its loops run."""
    found = await asyncio.gather(*map(_holds, ask.unit.ready.values()))
    return reply(v1.Readiness(ready=all(found)))


@operation("GET", "/v1/health/dependencies", tag=TAG, answers=dict[str, v1.DependencyState])
async def get_dependencies(ask: Ask) -> ASGIResponse:
    """What it stands on, and whether each of those can be reached."""
    names = list(ask.unit.dependencies)
    found = await asyncio.gather(*map(_holds, ask.unit.dependencies.values()))
    states = {name: "ok" if fine else "unreachable" for name, fine in zip(names, found, strict=True)}
    return reply(states)


async def _holds(check: Check) -> bool:
    try:
        async with asyncio.timeout(CHECK_S):
            return await check()
    except TimeoutError:
        return False


ROUTES = (get_liveness, get_readiness, get_dependencies)
