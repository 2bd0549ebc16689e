"""The network between daemons and the simulated cloud.

Decides: how long a call is on its way, and whether its request or its answer is lost. Never: what the cloud
does with it. Follows: a request that was sent is carried out although its sender has died meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.daemon import HERE

from sky.providers.base import Kind, Setup
from sky.providers.fake.provider import FakeProvider
from sky.providers.fake.trouble import Method

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")
WRITES: frozenset[Method] = frozenset({"launch", "terminate", "remove_disk"})


class SimProvider(FakeProvider):
    """The simulated provider, at the other end of a network."""

    def __init__(self, setup: Setup, world: World) -> None:
        super().__init__(setup, world.cloud)
        self._world = world

    async def _call(self, method: Method, tag: str | None, act: Callable[[], Awaitable[T]]) -> T:
        world = self._world
        here = HERE.get()
        key = (method, tag or "")
        if method in WRITES:
            world.calls(here, key)
        try:
            return await self._sent(method, tag, act)
        finally:
            if method in WRITES:
                world.called(key)

    async def _sent(self, method: Method, tag: str | None, act: Callable[[], Awaitable[T]]) -> T:
        world = self._world
        there_s, back_s = world.call_s(), world.call_s()
        if not there_s and not back_s:
            return await super()._call(method, tag, act)
        work = world.loop.create_task(self._arrives(there_s, method, tag, act), context=world.nowhere)
        answer = await asyncio.shield(work)
        await asyncio.sleep(back_s)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _arrives(
        self, after_s: float, method: Method, tag: str | None, act: Callable[[], Awaitable[T]]
    ) -> T | Exception:
        await asyncio.sleep(after_s)
        try:
            return await super()._call(method, tag, act)
        except Exception as error:  # it goes back to whoever called
            return error


def kind_of(world: World) -> Kind:
    """The kind of the simulated cloud as the daemons of ``world`` reach it."""
    return Kind.of(SimProvider, lambda setup: SimProvider(setup, world))
