"""What a new machine installs before it can call home: the agent's package, and uv where it has none.

Decides: nothing; ``kit/agent_package`` makes the package. Never: serves anybody but a node with its token.
Follows: a machine needs a shell and a way to fetch one address, and nothing of ours beforehand.
"""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import get
from litestar.connection import Request
from litestar.params import FromPath
from litestar.response.base import ASGIResponse

from sky.api.agent.door import agent_of
from sky.api.operation import BYTES
from sky.api.stream import Whole
from sky.domain.errors import NotFound
from sky.kit import agent_package


@get("/agent/v1/package/{name:str}", include_in_schema=False)
async def read_package(request: Request[Any, Any, Any], name: FromPath[str]) -> ASGIResponse:
    """The agent's package."""
    await agent_of(request)
    if name != agent_package.FILE_NAME:
        msg = f"there is no package {name[:80]!r}; this daemon's is {agent_package.FILE_NAME}"
        raise NotFound(msg)
    return Whole(await asyncio.to_thread(agent_package.wheel), media=BYTES)


@get("/agent/v1/uv/{machine:str}", include_in_schema=False)
async def read_installer(request: Request[Any, Any, Any], machine: FromPath[str]) -> ASGIResponse:
    """This computer's uv, for a machine of the same kind."""
    await agent_of(request)
    found = agent_package.installer(machine)
    if found is None:
        msg = f"there is no uv for {machine[:80]!r} here; put uv or Python 3.11 or newer on the machine"
        raise NotFound(msg)
    return Whole(await asyncio.to_thread(found.read_bytes), media=BYTES)


ROUTES = (read_package, read_installer)
