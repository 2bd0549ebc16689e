"""Things that come one by one from nodes, for ``for`` and for ``async for``.

Decides: that nothing is begun before the first one is asked for, and that one reader reads in one way.
Never: knows where they come from (``streaming``, ``together``).
Follows: leaving early, by ``break``, ``close`` or ``aclose``, ends what makes them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any, TypeVar

from sky.client.aside import warn_if_blocking
from sky.client.outermost import outermost_class

T = TypeVar("T")


@outermost_class
class Items(Iterator[T], AsyncIterator[T]):
    """An iterator for ``for`` and, without blocking an event loop, for ``async for``.

    ``close`` (or ``await aclose()``) ends it early; so does dropping it.
    """

    def __init__(
        self, waiting: Callable[[], Generator[T, None, None]], awaiting: Callable[[], AsyncGenerator[T]]
    ) -> None:
        self._waiting = waiting
        self._awaiting = awaiting
        self._sync: Generator[T, None, None] | None = None
        self._async: AsyncGenerator[T] | None = None
        self._closed = False

    def __iter__(self) -> Items[T]:
        return self

    def __next__(self) -> T:
        if self._sync is None:
            if self._async is not None:
                raise RuntimeError("these items are read with `async for`: go on with `await anext(items)`")
            if self._closed:
                raise StopIteration
            warn_if_blocking("`for` over items from a node", "write `async for item in ...`")
            self._sync = self._waiting()
        return next(self._sync)

    def close(self) -> None:
        """Leave: what makes the items is ended. Nothing happens when it has."""
        if self._async is not None:
            raise RuntimeError("these items are read with `async for`: end them with `await items.aclose()`")
        self._closed = True
        if self._sync is not None:
            self._sync.close()

    def __aiter__(self) -> Items[T]:
        return self

    async def __anext__(self) -> T:
        if self._async is None:
            if self._sync is not None:
                raise RuntimeError("these items are read with `for`: go on with `next(items)`")
            if self._closed:
                raise StopAsyncIteration
            self._async = self._awaiting()
        return await anext(self._async)

    async def aclose(self) -> None:
        """Leave, as ``close`` does, without blocking the event loop."""
        self._closed = True
        if self._sync is not None:
            raise RuntimeError("these items are read with `for`: end them with `items.close()`")
        if self._async is not None:
            await self._async.aclose()

    def __repr__(self) -> str:
        begun: Any = self._sync or self._async
        return f"<sky.Items {'closed' if self._closed else 'begun' if begun else 'not begun'}>"
